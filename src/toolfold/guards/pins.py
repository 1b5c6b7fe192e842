"""A tool whose definition has changed is not called before a person has accepted the change."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from toolfold.definitions import ToolResult
from toolfold.errors import ToolChanged
from toolfold.guards.guard import Call, Proceed
from toolfold.schema.text import one_line


class Pinned:
    """Asks `is_held(server, tool)` about each call of a tool."""

    def __init__(self, is_held: Callable[[str, str], bool]) -> None:
        self._is_held = is_held

    async def __call__(self, call: Call, proceed: Proceed) -> ToolResult:
        if call.kind == "tool" and self._is_held(call.server, call.name):
            call.notes.decision, call.notes.rule = "deny", "the tool has changed"
            target = one_line(call.target, 160)
            raise ToolChanged(
                f"{target} has changed since it was accepted, so it is not called.",
                hint=f"A person can look at the change with `toolfold tools diff {shlex.quote(target)}` and accept it "
                f"with `toolfold tools accept {shlex.quote(target)}`; then run this again.",
            )
        return await proceed(call)
