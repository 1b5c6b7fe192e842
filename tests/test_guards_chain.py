"""The chain of guards around one run's calls, without a sandbox: what is counted, kept, told, refused and held back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from toolfold.config.settings import Settings
from toolfold.definitions import BlobPart, TextPart, ToolDefinition, ToolResult
from toolfold.errors import (
    ApprovalDenied,
    GuardError,
    InvalidArguments,
    InvalidRequest,
    LimitExceeded,
    ToolChanged,
    ToolfoldError,
)
from toolfold.guards.chain import Chain as Guards
from toolfold.guards.context import Ask, Deadline, RunContext, call_deadline
from toolfold.guards.events import (
    ApprovalRequest,
    Event,
    Finished,
    Output,
    Question,
    Reply,
    RunError,
    RunResult,
    ToolCall,
)
from toolfold.guards.guard import Call, Guard, Proceed
from toolfold.guards.pins import Pinned
from toolfold.guards.record import Record, size_of, text_of
from toolfold.guards.streaming import streamed
from toolfold.sandbox.replies import ReplyBudget
from toolfold.schema.forms import Form
from toolfold.schema.validation import Validators

pytestmark = pytest.mark.anyio

TOOL = ToolDefinition(
    server="lab",
    name="echo",
    input_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False},
)
TEXT = {"type": "string"}
ASK_FIRST = {"policy": {"rules": [{"match": "lab.*", "do": "ask"}]}}
Upstream = Callable[[Call], Any]


async def never_asked(question: Question) -> Reply:
    raise AssertionError(question.text)


class Chain:
    """One run's way to an upstream that answers what it is told to."""

    def __init__(
        self,
        upstream: Upstream | None = None,
        *own: Guard,
        on_event: Callable[[Event], None] | None = None,
        ask: Ask | None = None,
        values: dict[str, str] | None = None,
        held: tuple[str, ...] = (),
        settings: dict[str, Any] | None = None,
        **limits: Any,
    ) -> None:
        self.sent: list[Call] = []
        self.record = Record()
        self.run = RunContext("ada", None, Deadline(60), on_event=on_event, asker=ask, values=values or {})

        async def answer(call: Call) -> ToolResult:
            self.sent.append(call)
            if upstream is None:
                return ToolResult()
            return await upstream(call)

        given = Settings.model_validate({"sandbox": limits, **(settings or {})})
        self.guards = Guards(given, own, Validators(), lambda server, tool: tool in held)
        self.answer = answer
        self.begin_run()

    def begin_run(self) -> None:
        self._proceed = self.guards.for_run(self.answer, self.record, ReplyBudget())

    async def call(self, arguments: dict[str, Any] | None = None, tool: ToolDefinition | None = None) -> ToolResult:
        number = str(len(self.sent))
        return await self._proceed(Call(number, "tool", "lab", "echo", arguments or {}, self.run, tool))


class TestLimits:
    async def test_the_last_call_that_is_allowed_is_made_and_the_next_is_not(self) -> None:
        chain = Chain(tool_calls=2)
        await chain.call()
        await chain.call()
        with pytest.raises(LimitExceeded, match="This run has made its 2 tool calls"):
            await chain.call()
        assert len(chain.sent) == 2
        assert [call.ok for call in chain.record.calls] == [True, True, False]

    async def test_as_many_calls_as_allowed_are_open_at_once(self) -> None:
        go_on = asyncio.Event()

        async def wait(call: Call) -> ToolResult:
            await go_on.wait()
            return ToolResult()

        chain = Chain(wait, concurrent_calls=2)
        calls = [asyncio.create_task(chain.call()) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert len(chain.sent) == 2
        go_on.set()
        await asyncio.gather(*calls)
        assert len(chain.sent) == 3

    async def test_a_changed_tool_is_not_called_and_its_name_fills_no_page(self) -> None:
        chain = Chain()
        asked: list[tuple[str, str]] = []

        async def proceed(call: Call) -> ToolResult:
            raise AssertionError("called")

        def is_held(server: str, tool: str) -> bool:
            asked.append((server, tool))
            return True

        call = Call("1", "tool", "lab", "x" * 5000, {}, chain.run)
        with pytest.raises(ToolChanged, match=r"lab\.xxx") as refused:
            await Pinned(is_held)(call, proceed)
        assert asked == [("lab", "x" * 5000)]
        assert len(str(refused.value)) < 1000
        assert (call.notes.decision, call.notes.rule) == ("deny", "the tool has changed")

    async def test_a_call_that_fails_or_is_cancelled_gives_its_place_back(self) -> None:
        async def fail(call: Call) -> ToolResult:
            if call.arguments:
                await asyncio.Event().wait()
            raise RuntimeError

        chain = Chain(fail, concurrent_calls=1)
        with pytest.raises(RuntimeError):
            await chain.call()
        hanging = asyncio.create_task(chain.call({"n": 1}))
        await asyncio.sleep(0.01)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        with pytest.raises(RuntimeError):
            await asyncio.wait_for(chain.call(), 5)

    async def test_arguments_are_checked_where_there_is_a_definition(self) -> None:
        chain = Chain()
        await chain.call({"anything": 1})
        await chain.call({"n": 1}, TOOL)
        with pytest.raises(InvalidArguments, match=r"lab\.echo: n: must be integer, not string"):
            await chain.call({"n": "1"}, TOOL)
        assert len(chain.sent) == 2


class TestOrder:
    async def test_a_person_is_not_asked_about_a_call_that_could_not_be_sent(self) -> None:
        chain = Chain(ask=never_asked, settings=ASK_FIRST)
        with pytest.raises(InvalidArguments):
            await chain.call({"n": "1"}, TOOL)
        assert chain.sent == []

    async def test_nothing_sees_a_call_of_a_tool_that_has_changed_but_its_record(self) -> None:
        async def look(call: Call, proceed: Proceed) -> ToolResult:
            raise AssertionError("a guard saw it")

        chain = Chain(None, look, ask=never_asked, held=("echo",), settings=ASK_FIRST)
        with pytest.raises(ToolChanged):
            await chain.call()
        assert [call.ok for call in chain.record.calls] == [False]

    async def test_a_resource_that_is_called_like_a_changed_tool_is_read(self) -> None:
        chain = Chain(held=("echo",))
        await chain.guards.for_run(chain.answer, Record(), ReplyBudget())(
            Call("1", "resource", "lab", "echo", {}, chain.run)
        )
        assert len(chain.sent) == 1

    async def test_a_call_that_waits_for_a_person_or_is_refused_holds_up_no_other(self) -> None:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def ask(question: Question) -> Reply:
            asked.set()
            await answer.wait()
            return "no"

        rule = {"match": "lab.echo", "args": {"n": 1}, "do": "ask"}
        chain = Chain(
            ask=ask, settings={"policy": {"rules": [rule]}, "limits": {"calls_per_run": 1}}, concurrent_calls=1
        )
        waiting = asyncio.create_task(chain.call({"n": 1}))
        async with asyncio.timeout(20):
            await asked.wait()
            await chain.call({"n": 2})
            answer.set()
            with pytest.raises(ApprovalDenied):
                await waiting
        assert [call.arguments for call in chain.sent] == [{"n": 2}]

    async def test_each_run_has_its_own_count_and_its_own_places(self) -> None:
        go_on = asyncio.Event()

        async def wait(call: Call) -> ToolResult:
            await go_on.wait()
            return ToolResult()

        chain = Chain(wait, tool_calls=1, concurrent_calls=1)
        first = asyncio.create_task(chain.call())
        await asyncio.sleep(0)
        chain.begin_run()
        second = asyncio.create_task(chain.call())
        async with asyncio.timeout(20):
            while len(chain.sent) < 2:
                await asyncio.sleep(0)
            go_on.set()
            await asyncio.gather(first, second)
            with pytest.raises(LimitExceeded):
                await chain.call()

    async def test_what_is_filled_in_is_checked_and_sent_and_not_in_the_record(self) -> None:
        chain = Chain(values={"n": "7"}, settings={"context": {"inject": {"lab.*": {"n": "context.n"}}}})
        written: dict[str, Any] = {}
        await chain.call(written, TOOL)
        assert [call.arguments for call in chain.sent] == [{"n": 7}]
        assert [call.arguments for call in chain.record.calls] == [{}]
        assert written == {}

    async def test_a_token_of_the_value_that_is_filled_in_is_that_value(self, tmp_path: Path) -> None:
        """Values come back before it is decided whether they are allowed."""
        settings = {
            "privacy": {"restore": {"lab": ["email"]}},
            "context": {"inject": {"lab.*": {"to": "context.email"}}},
            "data_dir": tmp_path,
        }
        chain = Chain(values={"email": "ada@example.com"}, settings=settings)
        chain.run = replace(chain.run, privacy=await chain.guards.privacy_of("ada", None))
        assert chain.run.privacy is not None
        assert chain.run.privacy.tokenise("ada@example.com") == "EMAIL_1"
        await chain.call({"to": "EMAIL_1"})
        assert [call.arguments for call in chain.sent] == [{"to": "ada@example.com"}]

    async def test_the_signature_in_an_error_is_that_of_the_server_that_was_called(self) -> None:
        """Two servers have a tool of the same name."""
        chain = Chain()
        other = ToolDefinition(
            server="mill",
            name="echo",
            input_schema={"type": "object", "properties": {"grain": TEXT}, "required": ["grain"]},
        )
        with pytest.raises(InvalidArguments) as first:
            await chain.call({"n": "1"}, TOOL)
        with pytest.raises(InvalidArguments) as second:
            await chain.call({}, other)
        assert "n: int" in first.value.hint
        assert "grain: str" in second.value.hint


class TestRecord:
    @pytest.mark.parametrize(
        ("arguments", "kept"),
        [
            ({"text": "x" * 1996}, True),
            ({"text": "x" * 1997}, False),
            ({"k" * 2000: None}, True),
            ({"k" * 2001: None}, False),
            ({"rows": [0] * 98}, True),
            ({"rows": [0] * 99}, False),
            ({str(n): 0 for n in range(99)}, True),
            ({str(n): 0 for n in range(100)}, False),
            ({"a": [[0] * 40], "b": {"c": [0] * 53}}, True),
            ({"a": [[0] * 40], "b": {"c": [0] * 57}}, False),
            ({"n": 1.5, "yes": True, "none": None}, True),
        ],
    )
    async def test_small_arguments_are_kept(self, arguments: dict[str, Any], kept: bool) -> None:
        told: list[Event] = []
        chain = Chain(on_event=told.append)
        await chain.call(arguments)
        assert [call.arguments for call in chain.record.calls] == [arguments if kept else None]
        begun, ended = told
        assert isinstance(begun, ToolCall)
        assert (begun.arguments, begun.ok) == (arguments, None), "whoever listens sees all of it"
        assert ended == chain.record.calls[0]

    @pytest.mark.parametrize(
        ("problem", "error"),
        [
            (ToolfoldError("Not today.", hint="Tomorrow."), "Not today."),
            (ToolfoldError("x" * 201), "x" * 200),
            (RuntimeError("a secret"), "RuntimeError"),
            (asyncio.CancelledError(), "cancelled before it was sent"),
        ],
    )
    async def test_how_a_call_failed_is_kept(self, problem: BaseException, error: str) -> None:
        async def fail(call: Call) -> ToolResult:
            raise problem

        chain = Chain(fail)
        with pytest.raises(type(problem)):
            await chain.call()
        (call,) = chain.record.calls
        assert (call.ok, call.error, call.server, call.tool, call.kind) == (False, error, "lab", "echo", "tool")

    async def test_an_error_that_a_tool_reports_is_an_error_and_a_result(self) -> None:
        async def report(call: Call) -> ToolResult:
            await asyncio.sleep(0.02)
            return ToolResult(is_error=True)

        chain = Chain(report)
        assert (await chain.call()).is_error
        (call,) = chain.record.calls
        assert (call.ok, call.error) == (False, "the tool reported an error")
        assert call.ms >= 15

    @pytest.mark.parametrize(
        ("result", "size", "text"),
        [
            (ToolResult(), 0, ""),
            (ToolResult(parts=[TextPart("ab"), BlobPart("AAAA", "image/png"), TextPart("c")]), 7, "abc"),
            (ToolResult(parts=[TextPart("ab")], structured={"n": 1}, has_structured=True), 2, "ab"),
            (ToolResult(parts=[TextPart("")], structured={"n": 1}, has_structured=True), 7, '{"n":1}'),
            (ToolResult(structured=msgspec.Raw(b'{"n": 1}'), has_structured=True), 8, memoryview(b'{"n": 1}')),
            (ToolResult(structured=None, has_structured=True), 4, "null"),
            (ToolResult(structured=[0] * 1000, has_structured=True), 0, ""),
        ],
    )
    def test_a_result_is_as_large_as_what_a_model_would_read_of_it(
        self, result: ToolResult, size: int, text: str | memoryview
    ) -> None:
        assert (size_of(result), text_of(result)) == (size, text)

    async def test_a_listener_that_fails_fails_no_call(self) -> None:
        def fail(event: Event) -> None:
            raise RuntimeError

        chain = Chain(on_event=fail)
        await chain.call()
        assert [call.ok for call in chain.record.calls] == [True]


class TestOwnGuards:
    async def test_the_first_is_the_outermost(self) -> None:
        order: list[str] = []

        def named(name: str) -> Guard:
            async def guard(call: Call, proceed: Proceed) -> ToolResult:
                order.append(name)
                return await proceed(call)

            return guard

        await Chain(None, named("one"), named("two")).call()
        assert order == ["one", "two"]

    async def test_what_they_see_is_data_and_what_they_answer_is_a_result(self) -> None:
        seen: list[Any] = []

        async def raw(call: Call) -> ToolResult:
            return ToolResult(structured=msgspec.Raw(b'{"n":1}'), has_structured=True)

        async def look(call: Call, proceed: Proceed) -> ToolResult:
            seen.append((await proceed(call)).structured)
            return "text"  # pyright: ignore[reportReturnType]

        with pytest.raises(GuardError, match="The guard 'look' answered with str, not a ToolResult"):
            await Chain(raw, look).call()
        assert seen == [{"n": 1}]

    async def test_a_call_may_be_passed_on_again_with_other_arguments(self) -> None:
        async def twice(call: Call, proceed: Proceed) -> ToolResult:
            await proceed(call)
            return await proceed(call.with_arguments({"n": 2}))

        chain = Chain(None, twice)
        await chain.call({"n": 1}, TOOL)
        assert [call.arguments for call in chain.sent] == [{"n": 1}, {"n": 2}]


class TestDeadline:
    async def test_what_is_left_shrinks_and_is_never_negative(self) -> None:
        deadline = Deadline(0.05)
        assert 0 < deadline.remaining <= 0.05
        await asyncio.sleep(0.06)
        assert deadline.remaining == 0.0

    async def test_pauses_together_last_no_longer_than_allowed(self) -> None:
        deadline = Deadline(10, longest_pause=0.05)
        for _ in range(2):
            with deadline.paused():
                await asyncio.sleep(0.06)
                assert not deadline.is_paused, "the clock goes on after its longest pause"
        assert deadline.remaining <= 10 - 0.06
        assert not deadline.is_paused

    async def test_time_is_charged_to_the_run_or_to_its_pauses_even_if_nobody_looks(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loop, now = asyncio.get_running_loop(), [1000.0]
        with monkeypatch.context() as patched:
            patched.setattr(loop, "time", lambda: now[0])
            deadline = Deadline(10, longest_pause=8)
            now[0] += 1
            with deadline.paused():
                now[0] += 5
            now[0] += 2
            assert deadline.remaining == 7
            with deadline.paused():
                now[0] += 4
            assert deadline.remaining == 6, "three seconds of pause were left"

    async def test_overlapping_pauses_end_with_the_last_one(self) -> None:
        deadline = Deadline(10)
        with deadline.paused():
            with deadline.paused():
                pass
            assert deadline.is_paused
            before = deadline.remaining
            await asyncio.sleep(0.02)
            assert deadline.remaining == before
        assert not deadline.is_paused
        await asyncio.sleep(0.02)
        assert deadline.remaining <= before - 0.01

    async def test_a_pause_moves_every_block_that_is_enforced(self) -> None:
        deadline = Deadline(0.5)
        async with deadline.enforced("outer"), deadline.enforced("inner"):
            with deadline.paused():
                await asyncio.sleep(0.7)
        with pytest.raises(LimitExceeded, match="over"):
            async with deadline.enforced("over"):
                await asyncio.sleep(5)

    async def test_a_block_that_was_paused_ends_in_time_all_the_same(self) -> None:
        async def block() -> None:
            deadline = Deadline(0.3)
            async with deadline.enforced("over"):
                with deadline.paused():
                    await asyncio.sleep(0.01)
                await asyncio.Event().wait()

        with pytest.raises(LimitExceeded, match="over"):
            await asyncio.wait_for(block(), 20)

    @pytest.mark.parametrize("still", [Deadline.paused, Deadline.waiting])
    async def test_the_clock_goes_on_when_what_it_waited_for_has_failed(
        self, still: Callable[[Deadline], AbstractContextManager[None]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loop, now = asyncio.get_running_loop(), [1000.0]
        with monkeypatch.context() as patched:
            patched.setattr(loop, "time", lambda: now[0])
            deadline = Deadline(10, waits=10)
            with suppress(RuntimeError), still(deadline):
                now[0] += 2
                raise RuntimeError
            now[0] += 3
            assert deadline.remaining == 7
            assert not deadline.is_paused

    async def test_waits_for_servers_are_granted_up_to_their_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop, now = asyncio.get_running_loop(), [1000.0]
        with monkeypatch.context() as patched:
            patched.setattr(loop, "time", lambda: now[0])
            deadline = Deadline(10, waits=5)
            assert deadline.patience == 15
            with deadline.waiting():
                now[0] += 2
                with deadline.waiting(), deadline.paused():
                    now[0] += 100
                now[0] += 1
            assert (deadline.remaining, deadline.patience) == (10, 12), "a person's time is not the servers'"
            with deadline.waiting():
                now[0] += 4
            assert (deadline.remaining, deadline.patience) == (8, 8)
            with deadline.waiting():
                now[0] += 1
            assert deadline.remaining == 7

    async def test_time_that_is_over_in_the_middle_of_a_pause_ends_the_block(self) -> None:
        deadline = Deadline(0.01, longest_pause=0.01)

        async def block() -> None:
            async with deadline.enforced("over"):
                with deadline.paused():
                    await asyncio.Event().wait()

        with pytest.raises(LimitExceeded, match="over"):
            await block()

    async def test_a_pause_may_come_after_a_block_that_was_enforced(self) -> None:
        deadline = Deadline(60)
        async with deadline.enforced("over"):
            pass
        with deadline.paused():
            assert deadline.is_paused

    async def test_one_call_has_the_time_of_its_server_unless_another_is_given(self) -> None:
        server = {"command": "x", "start_timeout": 20, "call_timeout": 300}
        settings = Settings.model_validate({"servers": {"slow": server}, "sandbox": {"timeout": 9}})
        times = [call_deadline(settings, *given).seconds for given in (("slow", None), ("slow", 5.0), ("other", None))]
        assert times == [320, 5, 9]

    @pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), True])
    async def test_a_limit_is_a_positive_number(self, seconds: float) -> None:
        with pytest.raises(ToolfoldError, match="positive number of seconds"):
            Deadline(seconds)


class TestEvents:
    async def test_a_question_is_answered_once(self) -> None:
        request = ApprovalRequest(Question("May it?"), asyncio.get_running_loop().create_future())
        assert request.approve("session")
        assert not request.deny()
        assert await request.reply == "session"
        other = ApprovalRequest(Question("May it?"), asyncio.get_running_loop().create_future())
        assert other.deny()
        assert await other.reply == "no"

    async def test_only_a_question_with_a_form_takes_values(self) -> None:
        request = ApprovalRequest(Question("May it?"), asyncio.get_running_loop().create_future())
        with pytest.raises(InvalidRequest, match="has no form"):
            request.submit({"city": "Rome"})
        assert not request.reply.done()

    @pytest.mark.parametrize(
        ("question", "labels"),
        [
            (Question("?"), ["Allow once", "Allow all in this run", "Allow all in this session", "No"]),
            (Question("?", waiting=2, replies=("once", "no")), ["Allow these 2 calls", "No"]),
            (Question("?", replies=("once", "no"), form=Form(())), ["Send", "Decline"]),
            (Question("?", replies=("once", "no"), form=Form((), url="https://a.example")), ["Done", "Decline"]),
        ],
    )
    def test_an_answer_is_called_what_it_does(self, question: Question, labels: list[str]) -> None:
        assert [question.label(reply) for reply in question.replies] == labels

    async def test_asking_stops_the_clock_and_nobody_to_ask_means_no(self) -> None:
        deadline = Deadline(10)

        async def answer(question: Question) -> Any:
            return "once" if deadline.is_paused else "no"

        assert await RunContext("ada", None, deadline, asker=answer).ask(Question("?")) == "once"
        assert not deadline.is_paused
        assert await RunContext("ada", None, deadline).ask(Question("?")) == "no"

    async def test_closing_a_stream_ends_its_run_and_waits_until_it_has_ended(self) -> None:
        ended: list[str] = []

        async def run(on_event: Callable[[Event], None], **_: Any) -> RunResult:
            try:
                on_event(Output("begun"))
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append("cleaned up")
            raise AssertionError

        events = streamed(run, {})
        async with asyncio.timeout(20):
            assert await anext(events) == Output("begun")
            await events.aclose()
        assert ended == ["cleaned up"]

    async def test_a_stream_ends_as_its_run_does(self) -> None:
        async def work(on_event: Callable[[Event], None], *, session: str, **_: Any) -> RunResult:
            on_event(Output(session))
            if session == "bad":
                raise ToolfoldError("Closed.")
            return RunResult(success=True, output=session)

        good = [event async for event in streamed(work, {"session": "good"})]
        assert good == [Output("good"), Finished(RunResult(success=True, output="good"))]
        events = streamed(work, {"session": "bad"})
        assert await anext(events) == Output("bad")
        with pytest.raises(ToolfoldError, match="Closed"):
            await anext(events)

    def test_the_text_of_a_result_has_nothing_twice(self) -> None:
        error = RunError(code="program", message="It broke.", hint="Mend it.")
        nothing = "(finished; nothing printed. print() what you need.)"
        assert RunResult(success=True).text == nothing
        assert RunResult(success=True, output=" \n").text == nothing
        assert RunResult(success=True, output="a\n\n", notice="Restarted.").text == "Restarted.\na"
        assert RunResult(success=False, error=error).text == "ERROR\nIt broke. Mend it."
        assert RunResult(success=False, error=error, output="a\n").text == "a\nERROR\nIt broke. Mend it."

    def test_an_error_of_ours_says_its_kind(self) -> None:
        error = RunError.of(LimitExceeded("Too much.", limit="sandbox.disk", hint="Less."))
        assert (error.code, error.message) == ("limit", "Too much.")
        assert str(error).startswith("LimitExceeded: Too much.")
        assert str(RunError(code="x", message="Only this.")) == "Only this."
