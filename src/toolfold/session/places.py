"""Places for a number of runs at once, shared fairly: a caller who sends many runs keeps no other caller waiting."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Places:
    """A place that becomes free goes to the caller who has the fewest, in turn where several have as few.

    Runs of one caller are served in the order in which they came.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._taken: Counter[str] = Counter()
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Who waits, by caller; the caller who gave back a place last is at the end. No line is empty."""

    @property
    def waiting(self) -> int:
        return sum(map(len, self._lines.values()))

    def waiting_of(self, caller: str) -> int:
        return len(self._lines.get(caller, ()))

    @property
    def full(self) -> bool:
        return self._free == 0

    @asynccontextmanager
    async def of(self, caller: str) -> AsyncGenerator[None]:
        """Hold a place; waits until there is one."""
        await self.take(caller)
        try:
            yield
        finally:
            self.give_back(caller)

    async def take(self, caller: str) -> None:
        if self._free:
            self._free -= 1
            self._taken[caller] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(caller, deque())
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.give_back(caller)
            elif turn in line:
                line.remove(turn)
                self._forget_empty(caller)
            raise

    def give_back(self, caller: str) -> None:
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]
        if caller in self._lines:
            self._lines.move_to_end(caller)
        while self._lines:
            following = min(self._lines, key=self._taken.__getitem__)  # the first of several
            turn = self._lines[following].popleft()
            self._forget_empty(following)
            if not turn.done():
                self._taken[following] += 1
                turn.set_result(None)
                return
        self._free += 1

    def _forget_empty(self, caller: str) -> None:
        if not self._lines[caller]:
            del self._lines[caller]
