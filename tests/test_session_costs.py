"""What one run costs the host, that run waits for, and others hardly notice."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path

import pytest
from benchmarks import loop

from toolfold import Toolfold
from toolfold.sandbox.costs import Costs, Neighbours
from toolfold.sandbox.replies import ReplyBudget
from toolfold.sandbox.run import Run

LARGE = """
from servers.lab import echo
print("begun")
for _ in range(1000):
    await echo(value=[[]] * 90_000)
"""


def test_alone_a_run_waits_only_after_much() -> None:
    costs = Costs(Neighbours(), "me")
    assert [costs.stalled(0.05) for _ in range(4)] == [0, 0, 0, 0]
    assert costs.stalled(0.05) == pytest.approx(2.0)
    assert costs.stalled(10) == 5.0
    assert costs.worked(10) == 0


def test_beside_others_a_run_waits_a_hundred_times_what_it_takes_from_them() -> None:
    neighbours = Neighbours()
    neighbours.seen("somebody else")
    costs = Costs(neighbours, "me")
    assert costs.stalled(0.01) == 0
    assert costs.stalled(0.05) >= 100 * 0.05
    assert costs.worked(0.01) == 0
    assert costs.worked(0.05) == pytest.approx(0.1)


def test_what_is_short_costs_nothing() -> None:
    neighbours = Neighbours()
    neighbours.seen("somebody else")
    costs = Costs(neighbours, "me")
    assert not any(costs.stalled(0.002) for _ in range(1000))
    assert not any(costs.answered(100_000, 0.0001) for _ in range(1000))
    assert not costs.answered(10_000_000, 0.001)
    assert costs.answered(10_000_000, 0.001) > 1


def test_a_run_that_ended_is_no_neighbour_unless_its_session_may_come_back() -> None:
    neighbours = Neighbours()
    once = Costs(neighbours, "a run")
    assert neighbours.has_others("me")
    once.end()
    assert not neighbours.has_others("me")
    Costs(neighbours, "a session", comes_back=True).end()
    assert neighbours.has_others("me")
    assert not neighbours.has_others("a session")


@pytest.mark.anyio
async def test_a_slice_has_as_many_requests_as_fit_into_its_time() -> None:
    done = asyncio.get_running_loop().create_future()
    run = Run(host=None, done=done, replies=ReplyBudget(), costs=Costs())  # type: ignore[arg-type]
    lengths: deque[int] = deque()
    for took in (0.0001, 0.0001, 0.0001, 0.0001, 0.0015, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01):
        assert run.end_slice(run.slice_begun + took) == pytest.approx(took)
        lengths.append(run.slice_length)
    assert list(lengths) == [16, 32, 64, 64, 64, 32, 16, 8, 4, 2, 1, 1]


@pytest.mark.anyio
async def test_a_run_with_large_messages_is_slowed_down_beside_another_session(lab: Toolfold) -> None:
    """Each message costs milliseconds, so a second of waiting for it: a slower machine lets through still fewer."""
    assert (await lab.run("from servers.lab import echo", session="large")).success
    begun = asyncio.Event()
    large = asyncio.create_task(lab.run(LARGE, session="large", timeout=4, on_event=lambda _: begun.set()))
    async with asyncio.timeout(60):
        await asyncio.wait([large, asyncio.create_task(begun.wait())], return_when=asyncio.FIRST_COMPLETED)
        runs = 0
        while not large.done():
            assert (await lab.run("1 + 1", session="small")).value == 2
            runs += 1
    result = await large
    assert result.error is not None
    assert "sandbox.timeout" in str(result.error)
    assert len(result.tool_calls) < 30
    assert runs > len(result.tool_calls)


@pytest.mark.anyio
async def test_what_a_slow_listener_costs_is_not_charged_to_the_run(
    lab: Toolfold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host application's own work is not the program's fault, and small calls are never paid for as stalls."""
    charged: list[float] = []
    original = Costs.stalled

    def stalled(self: Costs, seconds: float) -> float:
        charged.append(seconds)
        return original(self, seconds)

    monkeypatch.setattr(Costs, "stalled", stalled)

    def slow(_: object) -> None:
        sum(range(1_000_000))

    code = "from servers.lab import add\nfor n in range(5): await add(a=n, b=1)\nprint('done')"
    result = await lab.run(code, session="listened to", on_event=slow, timeout=100)
    assert result.output == "done\n", result.error
    assert charged == []


@pytest.mark.anyio
async def test_the_benchmark_prints_a_figure_for_every_kind(tmp_path: Path) -> None:
    kinds = {"a flood of small invalid calls": loop.KINDS["a flood of small invalid calls"]}
    figures = await loop.measure(tmp_path, 0.2, 1, lambda text: None, kinds)
    assert set(kinds) <= {figure.what for figure in figures}
    assert sum(figure.what.strip() == "longest stall of the loop" for figure in figures) == len(kinds)
