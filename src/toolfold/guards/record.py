"""Every call is recorded, with how it ended, and reported as events of the run."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import msgspec

from toolfold.definitions import BlobPart, TextPart, ToolResult
from toolfold.errors import ToolfoldError
from toolfold.guards.events import ToolCall
from toolfold.guards.guard import Call, Proceed

CANCELLED = "cancelled"
CANCELLED_BEFORE = "cancelled before it was sent"
_ERROR_CHARS = 200
_KEPT_CHARS = 2_000
_KEPT_VALUES = 100
"""Arguments larger than these are told while the call runs, and not kept in the result."""


class Record:
    """One per run. `calls` is what the run's result lists, in the order in which the calls ended."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []

    async def __call__(self, call: Call, proceed: Proceed) -> ToolResult:
        listened = call.run.on_event is not None
        if listened:
            # Where values must be looked for, those of a large call would hold up everything else.
            told = call.arguments if call.run.privacy is None or is_small(call.arguments) else None
            call.run.emit(ToolCall(id=call.id, kind=call.kind, server=call.server, tool=call.name, arguments=told))
        watch = call.run.watch
        seen = watch.call_started(call) if watch is not None else None
        outcome: ToolResult | BaseException | None = None
        begun = time.perf_counter()
        error = ""
        try:
            outcome = result = await proceed(call)
            if result.is_error:
                error = "the tool reported an error"
            return result
        except BaseException as problem:
            outcome = problem
            error = _message(problem, call)
            raise
        finally:
            if watch is not None and seen is not None and outcome is not None:
                watch.call_ended(seen, call, outcome)
            record = ToolCall(
                id=call.id,
                kind=call.kind,
                server=call.server,
                tool=call.name,
                arguments=call.arguments if is_small(call.arguments) else None,
                ok=not error,
                ms=round((time.perf_counter() - begun) * 1000, 3),
                error=error[:_ERROR_CHARS],
            )
            self.calls.append(record)
            if listened:
                call.run.emit(record)


def _message(problem: BaseException, call: Call) -> str:
    if isinstance(problem, asyncio.CancelledError):
        return CANCELLED if call.notes.sent else CANCELLED_BEFORE
    return coded(problem)[1]


def coded(problem: BaseException) -> tuple[str, str]:
    """The code and the message that an exception is recorded with."""
    if isinstance(problem, ToolfoldError):
        return problem.code, problem.message
    return ("cancelled", "") if isinstance(problem, asyncio.CancelledError) else ("internal", type(problem).__name__)


def is_small(arguments: Any) -> bool:
    """Whether so little is in them that ten thousand of their kind may be kept."""
    pending: list[Any] = [arguments]
    values = chars = 0
    while pending:
        value = pending.pop()
        values += 1
        if isinstance(value, str):
            chars += len(value)
        elif isinstance(value, dict):
            items = cast("dict[str, Any]", value)
            if values + len(items) > _KEPT_VALUES:
                return False
            chars += sum(map(len, items))
            pending.extend(items.values())
        elif isinstance(value, list):
            entries = cast("list[Any]", value)
            if values + len(entries) > _KEPT_VALUES:
                return False
            pending.extend(entries)
        if values > _KEPT_VALUES or chars > _KEPT_CHARS:
            return False
    return True


def size_of(result: ToolResult) -> int:
    """Characters or bytes of the data."""
    return len(text_of(result)) + blobs_size(result)


def blobs_size(result: ToolResult) -> int:
    return sum(len(part.data) for part in result.parts if isinstance(part, BlobPart))


def text_of(result: ToolResult) -> str | memoryview:
    """What a model would read of it: the text, or the structured content, which text beside it repeats."""
    texts = [part.text for part in result.parts if isinstance(part, TextPart)]
    if texts and any(texts):
        return texts[0] if len(texts) == 1 else "".join(texts)
    if not result.has_structured:
        return ""
    if isinstance(result.structured, msgspec.Raw):
        return memoryview(result.structured)
    # What is large is raw, unless a guard has rewritten it: then only a part of it is looked at.
    return msgspec.json.encode(result.structured).decode() if is_small(result.structured) else ""
