"""Limits how many server processes start at the same time.

Starting a server is mostly processor time. Forty-six at once on two cores take so long that half of them miss their
`start_timeout`; a few at once, and each is up within seconds. So a start waits for its turn, and its `start_timeout`
counts from then on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

FEWEST_AT_ONCE = 2
SLOW_AFTER = 10.0
"""Seconds after which a start counts as slow and lets another one begin beside it."""


class Turn:
    """One start's place in the queue."""

    def __init__(self, *, urgent: bool) -> None:
        self.urgent = urgent
        self.slow = False
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class StartQueue:
    """Admits `at_once` starts at a time, in order of arrival, those that a caller waits for first.

    By default that is one for each core: with one more, an unrelated program takes nearly twice its time.

    A start that has taken `slow_after` seconds no longer counts, so that a server that hangs does not hold up the
    others; but at most `2 * at_once` slow starts are left out of the count. Urgent starts are admitted until
    `2 * at_once` count, so that they do not wait for starts in the background. Together: at most `4 * at_once`.
    """

    def __init__(self, at_once: int | None = None, *, slow_after: float = SLOW_AFTER) -> None:
        self.at_once = max(FEWEST_AT_ONCE, _cores()) if at_once is None else at_once
        self._slow_after = slow_after
        self._waiting: list[Turn] = []
        self._running: set[Turn] = set()

    @asynccontextmanager
    async def wait_for(self, turn: Turn) -> AsyncGenerator[None]:
        """Wait until the start may begin; leave when it has succeeded or failed."""
        self._waiting.append(turn)
        self._admit()
        timer: asyncio.TimerHandle | None = None
        try:
            await turn.admitted
            timer = asyncio.get_running_loop().call_later(self._slow_after, self._mark_slow, turn)
            yield
        finally:
            if timer is not None:
                timer.cancel()
            if turn in self._waiting:
                self._waiting.remove(turn)
            self._running.discard(turn)
            self._admit()

    def hurry(self, turn: Turn) -> None:
        """A caller waits for this start now: it goes before those in the background."""
        turn.urgent = True
        self._admit()

    def _mark_slow(self, turn: Turn) -> None:
        turn.slow = True
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            turn = next((each for each in self._waiting if each.urgent), self._waiting[0])
            slow = min(sum(each.slow for each in self._running), 2 * self.at_once)
            if len(self._running) - slow >= self.at_once * (2 if turn.urgent else 1):
                return
            self._waiting.remove(turn)
            self._running.add(turn)
            if not turn.admitted.done():
                turn.admitted.set_result(None)


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
