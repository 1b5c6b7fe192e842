"""How a run is answered: its result, and the events of one that is streamed."""

from __future__ import annotations

import base64
from typing import Any, Literal

import msgspec

from toolfold.guards.events import Output, Progress, Question, RunResult, ToolCall


class CallEvent(msgspec.Struct, kw_only=True):
    """A call to a server: when it begins, with `ok` null, and again with how it ended. `id` pairs the two.

    Arguments and results are the program's business: a model that reads this sees them only if the program prints them.
    """

    id: str
    kind: Literal["tool", "resource", "prompt"]
    server: str
    name: str
    ok: bool | None
    ms: float
    error: str


class OutputEvent(msgspec.Struct, kw_only=True):
    """Text that the program printed."""

    text: str
    lost: int = 0
    """Characters before it that were left out, because the client reads too slowly. The result has what counts."""


class ProgressEvent(msgspec.Struct, kw_only=True):
    """How far the program, or a tool that it called, says it is."""

    text: str
    fraction: float | None


class QuestionEvent(msgspec.Struct, kw_only=True):
    """A person is asked whether a call may be made, or for something that a server needs. They answer on the machine of
    the gateway; what they are shown holds real values, and is not told here."""

    call: str
    """The first call that waits."""
    kind: Literal["tool", "resource", "prompt"]
    server: str
    waiting: int
    """How many calls wait for the answer."""


class ErrorShape(msgspec.Struct, kw_only=True):
    """Why a run failed."""

    code: str
    message: str
    hint: str
    line: int | None
    text: str
    """As a model reads it."""


class ImageShape(msgspec.Struct, kw_only=True):
    """An image that the program has shown."""

    name: str
    mime_type: str
    width: int
    height: int
    data: str
    """In base64."""


class RunAnswer(msgspec.Struct, kw_only=True):
    """How a run ended. A program that failed is an answer as well: `success` is false, and `error` says why."""

    run: str
    """Its id, as in `/runs/{run}`."""
    success: bool
    output: str
    """What the program printed, then the last expression's value; cut in the middle where it is long."""
    value: Any
    """The last expression's value."""
    error: ErrorShape | None
    notice: str
    """What happened to the session since its last run."""
    execution_time_ms: float
    calls: list[CallEvent]
    session: str | None
    truncated: bool
    output_file: str | None
    """Where in the session's workspace the whole output is."""
    images: list[ImageShape]
    text: str
    """All of it as a model reads it."""


Event = OutputEvent | CallEvent | ProgressEvent | QuestionEvent | RunAnswer
NAMES: dict[type[Event], str] = {
    OutputEvent: "output",
    CallEvent: "call",
    ProgressEvent: "progress",
    QuestionEvent: "question",
    RunAnswer: "finished",
}
"""How events are called in a stream; an `error` ends one whose run could not be."""


def event_of(event: object) -> Event | None:
    match event:
        case Output(text=text):
            return OutputEvent(text=text)
        case ToolCall():
            return _call(event)
        case Progress(text=text, fraction=fraction):
            return ProgressEvent(text=text, fraction=fraction)
        case _:
            return None


def question_event(question: Question) -> QuestionEvent:
    return QuestionEvent(call=question.call, kind=question.kind, server=question.server, waiting=question.waiting)


def answer_of(result: RunResult) -> RunAnswer:
    error = result.error
    return RunAnswer(
        run=result.run,
        success=result.success,
        output=result.output,
        value=result.value,
        error=None
        if error is None
        else ErrorShape(code=error.code, message=error.message, hint=error.hint, line=error.line, text=str(error)),
        notice=result.notice,
        execution_time_ms=result.execution_time_ms,
        calls=[_call(call) for call in result.tool_calls],
        session=result.session,
        truncated=result.truncated,
        output_file=result.output_file,
        images=[
            ImageShape(
                name=image.name,
                mime_type=image.mime_type,
                width=image.width,
                height=image.height,
                data=base64.b64encode(image.data).decode(),
            )
            for image in result.images
        ],
        text=result.text,
    )


def _call(call: ToolCall) -> CallEvent:
    return CallEvent(
        id=call.id, kind=call.kind, server=call.server, name=call.tool, ok=call.ok, ms=call.ms, error=call.error
    )
