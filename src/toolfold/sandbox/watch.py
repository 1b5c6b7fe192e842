"""What a sandbox uses while a program runs, and that nothing in it moves between two runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolfold.errors import LimitExceeded, SandboxDied, ToolfoldError
from toolfold.sandbox.protocol import Cell, SessionHome, Supervised
from toolfold.sandbox.quota import Quota

_LOOK = 0.05
"""Seconds between looks at what a run uses."""
_STILL_AFTER = 0.05
"""Seconds after a run until everything inside is made to stand still. The next run may well come at once."""
_STILL_WITHIN = 2.0
"""Seconds within which everything does stand still: what does not is ended."""
_FEW = 4
"""Processes that may always be left: those of the sandbox itself, and one or two."""
_IDLE_LOOK = 2.0
"""Seconds between looks at a sleeping sandbox."""


class Watch:
    """One per sandbox: `wake`, `begin`, `settle`, `rest`, and so on. `on_broken` is called with a broken limit."""

    def __init__(self, cell: Cell, quota: Quota, processes: int, on_broken: Callable[[ToolfoldError], None]) -> None:
        """`processes` is how many a program may have."""
        self._supervised = cell if isinstance(cell, Supervised) else None
        self._quota = quota
        self._processes = processes
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._watching = True
        self._timer: asyncio.TimerHandle | None = None
        self._measuring: asyncio.Task[None] | None = None
        self._falling_asleep: asyncio.Task[None] | None = None

    @property
    def home(self) -> SessionHome:
        return self._quota.home

    @home.setter
    def home(self, home: SessionHome) -> None:
        self._quota.home = home

    def stop(self) -> None:
        """The sandbox has ended: nothing is left to look at."""
        self._watching = False
        self._later(None)

    def exceeded(self) -> LimitExceeded | None:
        return self._supervised.exceeded() if self._supervised is not None else None

    # During a run

    def begin(self, timeout: float) -> None:
        if self._supervised is not None:
            self._supervised.begin(timeout)
        self._quota.begin()
        self._later(_LOOK, self._look)

    def _look(self) -> None:
        """Several times a second: has the run used more than it may?"""
        broken = self.exceeded()
        if broken is not None:
            self._on_broken(broken)
        elif self._quota.suspicious(self._pids):
            self._measuring = asyncio.create_task(self._measure())
        else:
            self._later(_LOOK, self._look)

    def _pids(self) -> list[int]:
        return self._supervised.pids() if self._supervised is not None else []

    async def _measure(self, *, last: bool = False) -> None:
        """Count the home's files while nothing can add to them. After the `last` time of a run nothing moves again."""
        supervised = self._supervised
        if supervised is not None:
            supervised.pause()
            await self._until_still(supervised)
        broken = await asyncio.to_thread(self._quota.measure, self._pids)
        if not self._watching:
            return
        if broken is not None:
            self._on_broken(broken)
            return
        if not last:
            if supervised is not None:
                supervised.resume()
            self._later(_LOOK, self._look)

    async def settle(self) -> None:
        """A run that ended well may have broken a limit since the last look."""
        self._later(None)
        if self._measuring is not None:
            await self._measuring
            self._later(None)
        if self._watching and self._quota.unsure(self._pids):
            await self._measure(last=True)
        broken = self.exceeded()
        if broken is not None and self._watching:
            raise broken

    # Between runs

    def rest(self, *, failed: bool) -> None:
        """Between runs nothing works: no thread, no process that the program left behind."""
        if failed and (broken := self._crowded()) is not None:
            self._on_broken(broken)  # a bomb would go on in the next run, which may come before it sleeps
        else:
            self._later(_STILL_AFTER, self._stand_still)

    def _stand_still(self) -> None:
        if self._supervised is not None:
            self._supervised.pause()
            self._falling_asleep = asyncio.create_task(self._fall_asleep(self._supervised))

    async def _fall_asleep(self, supervised: Supervised) -> None:
        """Once nothing moves, the home is what it will be until the next run: see that it is no more than allowed."""
        broken: ToolfoldError | None = None
        if not await self._until_still(supervised):
            broken = SandboxDied("the program went on working after its end.")
        elif self._watching:
            broken = supervised.exceeded() or self._crowded()
            if broken is None and self._quota.unsure(self._pids):
                broken = await asyncio.to_thread(self._quota.measure, self._pids)
        self._quota.sleep()
        if broken is not None:
            self._on_broken(broken)
        elif self._watching:
            self._later(_IDLE_LOOK, self._idle_look)

    def _crowded(self) -> LimitExceeded | None:
        """Whether a run left so many processes that the next one would lack them."""
        left = len(self._pids())
        if left <= max(self._processes // 2, _FEW):
            return None
        message = f"The program left {left} processes running; a run may have {self._processes}."
        return LimitExceeded(message, limit="sandbox.processes", hint="Wait for each before the program ends.")

    async def _until_still(self, supervised: Supervised) -> bool:
        deadline = self._loop.time() + _STILL_WITHIN
        while not supervised.still():
            if not self._watching or self._loop.time() > deadline:
                return False
            await asyncio.sleep(0.001)
        return True

    def _idle_look(self) -> None:
        if self._supervised is not None and not self._supervised.still():
            self._on_broken(SandboxDied("the program went on working after its end."))
        elif self._watching:
            self._later(_IDLE_LOOK, self._idle_look)

    async def wake(self) -> None:
        """Before a run: see that nothing has worked since the last one, and that the home is not too full to run."""
        if self._falling_asleep is not None:
            if not self._falling_asleep.done():
                await asyncio.wait([self._falling_asleep])
            self._falling_asleep = None
            self._idle_look()
        if self._watching and self._quota.unknown:
            broken = await asyncio.to_thread(self._quota.measure, self._pids)
            if broken is not None:
                self._on_broken(broken)

    def _later(self, seconds: float | None, action: Callable[[], None] | None = None) -> None:
        """There is one timer; setting it replaces what it was set to."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, action) if seconds is not None and action is not None else None
