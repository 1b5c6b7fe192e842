"""The system calls with which a zygote's clone locks itself in, each with its arguments and the reason for them.

A call that fails raises OSError with the call's name: no path of the host is in an error.
"""

from __future__ import annotations

import ctypes
import os
import signal

# PyDLL holds the interpreter's lock meanwhile: a clone must not be made while it is let go.
_libc = ctypes.PyDLL(None, use_errno=True)

_CLONE3 = 435  # the same number on every machine
_NEW_MOUNTS, _NEW_CGROUP, _NEW_NAMES, _NEW_IPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
_NEW_USER, _NEW_PIDS, _NEW_NET = 0x10000000, 0x20000000, 0x40000000
_WITH_HANDLE = 0x00001000
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING = 1

NO_SETUID, NO_DEVICES, NO_PROGRAMS = 2, 4, 8
BIND, RECURSIVE, PRIVATE = 4096, 16384, 1 << 18
_DETACH = 2

_SET_DUMPABLE, _DROP_BOUNDING, _SET_SECCOMP, _NO_NEW_PRIVILEGES, _AMBIENT = 4, 24, 22, 38, 47
_FILTER, _CLEAR_ALL = 2, 4
_CAPABILITY_VERSION = 0x20080522
_MOST_CAPABILITIES = 64


class _CloneArguments(ctypes.Structure):
    """`struct clone_args`, first version."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls")
    ]


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


_WRITE = os.O_WRONLY | os.O_CLOEXEC
_handle = ctypes.c_int(-1)
_wanted = _CloneArguments(
    flags=_NEW_USER | _NEW_PIDS | _NEW_MOUNTS | _NEW_NET | _NEW_IPC | _NEW_NAMES | _WITH_HANDLE,
    pidfd=ctypes.addressof(_handle),
    exit_signal=signal.SIGCHLD,
)
_wanted_pointer = ctypes.byref(_wanted)
_wanted_size = ctypes.c_size_t(ctypes.sizeof(_wanted))


def _call(name: str, *arguments: object) -> int:
    result = getattr(_libc, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def clone() -> tuple[int, int]:
    """A copy of this process in new namespaces of every kind but cgroup: (pid, handle) here, (0, -1) in the copy.

    The copy is process 1 of its process namespace, and has every capability in its user namespace and none outside.
    The handle (CLONE_PIDFD) is how the host knows the process, whatever its number is where the host looks.

    Python is not told, as `os.fork` does it: a zygote has one thread, so no lock can be held by one that the copy does
    not have. The guest, which the copy makes by `os.fork`, gets all of that: locks, thread ids, random numbers.
    """
    pid = _libc.syscall(_CLONE3, _wanted_pointer, _wanted_size)
    if pid < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"clone3: {os.strerror(number)}")
    return pid, _handle.value if pid else -1


def map_user(pid: int, inside: int, outside: int) -> None:
    """Map user and group `inside` of a clone's user namespace to `outside`, out here. No other user exists."""
    pair = b"%d %d 1" % (inside, outside)
    for name, line in ((b"setgroups", b"deny"), (b"uid_map", pair), (b"gid_map", pair)):
        descriptor = os.open(b"/proc/%d/%b" % (pid, name), _WRITE)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def mount(source: object, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
    """`source` is bytes, or a pointer into a buffer that the caller wipes afterwards."""
    if _libc.mount(source, target, kind, ctypes.c_ulong(flags), data):
        number = ctypes.get_errno()
        raise OSError(number, f"mount on {target.decode()}: {os.strerror(number)}")


def change_root(root: bytes) -> None:
    """Make a mounted folder the root, and let go of the old one with everything that is mounted in it.

    Changing to the same place twice stacks the old root on the new one, where it can be unmounted without having a
    name; from then on no path leads to it.
    """
    os.chdir(root)
    _call("pivot_root", b".", b".")
    _call("umount2", b".", _DETACH)
    os.chdir("/")


def new_session_keyring() -> None:
    """Leave the keyring of the session that the host was started from, which no namespace hides. Best effort: the
    filter refuses every call about keys, and kernels without keys have none to hide.
    """
    _libc.syscall(_KEYCTL.get(os.uname().machine, -1), _JOIN_SESSION_KEYRING, None)


def new_cgroup_namespace() -> None:
    """From here on the group that this process is in is the root of all groups."""
    _call("unshare", _NEW_CGROUP)


def become(user: int) -> None:
    """The only user that exists in this namespace. Who the zygote is must not be who its clone is."""
    _call("setresgid", user, user, user)
    _call("setresuid", user, user, user)


def set_readable(*, readable: bool) -> None:
    """Whether other processes of the same user may look into this one (/proc, tracing)."""
    _call("prctl", _SET_DUMPABLE, int(readable), 0, 0, 0)


def drop_capabilities() -> None:
    """All of them, for this process and whatever it becomes: bounding set first, as dropping from it needs one."""
    for number in range(_MOST_CAPABILITIES):
        if _libc.prctl(_DROP_BOUNDING, number, 0, 0, 0) < 0:
            break
    _call("prctl", _AMBIENT, _CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())


def no_new_privileges() -> None:
    """Running a program never gives rights: no set-uid, no file capabilities. A filter needs it."""
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)


class Filter:
    """A system-call filter (BPF), made ready once; `install` puts this process and all that it starts behind it."""

    def __init__(self, program: bytes) -> None:
        self._rules = _Program(len(program) // 8, program)
        self._arguments = (_SET_SECCOMP, _FILTER, ctypes.byref(self._rules), 0, 0)

    def install(self) -> None:
        if _libc.prctl(*self._arguments):
            number = ctypes.get_errno()
            raise OSError(number, f"seccomp: {os.strerror(number)}")
