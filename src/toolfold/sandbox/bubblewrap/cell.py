"""One started bubblewrap sandbox, seen from outside: ended, waited for, limited, made to stand still."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from typing import Protocol

from toolfold.config.settings import SandboxSettings
from toolfold.errors import LimitExceeded, SandboxDied, SandboxUnavailable
from toolfold.sandbox.exits import in_words, readable, uninterrupted
from toolfold.sandbox.processes import PIPES_PER_PROCESS, Hoards, Processes, Sleep
from toolfold.sandbox.walls import cgroup

IN_MEMORY = ("/tmp", "/dev/shm")  # noqa: S108 - the sandbox's own
"""Its folders that are memory."""
_OWN_MEMORY = 32 * 1024 * 1024
"""What bwrap and the file cache take beside the program. A process meets its own limit before the group's."""
_OWN_PROCESSES = 3


class Handle(Protocol):
    """The process whose end is the cell's end; `subprocess.Popen` is one."""

    pid: int
    returncode: int | None

    def kill(self) -> None: ...

    def wait(self) -> int: ...


class BubblewrapCell:
    """One bwrap process tree. Ending its first process inside ends all of them: the kernel sees to that."""

    def __init__(
        self,
        process: Handle,
        pidfd: int,
        channel: socket.socket,
        output: int,
        status: int,
        settings: SandboxSettings,
    ) -> None:
        self.channel = channel
        self.output = output
        self._process = process
        self._status = status
        self._settings = settings
        self._pidfd = pidfd
        self._first: tuple[int, int] | None = None
        self._ended: asyncio.Task[str] | None = None
        self._gone = False
        self._group: cgroup.Cgroup | None = None
        self._held = frozenset[str]()
        self._processes: Processes | None = None
        self._sleep: Sleep | None = None
        self._hoards: Hoards | None = None
        self._budget = float("inf")
        self._broken: LimitExceeded | None = None

    async def enclose(self, cgroups: cgroup.Cgroups | None) -> None:
        """Put the process, which has done nothing yet, into a group of its own."""
        if cgroups is None:
            return
        settings = self._settings
        bounds = cgroup.Bounds(settings.memory + _OWN_MEMORY, settings.processes + _OWN_PROCESSES, settings.cpu)

        def enter() -> cgroup.Cgroup:
            group = cgroups.create(bounds)
            try:
                group.admit(self._process.pid)
            except OSError:
                group.remove()
                raise
            return group

        try:
            # The kernel may take milliseconds to move a process.
            entering = asyncio.get_running_loop().run_in_executor(None, enter)
            self._group = await uninterrupted(entering, on_cancel=self._belongs_to)
        except OSError as error:
            message = f"the sandbox's limits could not be set: {error}."
            raise SandboxUnavailable(message, hint="Is /sys/fs/cgroup still writable?") from error
        self._held = cgroups.holds

    def _belongs_to(self, group: cgroup.Cgroup) -> None:
        self._group = group

    def kill(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def wait(self) -> str:
        if self._ended is None:
            self._ended = asyncio.create_task(self._wait())
        return await asyncio.shield(self._ended)

    async def _wait(self) -> str:
        first = self._open_first()
        await readable(self._pidfd)
        code = self._process.wait()
        try:
            if first is not None:
                # The sandbox's own first process is gone only when every process in its namespace is.
                async with asyncio.timeout(5):
                    await readable(first)
        except TimeoutError:
            raise SandboxDied("the sandbox's processes did not end within 5 s of being killed.") from None
        finally:
            self._gone = True
            self.channel.close()
            for descriptor in (self._pidfd, self._status, self.output, first):
                if descriptor is not None:
                    os.close(descriptor)
            if self._group is not None:
                self._broken = self._broken or self._out_of_memory()
                await asyncio.to_thread(self._group.remove)
                self._group = None
        return in_words(code)

    def _open_first(self) -> int | None:
        """A handle on process 1 of the sandbox, which bwrap names on the status pipe."""
        if self._first is None:
            os.set_blocking(self._status, False)
            try:
                line = os.read(self._status, 4096).split(b"\n")[0]
                pid = int(json.loads(line)["child-pid"])
                self._first = (pid, os.pidfd_open(pid))
            except (OSError, ValueError, KeyError):
                return None
        return self._first[1]

    # Supervision

    def begin(self, seconds: float) -> None:
        self.resume()
        tree = self._tree()
        if self._hoards is not None:
            self._hoards.begin()
        if "cpu" not in self._held and tree is not None:
            self._budget = tree.use(self._settings.memory).cpu + seconds * self._settings.cpu

    def pause(self) -> None:
        if self._tree() is not None and self._sleep is not None:
            self._sleep.pause()

    def resume(self) -> None:
        if self._sleep is not None:
            self._sleep.resume()

    def still(self) -> bool:
        return self._sleep is not None and self._sleep.still()

    def pids(self) -> list[int]:
        tree = self._tree()
        return tree.pids() if tree is not None else []

    def exceeded(self) -> LimitExceeded | None:
        if self._broken is None:
            self._broken = self._out_of_memory() or self._measured()
            if self._broken is None and self._hoards is not None and not self._gone:
                self._broken = self._hoards.exceeded()
        return self._broken

    def _out_of_memory(self) -> LimitExceeded | None:
        if self._group is None or not self._group.memory_kills():
            return None
        return _too_much_memory(self._settings.memory)

    def _measured(self) -> LimitExceeded | None:
        """What no group holds is measured."""
        tree = self._tree()
        if tree is None or {"memory", "cpu"} <= self._held:
            return None
        settings = self._settings
        use = tree.use(settings.memory)
        if "memory" not in self._held and use.memory > settings.memory + _OWN_MEMORY:
            return _too_much_memory(settings.memory)
        if "cpu" not in self._held and use.cpu > self._budget:
            message = f"The program used more processor time than {settings.cpu:g} core(s) give within its time."
            return LimitExceeded(message, limit="sandbox.cpu")
        return None

    def _tree(self) -> Processes | None:
        if self._gone:
            return None
        if self._processes is None and self._open_first() is not None and self._first is not None:
            self._processes = Processes(self._first[0], IN_MEMORY)
            self._sleep = Sleep(self._processes, self._group.freezer if self._group is not None else None)
            self._hoards = Hoards(self._processes, self._sleep, PIPES_PER_PROCESS * self._settings.processes)
        return self._processes


def _too_much_memory(limit: int) -> LimitExceeded:
    message = f"The program and everything it started used more than {limit:,} bytes of memory."
    return LimitExceeded(message, limit="sandbox.memory")
