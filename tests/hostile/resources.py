"""Programs that take more than their share. The suite's sandboxes are small, so that filling them is quick."""

from __future__ import annotations

from tests.hostile.attempt import Attempt

MB = 1000**2
LIMITS = {"memory": 200 * MB, "disk": 100 * MB, "processes": 40, "output": 5 * MB}

FILL_SOCKETS = """
def fill():
    ends, total = [], 0
    try:
        while True:
            for end in socket.socketpair():
                ends.append(end)
                end.setblocking(False)
                try:
                    while True:
                        total += end.send(bytes(60_000))
                except BlockingIOError:
                    pass
    except OSError:
        return ends, total
"""
_TAKE = """
def take(size):
    "Memory that is really used, not only asked for."
    import mmap
    block = mmap.mmap(-1, size, flags=FLAGS)
    for offset in range(0, size, 4096):
        block[offset] = 1
    return block
"""

RESOURCES = [
    Attempt(
        "fork_bomb",
        "starts processes without end",
        """
        def attempt():
            children = []
            try:
                for _ in range(100):
                    child = os.fork()
                    if child == 0:
                        time.sleep(30)
                        os._exit(0)
                    children.append(child)
            except OSError:
                pass
            for child in children:
                os.kill(child, 9)
                os.waitpid(child, 0)
            return len(children) == 100
        """,
    ),
    Attempt(
        "real_fork_bomb",
        "the real thing: every process starts processes",
        """
        def attempt():
            while True:
                try:
                    os.fork()
                except OSError:
                    pass
        """,
        outside="""
        def attempt():
            begun = time.monotonic()
            while time.monotonic() < begun + 2.5:
                if os.fork() == 0:
                    os._exit(0)
                os.wait()
            return True
        """,
        ends="sandbox.timeout or sandbox.cpu",
        timeout=2.0,
    ),
    Attempt(
        "threads",
        "starts threads without end",
        """
        def attempt():
            stop = threading.Event()
            threads = 0
            try:
                for _ in range(100):
                    threading.Thread(target=stop.wait, daemon=True).start()
                    threads += 1
            except RuntimeError:
                pass
            stop.set()
            return threads == 100
        """,
    ),
    Attempt(
        "memory_of_one",
        "takes memory in one process",
        """
        def attempt():
            return len(bytearray(b"x") * (300 * 1000**2)) > 0
        """,
    ),
    Attempt(
        "memory_of_many",
        "takes memory in many processes, each below the limit",
        f"""
        import mmap
        FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        {_TAKE.strip().replace(chr(10), chr(10) + "        ")}
        def attempt():
            ends = []
            for _ in range(6):
                mine, theirs = os.pipe()
                if os.fork() == 0:
                    block = take(60 * 1000**2)
                    os.write(theirs, b"1")
                    time.sleep(30)
                os.close(theirs)
                ends.append(mine)
            return all(os.read(end, 1) == b"1" for end in ends)
        """,
        ends="sandbox.memory",
    ),
    Attempt(
        "memory_in_sockets",
        "leaves memory in sockets, where it belongs to no process",
        f"""
        import resource
        {FILL_SOCKETS.strip().replace(chr(10), chr(10) + "        ")}
        def attempt():
            results = []
            for _ in range(8):
                mine, theirs = os.pipe()
                if os.fork() == 0:
                    os.close(mine)
                    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
                    ends, total = fill()
                    os.write(theirs, str(total).encode())
                    time.sleep(30)
                os.close(theirs)
                results.append(mine)
            return sum(int(os.read(end, 20) or 0) for end in results) > 300 * 1000**2
        """,
        ends="sandbox.memory",
    ),
    Attempt(
        "shared_memory",
        "takes memory that is shared, and so is nobody's",
        f"""
        import mmap
        FLAGS = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS
        {_TAKE.strip().replace(chr(10), chr(10) + "        ")}
        def attempt():
            return len(take(300 * 1000**2)) > 0
        """,
        ends="sandbox.memory",
    ),
    Attempt(
        "temporary_files",
        "takes memory as files in /tmp",
        """
        def attempt():
            folder = "/tmp" if HERE == "workspace" else HERE
            with open(folder + "/large", "wb") as file:
                for _ in range(300):
                    file.write(bytes(1000**2))
            return True
        """,
    ),
    Attempt(
        "shared_files",
        "takes memory as files in /dev/shm",
        """
        def attempt():
            with open("/dev/shm/toolfold-test", "wb") as file:
                os.unlink(file.name)
                for _ in range(300):
                    file.write(bytes(1000**2))
            return True
        """,
    ),
    Attempt(
        "system_v_memory",
        "takes memory that outlives its process",
        """
        def attempt():
            number = call("shmget", 0, 300 * 1000**2, 0o1600)
            call("shmctl", number, 0, None)
            return True
        """,
    ),
    Attempt(
        "memory_without_name",
        "takes memory as a file that no folder holds",
        """
        def attempt():
            number = os.memfd_create("large")
            for _ in range(300):
                os.write(number, bytes(1000**2))
            return True
        """,
        ends="sandbox.memory",
        extra={"refused_is_fine": True},
    ),
    Attempt(
        "fill_disk",
        "fills the disk with files, each below the limit",
        """
        def attempt():
            for number in range(8):
                with open(HERE + "/large%d" % number, "wb") as file:
                    for _ in range(30):
                        file.write(bytes(1000**2))
                os.sync()
            return True
        """,
        ends="sandbox.disk",
    ),
    Attempt(
        "fill_disk_without_name",
        "fills the disk with a file that it has deleted already",
        """
        def attempt():
            files = []
            for number in range(4):
                file = open(HERE + "/gone%d" % number, "wb")
                os.unlink(file.name)
                for _ in range(60):
                    file.write(bytes(1000**2))
                files.append(file)
            time.sleep(2)
            return True
        """,
        ends="sandbox.disk",
    ),
    Attempt(
        "reserve_disk",
        "takes disk space without writing it",
        """
        def attempt():
            for number in range(4):
                with open(HERE + "/reserved%d" % number, "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, 90 * 1000**2)
            time.sleep(1)
            return True
        """,
        ends="sandbox.disk",
    ),
    Attempt(
        "sparse_file",
        "makes a file that claims to be enormous",
        """
        def attempt():
            with open(HERE + "/enormous", "wb") as file:
                file.truncate(10**12)
            return os.path.getsize(HERE + "/enormous") == 10**12
        """,
    ),
    Attempt(
        "many_files",
        "makes more files than the disk has room to name",
        """
        def attempt():
            for number in range(30_000):
                os.close(os.open(HERE + "/f%d" % number, os.O_CREAT | os.O_WRONLY))
            time.sleep(2)
            return True
        """,
        ends="sandbox.disk",
    ),
    Attempt(
        "deep_folders",
        "nests folders so deep that no path reaches the end",
        """
        def attempt():
            here = os.open(HERE, os.O_RDONLY)
            for _ in range(3000):
                os.mkdir("d", dir_fd=here)
                inner = os.open("d", os.O_RDONLY, dir_fd=here)
                os.close(here)
                here = inner
            time.sleep(2)
            return True
        """,
        ends="sandbox.disk",
    ),
    Attempt(
        "hide_files",
        "fills the disk behind a folder that nobody may enter",
        """
        def attempt():
            os.mkdir(HERE + "/locked")
            for number in range(8):
                with open(HERE + "/locked/large%d" % number, "wb") as file:
                    for _ in range(30):
                        file.write(bytes(1000**2))
                if number == 3:
                    os.chmod(HERE + "/locked", 0o300)
            time.sleep(1)
            return True
        """,
        ends="sandbox.disk",
    ),
    Attempt(
        "print_flood",
        "prints without end",
        """
        def attempt():
            for _ in range(200):
                sys.stdout.write("x" * 1000**2)
            sys.stdout.flush()
            return True
        """,
        outside="""
        def attempt():
            with open("/dev/null", "w") as file:
                for _ in range(200):
                    file.write("x" * 1000**2)
            return True
        """,
        ends="sandbox.output",
    ),
    Attempt(
        "write_flood",
        "writes to its output without any of our code between",
        """
        def attempt():
            for _ in range(20):
                os.write(1, b"x" * 1000**2)
            return True
        """,
        outside="""
        def attempt():
            return os.write(os.open("/dev/null", os.O_WRONLY), b"x" * 1000**2) > 0
        """,
        ends="sandbox.output",
    ),
    Attempt(
        "endless_loop",
        "never ends",
        """
        def attempt():
            begun = time.monotonic()
            while time.monotonic() < begun + 3:
                pass
            return True
        """,
        ends="sandbox.timeout",
        timeout=1.0,
    ),
    Attempt(
        "ignore_signals",
        "ignores every signal that can be ignored, in threads as well, and never ends",
        """
        def attempt():
            for number in signal.valid_signals():
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    pass
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            begun = time.monotonic()
            while time.monotonic() < begun + 3:
                pass
            return True
        """,
        ends="sandbox.timeout",
        timeout=1.0,
    ),
    Attempt(
        "sleep_in_the_kernel",
        "waits for something that never comes",
        """
        def attempt():
            mine, theirs = os.pipe()
            signal.alarm(0)
            if HERE != "workspace":
                threading.Timer(3, lambda: os.write(theirs, b"1")).start()
            return os.read(mine, 1) == b"1"
        """,
        ends="sandbox.timeout",
        timeout=1.0,
    ),
    Attempt(
        "daemon",
        "leaves a process behind that outlives the program",
        """
        def attempt():
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.closerange(0, 3)
                    while True:
                        time.sleep(0.01)
                        with open(BAITS["heartbeat"] if HERE != "workspace" else "workspace/heartbeat", "a") as file:
                            file.write("x")
                os._exit(0)
            os.wait()
            time.sleep(0.3)
            return True
        """,
        extra={"heartbeat": True},
    ),
]
