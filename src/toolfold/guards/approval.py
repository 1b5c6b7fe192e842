"""Calls that wait until a person has allowed them."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from toolfold.errors import ApprovalDenied
from toolfold.guards.events import Progress, Question, Replied, Reply
from toolfold.guards.permission import how_to_allow
from toolfold.schema.text import one_line, quote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolfold.config.policy import ApprovalSettings
    from toolfold.guards.context import RunContext
    from toolfold.guards.guard import Call
    from toolfold.guards.policy import Decision

_QUIET = 0.1
"""Seconds without another call of the same tool after which the question is put: a gathered loop arrives in a burst."""
_LONGEST_GATHERING = 1.0
_PROGRESS_EVERY = 5.0
"""Seconds between signs of life while a person decides."""
_SESSIONS = 1000
"""Sessions whose grants are remembered; of an older one the person is asked again."""
_NAME_CHARS = 200
_SHOWN_CALLS = 10
_SHOWN_CHARS = 4000
"""Characters of arguments in one question."""
_REPLIES: tuple[Reply, ...] = ("once", "run", "session", "no")
_REPLIES_WITHOUT_SESSION: tuple[Reply, ...] = ("once", "run", "no")
SAID_NO = "the person who was asked said no"
UNANSWERED = ("no person answered", "asking a person failed")
"""How it begins what became of a question that has no answer."""

_log = logging.getLogger(__name__)


class Approvals:
    """One per fold: asks a person about calls, and remembers the answers for as long as they hold."""

    def __init__(self, settings: ApprovalSettings) -> None:
        self._timeout = settings.timeout
        self._open: dict[tuple[str, str], _Asking] = {}
        """By run and target."""
        self._sessions: OrderedDict[tuple[str, str], dict[str, Replied]] = OrderedDict()
        """What was allowed in a caller's session, by target."""

    async def approve(self, call: Call, decision: Decision) -> None:
        """Return when a person has allowed the call; raise ApprovalDenied otherwise.

        Only this call waits. Calls of one tool in one run are asked about as one, and "no" holds for the whole run.
        """
        run, target = call.run, call.target
        if run.asker is None:
            raise ApprovalDenied(
                f"{_name(call)} needs a person's approval ({decision.rule}), and there is no way to ask one here.",
                hint=how_to_allow(target),
            )
        while (replied := self._standing(run, target)) is None:
            asking = self._open.get((run.id, target))
            if asking is None or asking.is_withdrawn:
                asking = self._open[run.id, target] = _Asking()
                asking.task = asyncio.create_task(self._ask(asking, run, target, decision))
            was_shown = asking.is_shown
            replied = await asking.answer_for(call)
            if replied.reply != "once" or not was_shown:
                break
            # It came after the question was put, so the person has not seen it.
        if replied.reply == "no":
            hint = "" if replied.by == SAID_NO else how_to_allow(target)
            raise ApprovalDenied(f"{_name(call)} was not allowed: {replied.by}.", hint=hint)
        call.notes.approved_by = f"{replied.by} ({replied.reply})"

    def _standing(self, run: RunContext, target: str) -> Replied | None:
        """The answer that was given before and still holds."""
        if target in run.answered:
            return run.answered[target]
        if run.session is None:
            return None
        return self._sessions.get((run.caller, run.session), {}).get(target)

    async def _ask(self, asking: _Asking, run: RunContext, target: str, decision: Decision) -> Replied:
        """Put one question for all calls that have gathered, and keep the answer where it holds for more than them."""
        try:
            await asking.gathered()
            question = _question(asking.calls, run, decision)
            asking.is_shown = True
            replied = await put(run, question, self._timeout, f"decide about {_name(asking.calls[0])}")
            if replied.reply == "session":
                assert run.session is not None
                self._remember(run.caller, run.session, target, replied)
            elif replied.reply != "once":
                run.answered[target] = replied
            return replied
        finally:
            if self._open.get((run.id, target)) is asking:
                del self._open[run.id, target]

    def _remember(self, caller: str, session: str, target: str, replied: Replied) -> None:
        self._sessions.setdefault((caller, session), {})[target] = replied
        self._sessions.move_to_end((caller, session))
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)


async def put(run: RunContext, question: Question, timeout: float, what: str) -> Replied:
    """Put a question to the person of a run, with signs of life meanwhile. `no` for whatever is not an answer to it."""
    asked = asyncio.create_task(_put(run, question, timeout))
    try:
        while not asked.done():
            run.emit(Progress(f"waiting for a person to {what}"))
            await asyncio.wait([asked], timeout=_PROGRESS_EVERY)
        return asked.result()
    finally:
        asked.cancel()


async def _put(run: RunContext, question: Question, timeout: float) -> Replied:
    try:
        async with asyncio.timeout(timeout):
            replied = await run.replied(question)
    except TimeoutError:
        return Replied("no", f"{UNANSWERED[0]} within {timeout:g} s")
    except Exception:
        _log.exception("asking a person failed")
        return Replied("no", UNANSWERED[1])
    if replied.reply == "session" and run.session is None:
        return replied._replace(reply="run")
    if replied.reply not in question.replies or replied.reply == "no":
        return Replied("no", replied.why or SAID_NO)
    return replied


@dataclass
class _Asking:
    """One question and the calls that wait for its answer. When none of them waits any more, it is withdrawn."""

    calls: list[Call] = field(default_factory=list["Call"])
    """Those that the question is about."""
    is_shown: bool = False
    task: asyncio.Task[Replied] | None = None
    _waiting: int = 0

    @property
    def is_withdrawn(self) -> bool:
        return self.task is not None and self.task.cancelling() > 0

    async def answer_for(self, call: Call) -> Replied:
        assert self.task is not None
        if not self.is_shown:
            self.calls.append(call)
        self._waiting += 1
        try:
            return await asyncio.shield(self.task)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self.task.cancel()

    async def gathered(self) -> None:
        """Wait until no more calls come for a moment."""
        count, waited = -1, 0.0
        while count != len(self.calls) and waited < _LONGEST_GATHERING:
            count = len(self.calls)
            await asyncio.sleep(_QUIET)
            waited += _QUIET


def _name(call: Call) -> str:
    return f"{one_line(call.server, _NAME_CHARS)}.{one_line(call.name, _NAME_CHARS)}"


# The question's text


def _question(calls: list[Call], run: RunContext, decision: Decision) -> Question:
    first, count = calls[0], len(calls)
    shown = calls[:_SHOWN_CALLS]
    arguments = tuple(arguments_text(_arguments(call), _SHOWN_CHARS // len(shown)) for call in shown)
    source = source_line(run.code, first.line)
    what = {"tool": "call", "resource": "read", "prompt": "get"}[first.kind]
    times = f" {count} times" if count > 1 else ""
    lines = [f"A program wants to {what} {_name(first)}{times} ({_because(decision)})."]
    lines += [f"{number}. {text}" if count > 1 else text for number, text in enumerate(arguments, 1)]
    if count > len(shown):
        lines.append(f"… and {count - len(shown)} more")
    if source:
        lines.append(f"Line {first.line}: {source}")
    return Question(
        "\n".join(lines),
        first.id,
        server=first.server,
        tool=first.name,
        kind=first.kind,
        arguments=arguments,
        line=first.line,
        source=source,
        waiting=count,
        replies=_REPLIES if run.session is not None else _REPLIES_WITHOUT_SESSION,
    )


def _arguments(call: Call) -> dict[str, Any]:
    """What decides about the call beside its name: of a resource, the address in full and with every character."""
    return {"uri": call.name} if call.kind == "resource" else call.arguments


def _because(decision: Decision) -> str:
    reason = f": {decision.reason}" if decision.reason else ""
    return one_line(f"{decision.rule}{reason}", _NAME_CHARS)


def source_line(code: str, line: int | None) -> str:
    lines = code.splitlines()
    return one_line(lines[line - 1], _NAME_CHARS) if line is not None and 0 < line <= len(lines) else ""


def arguments_text(arguments: dict[str, Any], limit: int) -> str:
    """`name="value", count=3` in one line of about `limit` characters. What was left out is counted.

    Invisible characters are written as escapes, so that no value can pass for another or for the question itself.
    """
    if not arguments:
        return "(no arguments)"
    writer = _Writer(limit)
    for index, (name, value) in enumerate(arguments.items()):
        if writer.is_full:
            writer.note(f"{len(arguments) - index} more arguments")
            break
        writer.add(", " if index else "")
        writer.add((name if name.isidentifier() and len(name) < _NAME_CHARS else quote(name[:_NAME_CHARS])) + "=")
        writer.value(value)
    return "".join(writer.parts)


class _Writer:
    """Writes a value of any size and depth, and stops when enough is written."""

    def __init__(self, limit: int) -> None:
        self.parts: list[str] = []
        self._left = limit

    @property
    def is_full(self) -> bool:
        return self._left <= 0

    def add(self, text: str) -> None:
        self.parts.append(text)
        self._left -= len(text)

    def note(self, text: str) -> None:
        self.add(f"… ({text})")

    def value(self, value: Any, depth: int = 0) -> None:
        match value:
            case str():
                kept = value[: max(self._left, 20)]
                self.add(quote(kept))
                if len(kept) < len(value):
                    self.note(f"{len(value) - len(kept):,} more characters")
            case dict():
                pairs = cast("dict[str, Any]", value)
                labelled = ((quote(str(key)[:_NAME_CHARS]) + ": ", each) for key, each in pairs.items())
                self._all("{", labelled, "}", len(pairs), depth)
            case list():
                items = cast("list[Any]", value)
                self._all("[", (("", each) for each in items), "]", len(items), depth)
            case _:
                self.add(str(value)[:_NAME_CHARS])

    def _all(self, begin: str, items: Iterable[tuple[str, Any]], end: str, count: int, depth: int) -> None:
        self.add(begin)
        for index, (label, item) in enumerate(items):
            if self.is_full or depth > 20:
                self.note(f"{count - index:,} more")
                break
            self.add((", " if index else "") + label)
            self.value(item, depth + 1)
        self.add(end)
