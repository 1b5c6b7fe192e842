"""Programs that reach for files that are not theirs."""

from __future__ import annotations

from tests.hostile.attempt import Attempt

FILES = [
    Attempt(
        "read_by_path",
        "reads a secret of the host by its path",
        """
        def attempt():
            return BAITS["token"] in open(BAITS["secret"]).read()
        """,
    ),
    Attempt(
        "read_by_symlink",
        "lays a link to the secret into its own folder and reads through it",
        """
        def attempt():
            os.symlink(BAITS["secret"], HERE + "/link")
            return BAITS["token"] in open(HERE + "/link").read()
        """,
    ),
    Attempt(
        "hard_link",
        "makes a second name for the secret in its own folder",
        """
        def attempt():
            os.link(BAITS["secret"], HERE + "/second")
            return BAITS["token"] in open(HERE + "/second").read()
        """,
    ),
    Attempt(
        "dot_dot",
        "walks upwards out of its folder",
        """
        def attempt():
            return BAITS["token"] in open(HERE + "/.." * 40 + BAITS["secret"]).read()
        """,
    ),
    Attempt(
        "dot_dot_by_descriptor",
        "walks upwards from an open folder, one step at a time",
        """
        def attempt():
            here = os.open(HERE, os.O_RDONLY)
            for _ in range(40):
                here = os.open("..", os.O_RDONLY, dir_fd=here)
            return BAITS["token"] in open(os.open(BAITS["secret"].lstrip("/"), os.O_RDONLY, dir_fd=here)).read()
        """,
    ),
    Attempt(
        "proc_root",
        "enters the root folder of other processes through /proc",
        """
        def attempt():
            for name in ("self", "1", str(os.getppid()), str(BAITS["process"])):
                try:
                    if BAITS["token"] in open("/proc/" + name + "/root" + BAITS["secret"]).read():
                        return True
                except OSError:
                    pass
            return False
        """,
    ),
    Attempt(
        "inherited_descriptors",
        "looks for folders of the host among the descriptors it was born with",
        """
        def attempt():
            for number in range(3, 256):
                try:
                    found = os.open(BAITS["secret"].lstrip("/"), os.O_RDONLY, dir_fd=number)
                except OSError:
                    continue
                return BAITS["token"] in open(found).read()
            return False
        """,
        extra={"inherit": "/"},
    ),
    Attempt(
        "write_host_file",
        "creates a file on the host",
        """
        def attempt():
            with open(BAITS["free"], "w") as file:
                file.write(BAITS["token"])
            return os.path.exists(BAITS["free"])
        """,
    ),
    Attempt(
        "change_api_tree",
        "puts its own code into the generated API that other programs import",
        """
        def attempt():
            for folder in ("servers", "/opt/api", "/opt/api/servers", BAITS["api"]):
                try:
                    with open(folder + "/planted.py", "w") as file:
                        file.write("1")
                    return True
                except OSError:
                    pass
            return False
        """,
    ),
    Attempt(
        "change_runtime",
        "changes the interpreter's library or the guest that the next sandbox starts with",
        """
        def attempt():
            guest = [path for path in sys.path if os.path.exists(path + "/toolfold_guest")]
            targets = [BAITS["module"]] if os.path.exists(BAITS["module"]) else [os.__file__]
            targets += [path + "/toolfold_guest/boot.py" for path in guest]
            done = []
            for target in targets:
                try:
                    with open(target, "a") as file:
                        file.write("# changed")
                    done.append(target)
                except OSError:
                    pass
            return bool(done)
        """,
    ),
    Attempt(
        "other_session",
        "reads the workspace of another session",
        """
        def attempt():
            places = [BAITS["neighbour"], "../" + BAITS["neighbour"], HERE + "/../../" + BAITS["neighbour"]]
            for place in places:
                try:
                    if BAITS["token"] in open(place).read():
                        return True
                except OSError:
                    pass
            return False
        """,
    ),
    Attempt(
        "device_node",
        "makes a device node for the kernel's memory or a disk",
        """
        def attempt():
            os.mknod(HERE + "/device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
            return len(open(HERE + "/device", "rb").read(8)) == 8
        """,
        needs_root=True,
    ),
    Attempt(
        "block_devices",
        "opens the machine's disks and kernel memory",
        """
        def attempt():
            for name in BAITS["devices"]:
                try:
                    os.open(name, os.O_RDONLY)
                    return True
                except OSError:
                    pass
            return False
        """,
        needs_root=True,
    ),
    Attempt(
        "setuid_file",
        "leaves a set-uid file in its folder, which is a folder of the host",
        """
        def attempt():
            path = HERE + "/tool"
            open(path, "w").close()
            for way in (lambda: os.chmod(path, 0o4755), lambda: os.close(os.open(HERE + "/t2", os.O_CREAT, 0o4755))):
                try:
                    way()
                except OSError:
                    pass
            return any(entry.stat().st_mode & 0o6000 for entry in os.scandir(HERE))
        """,
    ),
    Attempt(
        "file_by_handle",
        "opens a file by its number on the disk, around every path",
        """
        def attempt():
            handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
            mount = ctypes.c_int()
            call("name_to_handle_at", -100, BAITS["secret"].encode(), handle, ctypes.byref(mount), 0)
            folder = os.open(os.path.dirname(BAITS["secret"]), os.O_RDONLY)
            return BAITS["token"] in open(call("open_by_handle_at", folder, handle, 0)).read()
        """,
        needs_root=True,
    ),
    Attempt(
        "chroot_walk",
        "changes its root folder and walks out over an open one",
        """
        def attempt():
            os.mkdir(HERE + "/cage")
            outside = os.open(".", os.O_RDONLY)
            os.chroot(HERE + "/cage")
            os.fchdir(outside)
            for _ in range(40):
                os.chdir("..")
            return BAITS["token"] in open("." + BAITS["secret"]).read()
        """,
        needs_root=True,
    ),
    Attempt(
        "environment",
        "looks for credentials in its environment",
        """
        def attempt():
            return BAITS["token"] in json.dumps(dict(os.environ))
        """,
    ),
    Attempt(
        "environment_of_others",
        "looks for credentials in the environment of every process it can see",
        """
        def attempt():
            for name in [*map(str, range(1, 64)), "self", str(os.getppid()), str(BAITS["process"])]:
                try:
                    if BAITS["token"].encode() in open("/proc/" + name + "/environ", "rb").read():
                        return True
                except OSError:
                    pass
            return False
        """,
    ),
    Attempt(
        "process_list",
        "finds the host's processes and reads their command lines",
        """
        def attempt():
            for name in [*filter(str.isdigit, os.listdir("/proc")), str(BAITS["process"])]:
                try:
                    if BAITS["token"].encode() in open("/proc/" + name + "/cmdline", "rb").read():
                        return True
                except OSError:
                    pass
            return False
        """,
    ),
    Attempt(
        "memory_of_others",
        "reads the memory of another process through /proc",
        """
        def attempt():
            for name in (str(BAITS["process"]), "1", str(os.getppid())):
                try:
                    maps = open("/proc/" + name + "/maps").read()
                    start = int(maps.split("-")[0], 16)
                    with open("/proc/" + name + "/mem", "rb") as memory:
                        memory.seek(start)
                        if len(memory.read(16)) == 16:
                            return True
                except OSError:
                    pass
            return False
        """,
    ),
    Attempt(
        "own_memory_file",
        "rewrites read-only memory of its own through /proc/self/mem, the way page-cache bugs are used",
        """
        def attempt():
            place = ctypes.create_string_buffer(b"before")
            with open("/proc/self/mem", "r+b", buffering=0) as memory:
                memory.seek(ctypes.addressof(place))
                memory.write(b"after!")
            return place.raw.startswith(b"after!")
        """,
    ),
    Attempt(
        "kernel_settings",
        "writes to the kernel's settings",
        """
        def attempt():
            path = "/proc/sys/vm/swappiness"
            before = open(path).read()
            with open(path, "w") as file:
                file.write(before)
            return True
        """,
        needs_root=True,
    ),
    Attempt(
        "mount_table",
        "learns the host's paths from the mount table",
        """
        def attempt():
            return "data-of-the-host" in open("/proc/self/mountinfo").read()
        """,
        outside="""
        def attempt():
            return len(open("/proc/self/mountinfo").read()) > 0
        """,
    ),
    Attempt(
        "mount_table_of_a_thread",
        "learns the host's paths from the mount table as one of its threads sees it",
        """
        def attempt():
            tables = ["/proc/thread-self/mountinfo", "/proc/mounts", "/etc/mtab"]
            for thread in os.listdir("/proc/self/task"):
                tables += ["/proc/self/task/%s/%s" % (thread, name) for name in ("mountinfo", "mounts", "mountstats")]
            for table in tables:
                try:
                    if open(table).read():
                        return True
                except OSError:
                    pass
            return False
        """,
    ),
    Attempt(
        "mount_table_of_a_child",
        "learns the host's paths from the mount table of a process that it starts",
        """
        def attempt():
            child = os.fork()
            if child == 0:
                time.sleep(10)
                os._exit(0)
            try:
                return bool(open("/proc/%d/mountinfo" % child).read())
            finally:
                os.kill(child, 9)
                os.waitpid(child, 0)
        """,
    ),
    Attempt(
        "mount_table_by_call",
        "asks the kernel for its mounts without /proc",
        """
        def attempt():
            try:
                request = struct.pack("IIQQQ", 32, 0, 0xFFFFFFFFFFFFFFFF, 0, 0)
                return call("listmount", request, ctypes.create_string_buffer(800), 100, 0) > 0
            except OSError as error:
                if error.errno == errno.ENOSYS:
                    return "no such call"
                raise
        """,
        needs="no such call",
    ),
    Attempt(
        "run_own_binary",
        "copies a program into its folder and runs it there",
        """
        def attempt():
            import shutil
            shutil.copy(os.path.realpath(sys.executable), HERE + "/program")
            os.chmod(HERE + "/program", 0o755)
            return subprocess.run([HERE + "/program", "-c", "raise SystemExit(42)"]).returncode == 42
        """,
    ),
]
