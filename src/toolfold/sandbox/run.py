"""One run in a sandbox: what it may ask of the host, what it has open, and what it has cost."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

from toolfold.sandbox.costs import Costs
from toolfold.sandbox.frames import Done, Request
from toolfold.sandbox.replies import ReplyBudget

_OPEN_REQUESTS = 2000
"""Requests the guest may have open at once before the host stops reading from it."""
_OPEN_BYTES = 64 * 1024 * 1024
"""Bytes of open requests, likewise."""
_SLICE = 0.001
"""Seconds that the requests which are begun in one turn of the loop should take."""
_MOST_IN_A_SLICE = 64


class Host(Protocol):
    """What a run may ask of the world outside, and who hears what it prints."""

    async def answer(self, request: Request) -> Any:
        """The reply's data. A ToolfoldError becomes a ToolError in the program; anything else is our fault."""
        ...

    def printed(self, data: bytes) -> None: ...

    def progress(self, text: str, fraction: float | None) -> None: ...


@dataclass
class Run:
    """One program's run, as the sandbox keeps book of it."""

    host: Host
    done: asyncio.Future[Done]
    replies: ReplyBudget
    costs: Costs
    requests: dict[int, asyncio.Task[None] | None] = field(default_factory=dict[int, "asyncio.Task[None] | None"])
    """Those that are open, by their ids: begun, or still in line."""
    line: deque[tuple[Request, int]] = field(default_factory=deque[tuple[Request, int]])
    """Requests that are not begun yet, with their sizes in bytes."""
    open_bytes: int = 0
    printed: int = 0
    wait_until: float = 0.0
    """When the guest has waited for what it has cost."""
    waits: bool = False
    is_serving: bool = False
    slice_begun: float = 0.0
    slice_is_large: bool = False
    """Whether it ends with a large message, which is paid for. What small ones cost may be the work of a listener."""
    slice_length: int = 8
    """Requests that are begun in one turn of the loop."""

    @property
    def has_too_much_open(self) -> bool:
        return len(self.requests) >= _OPEN_REQUESTS or self.open_bytes >= _OPEN_BYTES

    @property
    def has_little_open(self) -> bool:
        return len(self.requests) < _OPEN_REQUESTS // 2 and self.open_bytes < _OPEN_BYTES // 2

    def end_slice(self, now: float) -> float:
        """A slice has been served; the next one has as many requests as fit into the time. Answers how long it took."""
        took = now - self.slice_begun
        if took > 2 * _SLICE:
            self.slice_length = max(1, self.slice_length // 2)
        elif took < _SLICE:
            self.slice_length = min(_MOST_IN_A_SLICE, 2 * self.slice_length)
        return took
