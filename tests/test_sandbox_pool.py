"""The warm pool, over real sandboxes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.backends.available import candidate
from tests.hostile.arena import Listener
from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxUnavailable
from toolfold.sandbox.pool import Pool
from toolfold.sandbox.protocol import Backend, Cell, SessionHome
from toolfold.sandbox.sandbox import Sandbox
from toolfold.session.homes import SessionHomes

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pool")
    (folder / "api" / "servers").mkdir(parents=True)
    return folder


@asynccontextmanager
async def _pool(data_dir: Path, size: int = 2, backend: Backend | None = None) -> AsyncGenerator[Pool]:
    settings = SandboxSettings(pool=size)
    backend = backend or (await candidate("bubblewrap", data_dir, settings)).backend
    homes = SessionHomes(data_dir)
    try:
        async with Pool(backend, data_dir / "api", homes, settings) as pool:
            yield pool
    finally:
        homes.close()


async def _until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def _value(sandbox: Sandbox, code: str) -> object:
    return (await sandbox.run(code, Listener(slow=False), 10)).value


async def test_it_fills_itself_and_replaces_what_is_taken(data_dir: Path) -> None:
    async with _pool(data_dir) as pool:
        await _until(lambda: pool.statistics.warm == 2)
        taken = await pool.take()
        assert pool.statistics.warm == 1
        assert await _value(taken, "6 * 7") == 42
        before = pool.statistics.cpu
        for seconds in (1000.0, 900.0, 1500.0):
            pool.saw(taken, seconds)
        assert pool.statistics.cpu - before == 1500.0, "each second counts once"
        pool.discard(taken)
        await _until(lambda: pool.statistics.warm == 2)
        assert pool.statistics.waited == 0


async def test_a_burst_is_served_in_order_and_shows(data_dir: Path) -> None:
    order: list[int] = []

    async def one(pool: Pool, number: int) -> None:
        sandbox = await pool.take()
        order.append(number)
        assert await _value(sandbox, str(number)) == number
        pool.discard(sandbox)

    async with _pool(data_dir) as pool:
        await _until(lambda: pool.statistics.warm == 2)
        burst = asyncio.gather(*(one(pool, number) for number in range(9)))
        await asyncio.sleep(0)
        assert pool.waiting == 7
        assert pool.statistics.waiting == 7
        await burst
        assert order == list(range(9))
        assert pool.statistics.waiting == 0
        assert pool.statistics.waited == 7
        assert pool.statistics.longest_wait > 0


@pytest.mark.parametrize(("name", "starting"), [("zygote", 1), ("bubblewrap", 0)])
async def test_the_next_one_is_made_at_once_after_a_run_that_had_to_wait_where_that_is_cheap(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str, starting: int
) -> None:
    monkeypatch.setattr("toolfold.sandbox.pool._GRACE", 600.0)
    async with _pool(data_dir, backend=(await candidate(name, data_dir)).backend) as pool:
        sandbox = await pool.take()
        await asyncio.sleep(0)
        assert pool.statistics.starting == starting
        assert await _value(sandbox, "1") == 1
        await _until(lambda: pool.statistics.warm == starting and not pool.statistics.starting)
        assert pool.statistics.waited == 1


@pytest.mark.parametrize("name", ["zygote", "bubblewrap"])
async def test_signals_that_the_host_ignores_are_not_ignored_inside(data_dir: Path, name: str) -> None:
    """A shell ignores them in what it starts in the background."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        async with _pool(data_dir, backend=(await candidate(name, data_dir)).backend) as pool:
            sandbox = await pool.take()
            code = "import signal\n[signal.getsignal(n) == signal.SIG_IGN for n in (signal.SIGINT, signal.SIGQUIT)]"
            assert await _value(sandbox, code) == [False, False]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def test_a_sandbox_that_dies_while_it_waits_is_replaced_and_never_handed_out(data_dir: Path) -> None:
    async with _pool(data_dir) as pool:
        await _until(lambda: pool.statistics.warm == 2)
        dead = pool.waiting_sandboxes[0]
        dead.cell.kill()
        await _until(lambda: pool.statistics.lost == 1 and pool.statistics.warm == 2)
        for _ in range(2):
            sandbox = await pool.take()
            assert sandbox is not dead
            assert await _value(sandbox, "1") == 1
            pool.discard(sandbox)


async def test_draining_ends_the_waiting_ones_and_fills_anew(data_dir: Path) -> None:
    async with _pool(data_dir) as pool:
        await _until(lambda: pool.statistics.warm == 2)
        before = list(pool.waiting_sandboxes)
        await pool.drain()
        assert not any(sandbox.alive for sandbox in before) or pool.statistics.warm == 0
        await _until(lambda: pool.statistics.warm == 2)
        assert not set(before) & set(pool.waiting_sandboxes)
        await _until(lambda: not any(sandbox.alive for sandbox in before))


async def test_someone_who_gives_up_waiting_loses_nobodys_sandbox(data_dir: Path) -> None:
    async with _pool(data_dir, size=1) as pool:
        first = await pool.take()
        waiting = [asyncio.create_task(pool.take()) for _ in range(3)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()
        two, three = await waiting[1], await waiting[2]
        assert pool.waiting == 0
        for sandbox in (first, two, three):
            assert await _value(sandbox, "1") == 1
            pool.discard(sandbox)


async def test_leaving_ends_everything_and_leaves_no_home(data_dir: Path, tmp_path: Path) -> None:
    async with _pool(data_dir) as pool:
        await _until(lambda: pool.statistics.warm == 2)
        sandboxes = list(pool.waiting_sandboxes)
        homes = [sandbox.home.path for sandbox in sandboxes]
        assert all(home.exists() for home in homes)
    assert not any(sandbox.alive for sandbox in sandboxes)
    assert not any(home.exists() for home in homes)


class _Refusing:
    """A backend that cannot start anything, as on a machine whose bwrap was just removed."""

    name = "refusing"

    def __init__(self) -> None:
        self.asked = 0

    async def start(self, home: SessionHome, api: Path) -> Cell:
        self.asked += 1
        raise SandboxUnavailable("bubblewrap could not be started.")


async def test_a_backend_that_fails_is_told_to_whoever_waits_and_not_asked_all_the_time(data_dir: Path) -> None:
    backend = _Refusing()
    async with _pool(data_dir, backend=backend) as pool:
        with pytest.raises(SandboxUnavailable):
            await pool.take()
        before = backend.asked
        await asyncio.sleep(0.3)
        assert backend.asked - before < 10
        assert pool.statistics.failed >= 1
