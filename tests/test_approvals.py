"""Calls that wait for a person: what is asked, how long an answer holds, and that nothing else lets a call through."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.asking import GATHERED, ONE_BY_ONE, SOME_CALLS, called, config
from toolfold import (
    ApprovalRequest,
    Call,
    Event,
    Finished,
    Proceed,
    Progress,
    Question,
    RunResult,
    Toolfold,
    ToolResult,
)
from toolfold.config.policy import ApprovalSettings
from toolfold.errors import ApprovalDenied
from toolfold.guards import approval
from toolfold.guards.approval import Approvals, arguments_text
from toolfold.guards.context import Ask, Deadline, RunContext
from toolfold.guards.events import Replied, Reply
from toolfold.guards.policy import Decision

pytestmark = pytest.mark.anyio
ASK = Decision("ask", "rule 1")
ONE = "from servers.ledger import note\nprint(await note(text='hello'))"


@pytest.fixture
async def fold(runtime_dir: Path) -> AsyncGenerator[Toolfold]:
    async with Toolfold.open(config(runtime_dir), data_dir=runtime_dir) as opened:
        yield opened


def answering(*replies: Reply) -> tuple[Ask, list[Question]]:
    """Somebody who gives these answers, one after the other, and the questions that were put."""
    left = list(replies)
    asked: list[Question] = []

    async def ask(question: Question) -> Reply:
        asked.append(question)
        return left.pop(0)

    return ask, asked


def running(ask: Ask, session: str | None = None) -> RunContext:
    return RunContext("ada", session, Deadline(60), asker=ask)


def noting(run: RunContext, text: str = "a", tool: str = "note") -> Call:
    return Call("1", "tool", "ledger", tool, {"text": text}, run)


async def test_the_question_shows_the_call_as_it_will_be_sent(fold: Toolfold, runtime_dir: Path) -> None:
    ask, asked = answering("once")
    result = await fold.run("from servers.ledger import note\nx = 'value'\nprint(await note(text=x, tag='t'))", ask=ask)
    assert result.output == "noted\n"
    [question] = asked
    assert (question.server, question.tool, question.waiting) == ("ledger", "note", 1)
    assert question.arguments == ('text="value", tag="t"',)
    assert (question.line, question.source) == (3, "print(await note(text=x, tag='t'))")
    for shown in ("ledger.note", 'text="value"', "Line 3: print(await note("):
        assert shown in question.text
    assert [call["arguments"] for call in called(runtime_dir)] == [{"text": "value", "tag": "t"}]


async def test_a_resource_is_asked_about_by_its_whole_address(runtime_dir: Path) -> None:
    uri = f"file:///fine.txt\x1b]{'/..' * 100}/etc/shadow\x07"
    rules = {"rules": [{"match": "resource:ledger:*", "do": "ask"}]}
    ask, asked = answering("no")
    async with Toolfold.open({**config(runtime_dir), "policy": rules}, data_dir=runtime_dir) as fold:
        with pytest.raises(ApprovalDenied):
            await fold.call("ledger", uri, kind="resource", ask=ask)
    shown = f'uri="file:///fine.txt\\x1b]{"/.." * 100}/etc/shadow\\x07"'
    assert asked[0].arguments == (shown,)
    assert shown in asked[0].text


async def test_a_gathered_loop_is_one_question_that_shows_how_many_wait(fold: Toolfold, runtime_dir: Path) -> None:
    ask, asked = answering("once")
    result = await fold.run(GATHERED, ask=ask)
    assert result.output == f"{SOME_CALLS} ['noted']\n"
    [question] = asked
    assert question.waiting == SOME_CALLS
    assert f"{SOME_CALLS} times" in question.text
    assert "and 40 more" in question.text
    assert question.source == 'return await note(text=f"call {number}")'
    assert len(called(runtime_dir)) == SOME_CALLS


async def test_two_calls_are_asked_about_as_two(fold: Toolfold) -> None:
    ask, asked = answering("once")
    code = (
        "import asyncio\nfrom servers.ledger import note\nprint(await asyncio.gather(note(text='a'), note(text='b')))"
    )
    assert (await fold.run(code, ask=ask)).output == "['noted', 'noted']\n"
    assert "ledger.note 2 times (" in asked[0].text
    assert '\n1. text="a"\n2. text="b"\n' in asked[0].text


async def test_a_call_made_in_gather_itself_has_its_line(fold: Toolfold) -> None:
    ask, asked = answering("once")
    code = (
        "import asyncio\nfrom servers.ledger import note\nawait asyncio.gather(\n  note(text='a'),\n  note(text='b'))"
    )
    assert (await fold.run(code, ask=ask)).success
    assert asked[0].line == 4


async def test_an_answer_for_the_run_covers_a_loop_and_only_this_tool_in_this_run(
    fold: Toolfold, runtime_dir: Path
) -> None:
    ask, asked = answering("run", "no", "no")
    other = "from servers.ledger import echo\ntry: await echo(text='x')\nexcept ApprovalDenied as e: print(e)"
    code = f"{ONE_BY_ONE}\n{other}"
    result = await fold.run(code, ask=ask, session="s")
    assert result.output.startswith(f"{SOME_CALLS} 0\n")
    assert "ledger.echo was not allowed: the person who was asked said no." in result.output
    assert [question.tool for question in asked] == ["note", "echo"]
    assert len(called(runtime_dir)) == SOME_CALLS
    assert (await fold.run(ONE_BY_ONE, ask=ask, session="s")).output == f"0 {SOME_CALLS}\n"
    assert len(called(runtime_dir)) == SOME_CALLS


async def test_a_no_covers_the_loop_too_and_the_program_may_go_on(fold: Toolfold, runtime_dir: Path) -> None:
    for code in (ONE_BY_ONE, GATHERED):
        ask, asked = answering("no")
        result = await fold.run(code, ask=ask)
        assert result.success
        assert len(asked) == 1
    assert called(runtime_dir) == []


async def test_a_no_that_is_not_caught_ends_the_program_with_its_reason(fold: Toolfold) -> None:
    ask, _ = answering("no")
    result = await fold.run(ONE, ask=ask)
    assert result.error is not None
    assert "ApprovalDenied" in str(result.error)
    assert "said no" in str(result.error)


async def test_the_record_says_who_approved_and_for_how_long(runtime_dir: Path) -> None:
    noted: list[str] = []

    async def look(call: Call, proceed: Proceed) -> ToolResult:
        result = await proceed(call)
        noted.append(call.notes.approved_by)
        return result

    ask, _ = answering("run")
    async with Toolfold.open(config(runtime_dir), data_dir=runtime_dir, guards=[look]) as fold:
        assert (
            await fold.run("from servers.ledger import note, awkward\nawait note(text='a')\nawait awkward()", ask=ask)
        ).success
    assert noted == ["host application (run)", ""]


async def test_once_is_once(fold: Toolfold) -> None:
    ask, asked = answering("once", "once", "no")
    code = "from servers.ledger import note\nfor i in range(3): print(await note(text=str(i)))"
    result = await fold.run(code, ask=ask)
    assert result.output == "noted\nnoted\n"
    assert [question.arguments for question in asked] == [('text="0"',), ('text="1"',), ('text="2"',)]


async def test_a_call_that_comes_after_the_question_was_put_is_not_covered_by_once(runtime_dir: Path) -> None:
    asked: list[Question] = []
    put, followed = asyncio.Event(), asyncio.Event()

    async def ask(question: Question) -> Reply:
        asked.append(question)
        put.set()
        await followed.wait()
        return "once"

    async def hold_back(call: Call, proceed: Proceed) -> ToolResult:
        if call.arguments["text"] == "late":
            await put.wait()
            followed.set()
        return await proceed(call)

    code = (
        "import asyncio\nfrom servers.ledger import note\n"
        "print(await asyncio.gather(note(text='early'), note(text='late')))"
    )
    async with Toolfold.open(config(runtime_dir), data_dir=runtime_dir, guards=[hold_back]) as fold:
        result = await fold.run(code, ask=ask)
    assert result.output == "['noted', 'noted']\n"
    assert [question.arguments for question in asked] == [('text="early"',), ('text="late"',)]


async def test_a_program_that_goes_on_calling_is_asked_about_all_the_same(fold: Toolfold) -> None:
    ask, asked = answering("no")
    code = """
import asyncio
from servers.ledger import note
calls = []
while not any(call.done() for call in calls):
    calls.append(asyncio.create_task(note(text="x")))
    await asyncio.sleep(0.02)
print(len(await asyncio.gather(*calls, return_exceptions=True)) > 1)
"""
    result = await fold.run(code, ask=ask, timeout=30)
    assert result.output == "True\n", result.error
    assert len(asked) == 1


async def test_an_answer_for_the_session_holds_for_its_caller_s_session_only(fold: Toolfold) -> None:
    ask, asked = answering("session")
    assert (await fold.run(ONE, session="s", caller="ada", ask=ask)).success
    assert (await fold.run(ONE, session="s", caller="ada", ask=ask)).success
    assert len(asked) == 1
    for session, caller in (("s", "bob"), ("t", "ada"), (None, "ada")):
        ask, asked = answering("no")
        assert not (await fold.run(ONE, session=session, caller=caller, ask=ask)).success
        assert len(asked) == 1


async def test_without_a_session_no_answer_holds_longer_than_the_run(fold: Toolfold) -> None:
    ask, asked = answering("session", "no")
    assert (await fold.run(ONE_BY_ONE, ask=ask)).output == f"{SOME_CALLS} 0\n"
    assert asked[0].replies == ("once", "run", "no")
    assert not (await fold.run(ONE, ask=ask)).success


async def test_without_anybody_to_ask_it_is_denied_and_explained(fold: Toolfold, runtime_dir: Path) -> None:
    result = await fold.run(ONE)
    assert result.error is not None
    assert "needs a person's approval" in str(result.error)
    assert "toolfold policy allow 'ledger.note'" in str(result.error)
    assert called(runtime_dir) == []


async def test_nobody_answers_in_time_and_the_loop_is_not_asked_again(runtime_dir: Path) -> None:
    withdrawn = asyncio.Event()
    asked: list[Question] = []

    async def ask(question: Question) -> Reply:
        asked.append(question)
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            withdrawn.set()

    async with Toolfold.open(config(runtime_dir, timeout=0.2), data_dir=runtime_dir) as fold:
        code = f"{ONE_BY_ONE}\nawait note(text='not caught')"
        result = await fold.run(code, ask=ask)
    assert withdrawn.is_set()
    assert len(asked) == 1
    assert result.output == f"0 {SOME_CALLS}\n"
    assert "no person answered within 0.2 s" in str(result.error)
    assert called(runtime_dir) == []


async def test_the_clock_stands_still_meanwhile_and_there_is_progress(fold: Toolfold) -> None:
    events: list[Any] = []

    async def ask(question: Question) -> Reply:
        await asyncio.sleep(3)  # longer than the run may take
        return "once"

    await fold.warm_up()
    result = await fold.run(ONE, ask=ask, timeout=2.5, on_event=events.append)
    assert result.output == "noted\n"
    assert Progress("waiting for a person to decide about ledger.note") in events


async def test_only_the_asked_call_waits(fold: Toolfold) -> None:
    printed = asyncio.Event()

    async def ask(question: Question) -> Reply:
        await printed.wait()
        return "once"

    def on_event(event: Any) -> None:
        if getattr(event, "text", "") == "meanwhile\n":
            printed.set()

    code = (
        "import asyncio\nfrom servers.ledger import note, awkward\nwaiting = asyncio.create_task(note(text='x'))\n"
        "await awkward()\nprint('meanwhile')\nprint(await waiting)"
    )
    result = await fold.run(code, ask=ask, on_event=on_event)
    assert result.output == "meanwhile\nnoted\n"


@pytest.mark.parametrize("answer", ["yes", "", None, 1, "session "])
async def test_what_is_no_answer_is_a_no(fold: Toolfold, runtime_dir: Path, answer: Any) -> None:
    async def ask(question: Question) -> Reply:
        return answer

    assert not (await fold.run(ONE, ask=ask)).success
    assert called(runtime_dir) == []


async def test_a_failing_way_to_ask_is_a_no(fold: Toolfold, runtime_dir: Path) -> None:
    async def ask(question: Question) -> Reply:
        raise RuntimeError("the window was closed")

    result = await fold.run(ONE, ask=ask)
    assert "asking a person failed" in str(result.error)
    assert called(runtime_dir) == []


async def test_a_cancelled_run_takes_its_question_back(fold: Toolfold, runtime_dir: Path) -> None:
    asked, withdrawn = asyncio.Event(), asyncio.Event()

    async def ask(question: Question) -> Reply:
        asked.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            withdrawn.set()

    run = asyncio.create_task(fold.run(GATHERED, ask=ask))
    async with asyncio.timeout(60):
        await asked.wait()
        run.cancel()
        await withdrawn.wait()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert called(runtime_dir) == []


async def test_a_library_answers_by_the_event_and_only_once(fold: Toolfold) -> None:
    finished: RunResult | None = None
    async for event in fold.stream(GATHERED):
        match event:
            case ApprovalRequest(question=question):
                assert question.waiting == SOME_CALLS
                assert event.approve("run")
                assert not event.deny()
            case Finished(result=result):
                finished = result
            case _:
                pass
    assert finished is not None
    assert finished.output == f"{SOME_CALLS} ['noted']\n"


class TestQuestions:
    """Without a program: calls as they come to be asked about."""

    async def test_a_call_that_is_given_up_leaves_the_question_to_the_others(self) -> None:
        put, answer = asyncio.Event(), asyncio.Event()

        async def ask(question: Question) -> Reply:
            put.set()
            await answer.wait()
            return "once"

        approvals, run = Approvals(ApprovalSettings()), running(ask)
        first, second = (asyncio.create_task(approvals.approve(noting(run, text), ASK)) for text in "ab")
        async with asyncio.timeout(20):
            await put.wait()
            first.cancel()
            await asyncio.wait([first])
            answer.set()
            await second
        assert first.cancelled()

    async def test_a_call_that_was_given_up_can_be_made_again_at_once(self) -> None:
        """As by a guard that waits for a person only so long."""
        asked: list[Question] = []
        put = asyncio.Event()

        async def ask(question: Question) -> Reply:
            asked.append(question)
            put.set()
            if len(asked) == 1:
                await asyncio.Event().wait()
            return "once"

        approvals, run = Approvals(ApprovalSettings()), running(ask)

        async def twice() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await approvals.approve(noting(run), ASK)
            await approvals.approve(noting(run), ASK)

        calls = asyncio.create_task(twice())
        async with asyncio.timeout(20):
            await put.wait()
            calls.cancel()
            await calls
        assert len(asked) == 2

    async def test_signs_of_life_come_for_as_long_as_a_person_decides(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(approval, "_PROGRESS_EVERY", 0.001)
        told: list[Event] = []
        often = asyncio.Event()

        def on_event(event: Event) -> None:
            told.append(event)
            if len(told) == 3:
                often.set()

        async def ask(question: Question) -> Reply:
            await often.wait()
            return "once"

        run = replace(running(ask), on_event=on_event)
        async with asyncio.timeout(20):
            await Approvals(ApprovalSettings()).approve(noting(run), ASK)
        assert told[:3] == [Progress("waiting for a person to decide about ledger.note")] * 3

    async def test_the_sessions_that_were_answered_for_last_are_remembered(self) -> None:
        approvals = Approvals(ApprovalSettings())

        async def allowed(session: int, tool: str = "note") -> bool:
            """Whether a person has to be asked, who allows it for the session."""
            ask, asked = answering("session")
            await approvals.approve(noting(running(ask, f"s{session}"), tool=tool), ASK)
            return bool(asked)

        assert all(await asyncio.gather(*(allowed(number) for number in range(1000))))
        assert await allowed(0, "echo"), "another tool of the same session"
        assert await allowed(1000)
        assert [await allowed(number) for number in (0, 2, 1000)] == [False] * 3
        assert await allowed(1), "it was answered for longest ago"

    @pytest.mark.parametrize(
        ("answer", "said", "hinted"),
        [
            ("no", "the person who was asked said no", False),
            (Replied("no", "page", "the page was closed"), "the page was closed", True),
            (RuntimeError(), "asking a person failed", True),
        ],
    )
    async def test_what_allows_it_next_time_is_told_unless_a_person_said_no(
        self, answer: Any, said: str, hinted: bool
    ) -> None:
        async def ask(question: Question) -> Reply | Replied:
            if isinstance(answer, Exception):
                raise answer
            return answer

        with pytest.raises(ApprovalDenied) as denied:
            await Approvals(ApprovalSettings()).approve(noting(running(ask)), ASK)
        assert denied.value.message == f"ledger.note was not allowed: {said}."
        assert denied.value.hint == ("A person can allow it: toolfold policy allow 'ledger.note'." if hinted else "")

    @pytest.mark.parametrize(
        ("kind", "name", "text"),
        [
            ("tool", "note", 'A program wants to call ledger.note (rule 1: it is large).\ntext="a"'),
            ("resource", "a://b", 'A program wants to read ledger.a://b (rule 1: it is large).\nuri="a://b"'),
            ("prompt", "greet", 'A program wants to get ledger.greet (rule 1: it is large).\ntext="a"'),
            ("tool", "a\nb\x1b[2J", 'A program wants to call ledger.a b[2J (rule 1: it is large).\ntext="a"'),
        ],
    )
    async def test_the_question_says_what_is_wanted_and_why(self, kind: Any, name: str, text: str) -> None:
        ask, asked = answering("once")
        call = replace(noting(running(ask)), kind=kind, name=name)
        await Approvals(ApprovalSettings()).approve(call, Decision("ask", "rule 1", "it is large"))
        assert [question.text for question in asked] == [text]

    async def test_a_question_about_many_large_calls_is_no_longer_than_about_one(self) -> None:
        ask, asked = answering("once")
        approvals, run = Approvals(ApprovalSettings()), running(ask)
        await asyncio.gather(*(approvals.approve(noting(run, "x" * 5000), ASK) for _ in range(12)))
        [question] = asked
        assert question.waiting == 12
        assert len(question.arguments) == 10
        assert 4000 < len(question.text) < 5000
        assert question.text.endswith("\n… and 2 more")


class TestArguments:
    """What a person reads of the arguments is bounded, and cannot pass for something else."""

    def test_every_kind_of_value(self) -> None:
        arguments: dict[str, Any] = {
            "a": "x",
            "b": 1,
            "c": None,
            "d": True,
            "e": [1.5, "y"],
            "f": {"g": []},
            "not legal": {},
        }
        assert arguments_text(arguments, 4000) == (
            'a="x", b=1, c=None, d=True, e=[1.5, "y"], f={"g": []}, "not legal"={}'
        )
        assert arguments_text({}, 100) == "(no arguments)"

    def test_invisible_and_line_breaking_characters_are_escaped(self) -> None:
        shown = arguments_text({"path": "a\u202eb\nAllow: yes\x1b[2J\u200b\u2028"}, 4000)
        assert shown == 'path="a\\u202eb\\nAllow: yes\\x1b[2J\\u200b\\u2028"'

    @pytest.mark.parametrize(
        "value",
        ["x" * 10_000_000, ["y" * 100] * 100_000, {str(key): key for key in range(100_000)}],
        ids=["text", "list", "object"],
    )
    def test_large_values_are_cut_and_it_is_said(self, value: Any) -> None:
        shown = arguments_text({"value": value, "other": 1}, 500)
        assert len(shown) < 900
        assert " more" in shown

    def test_what_is_left_out_is_counted(self) -> None:
        assert arguments_text({"a": "x" * 30, "b": 1, "c": 2}, 22) == (
            f'a="{"x" * 20}"… (10 more characters)… (2 more arguments)'
        )
        assert arguments_text({"a": ["12345678", 1, 2, 3]}, 12) == 'a=["12345678"… (3 more)]'
        assert arguments_text({"a": {"b": "12345678", "c": 1}}, 16) == 'a={"b": "12345678"… (1 more)}'

    def test_long_names_are_cut_too(self) -> None:
        assert arguments_text({"a" * 300: {"b" * 300: 10**300}}, 4000) == (
            f'"{"a" * 200}"={{"{"b" * 200}": {10**199}}}'
        )

    def test_deep_values_end(self) -> None:
        value: Any = 1
        for _ in range(900):
            value = [value]
        assert len(arguments_text({"value": value}, 4000)) < 200
