"""The host's side of one run: answers what the program asks, and hears what it does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from toolfold.catalog.catalog import Answer, Catalog
from toolfold.definitions import BlobPart, Part, TextPart, ToolDefinition, ToolResult
from toolfold.errors import ToolfoldError
from toolfold.guards.guard import Guard, ToolRequest, stack
from toolfold.sandbox.frames import Call, CallNamed, Following, Prompt, Request, Resource, Search
from toolfold.schema.validation import Validators
from toolfold.schema.wrapper import declared_kind, unwrap, unwrapped
from toolfold.session.events import Event, Progress, ToolCall
from toolfold.session.output import OutputRecorder
from toolfold.upstream.fleet import Fleet

_PROGRESS_CHARS = 500
_LONG = 4096
_READS = 16
"""Resources and prompts that one run reads at once."""


class SearchTools(Protocol):
    async def __call__(self, query: str, *, detail: str, limit: int | None) -> Answer: ...


@dataclass(frozen=True)
class World:
    """What all runs reach through their bridges."""

    catalog: Catalog
    fleet: Fleet
    validators: Validators
    search: SearchTools
    used: Callable[[str], None]
    """Told the name of a server that has just answered a call."""


class Bridge:
    """One per run; implements `sandbox.Host`."""

    def __init__(
        self, world: World, guards: Sequence[Guard], output: OutputRecorder, heard: Callable[[Event], None] | None
    ) -> None:
        self._world = world
        self._proceed = stack(guards, self._upstream)
        self._output = output
        self._heard = heard
        # What costs the host processor time is done for each run one after the other, and never in the loop's thread.
        self._thinking = asyncio.Lock()
        self._reading = asyncio.Semaphore(_READS)
        self.calls: list[ToolCall] = []

    async def answer(self, request: Request) -> Any:
        match request:
            case Call(server=server, tool=name, arguments=arguments):
                tool = self._world.catalog.tool(server, name) or await self._find(f"{server}.{name}")
                return await self._call(tool, arguments)
            case CallNamed(name=name, arguments=arguments):
                tool = self._world.catalog.named(name) or await self._find(name)
                answer = await self._call(tool, arguments)
                return {**answer, "server": tool.server, "tool": tool.name}
            case Search(query=query, detail=detail, limit=limit):
                async with self._thinking:
                    found = await self._world.search(query, detail=detail, limit=limit)
                    return {"hits": await asyncio.to_thread(found.rows), "text": found.text}
            case Resource(server=server, uri=uri):
                async with self._reading:
                    return await self._world.fleet.read_resource(server, uri)
            case Prompt(server=server, name=name, arguments=arguments):
                async with self._reading:
                    return await self._world.fleet.get_prompt(server, name, arguments)

    async def _find(self, written: str) -> ToolDefinition:
        """A name that is not one: most likely the nearest names are wanted."""
        async with self._thinking:
            return await asyncio.to_thread(self._world.catalog.find, written)

    def printed(self, data: bytes) -> None:
        self._output.add(data)

    def progress(self, text: str, fraction: float | None) -> None:
        self._tell(Progress(text, fraction))

    async def _call(self, tool: ToolDefinition, arguments: dict[str, Any]) -> dict[str, Any]:
        self._tell(ToolCall(server=tool.server, tool=tool.name))
        begun = time.perf_counter()
        error = ""
        try:
            result = await self._proceed(ToolRequest(tool, arguments))
            if result.is_error:
                error = "the tool reported an error"
        except ToolfoldError as problem:
            error = problem.message
            raise
        finally:
            ms = (time.perf_counter() - begun) * 1000
            record = ToolCall(server=tool.server, tool=tool.name, ok=not error, ms=round(ms, 3), error=error[:200])
            self.calls.append(record)
            self._tell(record)
        return self._package(tool, result)

    def _package(self, tool: ToolDefinition, result: ToolResult) -> dict[str, Any]:
        if result.is_error:
            said = [_light(part) for part in result.parts]
            return {"parts": said, "structured": result.structured, "is_error": True}
        if not result.has_structured:
            return {"parts": [_light(part) for part in result.parts], "kind": declared_kind(tool.output_schema)}
        # The text beside structured content repeats it; bytes do not.
        blobs = [part for part in result.parts if isinstance(part, BlobPart)]
        value = result.structured if unwrapped(tool.output_schema) is None else unwrap(result.structured)
        answer: dict[str, Any] = {"parts": blobs, "structured": value, "has_structured": True}
        if blobs or self._world.validators.may_hold_media(tool):
            answer["media"] = True
        warning = self._world.validators.check_result(tool, result.structured) if tool.output_schema else None
        if warning:
            answer["warning"] = warning
        return answer

    async def _upstream(self, request: ToolRequest) -> ToolResult:
        tool = request.tool
        # Asked for only when somebody listens: each report is a message that the server has to write and we to read.
        on_progress = partial(self._progressed, tool) if self._heard is not None else None
        result = await self._world.fleet.call(tool.server, tool.name, request.arguments, on_progress=on_progress)
        self._world.used(tool.server)
        return result

    def _progressed(self, tool: ToolDefinition, done: float, total: float | None, message: str | None) -> None:
        """What a server says about a call that takes its time, in its own words where it has some."""
        amount = f"{done:g} of {total:g}" if total else f"{done:g}"
        said = message[:_PROGRESS_CHARS] if message else amount
        fraction = min(max(done / total, 0.0), 1.0) if total else None
        self._tell(Progress(f"{tool.server}.{tool.name}: {said}", fraction))

    def _tell(self, event: Event) -> None:
        if self._heard is not None:
            self._heard(event)


def _light(part: Part) -> Part | dict[str, Any]:
    """A long text goes beside the frame and not in it."""
    if isinstance(part, TextPart) and len(part.text) > _LONG:
        return {"type": "text", "text": Following(part.text)}
    return part
