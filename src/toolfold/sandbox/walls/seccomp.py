"""The sandbox's system-call filter: an allow-list, compiled to BPF before the sandbox starts.

Three answers exist. A call that is listed is **allowed**, some only with harmless arguments. A call that is known and
refused gets an **errno** that programs understand (EPERM, or one with a meaning, such as "network is unreachable").
A call that is not listed does not exist: **ENOSYS**, so that libc takes its older way. Only calls of a foreign
architecture (32-bit and x32 calls on x86-64) **kill** the process: no compiler makes those by accident.

Every group of calls says why it is there. `tests/hostile` shows what the refused ones would do.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from toolfold.sandbox.walls.syscalls import Machine, numbers

_ARCHITECTURE: dict[Machine, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

_KILL = 0x80000000
_ALLOW = 0x7FFF0000


def _errno(number: int) -> int:
    return 0x00050000 | number


_NOT_THERE = _errno(errno.ENOSYS)
_REFUSED = _errno(errno.EPERM)
_NO_NETWORK = _errno(errno.ENETUNREACH)
_NO_ACCESS = _errno(errno.EACCES)
_NO_TERMINAL = _errno(errno.ENOTTY)
_NOT_SUPPORTED = _errno(errno.EOPNOTSUPP)
_DONE = _errno(0)


_ALLOWED = """
# Read and write what is open already.
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek sendfile
close close_range dup dup2 dup3 flock
# Look at files; the mounts and Landlock decide which.
stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2 readlink readlinkat
getdents getdents64 getcwd chdir fchdir
# Change the tree; only workspace, skills and the temporary folders are writable.
rmdir rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat truncate ftruncate umask
utime utimes utimensat futimesat
# Databases flush their files.
fsync fdatasync sync_file_range
# Memory of one's own.
brk munmap mprotect mremap madvise mincore msync membarrier mseal
# Programs and threads: subprocess, multiprocessing, threading.
fork vfork execve exit exit_group wait4 waitid set_tid_address set_robust_list get_robust_list rseq
futex futex_waitv futex_wake futex_wait futex_requeue
# How one is scheduled may be read, and being nicer is free.
sched_yield sched_getaffinity sched_getparam sched_getscheduler sched_getattr sched_rr_get_interval
sched_get_priority_max sched_get_priority_min getpriority setpriority
# Who one is; sessions and groups of processes inside the namespace.
getpid gettid getppid getpgid getpgrp getsid getuid geteuid getgid getegid getresuid getresgid
getgroups capget setpgid setsid getcpu
# Signals, which reach only one's own namespace.
kill tkill tgkill pidfd_open pidfd_send_signal rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending
rt_sigtimedwait rt_sigsuspend rt_sigqueueinfo rt_tgsigqueueinfo sigaltstack restart_syscall pause
signalfd signalfd4
# Waiting for many things at once: asyncio.
poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
eventfd eventfd2 pipe
# Reading clocks, sleeping, timers.
clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times alarm getitimer setitimer
timer_create timer_settime timer_gettime timer_getoverrun timer_delete
timerfd_create timerfd_settime timerfd_gettime
# Limits may be read, and lowered.
getrlimit getrusage
# Facts about the machine, and randomness.
sysinfo uname getrandom
# Talking on the channel, and on a pair of sockets made inside.
shutdown getsockname getpeername
# Giving up rights is always welcome.
landlock_create_ruleset landlock_add_rule landlock_restrict_self
"""

_DENIED: dict[int, str] = {
    _REFUSED: """
# Other processes' memory and descriptors.
ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise process_mrelease
# Namespaces and mounts: the walls themselves.
unshare setns mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsconfig fsmount
fspick mount_setattr statmount listmount swapon swapoff quotactl quotactl_fd acct
# Becoming somebody else, and giving files away.
setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset
chown fchown lchown fchownat
# The kernel, the machine and its clock.
init_module finit_module delete_module kexec_load kexec_file_load reboot syslog iopl ioperm modify_ldt
sethostname setdomainname vhangup settimeofday clock_settime adjtimex clock_adjtime
# Large kernel surfaces that no program here needs.
bpf perf_event_open userfaultfd seccomp io_uring_setup io_uring_enter io_uring_register
io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents
add_key request_key keyctl lookup_dcookie fanotify_init fanotify_mark
# Files by handle go around every path rule; a file without a name runs without one.
name_to_handle_at open_by_handle_at execveat
# Memory that belongs to no process escapes counting (and a memfd can be executed).
memfd_create memfd_secret shmget shmat shmctl shmdt msgget msgsnd msgrcv msgctl semget semop semctl semtimedop
mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify
# Memory that cannot be reclaimed, and more than one's share of processor and disk.
mlock mlock2 mlockall mbind set_mempolicy migrate_pages move_pages
sched_setaffinity sched_setparam sched_setscheduler sched_setattr ioprio_set
""",
    _NO_ACCESS: """
# Sockets that reach anything.
connect bind listen accept accept4
# A message can carry descriptors: one in flight escapes the disk's count, one at the host is a leak there.
sendmsg sendmmsg recvmsg recvmmsg
""",
    _NOT_SUPPORTED: """
# Disk space that was never written outruns the measuring; libc writes zeros instead.
fallocate
# Attributes that the host's disk would have to carry.
getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr
""",
    _DONE: """
# Flushing the disks of the whole machine: say yes, and do nothing.
sync syncfs
# Hints about what to keep in memory: the runtime's files are shared with every other sandbox.
fadvise64 readahead
""",
}


def _names(table: str) -> list[str]:
    return [name for line in table.splitlines() if not line.startswith("#") for name in line.split()]


@dataclass(frozen=True)
class _Test:
    """Holds when `argument & mask` is one of `values` (or, without values, when it is not zero).

    Of the lower 32 bits of the argument, or with `upper` of the others.
    """

    argument: int
    mask: int
    values: tuple[int, ...] = ()
    upper: bool = False


_Rule = tuple[tuple[_Test, ...], int]
_WORD = 0xFFFFFFFF
_SET_ID = 0o6000
_CORE = 4  # RLIMIT_CORE
_SET_DUMPABLE = 4  # PR_SET_DUMPABLE
_CREATES = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEW*: user, pid, net, ipc, uts, cgroup, mount
# Asking whether a descriptor is a terminal, how much waits in it, and its flags. No terminal can be typed into.
_IOCTLS = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_NAME_AND_FACTS = (1, 2, 3, 15, 16, 21, 23, 27, 29, 30, 38, 39, 40, 0x53564D41)  # PR_* that only describe oneself
# F_*: duplicating, flags, record locks, reading a pipe's size. A lease delays whoever opens the file outside, a
# notification watches them, and a larger pipe is taken from the user's other programs.
_FILE_CONTROLS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)
# SO_*: type, error, buffer sizes, keep-alive, linger, timeouts, domain, protocol. A socket filter would be kernel code.
_SOCKET_FACTS = (2, 3, 4, 7, 8, 9, 13, 20, 21, 30, 38, 39, 66, 67)
_SOCKET_SETTINGS = (2, 9, 13, 20, 21, 66, 67)
_SEND = 0x40 | 0x80 | 0x4000 | 0x8000  # MSG_DONTWAIT, MSG_EOR, MSG_NOSIGNAL, MSG_MORE
_RECEIVE = 0x2 | 0x20 | 0x40 | 0x100  # MSG_PEEK, MSG_TRUNC, MSG_DONTWAIT, MSG_WAITALL
_REGISTERS = (0x1001, 0x1002, 0x1003, 0x1004)  # ARCH_SET_GS, ARCH_SET_FS, ARCH_GET_FS, ARCH_GET_GS


def _creating(flags: int | None, mode: int) -> tuple[tuple[_Rule, ...], int]:
    """A set-uid file made inside would be one outside as well: the workspace is a folder of the host."""
    tests = (_Test(mode, _SET_ID),) if flags is None else (_Test(flags, _CREATES), _Test(mode, _SET_ID))
    return ((tests, _REFUSED),), _ALLOW


def _only(argument: int, *values: int, otherwise: int = _REFUSED) -> tuple[tuple[_Rule, ...], int]:
    return (((_Test(argument, _WORD, values),), _ALLOW),), otherwise


def _without(argument: int, bits: int, otherwise: int = _errno(errno.EOPNOTSUPP)) -> tuple[tuple[_Rule, ...], int]:
    """Allowed unless one of `bits` is set."""
    return (((_Test(argument, bits),), otherwise),), _ALLOW


def _socket_option(names: tuple[int, ...]) -> tuple[tuple[_Rule, ...], int]:
    """Only these, and only of the level SOL_SOCKET."""
    return (((_Test(1, _WORD, (1,)), _Test(2, _WORD, names)), _ALLOW),), _REFUSED


def _node(mode: int) -> tuple[tuple[_Rule, ...], int]:
    """Plain files and pipes; never a device or a socket."""
    plain = ((_Test(mode, 0o170000 | _SET_ID, (0, 0o100000, 0o010000)),), _ALLOW)
    return (plain,), _REFUSED


# Calls whose arguments decide: the first rule whose tests all hold answers, else the second item does.
_CHECKED: dict[str, tuple[tuple[_Rule, ...], int]] = {
    "open": _creating(1, 2),
    "openat": _creating(2, 3),
    "creat": _creating(None, 1),
    "mkdir": _creating(None, 1),
    "mkdirat": _creating(None, 2),
    "chmod": _creating(None, 1),
    "fchmod": _creating(None, 1),
    "fchmodat": _creating(None, 2),
    "fchmodat2": _creating(None, 2),
    "mknod": _node(1),
    "mknodat": _node(2),
    "clone": ((((_Test(0, _NEW_NAMESPACES),), _REFUSED),), _ALLOW),
    "ioctl": _only(1, *_IOCTLS, otherwise=_NO_TERMINAL),
    "prctl": (
        (
            ((_Test(0, _WORD, _NAME_AND_FACTS),), _ALLOW),
            # A process may show itself in /proc, never hide: what it holds is measured there.
            ((_Test(0, _WORD, (_SET_DUMPABLE,)), _Test(1, _WORD, (1,))), _ALLOW),
        ),
        _REFUSED,
    ),
    "arch_prctl": _only(0, *_REGISTERS, otherwise=_errno(errno.EINVAL)),
    "personality": _only(0, _WORD),
    # A pipe of the kernel's notifications is one of its rarer parts. Huge pages are set aside for somebody else.
    "pipe2": _without(1, _WORD & ~0o2004000, _errno(errno.EINVAL)),  # O_CLOEXEC, O_NONBLOCK
    "mmap": _without(3, 0x40000, _errno(errno.ENOMEM)),  # MAP_HUGETLB
    "fcntl": _only(1, *_FILE_CONTROLS, otherwise=_errno(errno.EINVAL)),
    "prlimit64": (
        (
            # Of core files the limit stays: any other one lets a crash start the host's crash handler.
            ((_Test(1, _WORD, (_CORE,)), _Test(2, _WORD)), _REFUSED),
            ((_Test(1, _WORD, (_CORE,)), _Test(2, _WORD, upper=True)), _REFUSED),
            ((_Test(0, _WORD, (0,)),), _ALLOW),
        ),
        _REFUSED,
    ),
    "setrlimit": ((((_Test(0, _WORD, (_CORE,)),), _REFUSED),), _ALLOW),
    # asyncio wakes itself through a pair of stream sockets. Datagrams could be addressed to anybody.
    "socketpair": ((((_Test(0, _WORD, (1,)), _Test(1, 0xF, (1,))), _ALLOW),), _NO_ACCESS),
    "sendto": _without(3, _WORD & ~_SEND),
    "recvfrom": _without(3, _WORD & ~_RECEIVE),
    # What lies in a socket is the kernel's memory: buffers stay as small as they are.
    "setsockopt": _socket_option(_SOCKET_SETTINGS),
    "getsockopt": _socket_option(_SOCKET_FACTS),
    "socket": ((((_Test(0, _WORD, (2, 10)),), _NO_NETWORK),), _NO_ACCESS),
}

_LOAD = 0x20
_AND = 0x54
_EQUAL = 0x15
_AT_LEAST = 0x35
_ABOVE = 0x25
_RETURN = 0x06
_NUMBER_AT = 0
_ARCHITECTURE_AT = 4
_ARGUMENTS_AT = 16

_Instruction = tuple[int, int, int, int]


def machine() -> Machine | None:
    """The running machine, when the filter knows it."""
    name = platform.machine()
    if name in ("x86_64", "aarch64"):
        return name
    return None


def compile_filter(target: Machine) -> bytes:
    """The program as the kernel takes it: an array of `struct sock_filter`."""
    program: list[_Instruction] = [(_LOAD, 0, 0, _ARCHITECTURE_AT), (_EQUAL, 1, 0, _ARCHITECTURE[target])]
    program += [(_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER_AT)]
    if target == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL)]
    table = numbers(target)
    # The ones with arguments come first: the kernel remembers the answer of those without.
    for name, (rules, otherwise) in _CHECKED.items():
        if name in table:
            body = _body(rules, otherwise)
            program.append((_EQUAL, 0, len(body), table[name]))
            program += body
    for low, high, action in _ranges(table):
        program += [(_AT_LEAST, 0, 2, low), (_ABOVE, 1, 0, high), (_RETURN, 0, 0, action)]
    program.append((_RETURN, 0, 0, _NOT_THERE))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _body(rules: Iterable[_Rule], otherwise: int) -> list[_Instruction]:
    body: list[_Instruction] = []
    for tests, action in rules:
        rule: list[_Instruction] = [(_RETURN, 0, 0, action)]
        for test in reversed(tests):
            rule = _test(test, len(rule)) + rule
        body += rule
    return [*body, (_RETURN, 0, 0, otherwise)]


def _test(test: _Test, skip: int) -> list[_Instruction]:
    """Fall through when it holds, else jump over the `skip` instructions that follow."""
    place = _ARGUMENTS_AT + 8 * test.argument + (4 if test.upper else 0)
    code: list[_Instruction] = [(_LOAD, 0, 0, place), (_AND, 0, 0, test.mask)]
    if not test.values:
        return [*code, (_EQUAL, skip, 0, 0)]
    last = len(test.values) - 1
    return code + [
        (_EQUAL, last - index, skip if index == last else 0, value) for index, value in enumerate(test.values)
    ]


def _ranges(table: dict[str, int]) -> list[tuple[int, int, int]]:
    """(first, last, action) for runs of neighbouring numbers with the same answer."""
    answers = {_ALLOW: _ALLOWED, **_DENIED}
    actions = {table[name]: action for action, text in answers.items() for name in _names(text) if name in table}
    ranges: list[tuple[int, int, int]] = []
    for number, action in sorted(actions.items()):
        if ranges and ranges[-1][1] == number - 1 and ranges[-1][2] == action:
            ranges[-1] = (ranges[-1][0], number, action)
        else:
            ranges.append((number, number, action))
    return ranges
