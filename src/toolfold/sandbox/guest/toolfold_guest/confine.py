"""What the sandbox's first process gives up before any of the agent's code exists. None of it can be taken back.

The namespaces, mounts and the system-call filter are in place already; this adds limits and, where the kernel has it,
Landlock: a second, independent wall around files, devices, signals and sockets.
"""

from __future__ import annotations

import ctypes
import os
import resource
import threading

_LIST = 0b1000
_READ = 0b0100 | _LIST
_EXECUTE = 0b1
_WRITE_FILE = 0b10
_REMOVE_AND_MAKE = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 12  # rmdir, unlink, mkdir, file, pipe, symlink
_REFER = 1 << 13
_TRUNCATE = 1 << 14
_IOCTL_DEVICE = 1 << 15
_EVERY_FIRST = (1 << 13) - 1
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every machine
# Facts about the machine that libraries ask for. The rest of /proc, each thread's folder included, names paths of the
# host, its groups and other processes. So do /sys, which engines mount, and what they put into /etc.
_PROC = ("meminfo", "cpuinfo", "stat", "loadavg", "uptime", "filesystems")
_PROC_SELF = ("status", "stat", "statm", "maps", "cmdline", "comm", "limits", "fd", "auxv")
_OF_THE_HOST = ("resolv.conf", "hostname")
_DEVICES = ("null", "zero", "full", "random", "urandom")


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def limit(limits: dict[str, int]) -> None:
    """Hard limits; without capabilities they cannot be raised again."""
    for name, value in limits.items():
        which = getattr(resource, name)
        _, hard = resource.getrlimit(which)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (bound, bound))
    # Eight megabytes for every thread would be counted against the memory limit before a byte is used.
    threading.stack_size(2 * 1024 * 1024)


def restrict_files(writable: tuple[str, ...]) -> int:
    """Landlock: read everything that is mounted, run only the runtime, write only below `writable`.

    Answers the kernel's Landlock version; 0 means that there is none, and that the mounts stand alone.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return 0
    change = _WRITE_FILE | _REMOVE_AND_MAKE
    files = _EVERY_FIRST
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEVICE)):
        if version >= since:
            files |= right
    change |= (_REFER | _TRUNCATE) & files
    # Nothing is allowed in `net` and `scoped`: no TCP, no abstract sockets, no signals to processes outside.
    ruleset = _Ruleset(files, 0b11 if version >= 4 else 0, 0b11 if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    handle = libc.syscall(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), 0)
    if handle < 0:
        raise OSError(ctypes.get_errno(), "Landlock refused its rules")
    try:
        for path, rights in _rules(writable, change):
            _allow(libc, handle, path, rights)
        if libc.syscall(_RESTRICT_SELF, handle, 0):
            raise OSError(ctypes.get_errno(), "Landlock could not be entered")
    finally:
        os.close(handle)
    return version


def _rules(writable: tuple[str, ...], change: int) -> list[tuple[str, int]]:
    rules = [(path, _READ | change) for path in writable]
    rules += [("/", _LIST), ("/agent", _READ)]
    others = {"agent", "tmp", "dev", "proc", "sys", "etc"}
    rules += [(f"/{name}", _READ | _EXECUTE) for name in os.listdir("/") if name not in others]  # noqa: PTH208
    # Links may lead to what is left out; what they lead to otherwise has its own rule.
    settings = [f"/etc/{name}" for name in os.listdir("/etc") if name not in _OF_THE_HOST]  # noqa: PTH208
    rules += [(path, _READ) for path in settings if not os.path.islink(path)]  # noqa: PTH114
    rules += [(f"/dev/{name}", _READ | _WRITE_FILE | (change & _TRUNCATE)) for name in _DEVICES]
    rules += [("/dev/shm", _READ | change)]  # noqa: S108 - the sandbox's own
    rules += [(f"/proc/{name}", _READ) for name in _PROC]
    rules += [(f"/proc/self/{name}", _READ) for name in _PROC_SELF]
    return rules


_FOLDER_ONLY = _LIST | _REMOVE_AND_MAKE | _REFER


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(f"/proc/self/fd/{parent}"):  # noqa: PTH112 - pathlib is not worth its import here
            rights &= ~_FOLDER_ONLY
        beneath = _Beneath(rights, parent)
        if libc.syscall(_ADD_RULE, ruleset, 1, ctypes.byref(beneath), 0):
            raise OSError(ctypes.get_errno(), f"Landlock refused a rule for {path}")
    finally:
        os.close(parent)
