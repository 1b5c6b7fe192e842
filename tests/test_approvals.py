"""Calls that wait for a person: what is asked, how long an answer holds, and that nothing else lets a call through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.asking import GATHERED, ONE_BY_ONE, SOME_CALLS, called, config
from toolfold import ApprovalRequest, Call, Finished, Proceed, Progress, Question, RunResult, Toolfold, ToolResult
from toolfold.errors import ApprovalDenied
from toolfold.guards.approval import arguments_text
from toolfold.guards.context import Ask
from toolfold.guards.events import Reply

pytestmark = pytest.mark.anyio
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

    def test_deep_values_end(self) -> None:
        value: Any = 1
        for _ in range(900):
            value = [value]
        assert len(arguments_text({"value": value}, 4000)) < 200
