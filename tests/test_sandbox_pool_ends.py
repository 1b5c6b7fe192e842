"""What the pool started always has an owner: cancelled, refused, late or left behind, it is used or it is ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.backends.available import candidate
from tests.hostile.arena import Listener
from tests.scripted_guest import Guest
from tests.upstream_lab import eventually
from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxUnavailable
from toolfold.sandbox.pool import Pool
from toolfold.sandbox.pools import Pools
from toolfold.sandbox.protocol import Backend, Cell, SessionHome
from toolfold.sandbox.sandbox import Sandbox
from toolfold.session.homes import SessionHomes

pytestmark = pytest.mark.anyio

AT_ONCE = max(2, os.cpu_count() or 2)
"""Starts that the pool has under way at most."""


class Gated:
    """A real backend behind a gate. It remembers the homes and the cells, and fails when it is told to."""

    name = "gated"

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.gate = asyncio.Event()
        self.problem: Exception | None = None
        self.instead: list[Cell] = []
        """Cells to answer with first."""
        self.homes: list[Path] = []
        self.times: list[float] = []
        self.cells: list[Cell] = []

    async def start(self, home: SessionHome, api: Path) -> Cell:
        self.homes.append(home.path)
        self.times.append(asyncio.get_running_loop().time())
        await self.gate.wait()
        if self.problem is not None:
            raise self.problem
        if self.instead:
            return self.instead.pop()
        self.cells.append(await self._backend.start(home, api))
        return self.cells[-1]

    @property
    def kept(self) -> list[Path]:
        """Homes that are still there."""
        return [home for home in self.homes if home.exists()]


class Lab:
    def __init__(self, data_dir: Path, backend: Gated) -> None:
        self.backend = backend
        self.homes = SessionHomes(data_dir)
        self._api = data_dir / "api"

    def pool(self, size: int = 0) -> Pool:
        return Pool(self.backend, self._api, self.homes, SandboxSettings(pool=size))


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pool")
    (folder / "api" / "servers").mkdir(parents=True)
    return folder


@asynccontextmanager
async def _lab(data_dir: Path) -> AsyncGenerator[Lab]:
    found = await candidate("bubblewrap", data_dir, SandboxSettings())
    lab = Lab(data_dir, Gated(found.backend))
    try:
        yield lab
    finally:
        lab.homes.close()


@pytest.fixture
async def lab(data_dir: Path) -> AsyncGenerator[Lab]:
    async with _lab(data_dir) as lab:
        yield lab


async def _works(sandbox: Sandbox) -> bool:
    return (await sandbox.run("6 * 7", Listener(slow=False), 10)).value == 42


async def _given_up_at_the_last_moment(pool: Pool, lab: Lab) -> None:
    """Somebody who stood in line has a sandbox, and is cancelled before it is noticed."""
    waiting = asyncio.create_task(pool.take())
    await eventually(lambda: lab.backend.homes)
    lab.backend.gate.set()
    async with asyncio.timeout(20):
        while pool.waiting:
            await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_what_a_cancelled_waiter_was_given_goes_to_the_next(lab: Lab) -> None:
    async with lab.pool(size=1) as pool:
        await _given_up_at_the_last_moment(pool, lab)
        await eventually(lambda: pool.statistics.warm == 1)
        first = lab.backend.cells[0]
        taken = await pool.take()
        assert taken.cell is first, "it was not wasted"
        assert await _works(taken)


async def test_what_a_cancelled_waiter_was_given_is_ended_where_nothing_waits(lab: Lab) -> None:
    async with lab.pool(size=0) as pool:
        await _given_up_at_the_last_moment(pool, lab)
        await eventually(lambda: pool.statistics.owned == 0 and not lab.backend.kept)
        await lab.backend.cells[0].wait()
        assert pool.statistics.warm == 0


async def test_one_that_ended_as_it_became_ready_is_never_handed_out(lab: Lab) -> None:
    ended = Guest()
    ended.say({"t": "ready"}, {"t": "ready"})
    lab.backend.instead.append(ended)
    lab.backend.gate.set()
    async with lab.pool(size=1) as pool:
        await eventually(lambda: pool.statistics.warm == 1)
        assert not lab.backend.instead
        assert await _works(await pool.take())
        await eventually(lambda: not lab.backend.homes[0].exists())
    ended.close()


async def test_no_more_wait_than_the_pool_may_hold(lab: Lab) -> None:
    async with lab.pool(size=1) as pool:
        given_up = [asyncio.create_task(pool.take()) for _ in range(2)]
        await eventually(lambda: len(lab.backend.homes) == 2)
        for task in given_up:
            task.cancel()
        await asyncio.wait(given_up)
        lab.backend.gate.set()
        await eventually(lambda: len(lab.backend.cells) == 2 and pool.statistics.starting == 0)
        assert pool.statistics.warm == 1
        await eventually(lambda: pool.statistics.owned == 1 and len(lab.backend.kept) == 1)


async def test_a_burst_starts_as_many_at_once_as_there_are_cores(lab: Lab) -> None:
    async with lab.pool() as pool:
        burst = [asyncio.create_task(pool.take()) for _ in range(AT_ONCE + 2)]
        await eventually(lambda: len(lab.backend.homes) == AT_ONCE)
        await asyncio.sleep(0.1)
        assert len(lab.backend.homes) == AT_ONCE
        assert pool.statistics.starting == AT_ONCE
        lab.backend.gate.set()
        for sandbox in await asyncio.gather(*burst):
            await pool.discard(sandbox)
        assert len(lab.backend.homes) == AT_ONCE + 2, "one for each, and none besides"
        assert pool.statistics.owned == 0


async def test_filling_up_takes_half_of_the_cores(lab: Lab) -> None:
    async with lab.pool(size=3) as pool:
        await eventually(lambda: len(lab.backend.homes) == max(1, AT_ONCE // 2))
        await asyncio.sleep(0.2)
        assert len(lab.backend.homes) == max(1, AT_ONCE // 2)
        lab.backend.gate.set()
        await eventually(lambda: pool.statistics.warm == 3)
        await asyncio.sleep(0.2)
        assert len(lab.backend.homes) == 3
        assert pool.is_idle


async def test_discarding_removes_the_home_unless_it_is_to_be_kept(lab: Lab) -> None:
    lab.backend.gate.set()
    async with lab.pool() as pool:
        one, two = await pool.take(), await pool.take()
        assert not pool.is_idle
        await pool.discard(one)
        await pool.discard(two, keep_home=True)
        assert not one.alive
        assert not two.alive
        assert lab.backend.kept == [two.home.path]
        assert pool.is_idle


async def test_a_start_that_fails_leaves_no_home_and_is_told_to_one_waiter(lab: Lab) -> None:
    async with lab.pool() as pool:
        waiting = [asyncio.create_task(pool.take()) for _ in range(2)]
        await eventually(lambda: len(lab.backend.homes) == 2)
        lab.backend.problem = OSError(28, "No space left on device")
        lab.backend.gate.set()
        for task in waiting:
            with pytest.raises(SandboxUnavailable, match="No space left on device") as told:
                await task
            assert "doctor" in told.value.hint
        await eventually(lambda: not lab.backend.kept)
        assert pool.statistics.failed == 2
        assert pool.statistics.waiting == 0
        lab.backend.problem = None
        assert await _works(await pool.take()), "it recovers"


@pytest.mark.parametrize("cores", [2, 8])
async def test_pauses_between_failed_starts_grow(lab: Lab, monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    lab.backend.problem = SandboxUnavailable("bubblewrap could not be started.")
    lab.backend.gate.set()
    async with lab.pool(size=2):
        await eventually(lambda: len(lab.backend.times) == 6)
    # The first two may be under way together.
    for number, (before, after) in enumerate(pairwise(lab.backend.times[1:]), 1):
        assert after - before >= 0.03 * 2**number - 0.001


class FailsLater(Gated):
    """Its sandboxes start fast, and only the first of them at all."""

    warm = 2

    async def start(self, home: SessionHome, api: Path) -> Cell:
        cell = await super().start(home, api)
        self.problem = SandboxUnavailable("bubblewrap could not be started.")
        return cell


async def test_pauses_between_failed_starts_grow_also_after_a_run_that_had_to_wait(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FailsLater(lab.backend._backend)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(lab, "backend", backend)
    async with lab.pool(size=2) as pool:
        waiting = asyncio.create_task(pool.take())
        await eventually(lambda: pool.waiting)
        backend.gate.set()
        await waiting
        await eventually(lambda: len(backend.times) == 8)
    # The first two may be under way together.
    for number, (before, after) in enumerate(pairwise(backend.times[2:]), 1):
        assert after - before >= 0.03 * 2**number - 0.001


async def test_a_cancelled_start_in_a_home_is_ended_and_the_home_stays(lab: Lab, tmp_path: Path) -> None:
    home = SessionHome(tmp_path / "home")
    home.workspace.mkdir(parents=True)
    home.skills.mkdir()
    async with lab.pool() as pool:
        starting = asyncio.create_task(pool.start_in(home))
        await eventually(lambda: lab.backend.homes)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        lab.backend.gate.set()
        await eventually(lambda: lab.backend.cells)
        async with asyncio.timeout(20):
            await lab.backend.cells[0].wait()
        await eventually(lambda: pool.is_idle)
        assert home.workspace.is_dir()


async def test_a_start_in_a_home_that_fails_says_why(lab: Lab, tmp_path: Path) -> None:
    lab.backend.problem = OSError(28, "No space left on device")
    lab.backend.gate.set()
    async with lab.pool() as pool:
        with pytest.raises(SandboxUnavailable, match="No space left on device"):
            await pool.start_in(SessionHome(tmp_path))


async def test_leaving_waits_for_what_is_starting_and_tells_those_who_wait(lab: Lab) -> None:
    async with lab.pool() as pool:
        waiting = asyncio.create_task(pool.take())
        await eventually(lambda: lab.backend.homes)
        leaving = asyncio.create_task(pool.__aexit__(None, None, None))
        with pytest.raises(SandboxUnavailable, match="shutting down"):
            await waiting
        assert not leaving.done()
        lab.backend.gate.set()
        await leaving
        (cell,) = lab.backend.cells
        assert await asyncio.wait_for(cell.wait(), 0.5)
        assert pool.statistics.owned == 0
        assert not lab.backend.kept


async def test_leaving_ends_what_is_starting_in_a_home(lab: Lab) -> None:
    async with lab.pool() as pool:
        starting = asyncio.create_task(pool.start_in(lab.homes.new()))
        await eventually(lambda: lab.backend.homes)
        assert not pool.is_idle
        leaving = asyncio.create_task(pool.__aexit__(None, None, None))
        await asyncio.sleep(0.1)
        assert not leaving.done()
        lab.backend.gate.set()
        await leaving
        assert not (await starting).alive
        assert pool.statistics.owned == 0


async def test_leaving_ends_what_somebody_still_uses(lab: Lab) -> None:
    lab.backend.gate.set()
    async with lab.pool() as pool:
        used = [await pool.take() for _ in range(2)]
    assert not any(sandbox.alive for sandbox in used)
    assert not lab.backend.kept


async def test_nothing_is_started_after_it_was_left(lab: Lab) -> None:
    lab.backend.gate.set()
    async with lab.pool() as pool:
        pass
    with pytest.raises(SandboxUnavailable, match="shutting down"):
        await asyncio.wait_for(pool.take(), 5)
    with pytest.raises(SandboxUnavailable, match="shutting down"):
        await asyncio.wait_for(pool.start_in(lab.homes.new()), 5)
    assert not lab.backend.homes


class TestPoolsOfCallers:
    async def test_each_caller_has_one_and_the_longest_idle_is_closed_first(self, lab: Lab) -> None:
        made: dict[str, Pool] = {}

        def make(owner: str) -> Pool:
            made[owner] = lab.pool()
            return made[owner]

        lab.backend.gate.set()
        async with Pools(make) as pools:
            busy = await pools.of("0")
            sandbox = await busy.take()
            for number in range(1, 16):
                await pools.of(str(number))
            assert await pools.of("1") is made["1"], "used again: it is not the longest idle one"
            assert len(made) == 16
            await pools.of("16")
            assert sandbox.alive, "a pool that is used stays"
            assert [await pools.of(owner) is made[owner] for owner in ("0", "1", "3", "15")] == [True] * 4
            second = made["2"]
            assert await pools.of("2") is not second
        assert not sandbox.alive

    async def test_all_busy_means_one_more(self, lab: Lab) -> None:
        lab.backend.gate.set()
        async with Pools(lambda owner: lab.pool()) as pools:
            waiting: list[asyncio.Task[Sandbox]] = []
            lab.backend.gate.clear()
            for number in range(16):
                pool = await pools.of(str(number))
                waiting.append(asyncio.create_task(pool.take()))
            await asyncio.sleep(0)
            await pools.of("one more")
            assert not any(task.done() for task in waiting)
            for task in waiting:
                task.cancel()
            lab.backend.gate.set()

    async def test_a_new_caller_does_not_wait_until_an_idle_pool_is_closed(self, lab: Lab) -> None:
        async with Pools(lambda owner: lab.pool(size=1)) as pools:
            for number in range(16):
                await pools.of(str(number))
            # Each of them is starting a sandbox, which closing waits for.
            await eventually(lambda: len(lab.backend.homes) == 16)
            await asyncio.wait_for(pools.of("one more"), 5)
            lab.backend.gate.set()
            await eventually(lambda: pools.statistics.started == 17)
        assert pools.statistics.owned == 0
        assert not lab.backend.kept

    async def test_two_who_ask_at_once_get_the_same(self, lab: Lab) -> None:
        async with Pools(lambda owner: lab.pool()) as pools:
            one, two = await asyncio.gather(pools.of("ada"), pools.of("ada"))
            assert one is two

    async def test_no_pool_is_opened_after_they_were_left(self, lab: Lab) -> None:
        async with Pools(lambda owner: lab.pool(size=1)) as pools:
            pass
        with pytest.raises(SandboxUnavailable, match="shutting down"):
            await pools.of("ada")
        assert not lab.backend.homes
