"""How many servers start at once, and in which order."""

from __future__ import annotations

import asyncio
import random

import pytest

from toolfold.upstream.starts import StartQueue, Turn

pytestmark = pytest.mark.anyio

LONG = 1000.0


class Starts:
    """Starts that go on until they are told to end."""

    def __init__(self, queue: StartQueue) -> None:
        self.queue = queue
        self.turns: dict[str, Turn] = {}
        self.begun: list[str] = []
        self.running: set[str] = set()
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def add(self, name: str, *, urgent: bool = False) -> None:
        self.turns[name] = Turn(urgent=urgent)
        self.ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._start(name))

    async def _start(self, name: str) -> None:
        async with self.queue.wait_for(self.turns[name]):
            self.begun.append(name)
            self.running.add(name)
            try:
                await self.ends[name].wait()
            finally:
                self.running.discard(name)

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.tasks[name]
        await settle()

    async def cancel(self, name: str) -> None:
        self.tasks[name].cancel()
        await asyncio.wait([self.tasks[name]])
        await settle()


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def starts_of(queue: StartQueue, *names: str) -> Starts:
    starts = Starts(queue)
    for name in names:
        starts.add(name)
    await settle()
    return starts


async def test_only_so_many_start_at_once_in_the_order_they_came() -> None:
    starts = await starts_of(StartQueue(2, slow_after=LONG), *"abcde")
    assert starts.begun == ["a", "b"]
    await starts.end("b")
    assert starts.begun == ["a", "b", "c"]
    await starts.end("a")
    await starts.end("c")
    assert starts.begun == ["a", "b", "c", "d", "e"]


async def test_a_start_that_a_caller_waits_for_does_not_queue_behind_the_background() -> None:
    starts = await starts_of(StartQueue(2, slow_after=LONG), *"abcd")
    starts.add("urgent", urgent=True)
    await settle()
    assert starts.begun == ["a", "b", "urgent"]
    # Urgent ones are limited too, and the background waits until they are done.
    for name in ("u1", "u2"):
        starts.add(name, urgent=True)
    await settle()
    assert starts.begun[3:] == ["u1"]
    await starts.end("a")
    assert starts.begun[4:] == ["u2"]
    await starts.end("b")
    assert starts.begun[5:] == []


async def test_a_start_that_is_named_while_it_waits_goes_first() -> None:
    starts = await starts_of(StartQueue(1, slow_after=LONG), *"abcd")
    starts.queue.hurry(starts.turns["d"])
    await settle()
    assert starts.begun == ["a", "d"]


async def test_slow_starts_let_others_begin_but_not_without_limit() -> None:
    starts = await starts_of(StartQueue(1, slow_after=0.01), *"abcdef")
    async with asyncio.timeout(60):
        # Two of the three that are slow make room for others, the last one keeps its place.
        while not all(starts.turns[name].slow for name in "abc"):
            await asyncio.sleep(0.01)
    await settle()
    assert starts.running == set("abc")
    starts.add("urgent", urgent=True)
    await settle()
    assert starts.running == {*"abc", "urgent"}
    await starts.end("a")
    assert starts.running == {*"bc", "urgent"}
    await starts.end("urgent")
    assert starts.running == set("bcd")


async def test_one_that_gives_up_leaves_its_place_whether_it_waits_or_starts() -> None:
    starts = await starts_of(StartQueue(1, slow_after=LONG), *"abcd")
    await starts.cancel("b")
    await starts.cancel("a")
    assert starts.begun == ["a", "c"]
    # Cancelled in the very moment in which its turn came.
    starts.ends["c"].set()
    await asyncio.sleep(0)
    await starts.cancel("d")
    starts.add("e")
    await settle()
    assert starts.running == {"e"}


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_the_limits_hold_and_every_start_gets_its_turn(seed: int) -> None:
    chance = random.Random(seed)
    limit = chance.randint(1, 4)
    starts = Starts(StartQueue(limit, slow_after=LONG))
    names = [f"s{number}" for number in range(40)]
    for name in names:
        starts.add(name, urgent=chance.random() < 0.3)
        match chance.choice(["nothing", "end", "cancel", "hurry"]):
            case "end" if starts.running:
                await starts.end(chance.choice(sorted(starts.running)))
            case "cancel":
                await starts.cancel(chance.choice(sorted(starts.tasks)))
            case "hurry":
                starts.queue.hurry(starts.turns[chance.choice(names[: len(starts.turns)])])
            case _:
                pass
        await settle()
        assert len(starts.running) <= 2 * limit
        unfinished = [each for each, task in starts.tasks.items() if not task.done() and each not in starts.running]
        assert not unfinished or len(starts.running) >= limit
    while starts.running:
        await starts.end(chance.choice(sorted(starts.running)))
    assert all(task.done() for task in starts.tasks.values())


@pytest.mark.parametrize(("cores", "at_once"), [(1, 2), (2, 2), (7, 7)])
def test_by_default_as_many_start_at_once_as_there_are_cores_and_two_at_least(
    cores: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def affinity(pid: int) -> range:
        return range(cores)

    monkeypatch.setattr("toolfold.upstream.starts.os.sched_getaffinity", affinity, raising=False)
    assert StartQueue().at_once == at_once
