"""Tokens become values on the way to a server that may have them, and values become tokens on the way back."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec

from toolfold.config.settings import Settings
from toolfold.definitions import BlobPart, LinkPart, Part, TextPart, ToolResult
from toolfold.errors import ToolfoldError
from toolfold.guards.context import RunContext
from toolfold.guards.events import RunResult, protected_call
from toolfold.guards.guard import Call, Proceed
from toolfold.guards.record import is_small
from toolfold.privacy.data import DataTokeniser
from toolfold.privacy.privacy import Privacy, RunPrivacy
from toolfold.privacy.restore import Restorer
from toolfold.schema.large import LARGE

_SMALL_TEXT = 4096
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/csv", "application/x-ndjson")


class KeepPrivate:
    """One per fold: a guard for calls, and `run` and `protected` around runs."""

    def __init__(self, settings: Settings) -> None:
        self._privacy = Privacy(settings.privacy, settings.data_dir)

    async def for_run(self, caller: str, session: str | None) -> RunPrivacy:
        """For the context of one run, which must then be passed to `run`."""
        return await self._privacy.for_run(caller, session)

    async def run(self, run: RunContext, work: Callable[[], Awaitable[RunResult]]) -> RunResult:
        """A whole run; what was found out in it is kept for the session."""
        result: RunResult | None = None
        try:
            result = await work()
            return result
        finally:
            if run.privacy is not None:
                kept_as = result.session if result is not None else None
                await asyncio.shield(self._privacy.ended(run.privacy, kept_as))

    async def protected(self, run: RunContext, work: Callable[[], Awaitable[RunResult]]) -> RunResult:
        """The run's result without personal values. Its output has been looked at while it was printed."""
        result = await work()
        privacy = run.privacy
        if privacy is None:
            return result
        small = len(result.tool_calls) < 10 and is_small([result.value, result.error and result.error.text])
        return await privacy.work(lambda: _protected(result, privacy), is_small=small)

    def tokenise(self, run: RunContext, value: Any) -> Any:
        """A text or data for a log, without the personal values of the run's session."""
        return value if run.privacy is None else run.privacy.tokenise(value)

    async def __call__(self, call: Call, proceed: Proceed) -> ToolResult:
        """What a server says of a value that it was given is tokenised too, in errors as in results."""
        privacy = call.run.privacy
        if privacy is None:
            return await proceed(call)
        tokens_wanted = privacy.program_sees_tokens or call.run.direct
        restorer = privacy.restorer(call.server)
        sent = await privacy.work(lambda: _restored(call, restorer), is_small=is_small(call.arguments))
        try:
            result = await proceed(sent)
        except ToolfoldError as problem:
            if tokens_wanted:
                problem.message = privacy.tokenise(problem.message)
                problem.hint = privacy.tokenise(problem.hint)
            problem.hint = f"{problem.hint} {_not_given(restorer, call.server)}".strip()
            problem.args = (problem.message,)
            raise problem from None
        incoming = privacy.incoming(call.server, call.tool)
        shown = await privacy.work(lambda: _tokenised(result, incoming), is_small=_is_small(result))
        if not tokens_wanted:
            # Its values are known now, wherever they turn up in what the program prints.
            shown = result
        if result.is_error and restorer.kept:
            shown = msgspec.structs.replace(shown, parts=[*shown.parts, TextPart(_not_given(restorer, call.server))])
        return shown


def _restored(call: Call, restorer: Restorer) -> Call:
    arguments: dict[str, Any] = restorer.data(call.arguments)
    if call.kind == "prompt":
        arguments = {name: str(value) for name, value in arguments.items()}
    # A resource's address may hold a value that a result gave.
    name = str(restorer.text(call.name)) if call.kind == "resource" else call.name
    return replace(call, arguments=arguments, name=name)


def _not_given(restorer: Restorer, server: str) -> str:
    """Why the server got a token and not the value: most likely that is what went wrong."""
    if not restorer.kept:
        return ""
    names = list(restorer.kept)
    kinds = sorted({name.rpartition("_")[0].lower() for name in names})
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"({server} was sent {', '.join(names[:3])}{more} as written: the settings do not let it have"
        f" {' or '.join(kinds)} values of other servers, see `privacy.restore`.)"
    )


def _tokenised(result: ToolResult, data: DataTokeniser) -> ToolResult:
    parts = result.parts
    if result.has_structured:
        # The text beside structured content repeats it, and programs never see it: a long one is not worth the time.
        parts = [part for part in parts if not (isinstance(part, TextPart) and len(part.text) > LARGE)]
    structured = result.structured
    if isinstance(structured, msgspec.Raw):
        structured = data.raw_data(structured)
    elif structured is not None:
        structured = data.data(structured)
    return msgspec.structs.replace(result, parts=[_part(part, data) for part in parts], structured=structured)


def _part(part: Part, data: DataTokeniser) -> Part:
    match part:
        case TextPart(text=text):
            return msgspec.structs.replace(part, text=data.json_text(text))
        case LinkPart():
            shown = data.data([part.uri, part.name, part.description])
            return LinkPart(shown[0], shown[1], shown[2], part.mime_type)
        case BlobPart():
            return _blob(part, data)


def _blob(part: BlobPart, data: DataTokeniser) -> BlobPart:
    """A text that came as bytes is a text. Pictures and the like are passed on as they are."""
    if not part.mime_type.startswith(_TEXT_TYPES):
        return part
    try:
        text = base64.b64decode(part.data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return part
    return msgspec.structs.replace(part, data=base64.b64encode(data.json_text(text).encode()).decode())


def _is_small(result: ToolResult) -> bool:
    texts = sum(
        len(part.data if isinstance(part, BlobPart) else part.text)
        for part in result.parts
        if not isinstance(part, LinkPart)
    )
    if texts > _SMALL_TEXT or isinstance(result.structured, msgspec.Raw):
        return False
    return is_small(result.structured)


def _protected(result: RunResult, privacy: RunPrivacy) -> RunResult:
    error = result.error
    if error is not None:
        error = msgspec.structs.replace(
            error,
            message=privacy.tokenise(error.message),
            hint=privacy.tokenise(error.hint),
            text=privacy.tokenise(error.text),
        )
    return msgspec.structs.replace(
        result,
        value=privacy.tokenise(result.value),
        error=error,
        notice=privacy.tokenise(result.notice),
        tool_calls=[protected_call(call, privacy) for call in result.tool_calls],
        images=[msgspec.structs.replace(image, name=privacy.tokenise(image.name)) for image in result.images],
    )
