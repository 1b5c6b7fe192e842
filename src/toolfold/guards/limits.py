"""How many calls one run may make, in total and at once."""

from __future__ import annotations

import asyncio

from toolfold.definitions import ToolResult
from toolfold.errors import LimitExceeded
from toolfold.guards.guard import Proceed, ToolRequest


class Limits:
    """One per run. Calls over the concurrent limit wait; calls over the total are refused."""

    def __init__(self, total: int, concurrent: int) -> None:
        self._total = total
        self._made = 0
        self._slots = asyncio.Semaphore(concurrent)

    async def __call__(self, request: ToolRequest, proceed: Proceed) -> ToolResult:
        self._made += 1
        if self._made > self._total:
            raise LimitExceeded(f"This run has made its {self._total:,} tool calls.", limit="sandbox.tool_calls")
        async with self._slots:
            return await proceed(request)
