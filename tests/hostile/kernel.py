"""Programs that reach for other processes, for privileges, or for the kernel."""

from __future__ import annotations

from tests.hostile.attempt import Attempt

KERNEL = [
    Attempt(
        "trace_child",
        "traces a process: even a child's registers are enough to go around a filter",
        """
        def attempt():
            child = os.fork()
            if child == 0:
                time.sleep(10)
                os._exit(0)
            try:
                call("ptrace", 16, child, None, None)
                os.waitpid(child, 0)
                return True
            finally:
                os.kill(child, 9)
        """,
    ),
    Attempt(
        "read_process_memory",
        "reads another process's memory without /proc",
        """
        def attempt():
            secret = ctypes.create_string_buffer(b"in the child")
            child = os.fork()
            if child == 0:
                time.sleep(10)
                os._exit(0)
            try:
                copy = ctypes.create_string_buffer(16)
                local = struct.pack("PN", ctypes.addressof(copy), 12)
                remote = struct.pack("PN", ctypes.addressof(secret), 12)
                return call("process_vm_readv", child, local, 1, remote, 1, 0) == 12
            finally:
                os.kill(child, 9)
        """,
    ),
    Attempt(
        "steal_descriptor",
        "takes a descriptor out of another process",
        """
        def attempt():
            child = os.fork()
            if child == 0:
                time.sleep(10)
                os._exit(0)
            try:
                return call("pidfd_getfd", os.pidfd_open(child), 0, 0) > 0
            finally:
                os.kill(child, 9)
        """,
    ),
    Attempt(
        "kill_host_process",
        "kills a process of the host by its number",
        """
        def attempt():
            os.kill(BAITS["victim"], signal.SIGKILL)
            return True
        """,
        extra={"victim": True},
    ),
    Attempt(
        "kill_everything",
        "kills everything that it may kill",
        """
        def attempt():
            os.kill(-1, signal.SIGKILL)
            return True
        """,
        outside="""
        def attempt():
            os.killpg(os.getpgid(BAITS["victim"]), signal.SIGKILL)
            return True
        """,
        extra={"victim": True},
    ),
    Attempt(
        "enter_namespace",
        "enters the host's network through its namespace",
        """
        def attempt():
            for path in ("/proc/%d/ns/net" % BAITS["process"], "/proc/1/ns/net", "/proc/1/ns/mnt"):
                try:
                    call("setns", os.open(path, os.O_RDONLY), 0)
                    return True
                except OSError:
                    pass
            return False
        """,
        needs_root=True,
    ),
    Attempt(
        "unshare_user",
        "makes a user namespace, in which it would be root",
        """
        def attempt():
            return survives(lambda: call("unshare", 0x10000000) == 0)
        """,
    ),
    Attempt(
        "clone_user",
        "makes a user namespace along with a process",
        """
        def attempt():
            child = call("clone", 0x10000000 | signal.SIGCHLD, None, None, None, None)
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            return True
        """,
    ),
    Attempt(
        "clone3_user",
        "the same through the call whose arguments a filter cannot see",
        """
        def attempt():
            arguments = struct.pack("8Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
            child = call("clone3", arguments, len(arguments))
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            return True
        """,
    ),
    Attempt(
        "mount",
        "mounts a file system",
        """
        def attempt():
            os.mkdir(HERE + "/mount")
            return survives(lambda: call("unshare", 0x20000) == 0 and mount())
        def mount():
            return call("mount", b"none", (HERE + "/mount").encode(), b"tmpfs", 0, None) == 0
        """,
        needs_root=True,
    ),
    Attempt(
        "mount_by_new_calls",
        "mounts a file system with the newer calls",
        """
        def attempt():
            return call("fsopen", b"tmpfs", 0) > 0
        """,
        needs_root=True,
    ),
    Attempt(
        "copy_mounts",
        "takes a detached copy of a mount",
        """
        def attempt():
            return call("open_tree", -100, b"/", 1) > 0
        """,
        needs_root=True,
    ),
    Attempt(
        "unmount",
        "takes a mount away, to see what it hides",
        """
        def attempt():
            return survives(lambda: unmount())
        def unmount():
            try:
                call("unshare", 0x20000)
            except OSError:
                pass
            return call("umount2", b"/proc", 2) == 0
        """,
        needs_root=True,
    ),
    Attempt(
        "pivot_root",
        "exchanges the root of the file system",
        """
        def attempt():
            try:
                call("pivot_root", b".", b".")
            except OSError as error:
                # Without the right to do it the answer is EPERM; with it, this place is merely not suited.
                return error.errno == errno.EINVAL or error.errno == errno.EBUSY
            return True
        """,
        needs_root=True,
    ),
    Attempt(
        "bpf",
        "loads a program into the kernel",
        """
        def attempt():
            array = struct.pack("5I", 2, 4, 4, 1, 0) + bytes(100)
            return call("bpf", 0, array, 72) > 0
        """,
        needs_root=True,
    ),
    Attempt(
        "userfaultfd",
        "takes over page faults, which makes races in the kernel winnable",
        """
        def attempt():
            return call("userfaultfd", 1) > 0
        """,
        needs_root=True,
    ),
    Attempt(
        "io_uring",
        "submits calls through a ring that no filter sees",
        """
        def attempt():
            try:
                return call("io_uring_setup", 4, bytes(120)) > 0
            except OSError as error:
                if error.errno == errno.ENOSYS:
                    return "no io_uring"
                raise
        """,
        needs="no io_uring",
    ),
    Attempt(
        "perf_events",
        "watches the processor",
        """
        def attempt():
            settings = struct.pack("2IQ", 1, 112, 0) + bytes(96)
            try:
                return call("perf_event_open", settings, 0, -1, -1, 0) > 0
            except OSError as error:
                if error.errno in (errno.ENOSYS, errno.ENOENT):
                    return "no perf events"
                raise
        """,
        needs_root=True,
        needs="no perf events",
    ),
    Attempt(
        "keyrings",
        "looks into the kernel's keyrings, which have no namespace",
        """
        def attempt():
            try:
                return call("add_key", b"user", b"toolfold-test", b"x", 1, -2) > 0
            except OSError as error:
                if error.errno == errno.ENOSYS:
                    return "no keyrings"
                raise
        """,
        needs="no keyrings",
    ),
    Attempt(
        "memfd_exec",
        "runs a program that was never a file",
        """
        def attempt():
            program = os.memfd_create("program")
            with open(os.path.realpath(sys.executable), "rb") as file:
                data = file.read()
            view = memoryview(data)
            while view:
                view = view[os.write(program, view):]
            child = os.fork()
            if child == 0:
                try:
                    os.execve(f"/proc/self/fd/{program}", ["python", "-c", "raise SystemExit(42)"], dict(os.environ))
                finally:
                    os._exit(1)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
        """,
        outside="""
        def attempt():
            return os.memfd_create("program") > 0
        """,
    ),
    Attempt(
        "type_into_terminal",
        "types into the terminal that Toolfold was started from",
        """
        def attempt():
            import fcntl, pty, termios
            child, terminal = pty.fork()
            if child == 0:
                try:
                    fcntl.ioctl(0, termios.TIOCSTI, b"x")
                    os._exit(0)
                except OSError:
                    os._exit(1)
            return os.waitpid(child, 0)[1] == 0
        """,
        needs_root=True,
    ),
    Attempt(
        "x32_call",
        "makes a call by the numbers of another architecture, which a careless filter does not know",
        """
        def attempt():
            def ask():
                ctypes.CDLL(None).syscall(0x40000000 + 39)
                return True
            return survives(ask)
        """,
        machines=("x86_64",),
    ),
    Attempt(
        "call_of_32_bits",
        "makes a 32-bit call, whose numbers mean other things",
        """
        def attempt():
            import mmap
            code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            code.write(bytes.fromhex("53b814000000cd805bc3"))
            def ask():
                address = ctypes.addressof(ctypes.c_char.from_buffer(code))
                return ctypes.CFUNCTYPE(ctypes.c_int)(address)() != 0
            return survives(ask)
        """,
        machines=("x86_64",),
    ),
    Attempt(
        "set_clock",
        "changes the machine's time",
        """
        def attempt():
            time.clock_settime(time.CLOCK_REALTIME, time.time())
            return True
        """,
        needs_root=True,
    ),
    Attempt(
        "reboot",
        "switches how the machine restarts",
        """
        def attempt():
            call("reboot", 0xFEE1DEAD - (1 << 32), 672274793, 0, None)
            return True
        """,
        needs_root=True,
    ),
    Attempt(
        "kernel_module",
        "loads a module into the kernel",
        """
        def attempt():
            try:
                call("init_module", b"x" * 64, 64, b"")
            except OSError as error:
                return error.errno not in (errno.EPERM, errno.ENOSYS)
            return True
        """,
        outside="""
        def attempt():
            try:
                call("init_module", b"x" * 64, 64, b"")
            except OSError as error:
                if error.errno == errno.ENOSYS:
                    return "no modules"
                return error.errno != errno.EPERM
        """,
        needs_root=True,
        needs="no modules",
    ),
    Attempt(
        "kernel_log",
        "reads the kernel's log",
        """
        def attempt():
            return call("syslog", 3, ctypes.create_string_buffer(4096), 4096) >= 0
        """,
        needs_root=True,
    ),
    Attempt(
        "become_root",
        "becomes root",
        """
        def attempt():
            return survives(lambda: os.setresuid(0, 0, 0) is None and os.getuid() == 0)
        """,
        needs_root=True,
    ),
    Attempt(
        "drop_groups",
        "changes its groups",
        """
        def attempt():
            return survives(lambda: os.setgroups([0]) is None)
        """,
        needs_root=True,
    ),
    Attempt(
        "no_randomisation",
        "switches address randomisation off for what it starts",
        """
        def attempt():
            return survives(lambda: ctypes.CDLL(None).personality(0x40000) >= 0)
        """,
    ),
    Attempt(
        "higher_priority",
        "takes the processor before everybody else",
        """
        def attempt():
            for way in (
                lambda: os.setpriority(os.PRIO_PROCESS, 0, -10),
                lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
            ):
                if survives(lambda: way() is None):
                    return True
            return False
        """,
        needs_root=True,
    ),
    Attempt(
        "raise_limits",
        "raises its own limits again",
        """
        def attempt():
            import resource
            def higher(which):
                soft, hard = resource.getrlimit(which)
                resource.setrlimit(which, (soft + 1, max(hard, soft + 1)))
                return True
            limits = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)
            return any(survives(lambda: higher(which)) for which in limits)
        """,
        outside="""
        def attempt():
            import resource
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
            resource.setrlimit(resource.RLIMIT_NOFILE, (65, hard))
            return True
        """,
    ),
    Attempt(
        "limits_of_others",
        "takes all open files away from another process",
        """
        def attempt():
            import resource
            resource.prlimit(BAITS["victim"], resource.RLIMIT_NOFILE, (3, 4096))
            return True
        """,
        extra={"fresh_victim": True},
    ),
    Attempt(
        "hostname",
        "renames the machine",
        """
        def attempt():
            return survives(lambda: socket.sethostname(socket.gethostname()) is None)
        """,
        needs_root=True,
    ),
]
