"""Sandboxes that wait, already started: a program meets a warm interpreter, uses it once, and it is thrown away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol, cast

from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxUnavailable, ToolfoldError
from toolfold.sandbox.processes import cpu_of
from toolfold.sandbox.protocol import Backend, Cell, SeparatesOwners, SessionHome, Supervised
from toolfold.sandbox.sandbox import Sandbox

_GRACE = 0.03
"""Seconds before a taken sandbox is replaced: the run that took it has the processor first."""
_LONGEST_BACKOFF = 30.0
_SHARE = 8
_EACH = 16 * 1024 * 1024
"""Waiting sandboxes, at so many bytes each, take at most one eighth of the memory that is free at the start."""
_CLOSING_SECONDS = 10.0


class HomeKeeper(Protocol):
    def new(self) -> SessionHome: ...

    def remove(self, home: SessionHome) -> None: ...


@dataclass
class PoolStatistics:
    """For people and metrics. All but the first four only grow."""

    owned: int = 0
    """Sandboxes that were started and not ended: those that wait, and those that runs and sessions use."""
    warm: int = 0
    starting: int = 0
    waiting: int = 0
    """Runs that found no sandbox ready and stand in line for one."""
    taken: int = 0
    waited: int = 0
    """How many of those taken had to be waited for."""
    longest_wait: float = 0.0
    lost: int = 0
    """Sandboxes that ended while they waited, and were replaced."""
    failed: int = 0
    started: int = 0
    cpu: float = 0.0
    """Processor seconds that its sandboxes have used, as far as that was seen."""

    def __add__(self, other: PoolStatistics) -> PoolStatistics:
        sums = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        sums["longest_wait"] = max(self.longest_wait, other.longest_wait)
        return PoolStatistics(**sums)


class Pool:
    """Keeps sandboxes warm on the current API tree. An async context manager: leaving it ends all of them.

    `statistics` is current at any time. A burst larger than the pool stands in line, first come, first served.
    """

    def __init__(
        self, backend: Backend, api: Path, homes: HomeKeeper, settings: SandboxSettings, owner: str = ""
    ) -> None:
        self._backend = backend
        self._api = api
        self._homes = homes
        self._settings = settings
        self._owner = owner
        worth = getattr(backend, "warm", settings.pool)
        self._starts_fast = hasattr(backend, "warm")
        self._behind = False
        """Whether the last sandbox that was started had been waited for."""
        self._size = min(settings.pool, worth, max(1, _free_memory() // _SHARE // _EACH))
        # More starts at once than cores only make each of them slower.
        self._at_once = max(2, os.cpu_count() or 2)
        self._starts = asyncio.Semaphore(self._at_once)
        self._warm: deque[Sandbox] = deque()
        self._line: deque[asyncio.Future[Sandbox]] = deque()
        self._starting: set[asyncio.Task[None]] = set()
        self._resuming: set[asyncio.Task[Sandbox]] = set()
        """Starts in homes that exist already."""
        self._closing: set[asyncio.Task[None]] = set()
        self._refill: asyncio.TimerHandle | None = None
        self._owned: set[Sandbox] = set()
        """Every sandbox that was started and has not ended: waiting, or in use."""
        self._cpu: dict[Sandbox, float] = {}
        """What each of them had used when it was last seen."""
        # A home of 60,000 files takes a while to remove; nothing else may wait for that.
        self._removals = ThreadPoolExecutor(1, "remove")
        self._open = False
        self._failures = 0
        self.statistics = PoolStatistics()

    async def __aenter__(self) -> Pool:
        self._open = True
        self._tend()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._open = False
        self._later(None)
        for waiter in self._line:
            if not waiter.done():
                waiter.set_exception(shutting_down())
        self._line.clear()
        await self.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                # What was starting ends as soon as it has started, and what somebody still uses ends now.
                while pending := self._under_way():
                    await asyncio.wait(pending)
        self._removals.shutdown(wait=False, cancel_futures=True)

    @property
    def is_idle(self) -> bool:
        """Whether nothing but waiting sandboxes is there."""
        return not self._line and not self._resuming and len(self._owned) == len(self._warm)

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def waiting_sandboxes(self) -> tuple[Sandbox, ...]:
        """Those that have not been taken yet, for benchmarks and tests."""
        return tuple(self._warm)

    def pids(self) -> dict[Sandbox, list[int]]:
        """The processes of every sandbox, where they can be seen."""
        return {sandbox: _pids(sandbox) for sandbox in self._owned}

    def saw(self, sandbox: Sandbox, cpu: float) -> None:
        """Count the processor seconds that a sandbox has used so far."""
        before = self._cpu.get(sandbox, 0.0)
        self.statistics.cpu += max(0.0, cpu - before)
        self._cpu[sandbox] = max(cpu, before)

    async def take(self) -> Sandbox:
        """A sandbox that has never been used, with an empty home of its own."""
        if not self._open:
            raise shutting_down()
        self.statistics.taken += 1
        if self._warm and not self._line:
            sandbox = self._warm.popleft()
            sandbox.on_end = None
            self._tend()
            return sandbox
        waiter: asyncio.Future[Sandbox] = asyncio.get_running_loop().create_future()
        self._line.append(waiter)
        self._tend()
        begun = time.monotonic()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._offer(waiter.result())
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._line.remove(waiter)
            self.statistics.waited += 1
            self.statistics.longest_wait = max(self.statistics.longest_wait, time.monotonic() - begun)
            self._count()

    async def start_in(self, home: SessionHome) -> Sandbox:
        """A sandbox around a home that exists already: a session that comes back."""
        if not self._open:
            raise shutting_down()
        starting = asyncio.create_task(self._start(home, empty=False))
        self._resuming.add(starting)
        starting.add_done_callback(self._resuming.discard)
        try:
            return await asyncio.shield(starting)
        except OSError as error:
            raise _explained(error) from None
        except asyncio.CancelledError:
            # A start cannot be undone half way: let it finish, then end what it started.
            starting.add_done_callback(self._unwanted)
            raise

    async def drain(self) -> None:
        """End every sandbox that waits; the pool fills itself again with new ones while it is open."""
        warm, self._warm = self._warm, deque()
        for sandbox in warm:
            sandbox.on_end = None
            self.discard(sandbox)
        self._tend()

    def discard(self, sandbox: Sandbox, *, keep_home: bool = False) -> asyncio.Task[None]:
        """End a sandbox in the background, and remove its home."""
        self._owned.discard(sandbox)
        self._count()
        task = asyncio.create_task(self._end(sandbox, keep_home=keep_home))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    def _under_way(self) -> set[asyncio.Task[Any]]:
        """What leaving waits for: starts, and the end of every sandbox."""
        ending = {self.discard(sandbox) for sandbox in list(self._owned)}
        return self._starting | self._resuming | self._closing | ending

    async def _end(self, sandbox: Sandbox, *, keep_home: bool) -> None:
        if self._open:
            # Taking down namespaces keeps both the kernel and us busy: the run's answer leaves first.
            await asyncio.sleep(_GRACE)
            self.saw(sandbox, cpu_of(_pids(sandbox)))
        self._cpu.pop(sandbox, None)
        await sandbox.close()
        if not keep_home:
            await self._remove(sandbox.home)

    async def _remove(self, home: SessionHome) -> None:
        await asyncio.get_running_loop().run_in_executor(self._removals, self._homes.remove, home)

    # Keeping it full

    def _tend(self) -> None:
        """Start what is missing: at once for those who stand in line, after a moment for later."""
        self._count()
        if not self._open:
            return
        if len(self._starting) < min(len(self._line), self._at_once):
            self._start_one()
            self._tend()
        elif self._missing() > 0:
            if self._behind and self._starts_fast and not self._starting and not self._failures:
                # Runs come one after the other, faster than sandboxes: the next is made while this one runs.
                self._start_one()
                self._count()
            else:
                self._later(_GRACE * 2 ** min(self._failures, 16))

    def _missing(self) -> int:
        return self._size + len(self._line) - len(self._warm) - len(self._starting)

    def _later(self, seconds: float | None) -> None:
        if self._refill is not None:
            if seconds is not None:
                return
            self._refill.cancel()
            self._refill = None
        elif seconds is not None:
            self._refill = asyncio.get_running_loop().call_later(min(seconds, _LONGEST_BACKOFF), self._fill)

    def _fill(self) -> None:
        """Start one for later. Never as many at once as there are cores: programs run meanwhile."""
        self._refill = None
        if self._may_start_for_later():
            self._start_one()
        if self._may_start_for_later() and not self._failures:
            self._later(_GRACE)

    def _may_start_for_later(self) -> bool:
        return self._open and self._missing() > 0 and len(self._starting) < max(1, self._at_once // 2)

    def _start_one(self) -> None:
        task = asyncio.create_task(self._start_new())
        self._starting.add(task)
        task.add_done_callback(self._started)

    def _started(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        self._tend()

    async def _start_new(self) -> None:
        home: SessionHome | None = None
        try:
            home = await asyncio.to_thread(self._homes.new)
            sandbox = await self._start(home, empty=True)
        except (ToolfoldError, OSError) as error:
            self._failures += 1
            self._later(None)  # the pause is a longer one now
            self.statistics.failed += 1
            if home is not None:
                await self._remove(home)
            # The first in line learns it; the others get their own try.
            waiter = self._next_in_line()
            if waiter is not None:
                waiter.set_exception(_explained(error))
            return
        self._failures = 0
        self._offer(sandbox)

    async def _start(self, home: SessionHome, *, empty: bool) -> Sandbox:
        async with self._starts:
            sandbox = await Sandbox.start(self._begin(home), home, self._settings, empty=empty)
        self._owned.add(sandbox)
        self.statistics.started += 1
        self._count()
        return sandbox

    def _begin(self, home: SessionHome) -> Awaitable[Cell]:
        if self._owner and isinstance(self._backend, SeparatesOwners):
            return cast("SeparatesOwners", self._backend).start(home, self._api, self._owner)
        return self._backend.start(home, self._api)

    def _offer(self, sandbox: Sandbox) -> None:
        """Give a fresh sandbox to the first in line, or let it wait."""
        if not self._open or not sandbox.alive:
            self.discard(sandbox)
        elif (waiter := self._next_in_line()) is not None:
            self._behind = True
            waiter.set_result(sandbox)
        elif len(self._warm) < self._size:
            self._behind = False
            sandbox.on_end = lambda: self._lost(sandbox)
            self._warm.append(sandbox)
        else:
            self.discard(sandbox)
        self._count()

    def _next_in_line(self) -> asyncio.Future[Sandbox] | None:
        while self._line:
            waiter = self._line.popleft()
            if not waiter.done():
                return waiter
        return None

    def _lost(self, sandbox: Sandbox) -> None:
        """A waiting sandbox ended: it is never handed out."""
        if sandbox in self._warm:
            self._warm.remove(sandbox)
            self.statistics.lost += 1
            self.discard(sandbox)
            self._tend()

    def _unwanted(self, starting: asyncio.Task[Sandbox]) -> None:
        if not starting.cancelled() and starting.exception() is None:
            self.discard(starting.result(), keep_home=True)

    def _count(self) -> None:
        self.statistics.owned = len(self._owned)
        self.statistics.warm = len(self._warm)
        self.statistics.starting = len(self._starting)
        self.statistics.waiting = len(self._line)


def _pids(sandbox: Sandbox) -> list[int]:
    return sandbox.cell.pids() if sandbox.alive and isinstance(sandbox.cell, Supervised) else []


def shutting_down() -> SandboxUnavailable:
    return SandboxUnavailable("Toolfold is shutting down.")


def _explained(error: ToolfoldError | OSError) -> ToolfoldError:
    if isinstance(error, ToolfoldError):
        return error
    hint = "See that there is space and room for new files where Toolfold keeps its data; `toolfold doctor` names it."
    return SandboxUnavailable(f"No sandbox could be started: {error.strerror or error}.", hint=hint)


def _free_memory() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 1 << 62
