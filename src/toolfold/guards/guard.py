"""The seam that every call passes: a guard sees the call, may refuse it, and passes it on.

A guard is one callable. Stacked, they make the one way to an upstream; the first of the list is the outermost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from toolfold.definitions import ToolDefinition, ToolResult


@dataclass(frozen=True)
class ToolRequest:
    """One call that a program makes."""

    tool: ToolDefinition
    arguments: dict[str, Any]


Proceed = Callable[[ToolRequest], Awaitable[ToolResult]]


class Guard(Protocol):
    async def __call__(self, request: ToolRequest, proceed: Proceed) -> ToolResult:
        """Refuse by raising a ToolfoldError, or answer with what `proceed` answers."""
        ...


def stack(guards: Sequence[Guard], upstream: Proceed) -> Proceed:
    """The guards around the upstream, as one callable."""
    proceed = upstream
    for guard in reversed(guards):
        proceed = _around(guard, proceed)
    return proceed


def _around(guard: Guard, proceed: Proceed) -> Proceed:
    def call(request: ToolRequest) -> Awaitable[ToolResult]:
        return guard(request, proceed)

    return call
