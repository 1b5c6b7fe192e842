"""One run in a sandbox: what it may ask of the host, what it has open, and what it has cost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol

from toolfold.sandbox.frames import Done, Request
from toolfold.sandbox.replies import ReplyBudget

_OPEN_REQUESTS = 2000
"""Requests the guest may have open at once before the host stops reading from it."""
_OPEN_BYTES = 64 * 1024 * 1024
"""Bytes of open requests, likewise."""
_FREE_SECONDS = 0.2
"""What one run's large messages may cost the host before the guest waits for each of them."""
_WAIT_FACTOR = 40
_LONGEST_WAIT = 5.0


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
    requests: dict[int, asyncio.Task[None]] = field(default_factory=dict[int, "asyncio.Task[None]"])
    open_bytes: int = 0
    printed: int = 0
    cost: float = 0.0
    """Seconds of the loop that its large messages took."""
    waits: bool = False

    @property
    def has_too_much_open(self) -> bool:
        return len(self.requests) >= _OPEN_REQUESTS or self.open_bytes >= _OPEN_BYTES

    @property
    def has_little_open(self) -> bool:
        return len(self.requests) < _OPEN_REQUESTS // 2 and self.open_bytes < _OPEN_BYTES // 2

    def charge(self, seconds: float) -> float:
        """Count what a large message cost the host; answers how long the guest has to wait for it."""
        self.cost += seconds
        return min(seconds * _WAIT_FACTOR, _LONGEST_WAIT) if self.cost > _FREE_SECONDS else 0.0
