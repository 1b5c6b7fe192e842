"""The seam that every call to an upstream passes. A guard sees the call, may refuse or rewrite it, and passes it on.

A guard is one callable. Stacked, guards are the only way to an upstream; the first of the list is the outermost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import msgspec

from toolfold.definitions import ToolDefinition, ToolResult
from toolfold.errors import GuardError
from toolfold.guards.context import RunContext
from toolfold.guards.events import CallKind


@dataclass
class CallNotes:
    """What was decided about one call on its way, for the record of it."""

    decision: Literal["allow", "ask", "deny"] = "allow"
    rule: str = ""
    """The rule that decided, as a person finds it; empty when none spoke of the call."""
    approved_by: str = ""
    """Who said yes, and how; empty when no person was asked."""
    sent: bool = False
    """Whether it has left for the server."""
    asked: list[str] = field(default_factory=list[str])
    """What the server asked in the middle of the call, and what became of each question; never an answer's values."""


@dataclass(frozen=True)
class Call:
    """One call that a program makes: of a tool, of a resource (to read it) or of a prompt (to get it)."""

    id: str
    kind: CallKind
    server: str
    name: str
    """The tool's name, the resource's URI, or the prompt's name, as the server calls it."""
    arguments: dict[str, Any]
    run: RunContext
    tool: ToolDefinition | None = None
    """The tool's definition, for `kind == "tool"`."""
    line: int | None = None
    """The program's line that makes the call, as the program's side says; None where it is not known."""
    notes: CallNotes = field(default_factory=CallNotes, compare=False, repr=False)

    @property
    def target(self) -> str:
        """As policies write it: `github.create_issue`, `resource:docs:file:///a`, `prompt:docs:summary`."""
        return f"{self.server}.{self.name}" if self.kind == "tool" else f"{self.kind}:{self.server}:{self.name}"

    def with_arguments(self, arguments: dict[str, Any]) -> Call:
        return replace(self, arguments=arguments)


Proceed = Callable[[Call], Awaitable[ToolResult]]


class Guard(Protocol):
    async def __call__(self, call: Call, proceed: Proceed, /) -> ToolResult:
        """Answer with what `await proceed(call)` answers. Refuse by raising a ToolfoldError.

        `call.with_arguments(...)` and a changed result are fine; what is called, and for which run, stays as it is.
        Resources answer with `parts`; prompts with `structured`, a list of `{"role", "content"}`.
        """
        ...


def stack(guards: Sequence[Guard], upstream: Proceed) -> Proceed:
    """The guards around the upstream, as one callable."""
    proceed = upstream
    for guard in reversed(guards):
        proceed = _around(guard, proceed)
    return proceed


def _around(guard: Guard, proceed: Proceed) -> Proceed:
    def call_guard(call: Call) -> Awaitable[ToolResult]:
        return guard(call, proceed)

    return call_guard


class Own:
    """A guard of the embedding program. What it passes on must be the same call, and what it answers a result."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def __call__(self, call: Call, proceed: Proceed) -> ToolResult:
        async def checked(passed: Call) -> ToolResult:
            if passed is not call and replace(passed, arguments=call.arguments) != call:
                raise GuardError(f"{self._name} changed more of a call than its arguments.")
            result = await proceed(passed)
            if isinstance(result.structured, msgspec.Raw):
                result = msgspec.structs.replace(result, structured=msgspec.json.decode(result.structured))
            return result

        result: Any = await self._guard(call, checked)
        if not isinstance(result, ToolResult):
            raise GuardError(f"{self._name} answered with {type(result).__name__}, not a ToolResult.")
        return result

    @property
    def _name(self) -> str:
        return f"The guard {getattr(self._guard, '__name__', type(self._guard).__name__)!r}"
