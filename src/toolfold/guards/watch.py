"""One run as its fold's observers are told of it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from toolfold.errors import ToolfoldError
from toolfold.guards.events import private_names
from toolfold.guards.record import blobs_size, coded, text_of
from toolfold.telemetry.observe import Observer, Observers, SeenCall, SeenQuestion, SeenRun

if TYPE_CHECKING:
    from toolfold.definitions import ToolResult
    from toolfold.guards.context import RunContext
    from toolfold.guards.events import Question, Replied, RunResult
    from toolfold.guards.guard import Call

_ERROR_CHARS = 200
_MOST_CALLS = 1_000
"""Calls of one run that are kept in `SeenRun.calls`; each is told, and all are counted."""


class Watch:
    """One per run of a fold that has observers."""

    def __init__(self, observers: Observers) -> None:
        self._observers = observers
        self._run: SeenRun | None = None

    async def run(self, run: RunContext, work: Callable[[], Awaitable[RunResult]]) -> RunResult:
        """`work`, which is the whole run."""
        # Where there may be private values in it, it is known without them only later.
        code = run.code if run.privacy is None else ""
        self._run = seen = SeenRun(run.id, run.caller, run.shown_session, run.language, code)
        self._observers.notify(Observer.run_started, seen)
        try:
            result = await work()
            seen.ok, seen.text = result.success, result.text
            if result.error is not None:
                seen.error_code, seen.error = result.error.code, result.error.message
            return result
        except BaseException as problem:
            seen.ok = False
            seen.error_code, message = coded(problem)
            if run.privacy is None:
                seen.error = message
                seen.text = str(problem) if isinstance(problem, ToolfoldError) else ""
            raise
        finally:
            seen.code = seen.code or run.notes.code
            seen.ms = _since(seen.begun)
            self._observers.notify(Observer.run_ended, seen)

    def printed(self, text: str) -> None:
        self._observers.notify(Observer.run_printed, self._seen, text)

    def call_started(self, call: Call) -> SeenCall:
        run = self._seen
        server, name, private = call.server, call.name, call.run.privacy
        if private is not None:
            server, name = private_names(call.kind, server, name, private)
        seen = SeenCall(call.id, call.kind, server, name, call.line, _since(run.begun))
        run.call_count += 1
        if len(run.calls) < _MOST_CALLS:
            run.calls.append(seen)
        self._observers.notify(Observer.call_started, run, seen)
        return seen

    def call_ended(self, seen: SeenCall, call: Call, outcome: ToolResult | BaseException) -> None:
        seen.ms = _since(self._seen.begun) - seen.after_ms
        seen.decision, seen.approved_by = call.notes.decision, call.notes.approved_by
        if isinstance(outcome, BaseException):
            seen.ok = False
            seen.error_code, message = coded(outcome)
            seen.error = message[:_ERROR_CHARS] if call.run.privacy is None else ""
        else:
            seen.ok, seen.error_code = not outcome.is_error, "tool" if outcome.is_error else ""
            text = text_of(outcome)
            seen.text_size, seen.result_size = len(text), len(text) + blobs_size(outcome)
            seen.text = text if call.run.privacy is None else ""
        self._observers.notify(Observer.call_ended, self._seen, seen)
        seen.text = ""

    async def ask(self, question: Question, ask: Callable[[Question], Awaitable[Replied]]) -> Replied:
        """`ask`, which puts the question to a person."""
        seen = SeenQuestion(self._seen.id, question.server)
        self._observers.notify(Observer.asked, seen)
        begun = time.perf_counter()
        try:
            replied = await ask(question)
            seen.reply, seen.by = replied.reply, replied.by
            return replied
        finally:
            seen.reply = seen.reply or "no"
            seen.ms = _since(begun)
            self._observers.notify(Observer.answered, seen)

    @property
    def _seen(self) -> SeenRun:
        assert self._run is not None
        return self._run


def _since(begun: float) -> float:
    return round((time.perf_counter() - begun) * 1000, 3)
