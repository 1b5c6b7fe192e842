"""What one run costs the host's interpreter, that run waits for, most of all while others would have to wait for it.

Decoding, checking and rendering hold the interpreter's lock wherever they are done, so a run that asks for much of it
is answered more slowly instead. Alone it is hardly slowed down. Processor time is counted: a busy machine is not the
run's fault.
"""

from __future__ import annotations

import time

_RECENTLY = 5.0
"""Seconds for which a session that had a run counts as a neighbour."""
_UNNOTICED = 0.003
"""Seconds of the loop that nobody notices."""
_PER_BYTE = 2e-9
"""Seconds that a byte of a server's large answer costs before it gets to the run that asked."""


class Neighbours:
    """Who had runs lately. One per fold."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}

    def seen(self, who: str) -> None:
        now = time.monotonic()
        self._seen[who] = now
        if len(self._seen) > 100:
            self._seen = {other: when for other, when in self._seen.items() if now - when < _RECENTLY}

    def forget(self, who: str) -> None:
        self._seen.pop(who, None)

    def has_others(self, who: str) -> bool:
        limit = time.monotonic() - _RECENTLY
        return any(when > limit for other, when in self._seen.items() if other != who)


class Costs:
    """One run's. What counts a cost answers the seconds for which the run has to wait now."""

    def __init__(self, neighbours: Neighbours | None = None, who: str = "", *, comes_back: bool = False) -> None:
        """`comes_back`: whether more runs of `who` may follow soon."""
        self._neighbours = neighbours or Neighbours()
        self._who = who
        self._comes_back = comes_back
        self._stalls = 0.0
        self._work = 0.0
        self.go_on()

    def go_on(self) -> None:
        """The run is still there."""
        self._neighbours.seen(self._who)

    def end(self) -> None:
        if not self._comes_back:
            self._neighbours.forget(self._who)

    def stalled(self, seconds: float) -> float:
        """The loop's thread did nothing else for so long, on behalf of this run. Processor time: a machine that is
        busy with something else is not the run's fault."""
        if seconds < _UNNOTICED:
            return 0.0
        self._stalls += seconds
        if self._neighbours.has_others(self._who):
            # Others meet a stall in less than one of a hundred of their runs.
            return min(150 * seconds, 20.0) if self._stalls > 0.03 else 0.0
        return min(40 * seconds, 5.0) if self._stalls > 0.2 else 0.0

    def answered(self, size: int, seconds: float) -> float:
        """A reply of this size was made ready in so many seconds; a server's message has been read for it before."""
        return self.stalled(seconds + size * _PER_BYTE)

    def worked(self, seconds: float) -> float:
        """So long something was done for this run that leaves time to others now and then: a thread, a few requests."""
        self._work += seconds
        return 2 * seconds if self._work > 0.05 and self._neighbours.has_others(self._who) else 0.0
