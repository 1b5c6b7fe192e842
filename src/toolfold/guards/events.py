"""What happens during a run, as small values to `match` on, and the result it ends with."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from toolfold.errors import InvalidRequest, ToolfoldError
from toolfold.schema.forms import Form, Value

if TYPE_CHECKING:
    from toolfold.privacy.privacy import RunPrivacy

CallKind = Literal["tool", "resource", "prompt"]
"""The three ways to an upstream."""

Reply = Literal["once", "run", "session", "no"]
"""A person's answer: this call, all of this tool in this run, all of this tool in this session, or none in this run."""


_LABELS: dict[Reply, str] = {
    "once": "Allow once",
    "run": "Allow all in this run",
    "session": "Allow all in this session",
    "no": "No",
}


class Replied(NamedTuple):
    """A person's answer with where it came from, for the record."""

    reply: Reply
    by: str
    """For example `elicitation`, `page` or `terminal`."""
    why: str = ""
    """Of a no that a person did not say: why it is one."""
    values: Mapping[str, Value] = {}
    """What was filled in, where the question has a form."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call to an upstream. Emitted when it begins, with `ok` None, and again with the outcome; `id` pairs the two.

    `tool` is the tool's name, the resource's URI or the prompt's name, by `kind`. In a result's list `arguments` is
    None where they were too large to keep.
    """

    id: str
    server: str
    tool: str
    kind: CallKind = "tool"
    arguments: dict[str, Any] | None = None
    ok: bool | None = None
    ms: float = 0.0
    error: str = ""


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run failed. `str(error)` is what the model reads; the fields tell a limit from a bug from a refusal."""

    code: str
    """`program`, `syntax`, `tool`, `limit`, `sandbox_died`, …: see the table in docs/library.md."""
    message: str
    hint: str = ""
    line: int | None = None
    """The program's line, where there is one."""
    text: str = ""
    """Message and hint as the model reads them, with the program's own lines where an exception passed them."""

    @classmethod
    def of(cls, problem: ToolfoldError) -> RunError:
        """An error of ours as a result carries it."""
        text = f"{type(problem).__name__}: {problem}"
        return cls(code=problem.code, message=problem.message, hint=problem.hint, text=text)

    def __str__(self) -> str:
        return self.text or f"{self.message} {self.hint}".strip()


SWITCHED_OFF = RunError(
    code="disabled", message="Programs are switched off here (`enabled = false` in the settings); search still works."
)


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image that a program has shown to the model."""

    data: bytes
    mime_type: str
    width: int
    height: int
    name: str = ""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. `output` is what the program printed, then the last expression's value."""

    success: bool
    output: str = ""
    value: Any = None
    error: RunError | None = None
    notice: str = ""
    """What happened to the session since its last run, told once: for example that its variables are gone."""
    execution_time_ms: float = 0.0
    tool_calls: list[ToolCall] = []
    session: str | None = None
    truncated: bool = False
    output_file: str | None = None
    images: list[Image] = []
    """What it showed by `show`, in that order."""
    run: str = ""
    """The id by which the audit log, the REST API and the dashboard know it."""

    @property
    def text(self) -> str:
        """One compact block for the model: the output, and the error when there is one. Nothing twice."""
        parts = [self.notice] if self.notice else []
        if self.output.strip():
            parts.append(self.output.rstrip("\n"))
        elif self.error is None and not self.images:
            parts.append("(finished; nothing printed. print() what you need.)")
        if self.error is not None:
            parts.append(f"ERROR\n{self.error}")
        return "\n".join(parts) or "(finished)"


@dataclass(frozen=True)
class Output:
    """Text that the program printed."""

    text: str


@dataclass(frozen=True)
class Progress:
    """How far the program, or a tool that it called, says it is."""

    text: str
    fraction: float | None = None


@dataclass(frozen=True)
class Question:
    """What a person is asked during a run. It holds real values and is for the person only, never for the model."""

    text: str
    """The whole question, in plain text of bounded length."""
    call: str = ""
    """The id of the (first) call that waits for the answer, if one does."""
    server: str = ""
    tool: str = ""
    """The tool's name, the resource's URI or the prompt's name, by `kind`."""
    kind: CallKind = "tool"
    arguments: tuple[str, ...] = ()
    """The arguments of each waiting call as they will be sent, one line each; of many calls, the first few."""
    line: int | None = None
    """The program's line that makes the call, where it is known."""
    source: str = ""
    """The text of that line."""
    waiting: int = 1
    """Calls that wait for this answer."""
    replies: tuple[Reply, ...] = ("once", "run", "session", "no")
    """The answers that may be given; any other is taken as `no`."""
    form: Form | None = None
    """What a server asks for in the middle of a call: then `once` sends the values, and `no` declines."""

    def label(self, reply: Reply) -> str:
        """What an answer is called."""
        if self.form is not None:
            return "Decline" if reply == "no" else "Done" if self.form.url else "Send"
        if reply == "once" and self.waiting > 1:
            return f"Allow these {self.waiting} calls"
        return _LABELS[reply]


@dataclass(frozen=True)
class ApprovalRequest:
    """A question that waits for the first `approve` or `deny`; the run's clock stands still meanwhile."""

    question: Question
    reply: asyncio.Future[Reply | Replied] = field(repr=False)

    def approve(self, scope: Literal["once", "run", "session"] = "once") -> bool:
        """Whether this was the answer; False when it was answered, or given up, before."""
        return self._answer(scope) if self.question.form is None else self.submit({})

    def submit(self, values: Mapping[str, Any]) -> bool:
        """The same for a question with a form. Raises InvalidRequest when the values are not what it asks for."""
        if self.question.form is None:
            raise InvalidRequest("This question has no form; answer with approve() or deny().")
        return self._answer(Replied("once", "host application", values=self.question.form.check(values)))

    def deny(self) -> bool:
        return self._answer("no")

    def _answer(self, reply: Reply | Replied) -> bool:
        if self.reply.done():
            return False
        self.reply.set_result(reply)
        return True


@dataclass(frozen=True)
class Finished:
    result: RunResult


Event = Output | Progress | ToolCall | ApprovalRequest | Finished


def private_names(kind: str, server: str, name: str, privacy: RunPrivacy) -> tuple[str, str]:
    """What a call is named, without personal values. Of resources and prompts the program may have written anything."""
    return (server, name) if kind == "tool" else (privacy.tokenise(server), privacy.tokenise(name))


def protected_call(call: ToolCall, privacy: RunPrivacy) -> ToolCall:
    """The call without personal values."""
    server, name = private_names(call.kind, call.server, call.tool, privacy)
    return msgspec.structs.replace(
        call,
        server=server,
        tool=name,
        arguments=privacy.tokenise(call.arguments),
        error=privacy.tokenise(call.error),
    )


def protected_event(event: Event, privacy: RunPrivacy) -> Event:
    """The event without personal values. Output has none by then; a question is for a person, who may see them."""
    match event:
        case Progress(text=text, fraction=fraction):
            return Progress(privacy.tokenise(text), fraction)
        case ToolCall():
            return protected_call(event, privacy)
        case _:
            return event
