"""What a gateway remembers of its runs, and how those who watch are told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.lab import lab_fold
from toolfold.telemetry import activity as limits
from toolfold.telemetry.activity import Activity, ActivityEvent, Before, Watcher
from toolfold.telemetry.observe import SeenCall, SeenRun

pytestmark = pytest.mark.anyio


def seen(number: int, caller: str = "local", code: str = "", session: str | None = None) -> SeenRun:
    return SeenRun(f"run{number}", caller, session, "python", code, time=float(number))


def ended(activity: Activity, run: SeenRun, *, ok: bool = True, printed: str = "") -> None:
    activity.run_started(run)
    if printed:
        activity.run_printed(run, printed)
    run.ok = ok
    activity.run_ended(run)


def read(watcher: Watcher) -> list[ActivityEvent]:
    """All that waits for it."""

    async def all_of_it() -> list[ActivityEvent]:
        watcher.end()
        return [event async for event in watcher]

    return asyncio.run(all_of_it())


async def test_a_real_run_is_seen_while_it_runs_and_afterwards(runtime_dir: Path) -> None:
    activity = Activity()
    code = "from servers.lab import add\nprint('first')\nprint((await add(a=1, b=2))['sum'])"
    async with lab_fold(runtime_dir) as fold:
        fold.observers.add(activity)
        with activity.watch() as events:
            running = asyncio.create_task(fold.run(code, session="work"))
            kinds: list[str] = []
            async with asyncio.timeout(30):
                async for event in events:
                    assert event.run is not None
                    kinds.append(event.kind)
                    if event.kind == "call":
                        assert activity.running() == [event.run]
                        assert event.run.ok is None
                    if event.kind == "run_end":
                        break
            await running
    assert [kind for kind in kinds if kind != "output"] == ["run", "call", "call_end", "run_end"]
    assert activity.running() == []
    [run] = activity.recent()
    assert activity.get(run.id) is run
    assert (run.ok, run.code, run.output, run.session) == (True, code, "first\n3\n", "work")
    assert [(call.target, call.ok, call.line) for call in run.calls] == [("lab.add", True, 3)]
    assert (activity.counts().runs, activity.counts("local").calls, activity.counts("ci").runs) == (1, 1, 0)


def test_runs_are_found_by_caller_session_and_outcome_page_by_page() -> None:
    activity = Activity()
    for number in range(10):
        ended(activity, seen(number, ["ci", "web"][number % 2], session=f"s{number % 3}"), ok=number % 5 != 0)
    activity.run_started(seen(10, "ci"))
    assert [run.id for run in activity.recent(3)] == ["run10", "run9", "run8"]
    assert [run.id for run in activity.recent(3, Before(8.0, "run8"))] == ["run7", "run6", "run5"]
    assert [run.id for run in activity.recent(caller="web", session="s0")] == ["run9", "run3"]
    assert [run.id for run in activity.recent(failed=True)] == ["run5", "run0"]
    assert [run.id for run in activity.running(caller="ci")] == ["run10"]
    assert activity.running(caller="web") == []


def test_what_is_kept_is_bounded() -> None:
    activity = Activity()
    for number in range(limits.MOST_RUNS + 20):
        ended(activity, seen(number))
    assert len(activity.recent(10_000)) == limits.MOST_RUNS
    assert activity.get("run0") is None
    for number in range(1000, 1300):
        ended(activity, seen(number, code="c" * 100_000), printed="p" * 100_000 + "end")
    kept = activity.recent(10_000)
    assert sum(len(run.code) + len(run.output) for run in kept) <= limits.MOST_CHARS
    assert (len(kept[0].code), len(kept[0].output)) == (limits.MOST_CODE, limits.MOST_OUTPUT)
    assert kept[0].output.endswith("end")
    assert (kept[0].code_cut, kept[0].output_cut, kept[0].printed) == (True, True, 100_003)


def test_a_run_of_many_calls_keeps_some_and_counts_all() -> None:
    activity = Activity()
    run = seen(1)
    activity.run_started(run)
    calls = [SeenCall(str(number), "resource", "lab", "u" * 10_000, ok=True) for number in range(1000)]
    for call in calls:
        activity.call_started(run, call)
        activity.call_ended(run, call)
    activity.run_ended(run)
    [active] = activity.recent()
    assert (len(active.calls), active.call_count, activity.total.calls) == (limits.MOST_CALLS, 1000, 1000)
    assert active.size < 500_000
    assert len(calls[0].name) == 10_000  # what other observers see stays as it is


def test_a_slow_watcher_loses_the_oldest_output_and_is_told() -> None:
    activity = Activity()
    run = seen(1)
    with activity.watch() as slow:
        activity.run_started(run)
        for number in range(1000):
            activity.run_printed(run, f"{number}:" + "x" * 5000)
        ended(activity, seen(2, "ci"))
        activity.run_ended(run)
    lost, *events = read(slow)
    assert lost.kind == "lost"
    assert lost.count > 900
    texts = [event.text for event in events if event.kind == "output"]
    assert sum(map(len, texts)) <= 256_000
    assert texts[-1].startswith("999:")
    assert [event.kind for event in events if event.kind != "output"] == ["run", "run", "run_end", "run_end"]


def test_short_prints_are_told_together() -> None:
    activity = Activity()
    run = seen(1)
    with activity.watch() as watcher:
        activity.run_started(run)
        for _ in range(10_000):
            activity.run_printed(run, "x")
    assert "".join(event.text for event in read(watcher)) == "x" * 10_000
    assert activity.running()[0].output == "x" * 10_000


async def test_the_end_of_the_gateway_ends_every_watch() -> None:
    activity = Activity()
    with activity.watch() as watcher:
        activity.close()
        assert [event async for event in watcher] == []
