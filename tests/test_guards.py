"""What a guard of an embedding program sees and may do, through the public API alone."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.lab import lab_fold
from toolfold import ApprovalRequest, Call, Finished, Proceed, Question, ToolCall, ToolfoldError, ToolResult
from toolfold.guards.record import is_small

pytestmark = pytest.mark.anyio

EVERY_WAY = """
from servers.lab import add
from toolfold import call_mcp_tool, get_client, get_prompt, read_resource
await add(a=1, b=2)
await call_mcp_tool("mcp__lab__echo", {"value": 3})
await get_client().call_tool("lab.nothing", {})
print(await read_resource("lab", "lab://notes"))
print(await get_prompt("lab", "greet", {"who": "Ada"}))
"""


class Watch:
    """Keeps every call that passes."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def __call__(self, call: Call, proceed: Proceed) -> ToolResult:
        self.calls.append(call)
        return await proceed(call)


async def test_a_guard_sees_every_way_to_an_upstream_and_the_run(runtime_dir: Path) -> None:
    watch = Watch()
    async with lab_fold(runtime_dir, guards=[watch]) as fold:
        begun = time.perf_counter()
        result = await fold.run(EVERY_WAY, session="s", caller="ada", context={"user_id": "7"})
        milliseconds = (time.perf_counter() - begun) * 1000
        other = await fold.run("from servers.lab import nothing\nawait nothing()", caller="bob")
    assert result.success, result.error
    assert other.success, other.error
    *first, last = watch.calls
    assert [call.target for call in first] == [
        "lab.add",
        "lab.echo",
        "lab.nothing",
        "resource:lab:lab://notes",
        "prompt:lab:greet",
    ]
    assert [call.kind for call in first] == ["tool", "tool", "tool", "resource", "prompt"]
    assert first[0].arguments == {"a": 1, "b": 2}
    assert first[0].tool is not None
    assert first[4].arguments == {"who": "Ada"}
    assert len({call.id for call in watch.calls}) == 6
    run = first[0].run
    assert all(call.run is run for call in first)
    assert (run.caller, run.session, run.language, run.values) == ("ada", "s", "python", {"user_id": "7"})
    assert 0 < run.deadline.remaining <= run.deadline.seconds
    assert 0 < sum(call.ms for call in result.tool_calls) < result.execution_time_ms < milliseconds
    assert all(round(call.ms, 3) == call.ms for call in result.tool_calls)
    assert round(result.execution_time_ms, 3) == result.execution_time_ms
    assert (last.run.caller, last.run.session) == ("bob", None)
    assert last.run.id != run.id


@pytest.mark.parametrize(
    ("small", "large"),
    [
        ({"a": "x" * 1999}, {"a": "x" * 2000}),
        ({"a" * 2000: 1}, {"a" * 2001: 1}),
        ({"a": [0] * 98}, {"a": [0] * 99}),
        ({str(number): 0 for number in range(99)}, {str(number): 0 for number in range(100)}),
        ({"a": [[[0]] * 32]}, {"a": [[[[0]]] * 50]}),
    ],
)
def test_arguments_are_kept_while_they_are_small(small: Any, large: Any) -> None:
    assert is_small(small)
    assert not is_small(large)


async def test_a_guard_rewrites_arguments_and_results(runtime_dir: Path) -> None:
    async def double(call: Call, proceed: Proceed) -> ToolResult:
        if call.kind == "tool":
            call = call.with_arguments({key: 2 * value for key, value in call.arguments.items()})
            result = await proceed(call)
            return msgspec.structs.replace(result, structured={"sum": result.structured["sum"] + 0.5})
        await proceed(call)
        return ToolResult(structured=[{"role": "user", "content": "rewritten"}], has_structured=True)

    async with lab_fold(runtime_dir, guards=[double]) as fold:
        result = await fold.run(
            "from servers.lab import add\nfrom toolfold import get_prompt\n"
            "print((await add(a=1, b=2))['sum'], await get_prompt('lab', 'greet', {'who': 'x'}))"
        )
    assert result.output == "6.5 [{'role': 'user', 'content': 'rewritten'}]\n"


async def test_what_a_guard_wrote_is_checked_before_it_is_sent(runtime_dir: Path) -> None:
    async def spoil(call: Call, proceed: Proceed) -> ToolResult:
        return await proceed(call.with_arguments({"a": "one"}))

    async with lab_fold(runtime_dir, guards=[spoil]) as fold:
        result = await fold.run("from servers.lab import add\nawait add(a=1, b=2)")
    assert not result.success
    assert "lab.add" in str(result.error)


async def test_a_refusal_reaches_the_program_and_nothing_is_called(runtime_dir: Path) -> None:
    inner = Watch()

    async def refuse(call: Call, proceed: Proceed) -> ToolResult:
        raise ToolfoldError("Not on a Sunday.", hint="Try tomorrow.")

    async with lab_fold(runtime_dir, guards=[refuse, inner]) as fold:
        caught = await fold.run(
            "from servers.lab import add\nfrom toolfold import ToolError, read_resource\n"
            "for call in (add(a=1, b=2), read_resource('lab', 'lab://notes')):\n"
            "    try: await call\n"
            "    except ToolError as error: print(error)"
        )
        uncaught = await fold.run("from servers.lab import add\nawait add(a=1, b=2)")
    assert caught.output == "Not on a Sunday. Try tomorrow.\n" * 2
    assert [(call.ok, call.error) for call in caught.tool_calls] == [(False, "Not on a Sunday.")] * 2
    assert "Not on a Sunday." in str(uncaught.error)
    assert inner.calls == []


async def test_a_guard_that_holds_one_call_holds_no_other_and_pauses_the_clock(runtime_dir: Path) -> None:
    """The held call waits until the other one has ended, twice as long as the run's whole time limit."""
    held = asyncio.Event()

    async def hold(call: Call, proceed: Proceed) -> ToolResult:
        if call.arguments == {"value": "held"}:
            with call.run.deadline.paused():
                await held.wait()
                before = call.run.deadline.remaining
                await asyncio.sleep(2 * call.run.deadline.seconds)
                assert call.run.deadline.is_paused
                assert call.run.deadline.remaining == pytest.approx(before)
        result = await proceed(call)
        if call.arguments == {"value": "free"}:
            held.set()
        return result

    async with lab_fold(runtime_dir, guards=[hold], sandbox={"concurrent_calls": 1}) as fold:
        await fold.warm_up()
        # Started beforehand: the limit is for the program alone.
        await fold.run("from servers.lab import nothing\nawait nothing()", session="s")
        result = await fold.run(
            "import asyncio\nfrom servers.lab import echo\n"
            "print(await asyncio.gather(echo(value='held'), echo(value='free')))",
            session="s",
            timeout=3,
        )
    assert result.success, result.error
    assert result.output == "[{'value': 'held'}, {'value': 'free'}]\n"


async def test_a_pause_does_not_outlast_its_end(runtime_dir: Path) -> None:
    async def pause(call: Call, proceed: Proceed) -> ToolResult:
        with call.run.deadline.paused():
            await asyncio.sleep(0.2)
        return await proceed(call)

    async with lab_fold(runtime_dir, guards=[pause]) as fold:
        await fold.run("from servers.lab import nothing", session="s")
        result = await fold.run(
            "from servers.lab import nothing\nawait nothing()\nwhile True: pass", session="s", timeout=2
        )
    assert result.error is not None
    assert result.error.code == "limit"


async def test_a_question_is_an_event_and_its_answer_the_guards(runtime_dir: Path) -> None:
    replies: list[str] = []

    async def ask(call: Call, proceed: Proceed) -> ToolResult:
        replies.append(await call.run.ask(Question(f"May it call {call.target}?", call.id)))
        if replies[-1] == "no":
            raise ToolfoldError("Denied.")
        return await proceed(call)

    code = "from servers.lab import nothing\nawait nothing()"
    async with lab_fold(runtime_dir, guards=[ask]) as fold:
        for answer in ("approve", "deny"):
            async for event in fold.stream(code):
                match event:
                    case ApprovalRequest(question=question) as request:
                        assert question.text == "May it call lab.nothing?"
                        assert getattr(request, answer)()
                        assert not request.approve(), "the second answer counts for nothing"
                    case Finished(result=result):
                        assert result.success == (answer == "approve"), result.error
                    case _:
                        pass
        assert not (await fold.run(code)).success, "without anybody to ask the answer is no"
    assert replies == ["once", "no", "no"]


@pytest.mark.parametrize("change", ["server", "name", "kind", "run", "id"])
async def test_a_guard_cannot_turn_a_call_into_another(runtime_dir: Path, change: str) -> None:
    from dataclasses import replace

    async def swap(call: Call, proceed: Proceed) -> ToolResult:
        value: Any = replace(call.run, caller="root") if change == "run" else "resource" if change == "kind" else "x"
        return await proceed(replace(call, **{change: value}))

    async with lab_fold(runtime_dir, guards=[swap]) as fold:
        result = await fold.run("from servers.lab import nothing\nawait nothing()")
    assert "changed more of a call than its arguments" in str(result.error)


async def test_resources_and_prompts_count_against_the_limit_of_calls(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir, sandbox={"tool_calls": 3}) as fold:
        result = await fold.run(
            "from toolfold import read_resource, get_prompt\nfrom servers.lab import nothing\n"
            "await read_resource('lab', 'lab://notes')\nawait get_prompt('lab', 'greet', {'who': 'x'})\n"
            "await nothing()\nprint('three')\nawait read_resource('lab', 'lab://notes')"
        )
    assert result.output == "three\n"
    assert "sandbox.tool_calls" in str(result.error)


async def test_concurrent_calls_can_be_paired_by_their_ids(runtime_dir: Path) -> None:
    events: list[ToolCall] = []
    listed: dict[str, Any] = {}
    async with lab_fold(runtime_dir) as fold:
        async for event in fold.stream(
            "import asyncio\nfrom servers.lab import echo\nawait asyncio.gather(*(echo(value=n) for n in range(5)))"
        ):
            if isinstance(event, ToolCall):
                events.append(event)
            elif isinstance(event, Finished):
                listed = {call.id: call.arguments for call in event.result.tool_calls}
    begun = {event.id: event.arguments for event in events if event.ok is None}
    ended = {event.id: event.arguments for event in events if event.ok}
    assert begun == ended
    assert sorted(begun.values(), key=str) == [{"value": n} for n in range(5)]
    assert listed == ended


async def test_large_arguments_are_told_and_not_kept(runtime_dir: Path) -> None:
    told: list[Any] = []
    async with lab_fold(runtime_dir) as fold:
        result = await fold.run(
            "from servers.lab import echo\nawait echo(value='x' * 100_000)\nawait echo(value=list(range(1000)))",
            on_event=lambda event: told.append(event.arguments) if isinstance(event, ToolCall) else None,
        )
    assert [len(told[0]["value"]), len(told[2]["value"])] == [100_000, 1000]
    assert [call.arguments for call in result.tool_calls] == [None, None]
