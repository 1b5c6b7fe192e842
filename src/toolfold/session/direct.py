"""One call that a model makes itself, without a program: the same way to the server, and a result that fits.

A result over the budget becomes a handle as printed output does: head and tail for the model, all of it in a file.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec

from toolfold.definitions import TextPart, ToolDefinition, ToolResult
from toolfold.guards.context import RunContext
from toolfold.guards.events import CallKind, RunResult
from toolfold.guards.guard import Proceed
from toolfold.sandbox.protocol import SessionHome
from toolfold.session.bridge import Bridge, World
from toolfold.session.homes import SessionHomes
from toolfold.session.output import OutputRecorder

_TAG = secrets.token_hex(3)
_numbers = itertools.count(1)
_SHORT_TEXT = 200
_FEW_ITEMS = 3
_CUT = "[… cut …]"

CALLS = "@calls"
"""The session of a caller's calls where its connection has none: for tokens of privacy and for what a person allows.
Programs do not run in it, so it has no files."""

HomeOf = Callable[[RunContext], Awaitable[SessionHome]]


class DirectCalls:
    """`home_of` gives the home of a run's session; results of runs without one are kept in `homes`."""

    def __init__(self, world: World, budget: int, homes: Callable[[], SessionHomes], home_of: HomeOf) -> None:
        self._world = world
        self._budget = budget
        self._homes = homes
        self._home_of = home_of

    async def recorded(
        self,
        target: str,
        run: RunContext,
        kind: CallKind,
        server: str,
        name: str,
        arguments: dict[str, Any],
        send: Proceed | None = None,
    ) -> ToolResult:
        """The result of a call that is a run of its own for the records. `send` sends it in a way of its own."""
        results: list[ToolResult] = []

        async def work() -> RunResult:
            async with run.deadline.enforced(f"{target} did not end within {run.deadline.seconds:g} s."):
                result, record = await self._call(run, kind, server, name, arguments, send)
            results.append(result)
            return record

        await self._world.chain.recorded(target, run, work)
        return results[0]

    async def _call(
        self,
        run: RunContext,
        kind: CallKind,
        server: str,
        name: str,
        arguments: dict[str, Any],
        send: Proceed | None,
    ) -> tuple[ToolResult, RunResult]:
        """The result, and the run that it was as the records have it."""
        tool: ToolDefinition | None = None
        if kind == "tool":
            scope = self._world.chain.scope(run.caller)
            catalog = self._world.catalog
            tool = catalog.catalog.tool(server, name) or await catalog.find(f"{server}.{name}", scope)
        bridge = Bridge(self._world, run, send=send)
        try:
            result = _decoded(await bridge.call(kind, server, name, arguments, tool))
        finally:
            bridge.costs.end()
        file, session = None, None
        if kind == "tool":
            result, file, session = await self._fitted(run, tool, result)
        text = "\n".join(part.text for part in result.parts if isinstance(part, TextPart))
        return result, RunResult(
            success=not result.is_error,
            output=text,
            tool_calls=bridge.calls,
            session=session or run.shown_session,
            truncated=file is not None,
            output_file=file,
        )

    async def _fitted(
        self, run: RunContext, tool: ToolDefinition | None, result: ToolResult
    ) -> tuple[ToolResult, str | None, str | None]:
        """The result within the budget, and where all of it is."""
        texts = [part.text for part in result.parts if isinstance(part, TextPart)]
        whole = "\n".join(texts)
        if result.has_structured and not texts:
            whole = _json(result.structured)
            # Clients that do not read structured content are to see it too.
            result = msgspec.structs.replace(result, parts=[TextPart(whole), *result.parts])
        is_long = result.has_structured and len(_json(result.structured)) > self._budget
        if len(whole) <= self._budget and not is_long:
            return result, None, None
        if is_long and len(whole) <= self._budget:
            whole = _json(result.structured)
        name = None
        if run.session is not None and run.session != CALLS:
            home = await self._home_of(run)
            text, file = self._kept(whole, home)
        else:
            name = f"run-{secrets.token_hex(4)}"
            home = self._homes().for_output(run.caller, name)
            try:
                text, file = self._kept(whole, home)
            finally:
                self._homes().release(home)
            text = text.replace("all of it: ", f"all of it, in session {name!r}: ", 1)
        others = [part for part in result.parts if not isinstance(part, TextPart)]
        short = msgspec.structs.replace(result, parts=[TextPart(text), *others])
        if is_long:
            short = self._outlined(short, tool)
        return short, file, name

    def _kept(self, whole: str, home: SessionHome) -> tuple[str, str | None]:
        output = OutputRecorder(lambda: home.workspace, f"{_TAG}-{next(_numbers)}.txt", self._budget, None)
        output.add(whole.encode("utf-8", "replace"))
        return output.finish()

    def _outlined(self, result: ToolResult, tool: ToolDefinition | None) -> ToolResult:
        """Structured content is cut as well. Where the tool declares what it is, it must still be that."""
        if tool is None or tool.output_schema is None:
            return msgspec.structs.replace(result, structured=None, has_structured=False)
        outline = _outline(result.structured)
        if self._world.validators.check_result(tool, outline) is None:
            return msgspec.structs.replace(result, structured=outline)
        return result


def _decoded(result: ToolResult) -> ToolResult:
    if isinstance(result.structured, msgspec.Raw):
        return msgspec.structs.replace(result, structured=msgspec.json.decode(result.structured))
    return result


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _outline(value: Any) -> Any:
    """The same shape with short texts and lists."""
    match value:
        case str() if len(value) > _SHORT_TEXT:
            return value[:_SHORT_TEXT] + _CUT
        case list():
            return [_outline(each) for each in cast("list[Any]", value)[:_FEW_ITEMS]]
        case dict():
            return {key: _outline(each) for key, each in cast("dict[str, Any]", value).items()}
        case _:
            return value
