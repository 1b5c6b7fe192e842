"""How many sessions and runs there may be, which one has to go, and what is left of those that went."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.upstream_lab import eventually
from toolfold import Call, Output, Proceed, Toolfold, ToolResult
from toolfold.config.settings import Settings
from toolfold.definitions import TextPart
from toolfold.errors import SandboxUnavailable
from toolfold.guards.events import RunResult
from toolfold.sandbox.pool import Pool
from toolfold.sandbox.pools import Pools
from toolfold.sandbox.protocol import SessionHome
from toolfold.session.homes import SessionHomes, SessionState, state_of
from toolfold.session.sessions import Sessions

pytestmark = pytest.mark.anyio

KNOCK = "from toolfold import read_resource\nawait read_resource('door', {name!r})\n"
"""A program that goes on when the door is opened."""


class Door:
    """A guard that answers reads of resources itself: a program that knocks waits until its door is opened."""

    def __init__(self) -> None:
        self._knocked: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._opened: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.cancelled: list[str] = []

    async def __call__(self, call: Call, proceed: Proceed) -> ToolResult:
        self._knocked[call.name].set()
        try:
            await self._opened[call.name].wait()
        except asyncio.CancelledError:
            self.cancelled.append(call.name)
            raise
        return ToolResult(parts=[TextPart(text="come in")])

    async def knocked(self, name: str) -> None:
        await asyncio.wait_for(self._knocked[name].wait(), 30)

    def knocks(self, name: str) -> bool:
        return self._knocked[name].is_set()

    def open(self, name: str) -> None:
        self._opened[name].set()


@asynccontextmanager
async def _fold(data_dir: Path, door: Door | None = None, **settings: Any) -> AsyncGenerator[Toolfold]:
    config = {"sandbox": {"pool": 1}, **settings}
    async with Toolfold.open(config, data_dir=data_dir, guards=[door] if door else []) as fold:
        await fold.warm_up()
        yield fold


def _ready(fold: Toolfold) -> int:
    statistics = fold.pool
    assert statistics is not None
    return statistics.warm + statistics.starting


def _in_use(fold: Toolfold) -> int:
    statistics = fold.pool
    assert statistics is not None
    return statistics.owned - statistics.warm


class SlowStarts:
    """Sandboxes of one caller start when they may, or fail then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, caller: str, problem: Exception | None = None) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        pool_of = Pools.of

        async def of(pools: Pools, owner: str) -> Pool:
            if owner == caller:
                self.reached.set()
                await self.opened.wait()
                if problem is not None:
                    raise problem
            return await pool_of(pools, owner)

        monkeypatch.setattr(Pools, "of", of)


def _behind_the_next(fold: Toolfold) -> int:
    """Sessions that wait for a place, without the one that gets the next."""
    started = fold._ready  # pyright: ignore[reportPrivateUsage]
    assert started is not None
    return started.sessions._admission.waiting  # pyright: ignore[reportPrivateUsage]


async def _until_queued(fold: Toolfold, count: int) -> None:
    async with asyncio.timeout(30):
        while (await fold.statistics()).queued != count:
            await asyncio.sleep(0.01)


async def _run(fold: Toolfold, code: str, **more: Any) -> RunResult:
    result = await fold.run(code, **more)
    assert result.success, result.error
    return result


class TestSessions:
    async def test_the_limit_is_reached_and_the_least_recently_used_goes_first(self, runtime_dir: Path) -> None:
        async with _fold(runtime_dir, session_limit=2) as fold:
            await _run(fold, "x = 'one'", session="one")
            await _run(fold, "x = 'two'", session="two")
            assert (await _run(fold, "x", session="one")).notice == "", "two may live"
            assert _in_use(fold) == 2
            await _run(fold, "x = 'three'", session="three")
            assert (await _run(fold, "x", session="one")).value == "one", "it was used after the other"
            told = await _run(fold, "'x' in globals()", session="two")
        assert told.value is False
        assert "it made space for other sessions" in told.notice

    async def test_a_busy_session_is_not_put_away_for_another(self, runtime_dir: Path) -> None:
        door = Door()
        async with _fold(runtime_dir, door, session_limit=1) as fold:
            busy = asyncio.create_task(fold.run(KNOCK.format(name="busy") + "x = 1\nx", session="busy"))
            await door.knocked("busy")
            other = asyncio.create_task(fold.run("2", session="other"))
            await asyncio.sleep(0.1)
            assert not other.done()
            assert _in_use(fold) == 1
            door.open("busy")
            assert (await busy).value == 1
            assert (await other).value == 2
            assert "x) are gone" in (await fold.run("1", session="busy")).notice

    async def test_one_caller_s_flood_of_sessions_does_not_starve_another(self, runtime_dir: Path) -> None:
        door = Door()
        async with _fold(runtime_dir, door, session_limit=1) as fold:

            def run(caller: str, name: str) -> asyncio.Task[RunResult]:
                return asyncio.create_task(fold.run(KNOCK.format(name=name), session=name, caller=caller))

            flood = [run("flood", "0")]
            await door.knocked("0")
            flood += [run("flood", str(n)) for n in range(1, 4)]
            await eventually(lambda: _behind_the_next(fold) == 2)
            other = run("other", "other")
            await eventually(lambda: _behind_the_next(fold) == 3)
            for name in ("0", "1", "other", "2", "3"):
                await door.knocked(name)
                assert _in_use(fold) == 1
                door.open(name)
            assert all(done.success for done in await asyncio.gather(*flood, other))

    async def test_a_slow_start_holds_up_no_other_session(
        self, runtime_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with _fold(runtime_dir, session_limit=2) as fold:
            gate = SlowStarts(monkeypatch, "slow")
            slow = asyncio.create_task(fold.run("1", session="one", caller="slow"))
            await gate.reached.wait()
            assert (await _run(fold, "2", session="two")).value == 2
            assert not slow.done()
            gate.opened.set()
            assert (await slow).value == 1

    async def test_a_session_that_is_being_started_counts_until_its_start_has_failed(
        self, runtime_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with _fold(runtime_dir, session_limit=1) as fold:
            gate = SlowStarts(monkeypatch, "slow", SandboxUnavailable("It could not be started."))
            slow = asyncio.create_task(fold.run("1", session="one", caller="slow"))
            await gate.reached.wait()
            other = asyncio.create_task(fold.run("2", session="two"))
            await asyncio.sleep(0.1)
            assert not other.done()
            gate.opened.set()
            with pytest.raises(SandboxUnavailable):
                await slow
            assert (await other).value == 2

    async def test_a_busy_session_is_not_idle_however_long_it_takes(self, runtime_dir: Path) -> None:
        door = Door()
        async with _fold(runtime_dir, door, session_idle=0.2) as fold:
            await _run(fold, "y = 2", session="idle")
            busy = asyncio.create_task(fold.run("x = 1\n" + KNOCK.format(name="busy"), session="busy"))
            await door.knocked("busy")
            await eventually(lambda: _in_use(fold) == 1)
            waiting = asyncio.create_task(fold.run("x", session="busy"))
            door.open("busy")
            assert (await busy).success
            after = await waiting
            assert (after.value, after.notice) == (1, "")
            assert "it was not used for 0.2 s" in (await fold.run("1", session="idle")).notice

    async def test_one_is_made_ready_before_anybody_asks(self, runtime_dir: Path) -> None:
        async with _fold(runtime_dir) as fold:
            await eventually(lambda: _ready(fold) == 1)
            assert _in_use(fold) == 0

    async def test_what_looks_for_idle_ones_has_ended_when_they_are_closed(self, tmp_path: Path) -> None:
        before = asyncio.all_tasks()
        nothing: Any = None
        async with Sessions(Settings(data_dir=tmp_path), nothing, nothing, nothing):
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == len(before) + 1
        assert asyncio.all_tasks() == before

    async def test_closing_ends_the_sandboxes_of_all_sessions(self, runtime_dir: Path) -> None:
        async with _fold(runtime_dir) as fold:
            for name in ("one", "two"):
                await _run(fold, "x = 1", session=name)
        statistics = fold.pool
        assert statistics is not None
        assert (statistics.owned, statistics.warm, statistics.starting) == (0, 0, 0)
        assert list((runtime_dir / "homes").iterdir()) == []
        assert len(list((runtime_dir / "sessions").iterdir())) == 2

    @pytest.mark.parametrize(("count", "told"), [(8, "g, h) are gone"), (9, "g, h, …) are gone")])
    async def test_the_first_lost_variables_are_named(self, runtime_dir: Path, count: int, told: str) -> None:
        async with _fold(runtime_dir, session_limit=1) as fold:
            await _run(fold, "\n".join(f"{name} = 1" for name in "abcdefghi"[:count]), session="one")
            await _run(fold, "1", session="two")
            assert told in (await _run(fold, "1", session="one")).notice

    async def test_a_run_that_waits_for_its_session_keeps_its_place(self, runtime_dir: Path) -> None:
        door = Door()
        async with _fold(runtime_dir, door) as fold:
            first = asyncio.create_task(fold.run("order = []\n" + KNOCK.format(name="first"), session="s"))
            await door.knocked("first")
            line = [asyncio.create_task(fold.run(f"order.append({n})\norder", session="s")) for n in range(3)]
            await asyncio.sleep(0)
            line[1].cancel()
            door.open("first")
            assert (await first).success
            assert (await line[2]).value == [0, 2]


class TestFreshRuns:
    async def test_as_many_as_allowed_run_and_wait_and_one_more_is_refused(self, runtime_dir: Path) -> None:
        door = Door()
        async with _fold(runtime_dir, door, run_limit=2, run_queue=1) as fold:
            runs = [asyncio.create_task(fold.run(KNOCK.format(name=str(n)) + f"{n}")) for n in range(2)]
            await door.knocked("0")
            await door.knocked("1")
            assert _in_use(fold) == 2
            runs.append(asyncio.create_task(fold.run(KNOCK.format(name="2") + "2")))
            await asyncio.sleep(0.1)
            assert not door.knocks("2")
            refused = await fold.run("3")
            assert refused.error is not None
            assert refused.error.message == "2 runs are under way and 1 of yours wait already; nothing was run."
            for name in "012":
                door.open(name)
            assert [(await run).value for run in runs] == [0, 1, 2]
            assert (await fold.run("4")).value == 4, "places are given back"

    async def test_one_caller_s_flood_neither_refuses_nor_starves_another(self, runtime_dir: Path) -> None:
        door = Door()
        async with _fold(runtime_dir, door, run_limit=1, run_queue=2) as fold:
            flood = [asyncio.create_task(fold.run(KNOCK.format(name=str(n)), caller="flood")) for n in range(3)]
            await door.knocked("0")
            other = [asyncio.create_task(fold.run(KNOCK.format(name=f"other {n}"), caller="other")) for n in range(2)]
            await _until_queued(fold, 4)
            refused = await fold.run("1", caller="flood")
            assert refused.error is not None
            assert refused.error.message == "1 runs are under way and 2 of yours wait already; nothing was run."
            for name in ("0", "other 0", "1", "other 1", "2"):
                await door.knocked(name)
                assert _in_use(fold) == 1
                door.open(name)
            assert all(done.success for done in await asyncio.gather(*flood, *other))
            await _until_queued(fold, 0)

    async def test_nothing_is_left_of_them(self, runtime_dir: Path) -> None:
        async with _fold(runtime_dir) as fold:
            for n in range(3):
                await _run(fold, f"open('workspace/{n}', 'w').close()")
            await eventually(lambda: _homes(runtime_dir) == _ready(fold) == 1)
            assert list((runtime_dir / "sessions").iterdir()) == []

    async def test_only_what_was_cut_is_kept_of_them(self, runtime_dir: Path) -> None:
        async with _fold(runtime_dir, output_chars=200) as fold:
            whole = await _run(fold, "print('x' * 199)")
            cut = await _run(fold, "print('x' * 200)")
            assert cut.output_file is not None
            read = await _run(fold, f"len(open({cut.output_file!r}).read())", session=cut.session)
        assert (whole.truncated, whole.output_file, whole.session) == (False, None, None)
        assert read.value == 201
        assert len(list((runtime_dir / "sessions").iterdir())) == 1


class TestCancelled:
    async def test_the_output_file_of_a_cancelled_run_is_closed(self, runtime_dir: Path) -> None:
        door = Door()
        async with _fold(runtime_dir, door, output_chars=200) as fold:
            seen = 0

            def count(event: object) -> None:
                nonlocal seen
                seen += len(event.text) if isinstance(event, Output) else 0

            code = "print('x' * 1000, flush=True)\n" + KNOCK.format(name="never")
            run = asyncio.create_task(fold.run(code, session="s", on_event=count))
            await door.knocked("never")
            await eventually(lambda: seen >= 1000)
            assert _open_outputs() == 1
            run.cancel()
            await asyncio.wait([run])
            del run
            gc.collect()
            assert _open_outputs() == 0
            await eventually(lambda: _in_use(fold) == 0)

    async def test_requests_end_with_their_run(self, runtime_dir: Path) -> None:
        door = Door()
        door.open("open")
        async with _fold(runtime_dir, door) as fold:
            result = await _run(
                fold,
                "import asyncio\nfrom toolfold import read_resource\n"
                "late = asyncio.create_task(read_resource('door', 'never'))\n"
                "await asyncio.sleep(0)\nawait read_resource('door', 'open')\n'done'",
            )
            assert door.cancelled == ["never"]
        assert result.value == "done"
        assert [(call.tool, call.ok, call.error) for call in result.tool_calls] == [
            ("open", True, ""),
            ("never", False, "cancelled before it was sent"),
        ]


class TestHomes:
    def test_what_a_dead_process_left_is_swept_and_what_a_live_one_uses_stays(self, tmp_path: Path) -> None:
        live = SessionHomes(tmp_path)
        used = live.new()
        left = tmp_path / "homes" / "of-a-dead-process"
        (left / "home" / "workspace").mkdir(parents=True)
        (left / "lock").touch()
        foreign = tmp_path / "homes" / "without-a-lock"
        foreign.mkdir()
        SessionHomes(tmp_path).close()
        assert not left.exists()
        assert used.workspace.is_dir()
        assert foreign.is_dir()
        live.close()
        assert not used.path.exists()

    def test_a_named_home_is_found_again_and_only_by_its_caller(self, tmp_path: Path) -> None:
        homes = SessionHomes(tmp_path)
        assert homes.named("ada", "s") is None
        adopted = homes.adopt(homes.new(), "ada", "s")
        assert adopted is not None
        assert homes.named("ada", "s") == adopted
        assert homes.named("bob", "s") is None
        assert homes.named("ada", "s\0") is None
        homes.remove(adopted)
        assert adopted.workspace.is_dir(), "a named home stays"
        homes.close()
        assert adopted.workspace.is_dir()

    def test_a_name_is_adopted_once(self, tmp_path: Path) -> None:
        homes = SessionHomes(tmp_path)
        first, second = homes.new(), homes.new()
        adopted = homes.adopt(first, "ada", "s")
        assert adopted is not None
        assert not first.path.exists()
        assert homes.adopt(second, "ada", "s") is None
        assert second.path.exists()
        homes.remove(second)
        assert not second.path.exists()
        with pytest.raises(FileNotFoundError):
            homes.adopt(second, "ada", "another")
        homes.close()

    def test_a_note_about_a_session_is_replaced_as_a_whole(self, tmp_path: Path) -> None:
        homes = SessionHomes(tmp_path)
        home = homes.new()
        assert state_of(home) is None
        assert homes.remember(home, SessionState("ada", "s", ["x"]))
        assert homes.remember(home, SessionState("ada", "s", ["y"]))
        assert state_of(home) == SessionState("ada", "s", ["y"])
        assert sorted(path.name for path in home.path.iterdir()) == ["session.json", "skills", "workspace"]
        (home.path / "session.json").write_text("{")
        assert state_of(home) is None
        assert not homes.remember(SessionHome(tmp_path / "gone"), SessionState("ada", "s"))
        homes.close()

    def test_a_full_disk_leaves_no_half_made_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        homes = SessionHomes(tmp_path)
        make_folder, write = Path.mkdir, Path.write_bytes

        def full(path: Path, *given: Any, **more: Any) -> Any:
            if path.name == "skills" or path.name.startswith("session.json"):
                raise OSError(28, "No space left on device")
            return make_folder(path, *given, **more)

        monkeypatch.setattr(Path, "mkdir", full)
        with pytest.raises(OSError, match="No space left"):
            homes.new()
        assert _homes(tmp_path) == 0
        monkeypatch.setattr(Path, "mkdir", make_folder)
        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space left"):
            homes.for_output("ada", "run-00000000")
        assert _homes(tmp_path) == 0
        monkeypatch.setattr(Path, "write_bytes", write)
        assert homes.new().skills.is_dir()
        homes.close()


def _homes(data_dir: Path) -> int:
    """Homes without a name, besides the lock that says whose they are."""
    (own,) = (data_dir / "homes").iterdir()
    return len([path for path in own.iterdir() if path.is_dir()])


def _open_outputs() -> int:
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += "/outputs/" in str(entry.readlink())
    return found
