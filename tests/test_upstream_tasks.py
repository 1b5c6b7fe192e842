"""Tools that a server runs only as tasks (2025-11-25)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.test_upstream_asking import ASKS, FILLED, answering, printed, program
from tests.upstream_lab import eventually
from toolfold import Toolfold
from toolfold.config.settings import ServerConfig
from toolfold.errors import UpstreamTimeout
from toolfold.guards.events import Progress, Replied
from toolfold.upstream import tasks as module
from toolfold.upstream.asking import CallClock, Flight
from toolfold.upstream.fleet import Fleet

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def fold(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Toolfold]:
    folder = tmp_path_factory.mktemp("tasks")
    servers = {"mine": {"command": sys.executable, "args": [ASKS, f"calls={folder / 'calls'}"]}}
    async with Toolfold.open({"servers": servers, "sandbox": {"pool": 1}}, data_dir=folder) as opened:
        await opened.listed()
        yield opened


def requests(fold: Toolfold) -> list[str]:
    return (fold.settings.data_dir / "calls").read_text().splitlines()


async def test_a_task_is_polled_to_its_end_with_progress(fold: Toolfold) -> None:
    events: list[Any] = []
    result = await fold.run(program("mine", "dig"), on_event=events.append)
    assert printed(result) == {"metres": 3}
    told = [event.text for event in events if isinstance(event, Progress)]
    assert "mine.dig: started" in told
    assert "mine.dig: 1 metres deep" in told
    assert "mine.dig: digging" in told
    assert requests(fold).count("tasks/get") == 3
    assert requests(fold).count("tasks/result") == 1


async def test_a_task_that_fails_is_the_tool_s_own_error(fold: Toolfold) -> None:
    result = await fold.run(program("mine", "dig", fails=True))
    assert result.error is not None
    assert "hit a rock" in result.error.message


async def test_what_a_task_asks_is_put_to_its_own_run_also_beside_others(fold: Toolfold) -> None:
    ask, asked = answering(Replied("once", "page", values=FILLED))
    holding = asyncio.create_task(fold.run(program("mine", "hold")))
    await eventually(lambda: "holding" in requests(fold))
    result = await fold.run(program("mine", "dig_and_ask"), ask=ask)
    assert printed(result)["action"] == "accept"
    assert len(asked) == 1
    await fold.run(program("mine", "release"))
    await holding


async def test_a_task_is_cancelled_with_its_run(fold: Toolfold) -> None:
    before = requests(fold).count("tasks/get")
    run = asyncio.create_task(fold.run(program("mine", "dig_forever")))
    await eventually(lambda: requests(fold).count("tasks/get") > before)
    run.cancel()
    await asyncio.wait([run])
    await eventually(lambda: requests(fold).count("tasks/cancel") == 1)


async def test_a_task_that_outlasts_its_time_is_cancelled_and_the_error_says_so(tmp_path: Path) -> None:
    config = ServerConfig(command=sys.executable, args=(ASKS, f"calls={tmp_path / 'calls'}"), call_timeout=0.5)
    async with Fleet({"mine": config}, log_dir=tmp_path / "logs") as fleet:
        with pytest.raises(UpstreamTimeout, match=r"within 0\.5 s .*and was cancelled") as caught:
            await fleet.call("mine", "dig_forever", {}, task=True)
        assert "may have taken effect" in caught.value.hint
        await eventually(lambda: "tasks/cancel" in (tmp_path / "calls").read_text())


async def test_without_tasks_on_the_server_s_side_such_tools_are_left_out_with_a_reason(tmp_path: Path) -> None:
    config = ServerConfig(command=sys.executable, args=(ASKS, "no-tasks"))
    async with Fleet({"mine": config}, log_dir=tmp_path / "logs") as fleet:
        listing = await fleet.listing("mine")
        assert not [tool.name for tool in listing.tools if tool.name.startswith("dig")]
        [health] = fleet.health()
        assert "tool `dig` was left out: it runs only as a task, which is not possible here" in health.problems


async def test_a_task_is_looked_at_in_the_interval_that_its_server_names_within_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    told: list[str | None] = []
    sent: list[dict[str, Any]] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    def working(interval: Any) -> dict[str, Any]:
        return {"taskId": "1", "status": "working", "statusMessage": "at it", "pollInterval": interval}

    intervals = iter([True, "5", 0, -3, float("nan"), 0.001, 40, 3_600_000])

    async def send(method: str, params: dict[str, Any]) -> dict[str, Any]:
        sent.append(params)
        if method == "tools/call":
            return {"task": working(None)}
        if method == "tasks/get":
            following = next(intervals, "end")
            return {"taskId": "1", "status": "completed"} if following == "end" else working(following)
        return {"content": []}

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    tasks = module.Tasks(send)
    flight = Flight(None, CallClock(60))
    assert await tasks.run({"name": "dig"}, flight, lambda done, total, text: told.append(text)) == {"content": []}
    assert pauses == [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.02, 0.04, 30.0]
    assert told == ["at it"], "the same message is told once"
    tasks.report(sent[0]["_meta"]["progressToken"], 1, None, "too late")
    assert told == ["at it"], "nobody listens to a task that has ended"


async def test_a_cancellation_that_is_never_answered_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CANCEL_TIMEOUT", 0.01)
    asked = asyncio.Event()
    before = asyncio.all_tasks()

    async def send(method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "tools/call":
            return {"task": {"taskId": "1", "status": "working"}}
        asked.set()
        return await asyncio.get_running_loop().create_future()

    run = asyncio.create_task(module.Tasks(send).run({"name": "dig"}, Flight(None, CallClock(60)), None))
    await asyncio.sleep(0)
    run.cancel()
    await asyncio.wait([run])
    assert run.cancelled()
    await asked.wait()
    await eventually(lambda: asyncio.all_tasks() == before)
