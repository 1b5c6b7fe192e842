"""The host's side of one run: answers what the program asks, and passes on what it prints and reports."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import msgspec

from toolfold.catalog.catalog import Detail
from toolfold.catalog.live import LiveCatalog
from toolfold.definitions import BlobPart, Part, TextPart, ToolDefinition, ToolResult
from toolfold.errors import ValueRefused
from toolfold.guards import guard
from toolfold.guards.chain import Chain
from toolfold.guards.context import RunContext
from toolfold.guards.events import CallKind, Progress, ToolCall
from toolfold.guards.record import Record, is_small
from toolfold.sandbox.costs import Costs, Neighbours
from toolfold.sandbox.frames import (
    Call,
    CallNamed,
    Following,
    Forget,
    Keep,
    Kept,
    KeptNames,
    ManageSession,
    Prompt,
    Request,
    Resource,
    SaveSkill,
    Search,
    Show,
    SkillSource,
)
from toolfold.sandbox.replies import ReplyBudget
from toolfold.schema.validation import Validators
from toolfold.schema.wrapper import declared_kind, unwrapped
from toolfold.session.images import Images
from toolfold.session.kept import KeptValues
from toolfold.session.output import OutputRecorder
from toolfold.session.own import OwnSessions
from toolfold.skills.draft import Draft
from toolfold.skills.skills import Skills
from toolfold.telemetry.uses import Uses
from toolfold.upstream.fleet import Fleet

_PROGRESS_CHARS = 500
_LONG = 4096
"""Characters from which a text is sent beside its frame and not in it."""
_MEDIA_KEY = re.compile(rb'"(?:mimeType|blob)"')
_CHECKED = 256 * 1024
"""Bytes up to which a result is compared with what its tool declares."""


@dataclass(frozen=True)
class World:
    """What all runs reach through their bridges."""

    catalog: LiveCatalog
    fleet: Fleet
    validators: Validators
    chain: Chain
    uses: Uses
    skills: Skills
    sessions: OwnSessions
    neighbours: Neighbours = field(default_factory=Neighbours)


class Bridge:
    """One per run; implements `sandbox.Host`."""

    def __init__(
        self,
        world: World,
        run: RunContext,
        output: OutputRecorder | None = None,
        images: Images | None = None,
        kept: KeptValues | None = None,
        send: guard.Proceed | None = None,
    ) -> None:
        """`output` and `images` are for what a program prints and shows; a call without a program has none. `kept` is
        what the run's session keeps, where it has one. `send` sends calls to their servers in a way of its own."""
        self._world = world
        self._run = run
        self._record = Record()
        self.replies = ReplyBudget()
        who = f"{run.caller}\0{run.session or run.id}"
        self.costs = Costs(world.neighbours, who, comes_back=run.session is not None)
        self._proceed = world.chain.for_run(self._upstream, self._record, self.replies)
        self._scope = world.chain.scope(run.caller)
        self._send = send or self._send_plainly
        self._output = output
        self._numbers = itertools.count(1)
        self._thinking = asyncio.Lock()
        self._images = images
        self._kept = kept
        self._keeping = asyncio.Lock()

    @property
    def calls(self) -> list[ToolCall]:
        return self._record.calls

    async def answer(self, request: Request) -> Any:
        self.costs.go_on()
        match request:
            case Call(server=server, tool=name, arguments=arguments, line=line):
                tool = self._world.catalog.catalog.tool(server, name) or await self._find(f"{server}.{name}")
                return await self._call_tool(tool, arguments, line)
            case CallNamed(name=name, arguments=arguments, line=line):
                tool = self._world.catalog.catalog.named(name) or await self._find(name)
                answer = await self._call_tool(tool, arguments, line)
                return {**answer, "server": tool.server, "tool": tool.name}
            case Search(query=query, detail=detail, limit=limit, server=server):
                level = cast("Detail", detail)
                async with self._thought(), self.replies.fetching():
                    found = await self._world.catalog.search(
                        query,
                        detail=level,
                        limit=limit,
                        server=server or None,
                        scope=self._scope,
                        skills=partial(self._world.skills.entries, self._run.caller),
                    )
                    if query.strip():
                        return {"hits": await asyncio.to_thread(found.rows), "text": found.text}
                    # Without a question, a program goes through all tools itself.
                    hits = await self._world.catalog.everything(level, limit, server or None, self._scope)
                    return {"hits": hits, "text": found.text}
            case SkillSource(name=name):
                async with self._thought(), self.replies.fetching():
                    return {"source": await self._world.skills.source(self._run, name)}
            case SaveSkill(name=name, source=source, description=description, tags=tags, document=document):
                async with self._thought():
                    draft = Draft(name, source, description, tags, document)
                    saved = await self._world.skills.save(self._run, draft)
                    return {"module": saved.skill.module, "pending": saved.is_pending}
            case Resource(server=server, uri=uri):
                result = await self.call("resource", server, uri, {})
                return result.parts
            case Prompt(server=server, name=name, arguments=arguments):
                result = await self.call("prompt", server, name, dict(arguments))
                return result.structured
            case Show(data=data, name=name):
                assert self._images is not None
                return await self._images.add(data, name)
            case ManageSession(action=action, name=name):
                async with self._thought(), self.replies.fetching():
                    return await self._world.sessions.answer(self._run, action, name)
            case Keep() | Kept() | Forget() | KeptNames():
                async with self._keeping, self.replies.fetching():
                    return await self._answer_about_kept(request)

    async def _answer_about_kept(self, request: Keep | Kept | Forget | KeptNames) -> dict[str, Any]:
        if self._kept is None:
            raise ValueRefused("This run has no session to keep values in.", hint="Run it with `session`: any name.")
        match request:
            case Keep(name=name, value=value):
                if self._run.privacy is not None:
                    # Tokens, so that no later run can print what this one would not be allowed to.
                    tokenise = partial(self._run.privacy.tokenise, value)
                    value = await self._run.privacy.work(tokenise, is_small=is_small(value))
                await asyncio.to_thread(self._kept.put, name, value)
                return {}
            case Kept(name=name):
                data = await asyncio.to_thread(self._kept.get, name)
                return {} if data is None else {"value": msgspec.Raw(data)}
            case Forget(name=name):
                return {"found": await asyncio.to_thread(self._kept.remove, name)}
            case KeptNames():
                return {"names": await asyncio.to_thread(self._kept.names)}

    async def _find(self, written: str) -> ToolDefinition:
        """A name that is not one: most likely the nearest names are wanted."""
        async with self._thought():
            return await self._world.catalog.find(written, self._scope)

    @contextlib.asynccontextmanager
    async def _thought(self) -> AsyncGenerator[None]:
        """What costs the host processor time is done for each run one after the other, and leaves time to others."""
        async with self._thinking:
            begun = time.perf_counter()
            try:
                yield
            finally:
                await asyncio.sleep(self.costs.worked(time.perf_counter() - begun))

    def printed(self, data: bytes) -> None:
        if self._output is not None:
            self._output.add(data)

    def progress(self, text: str, fraction: float | None) -> None:
        self._run.emit(Progress(text, fraction))

    async def _call_tool(self, tool: ToolDefinition, arguments: dict[str, Any], line: int) -> dict[str, Any]:
        return self._package(tool, await self.call("tool", tool.server, tool.name, arguments, tool, line))

    async def call(
        self,
        kind: CallKind,
        server: str,
        name: str,
        arguments: dict[str, Any],
        tool: ToolDefinition | None = None,
        line: int = 0,
    ) -> ToolResult:
        """The one way to an upstream."""
        number = f"{self._run.id}-{next(self._numbers)}"
        return await self._proceed(guard.Call(number, kind, server, name, arguments, self._run, tool, line or None))

    def _package(self, tool: ToolDefinition, result: ToolResult) -> dict[str, Any]:
        if result.is_error:
            said = [_light(part) for part in result.parts]
            return {"parts": said, "structured": result.structured, "is_error": True}
        if not result.has_structured:
            return {"parts": [_light(part) for part in result.parts], "kind": declared_kind(tool.output_schema)}
        # The text beside structured content repeats it; bytes do not.
        blobs = [part for part in result.parts if isinstance(part, BlobPart)]
        answer: dict[str, Any] = {"parts": blobs, "structured": result.structured, "has_structured": True}
        if unwrapped(tool.output_schema) is not None:
            answer["wrapped"] = True
        if blobs or self._may_hold_media(tool, result.structured):
            answer["media"] = True
        # Tokens are texts, whatever the schema says of the values that they stand for.
        has_tokens = self._run.privacy is not None and self._run.privacy.program_sees_tokens
        warning = self._mismatch(tool, result.structured) if tool.output_schema and not has_tokens else None
        if warning:
            answer["warning"] = warning
        return answer

    def _may_hold_media(self, tool: ToolDefinition, structured: Any) -> bool:
        """Whether the guest has to look for images and other bytes in it. A large result is searched for their keys."""
        if not self._world.validators.may_hold_media(tool):
            return False
        return not isinstance(structured, msgspec.Raw) or _MEDIA_KEY.search(memoryview(structured)) is not None

    def _mismatch(self, tool: ToolDefinition, structured: Any) -> str | None:
        """A warning when a result is not what the tool declares. What would take long to check is taken as it is."""
        if isinstance(structured, msgspec.Raw):
            if len(memoryview(structured)) > _CHECKED:
                return None
            structured = msgspec.json.decode(structured)
        return self._world.validators.check_result(tool, structured)

    async def _upstream(self, call: guard.Call) -> ToolResult:
        with self._run.deadline.waiting():
            if not self._world.fleet.is_ready(call.server):
                await self._world.fleet.ready(call.server)
            call.notes.sent = True
            return await self._send(call)

    async def _send_plainly(self, call: guard.Call) -> ToolResult:
        fleet = self._world.fleet
        person = self._world.chain.person(call)
        match call.kind:
            case "resource":
                return ToolResult(parts=await fleet.read_resource(call.server, call.name, person=person))
            case "prompt":
                messages = await fleet.get_prompt(call.server, call.name, call.arguments, person=person)
                return ToolResult(structured=messages, has_structured=True)
            case "tool":
                # Asked for only where the run has a listener: each report is a message that both sides have to handle.
                on_progress = partial(self._progressed, call) if self._run.on_event is not None else None
                result = await fleet.call(
                    call.server,
                    call.name,
                    call.arguments,
                    on_progress=on_progress,
                    person=person,
                    task=call.tool is not None and call.tool.task,
                )
                self._world.catalog.roster.used(call.server)
                self._world.uses.add(call.server, call.name)
                return result

    def _progressed(self, call: guard.Call, done: float, total: float | None, message: str | None) -> None:
        """What a server reports about a long call, in its own words where it has some."""
        amount = f"{done:g} of {total:g}" if total else f"{done:g}"
        text = message[:_PROGRESS_CHARS] if message else amount
        fraction = min(max(done / total, 0.0), 1.0) if total else None
        self._run.emit(Progress(f"{call.server}.{call.name}: {text}", fraction))


def _light(part: Part) -> Part | dict[str, Any]:
    """A long text goes beside the frame and not in it."""
    if isinstance(part, TextPart) and len(part.text) > _LONG:
        return {"type": "text", "text": Following(part.text)}
    return part
