"""What the fold's observers are told: every run, call, search and question, and nothing that the model may not see."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.asking import config
from tests.test_privacy_runs import EVERYTHING, leaks, people_fold
from toolfold import Question, Toolfold
from toolfold.definitions import BlobPart, TextPart, ToolResult
from toolfold.errors import LimitExceeded
from toolfold.guards.context import Deadline, RunContext
from toolfold.guards.events import Reply, RunResult
from toolfold.guards.guard import Call
from toolfold.guards.record import Record
from toolfold.guards.watch import Watch
from toolfold.telemetry.observe import Observer, Observers, SeenCall, SeenQuestion, SeenRun, SeenSearch

pytestmark = pytest.mark.anyio


class Notes(Observer):
    def __init__(self) -> None:
        self.order: list[str] = []
        self.runs: list[SeenRun] = []
        self.calls: list[SeenCall] = []
        self.searches: list[SeenSearch] = []
        self.questions: list[SeenQuestion] = []
        self.printed: list[str] = []

    def run_started(self, run: SeenRun) -> None:
        assert run.ok is None
        self.order.append("run")
        self.runs.append(run)

    def run_printed(self, run: SeenRun, text: str) -> None:
        self.printed.append(text)

    def run_ended(self, run: SeenRun) -> None:
        self.order.append("run ended")

    def call_started(self, run: SeenRun, call: SeenCall) -> None:
        assert call.ok is None
        self.order.append("call")

    def call_ended(self, run: SeenRun, call: SeenCall) -> None:
        assert call in run.calls
        self.order.append("call ended")
        self.calls.append(call)

    def searched(self, search: SeenSearch) -> None:
        self.searches.append(search)

    def asked(self, question: SeenQuestion) -> None:
        assert not question.reply
        self.order.append("asked")
        self.questions.append(question)

    def answered(self, question: SeenQuestion) -> None:
        self.order.append("answered")


async def yes(question: Question) -> Reply:
    return "once"


async def test_a_run_is_told_from_its_start_to_its_end(runtime_dir: Path) -> None:
    notes = Notes()
    async with Toolfold.open(config(runtime_dir), data_dir=runtime_dir) as fold:
        forget = fold.observers.add(notes)
        code = "from servers.ledger import note\nprint('first')\nprint(await note(text='hello'))"
        result = await fold.run(code, session="work", ask=yes)
        await fold.call("ledger", "note", {"text": "direct"}, ask=yes)
        refused = await fold.run("from servers.ledger import note\nawait note(text='x')")
        running = asyncio.create_task(fold.run("import asyncio\nawait asyncio.sleep(60)"))
        while len(notes.runs) < 4:
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
        await fold.search("note")
        forget()
        await fold.run("print(1)")
    assert notes.order[:6] == ["run", "call", "asked", "answered", "call ended", "run ended"]
    first, direct, denied, cancelled = notes.runs
    assert (first.caller, first.session, first.language, first.code) == ("local", "work", "python", code)
    assert (first.ok, first.text, first.call_count) == (True, result.text, 1)
    assert "".join(notes.printed).startswith("first\nnoted\n")
    assert first.calls[0].target == "ledger.note"
    assert (first.calls[0].ok, first.calls[0].line, first.calls[0].decision) == (True, 3, "ask")
    assert first.calls[0].approved_by == "host application (once)"
    assert first.calls[0].result_size == len("noted")
    assert 0 < first.calls[0].ms <= first.ms
    assert (direct.language, direct.code, direct.ok) == ("direct", "ledger.note", True)
    assert not refused.success
    assert (denied.ok, denied.error_code) == (False, refused.error.code if refused.error else "")
    assert denied.calls[0].error_code == "approval_denied"
    assert "ledger.note" in denied.calls[0].error
    assert (cancelled.ok, cancelled.error_code) == (False, "cancelled")
    question = notes.questions[0]
    assert (question.server, question.reply, question.by) == ("ledger", "once", "host application")
    [search] = notes.searches
    assert (search.caller, search.query) == ("local", "note")
    assert "note" in search.text


async def test_an_observer_that_fails_fails_nothing_else(runtime_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Observer):
        def run_started(self, run: SeenRun) -> None:
            raise RuntimeError

    notes = Notes()
    async with Toolfold.open({"servers": {}}, data_dir=runtime_dir) as fold:
        fold.observers.add(Broken())
        fold.observers.add(notes)
        assert (await fold.run("print(1)")).output == "1\n"
    assert notes.order == ["run", "run ended"]
    assert "Broken.run_started" in caplog.text


async def test_observers_are_told_no_private_values(runtime_dir: Path) -> None:
    notes = Notes()
    async with people_fold(runtime_dir, privacy={"enabled": True}) as (fold, _):
        fold.observers.add(notes)
        result = await fold.run(EVERYTHING, session="s")
        assert result.success, result.text
        await fold.call("people", "person")
    assert leaks(notes.runs, notes.calls, notes.searches, notes.printed) == []
    assert notes.runs[0].code
    assert len(notes.runs[0].calls) > 5


# Without a program


def watched(*observers: Observer) -> Watch:
    told = Observers()
    for observer in observers:
        told.add(observer)
    return Watch(told)


async def test_a_question_that_gets_no_answer_is_told_as_answered_with_no() -> None:
    notes = Notes()

    async def ask(question: Question) -> Reply:
        raise RuntimeError

    run = RunContext("ada", None, Deadline(9), asker=ask, watch=watched(notes))

    async def work() -> RunResult:
        with pytest.raises(RuntimeError):
            await run.replied(Question("May it?", server="lab"))
        return RunResult(success=True)

    assert run.watch is not None
    await run.watch.run(run, work)
    assert notes.order == ["run", "asked", "answered", "run ended"]
    assert (notes.questions[0].server, notes.questions[0].reply, notes.questions[0].by) == ("lab", "no", "")


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (ToolResult(parts=[TextPart("ab"), BlobPart("AAAA", "image/png")]), (True, "", 2, 6, "ab")),
        (ToolResult(parts=[TextPart("no")], is_error=True), (False, "tool", 2, 2, "no")),
        (LimitExceeded("Too much.", limit="x"), (False, "limit", 0, 0, "")),
        (asyncio.CancelledError(), (False, "cancelled", 0, 0, "")),
        (RuntimeError("a secret"), (False, "internal", 0, 0, "")),
    ],
)
async def test_a_call_is_told_with_its_outcome_and_its_text_is_not_kept(
    result: ToolResult | BaseException, told: tuple[object, ...]
) -> None:
    seen: list[tuple[object, ...]] = []
    kept: list[SeenCall] = []

    class Ends(Observer):
        def call_ended(self, run: SeenRun, call: SeenCall) -> None:
            seen.append((call.ok, call.error_code, call.text_size, call.result_size, call.text))
            kept.append(call)

    async def upstream(call: Call) -> ToolResult:
        if isinstance(result, BaseException):
            raise result
        return result

    run = RunContext("ada", None, Deadline(9), watch=watched(Ends()))

    async def work() -> RunResult:
        with contextlib.suppress(LimitExceeded, RuntimeError, asyncio.CancelledError):
            await Record()(Call("1", "tool", "lab", "add", {}, run), upstream)
        return RunResult(success=True)

    assert run.watch is not None
    await run.watch.run(run, work)
    assert seen == [told]
    assert kept[0].text == ""
    assert "secret" not in repr(kept)
