"""A sandbox's processes as the host sees them: what they use, and how to make all of them stand still."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass

from toolfold.errors import LimitExceeded
from toolfold.sandbox.walls.cgroup import Freezer

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_ROUNDS = 100
NO_CORE = 1
"""RLIMIT_CORE. With 0 no file is written, but a crash starts the host's crash handler, as root; with 1 it does not."""
PIPES_PER_PROCESS = 4
"""So many pipes and epoll instances are allowed for each process that is."""
_HOARD_LOOK = 0.5
"""Seconds between looks at what a running program hoards."""
_INODE = 1024
"""Bytes of kernel memory that one more file in a temporary folder costs, roughly."""
_FEW_SOCKETS = 64
_IN_A_SOCKET = 320_000
"""Bytes of kernel memory that what was sent to a socket, and not read, can take: half more than the usual buffer."""


_starting = threading.Lock()


@contextlib.contextmanager
def no_core() -> Generator[None]:
    """What is started meanwhile inherits `NO_CORE`, which the sandbox's filter keeps it from changing.

    As root we may not set it for a process that is somebody else already, so it is ours for that moment.
    """
    with _starting:
        soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
        if hard == 0:
            yield
            return
        resource.setrlimit(resource.RLIMIT_CORE, (NO_CORE, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


@dataclass(frozen=True)
class Use:
    memory: int = 0
    """Bytes: of every process, pages shared between them counted once, of the temporary folders, and in sockets."""
    cpu: float = 0.0
    """Processor seconds, those of processes that ended included."""
    processes: int = 0


def used_by(pids: list[int]) -> Use:
    """What these processes use now; of those that have ended, nothing. About a millisecond for each."""
    return Use(sum(map(_proportional, pids)), cpu_of(pids), len(pids))


def cpu_of(pids: list[int]) -> float:
    """Processor seconds, those of their own children that ended included. Programs run for milliseconds, so they are
    counted finer than limits need them."""
    return sum(max(_cpu(pid), sum(map(_run_time, _threads(pid)))) for pid in pids)


class Processes:
    """The tree below process 1 of a sandbox. Nothing in it can leave the tree: orphans become children of process 1."""

    def __init__(self, first: int, memory_folders: tuple[str, ...]) -> None:
        self._first = first
        self._folders = [f"/proc/{first}/root{folder}" for folder in memory_folders]

    def pids(self) -> list[int]:
        """Every process but the first, which is bwrap's own."""
        found: list[int] = []
        todo = [self._first]
        while todo:
            children = _children(todo.pop())
            found += children
            todo += children
        return found

    def use(self, enough: int) -> Use:
        """What the tree uses now. Memory is counted exactly only when it might be more than `enough`."""
        pids = self.pids()
        cpu = sum(_cpu(pid) for pid in (self._first, *pids))
        elsewhere = sum(_used(folder) for folder in self._folders) + _in_sockets(self._first)
        memory = sum(_resident(pid) for pid in pids)
        if memory + elsewhere > enough:
            memory = sum(_proportional(pid) for pid in pids)
        return Use(memory + elsewhere, cpu, len(pids))

    def hoarded(self, enough: int) -> int:
        """Pipes and epoll instances that it holds open: the kernel counts both against all programs of the user.

        Counted exactly only when it may be more than `enough`. One epoll instance for each process is free.
        """
        pids = self.pids()
        if sum(map(_open_descriptors, pids)) <= enough:
            return 0
        pipes: set[str] = set()
        polls = 0
        for pid in pids:
            targets = _targets(pid)
            pipes.update(target for target in targets if target.startswith("pipe:"))
            polls += max(0, targets.count("anon_inode:[eventpoll]") - 1)
        return len(pipes) + polls

    def stop(self) -> None:
        """Make every process stand still. One that stands still starts no other, so this ends."""
        stopped: set[int] = set()
        for _ in range(_ROUNDS):
            fresh = [pid for pid in self.pids() if pid not in stopped]
            if not fresh:
                return
            for pid in fresh:
                self._signal(pid, signal.SIGSTOP)
            stopped.update(fresh)

    def resume(self) -> None:
        for pid in self.pids():
            self._signal(pid, signal.SIGCONT)

    def activity(self) -> dict[str, tuple[bytes, bytes]]:
        """Of every thread: its state, and a count that changes whenever it runs for however short a time."""
        found: dict[str, tuple[bytes, bytes]] = {}
        for pid in self.pids():
            with contextlib.suppress(OSError):
                for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - this runs often
                    found[f"{pid} {thread}"] = _activity(f"/proc/{pid}/task/{thread}")
        return found

    def _signal(self, pid: int, number: signal.Signals) -> None:
        """Signal through a handle, and only what still is in the tree: numbers are used again, handles are not."""
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(pid)
            try:
                if _same_namespace(pid, self._first):
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)


class Hoards:
    """Whether a program hoards what all programs of its user share. Looking costs more than other limits do, so it is
    done now and then, and always before the program sleeps: what it holds then it may hold for hours."""

    def __init__(self, processes: Processes, sleep: Sleep, most: int) -> None:
        self._processes = processes
        self._sleep = sleep
        self._most = most
        self._next = 0.0

    def begin(self) -> None:
        """A run begins: a short one is looked at when it sleeps."""
        self._next = time.monotonic() + _HOARD_LOOK

    def exceeded(self) -> LimitExceeded | None:
        now = time.monotonic()
        if now < self._next and not self._sleep.paused:
            return None
        self._next = now + _HOARD_LOOK
        if self._processes.hoarded(self._most) <= self._most:
            return None
        message = f"The program and everything it started hold more than {self._most:,} pipes and epoll instances open."
        return LimitExceeded(message, limit="sandbox.processes", hint="Close those that are no longer needed.")


class Sleep:
    """Between runs nothing in a sandbox works. That is held from outside: by a freezer where there is one.

    Elsewhere every process is stopped and watched. A stopped process can arrange to be woken (by a timer that sends
    SIGCONT), so `still` is false as soon as one of them has run at all since it stood still.
    """

    def __init__(self, processes: Processes, freezer: Freezer | None) -> None:
        self._processes = processes
        self._freezer = freezer
        self.paused = False
        self._seen: dict[str, tuple[bytes, bytes]] | None = None

    def pause(self) -> None:
        if self.paused:
            return
        self.paused = True
        self._seen = None
        if self._freezer is not None:
            self._freezer.freeze()
        else:
            self._processes.stop()

    def resume(self) -> None:
        if not self.paused:
            return
        self.paused = False
        if self._freezer is not None:
            self._freezer.thaw()
        else:
            self._processes.resume()

    def still(self) -> bool:
        """Whether everything stands still, and has done so since this was first true."""
        if not self.paused:
            return False
        if self._freezer is not None:
            return self._freezer.frozen()
        now = self._processes.activity()
        if any(state not in _STANDING for state, _ in now.values()):
            return False
        if self._seen is None:
            self._seen = now
        return now == self._seen


_STANDING = (b"T", b"t", b"Z", b"X")
"""States of a thread that is stopped or has ended."""


def _activity(thread: str) -> tuple[bytes, bytes]:
    try:
        fields = read_small(f"{thread}/stat").rpartition(b")")[2].split()
    except OSError:
        return b"X", b""
    with contextlib.suppress(OSError):
        return fields[0], read_small(f"{thread}/schedstat")
    # Kernels without these counts have coarser ones.
    return fields[0], b" ".join(fields[11:13])


def _same_namespace(pid: int, other: int) -> bool:
    return os.stat(f"/proc/{pid}/ns/pid").st_ino == os.stat(f"/proc/{other}/ns/pid").st_ino  # noqa: PTH116


def read_small(path: str) -> bytes:
    """A file of /proc. This runs many times a second, so nothing is opened that costs more than the file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - the same
            with contextlib.suppress(OSError):
                found += map(int, read_small(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _open_descriptors(pid: int) -> int:
    try:
        # The folder's size is their number since Linux 6.2, and 0 before.
        return os.stat(f"/proc/{pid}/fd").st_size or len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH116, PTH208
    except OSError:
        return 0


def _targets(pid: int) -> list[str]:
    found: list[str] = []
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                found.append(os.readlink(f"/proc/{pid}/fd/{number}"))  # noqa: PTH115
    return found


def _cpu(pid: int) -> float:
    try:
        fields = read_small(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS
    except (OSError, ValueError):
        return 0.0


def _threads(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
    except OSError:
        return []


def _run_time(thread: str) -> float:
    try:
        return int(read_small(f"{thread}/schedstat").split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _resident(pid: int) -> int:
    try:
        return int(read_small(f"/proc/{pid}/statm").split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    try:
        for line in read_small(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return _resident(pid)


def _in_sockets(first: int) -> int:
    """What the sandbox's sockets may hold. The kernel does not tell how much it is; programs need few of them."""
    try:
        used = int(read_small(f"/proc/{first}/net/sockstat").split()[2])
    except (OSError, ValueError, IndexError):
        return 0
    return max(0, used - _FEW_SOCKETS) * _IN_A_SOCKET


def _used(folder: str) -> int:
    """Bytes in a folder that lives in memory."""
    try:
        held = os.statvfs(folder)
    except OSError:
        return 0
    return (held.f_blocks - held.f_bfree) * held.f_frsize + (held.f_files - held.f_ffree) * _INODE
