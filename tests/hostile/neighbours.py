"""Programs that keep the host or other sessions waiting, watch them, or take what belongs to everybody."""

from __future__ import annotations

from tests.hostile.attempt import Attempt

_FOLDERS = """
def folders():
    "What every session sees: the runtime and the API tree; outside, the proof's own folder."
    return ["/usr", "/opt/api", "/opt/api/servers"] if HERE == "workspace" else [HERE]
"""

NEIGHBOURS = [
    Attempt(
        "write_lease",
        "takes a lease on a file, so that whoever opens it outside waits for 45 seconds",
        """
        import fcntl
        def attempt():
            with open(HERE + "/leased", "w") as file:
                fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
                return fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_WRLCK
        """,
    ),
    Attempt(
        "read_lease_on_shared_file",
        "takes a lease on a file of the API tree or the runtime, so that writing it waits",
        """
        import fcntl
        def attempt():
            path = os.__file__ if HERE == "workspace" else HERE + "/shared"
            if HERE != "workspace":
                open(path, "w").close()
            with open(path) as file:
                fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            return True
        """,
    ),
    Attempt(
        "notify_of_folder",
        "asks for a signal whenever another session opens a file of the API tree",
        f"""
        import fcntl
        {_FOLDERS.strip().replace(chr(10), chr(10) + "        ")}
        def attempt():
            signal.signal(signal.SIGIO, signal.SIG_IGN)
            for folder in folders():
                fcntl.fcntl(os.open(folder, os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_ACCESS | fcntl.DN_MULTISHOT)
            return True
        """,
        needs="no directory notification",
    ),
    Attempt(
        "watch_shared_files",
        "watches which files of the runtime and the API tree other sessions open",
        f"""
        {_FOLDERS.strip().replace(chr(10), chr(10) + "        ")}
        def attempt():
            watch = call("inotify_init1", 0)
            return all(call("inotify_add_watch", watch, folder.encode(), 0x20) > 0 for folder in folders())
        """,
    ),
    Attempt(
        "larger_pipe",
        "makes its pipes larger, out of what all programs of the user have together",
        """
        import fcntl
        def attempt():
            mine, theirs = os.pipe()
            return fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 1 << 20) == 1 << 20
        """,
    ),
    Attempt(
        "out_of_band",
        "sends out-of-band data over a pair of sockets, a corner of the kernel with a history",
        """
        def attempt():
            mine, theirs = socket.socketpair()
            try:
                mine.send(b"x", socket.MSG_OOB)
            except OSError as error:
                if error.errno == errno.EOPNOTSUPP and HERE != "workspace":
                    return "no out-of-band data"
                raise
            return theirs.recv(1, socket.MSG_OOB) == b"x"
        """,
        needs="no out-of-band data",
    ),
    Attempt(
        "receive_out_of_band",
        "asks for out-of-band data",
        """
        def attempt():
            mine, theirs = socket.socketpair()
            theirs.setblocking(False)
            try:
                theirs.recv(1, socket.MSG_OOB)
            except OSError as error:
                # The kernel's own answer, from behind the filter: there is none.
                return error.errno == errno.EINVAL or error.errno == errno.EAGAIN
            return True
        """,
    ),
    Attempt(
        "socket_filter",
        "loads a filter, which is a program for the kernel, onto a socket",
        """
        def attempt():
            accept = struct.pack("HBBI", 0x06, 0, 0, 0xFFFFFFFF)
            code = ctypes.create_string_buffer(accept)
            mine, theirs = socket.socketpair()
            mine.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HP", 1, ctypes.addressof(code)))
            return True
        """,
    ),
    Attempt(
        "busy_polling",
        "sets socket options that no program here needs",
        """
        def attempt():
            mine, theirs = socket.socketpair()
            done = []
            for level, option, value in ((1, 16, 1), (1, 42, 0), (1, 47, 1000), (1, 15, 1), (1, 60, 1)):
                try:
                    mine.setsockopt(level, option, value)
                    done.append(option)
                except OSError:
                    pass
            return bool(done)
        """,
    ),
    Attempt(
        "handle_on_the_host",
        "asks the channel for a handle on the process at its other end, which is Toolfold",
        """
        def attempt():
            ends = [*socket.socketpair()] if HERE != "workspace" else []
            for number in range(3, 64):
                try:
                    ends.append(socket.socket(fileno=os.dup(number)))
                except OSError:
                    pass
            for end in ends:
                try:
                    return end.getsockopt(socket.SOL_SOCKET, 77) > 0
                except OSError as error:
                    if error.errno == errno.ENOPROTOOPT:
                        return "no handles on peers"
            return False
        """,
        needs="no handles on peers",
    ),
    Attempt(
        "many_pipes",
        "uses up the pipes that all programs of the user have together",
        """
        def attempt():
            ends, children = [], []
            for _ in range(4):
                mine, theirs = os.pipe()
                child = os.fork()
                if child == 0:
                    try:
                        while len(ends) < 240:
                            ends.append(os.pipe()[0])
                    finally:
                        os.write(theirs, b"1")
                        time.sleep(30)
                        os._exit(0)
                children.append(child)
                os.read(mine, 1)
            time.sleep(2)
            for child in children:
                os.kill(child, 9)
            return True
        """,
        ends="sandbox.processes",
    ),
    Attempt(
        "many_watches",
        "uses up the descriptors that all programs of the user can wait for together",
        """
        import select
        def attempt():
            watched = [os.eventfd(0) for _ in range(50)]
            polls = [select.epoll() for _ in range(180)]
            for poll in polls:
                for number in watched:
                    poll.register(number)
            time.sleep(2)
            return True
        """,
        ends="sandbox.processes",
    ),
    Attempt(
        "huge_pages",
        "takes pages that were set aside for another program",
        """
        import mmap
        def attempt():
            try:
                return len(mmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)) > 0
            except OSError as error:
                if error.errno == errno.ENOMEM and HERE != "workspace":
                    return "no huge pages"
                raise
        """,
        needs="no huge pages",
    ),
    Attempt(
        "kernel_notifications",
        "makes a pipe for the kernel's notifications",
        """
        def attempt():
            try:
                os.pipe2(os.O_EXCL)
            except OSError as error:
                if error.errno in (errno.ENOPKG, errno.EINVAL) and HERE != "workspace":
                    return "no notifications"
                raise
            return True
        """,
        needs="no notifications",
    ),
    Attempt(
        "crash_handler",
        "crashes, so that the host starts its crash handler, as root, on memory that the program chose",
        """
        import resource
        def attempt():
            # With a limit of 1, and no other, the kernel starts none.
            try:
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            except (OSError, ValueError):
                pass
            return resource.getrlimit(resource.RLIMIT_CORE)[0] != 1
        """,
    ),
]
