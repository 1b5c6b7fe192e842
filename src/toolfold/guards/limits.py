"""How many calls one run may make, in total and at once. Resource reads and prompts count as calls."""

from __future__ import annotations

import asyncio

from toolfold.definitions import ToolResult
from toolfold.errors import LimitExceeded
from toolfold.guards.guard import Call, Proceed
from toolfold.sandbox.replies import ReplyBudget


class Count:
    """One per run. Calls over the total are refused."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._made = 0

    async def __call__(self, call: Call, proceed: Proceed) -> ToolResult:
        self._made += 1
        if self._made > self._total:
            raise LimitExceeded(f"This run has made its {self._total:,} tool calls.", limit="sandbox.tool_calls")
        return await proceed(call)


class Slots:
    """One per run. Calls over the limit wait until another one has ended, and until the guest reads its replies."""

    def __init__(self, concurrent: int, replies: ReplyBudget) -> None:
        self._slots = asyncio.Semaphore(concurrent)
        self._replies = replies

    async def __call__(self, call: Call, proceed: Proceed) -> ToolResult:
        async with self._slots, self._replies.fetching():
            return await proceed(call)
