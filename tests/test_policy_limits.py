"""Limits on calls, on results and on money: of a run, and of a caller in all its runs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.office import office
from toolfold.config.policy import LimitSettings
from toolfold.definitions import BlobPart, TextPart, ToolResult
from toolfold.errors import LimitExceeded
from toolfold.guards.context import Deadline, RunContext
from toolfold.guards.guard import Call
from toolfold.guards.usage import Limits, Usage

pytestmark = pytest.mark.anyio

LOOP = (
    "from servers.office import create_note, read_note\nfrom toolfold import ToolError\n"
    "try:\n"
    "    for number in range(10):\n"
    "        await create_note()\n"
    "except ToolError as error: print(number, error.code, error)"
)


def calling(name: str = "rows", caller: str = "a") -> Call:
    return Call("1", "tool", "office", name, {}, RunContext(caller, None, Deadline(10)))


async def is_made(limits: Limits, call: Call) -> bool:
    async def upstream(call: Call) -> ToolResult:
        return ToolResult()

    try:
        await limits(call, upstream)
    except LimitExceeded:
        return False
    return True


@pytest.mark.parametrize(
    ("limits", "made", "said"),
    [
        ({"calls_per_run": 3}, 3, "No more than 3 calls in a run are allowed. The limit is `limits.calls_per_run`."),
        ({"calls_per_minute": 2}, 2, "2 calls in a minute are allowed. Wait "),
        ({"calls_per_day": 4}, 4, "4 calls in a day"),
        ({"tools": {"office.create_*": 2, "office.read_*": 1}}, 2, "2 calls of office.create_* in a run"),
        (
            {"prices": {"office.create_*": 0.1}, "spend_per_run": 0.3},
            3,
            "costs about 0.1; 0.3 of 0.3 are spent in this run",
        ),
        ({"prices": {"office.*": 2}, "spend_per_day": 5}, 2, "costs about 2; 4 of 5 are spent today"),
        ({"calls_per_run": 0}, 0, "No more than 0 calls"),
        ({"calls_per_run": 9, "callers": {"local": {"calls_per_run": 1}}}, 1, "No more than 1 calls"),
    ],
)
async def test_a_run_ends_at_its_limit(runtime_dir: Path, limits: dict[str, Any], made: int, said: str) -> None:
    async with office(runtime_dir, limits=limits) as lab:
        result = await lab.fold.run(LOOP)
    assert result.output.startswith(f"{made} limit "), result.error or result.output
    assert said in result.output
    assert len(lab.done) == made


async def test_a_caller_is_counted_in_all_its_runs_and_apart_from_others(runtime_dir: Path) -> None:
    limits = {"calls_per_minute": 3, "calls_per_run": 2, "callers": {"ci": {"calls_per_minute": 1}}}
    async with office(runtime_dir, limits=limits) as lab:
        made = [(await lab.fold.run(LOOP, caller=caller)).output.split()[0] for caller in ("a", "a", "b", "ci", "ci")]
    assert made == ["2", "1", "2", "1", "0"]


async def test_what_is_denied_is_not_counted(runtime_dir: Path) -> None:
    program = (
        "from toolfold import PolicyDenied, call_mcp_tool\n"
        "for number in range(5):\n"
        "    try: await call_mcp_tool('office.delete_note', {})\n"
        "    except PolicyDenied: pass\n"
        "print(await call_mcp_tool('office.create_note', {}))"
    )
    async with office(runtime_dir, limits={"calls_per_run": 1}) as lab:
        result = await lab.fold.run(program)
    assert result.output == "did create_note\n"


async def test_a_result_that_is_too_large_is_not_handed_over(runtime_dir: Path) -> None:
    lab_server = {"command": sys.executable, "args": [str(Path(__file__).parent / "servers" / "lab.py")]}
    program = "from servers.lab import big\nprint(len(await big(size={size})))"
    async with office(runtime_dir, servers={"lab": lab_server}, limits={"result_bytes": "1kB"}) as lab:
        small = await lab.fold.run(program.format(size=1000))
        large = await lab.fold.run(program.format(size=1001))
    assert small.output == "1000\n"
    assert "lab.big returned 1,001 bytes, and 1,000 are allowed." in str(large.error)


async def test_calls_of_one_caller_wait_for_each_other_in_different_runs() -> None:
    usage = Usage(LimitSettings(concurrent_calls=2))
    open_calls: list[str] = []
    most: list[int] = []

    async def upstream(call: Call) -> ToolResult:
        open_calls.append(call.run.caller)
        most.append(open_calls.count(call.run.caller))
        # Every other call that may begin has begun after a few rounds of the loop.
        for _ in range(10):
            await asyncio.sleep(0)
        open_calls.remove(call.run.caller)
        return ToolResult()

    async def run(caller: str) -> None:
        limits = Limits(usage)
        context = RunContext(caller, None, Deadline(10))
        calls = [Call(str(number), "tool", "office", "rows", {}, context) for number in range(5)]
        await asyncio.gather(*(limits(call, upstream) for call in calls))

    await asyncio.gather(run("a"), run("a"), run("b"))
    assert len(most) == 15
    assert max(most) == 2


async def test_a_call_that_fails_gives_its_place_back_and_is_counted() -> None:
    limits = Limits(Usage(LimitSettings(concurrent_calls=1, calls_per_run=2)))

    async def fail(call: Call) -> ToolResult:
        raise RuntimeError

    async with asyncio.timeout(20):
        for _ in range(2):
            with pytest.raises(RuntimeError):
                await limits(calling(), fail)
        with pytest.raises(LimitExceeded):
            await limits(calling(), fail)


async def test_a_call_counts_for_every_pattern_that_names_it() -> None:
    limits = Limits(Usage(LimitSettings(tools={"office.*": 3, "*.rows": 2, "prompt:office:*": 0})))
    made = [await is_made(limits, calling(name)) for name in ("rows", "rows", "rows", "other", "other")]
    assert made == [True, True, False, True, False]


async def test_the_first_price_that_names_a_call_is_its_price() -> None:
    prices = {"office.rows": 2.0, "office.*": 1.0, "*": 0.0}
    usage = Usage(LimitSettings(prices=prices, spend_per_run=3.0))
    assert [usage.price(calling(name)) for name in ("rows", "other")] == [2.0, 1.0]
    limits = Limits(usage)
    assert [await is_made(limits, calling(name)) for name in ("rows", "rows", "other", "other")] == [
        True,
        False,
        True,
        False,
    ]


async def test_what_one_limit_refuses_no_other_counts() -> None:
    usage = Usage(LimitSettings(calls_per_minute=1, calls_per_run=2, tools={"office.rows": 2}, spend_per_run=2.0))
    limits = Limits(usage)
    assert [await is_made(limits, calling()) for _ in range(3)] == [True, False, False]
    other = [calling(caller="b") for _ in range(2)]
    assert [await is_made(limits, call) for call in other] == [True, False], "the second of the run, and of its tool"


@pytest.mark.parametrize(
    ("result", "size"),
    [
        (ToolResult(parts=[TextPart("aé€"), BlobPart("AAAA", "image/png"), TextPart("b")]), 11),
        (ToolResult(parts=[TextPart('{"n":1}')], structured={"n": 1}, has_structured=True), 7),
        (ToolResult(parts=[TextPart("1")], structured={"n": 1}, has_structured=True), 7),
        (ToolResult(structured=msgspec.Raw(b'{"n": 1}'), has_structured=True), 8),
        (ToolResult(structured=["€"], has_structured=True), 7),
        (ToolResult(structured=None, has_structured=True), 4),
    ],
)
async def test_the_bytes_of_a_result_are_those_of_all_its_data(result: ToolResult, size: int) -> None:
    async def upstream(call: Call) -> ToolResult:
        return result

    assert await Limits(Usage(LimitSettings(result_bytes=size)))(calling(), upstream) is result
    with pytest.raises(LimitExceeded, match=f"returned {size} bytes, and {size - 1} are allowed"):
        await Limits(Usage(LimitSettings(result_bytes=size - 1)))(calling(), upstream)


def test_what_is_set_for_a_caller_leaves_the_other_limits_as_they_are() -> None:
    own = {"ci": {"calls_per_minute": None, "calls_per_day": 5}}
    usage = Usage(LimitSettings.model_validate({"calls_per_minute": 3, "calls_per_run": 2, "callers": own}))
    ci, other = usage.of("ci").limits, usage.of("ada").limits
    assert (ci.calls_per_minute, ci.calls_per_run, ci.calls_per_day) == (None, 2, 5)
    assert (other.calls_per_minute, other.calls_per_run, other.calls_per_day) == (3, 2, None)


def test_callers_are_forgotten_only_when_they_have_used_nothing() -> None:
    now = [0.0]
    usage = Usage(LimitSettings(calls_per_day=1), clock=lambda: now[0])
    usage.of("busy").take(0)
    idle = usage.of("idle")
    for number in range(9_998):
        usage.of(str(number))
    assert usage.of("idle") is idle
    usage.of("one more")
    assert usage.of("idle") is not idle
    with pytest.raises(LimitExceeded):
        usage.of("busy").take(0)


def test_a_call_is_forgotten_when_its_minute_or_its_day_is_over() -> None:
    now = [0.0]
    usage = Usage(LimitSettings(calls_per_minute=1, calls_per_day=2, spend_per_day=2.0), clock=lambda: now[0])
    caller = usage.of("a")
    caller.take(1.0)
    now[0] = 59.5
    with pytest.raises(LimitExceeded, match="Wait 1 s"):
        caller.take(0)
    now[0] = 60
    caller.take(1.0)
    now[0] = 24 * 3600 - 1
    with pytest.raises(LimitExceeded, match="2 calls in a day"):
        caller.take(0)
    now[0] = 24 * 3600
    with pytest.raises(LimitExceeded, match="1 of 2 are spent today"):
        caller.take(1.5)
    caller.take(1.0)
    assert not caller.is_idle
    now[0] = 2 * 24 * 3600
    assert caller.is_idle


def test_a_minute_and_a_day_pass() -> None:
    now = [1_000.0]
    usage = Usage(LimitSettings(calls_per_minute=2, calls_per_day=4, spend_per_day=1.0), clock=lambda: now[0])
    caller = usage.of("a")

    def taken(price: float = 0.0) -> bool:
        try:
            caller.take(price)
        except LimitExceeded:
            return False
        return True

    assert [taken(), taken(0.9), taken()] == [True, True, False]
    now[0] += 59
    assert not taken()
    now[0] += 2
    assert [taken(0.2), taken(0.1), taken()] == [False, True, True]
    now[0] += 3600
    assert not taken()
    now[0] += 24 * 3600
    assert caller.is_idle
    assert taken(1.0)
