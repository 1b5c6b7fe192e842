"""What is on its way to one guest is bounded in bytes: a result is fetched only while there is space for it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
from collections import deque
from collections.abc import AsyncGenerator
from functools import cache
from typing import Any

_MOST_BYTES = 32 * 1024 * 1024
_FIRST_GUESS = 64 * 1024
"""Bytes that the answer to a call is expected to have before any was seen."""


class ReplyBudget:
    """One per run. A result is fetched when there is space for one of the size that the last ones had.

    So a guest that does not read makes the host hold at most the budget and what was already being fetched.
    """

    def __init__(self, most: int = _MOST_BYTES) -> None:
        self._most = most
        self._expected = float(_FIRST_GUESS)
        self._fetching = 0
        self._held = 0
        self._line: deque[asyncio.Future[None]] = deque()
        self._write_lock = asyncio.Lock()
        self.total = 0
        """Bytes of all replies so far."""

    @contextlib.asynccontextmanager
    async def fetching(self) -> AsyncGenerator[None]:
        """Wait for space, first come, first served, and keep it while the result is fetched."""
        if self._line or not self._has_space():
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._line.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._fetched()
                else:
                    self._line.remove(turn)
                raise
        else:
            self._fetching += 1
        try:
            yield
        finally:
            self._fetched()

    @contextlib.asynccontextmanager
    async def writing(self, size: int) -> AsyncGenerator[None]:
        """Hold a reply of `size` bytes until it is written; one at a time, in the order in which they are ready."""
        self._held += size
        self.total += size
        self._expected = max(size, self._expected / 2, _FIRST_GUESS)
        try:
            async with self._write_lock:
                yield
        finally:
            self._held -= size
            self._wake()

    def _has_space(self) -> bool:
        free = self._most - self._held
        return free > 0 and (not self._fetching or (self._fetching + 1) * self._expected <= free)

    def _fetched(self) -> None:
        self._fetching -= 1
        self._wake()

    def _wake(self) -> None:
        while self._line and self._has_space():
            turn = self._line.popleft()
            if not turn.done():
                self._fetching += 1
                turn.set_result(None)


@cache
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library
        return None


def give_back_memory() -> None:
    """Return what was freed to the system; the C library keeps it otherwise, for the life of the process."""
    trim = _trim()
    if trim is not None:
        trim(0)
