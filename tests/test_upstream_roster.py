"""Servers that fail to start are asked again, and nothing waits for a server that it does not need."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.test_upstream_processes import alive
from tests.upstream_lab import awkward, eventually, text_of
from toolfold import Toolfold
from toolfold.config.settings import ServerConfig
from toolfold.definitions import Listing
from toolfold.errors import UpstreamIsToolfold, UpstreamUnavailable
from toolfold.upstream.fleet import Fleet
from toolfold.upstream.health import Health
from toolfold.upstream.roster import LONGEST_PAUSE, SHORTEST_PAUSE, Roster, ServerState, pause_after
from toolfold.upstream.starts import StartQueue, Turn

pytestmark = pytest.mark.anyio


class Lab:
    """A roster over real servers, and what it has learned."""

    def __init__(self, fleet: Fleet, listed: tuple[str, ...]) -> None:
        self.fleet = fleet
        self.listings: list[Listing] = []
        self.fault: Exception | None = None
        self.roster = Roster(fleet, self._keep, listed=listed)

    async def _keep(self, listing: Listing) -> None:
        if self.fault is not None:
            raise self.fault
        self.listings.append(listing)

    def state(self, server: str = "a") -> ServerState:
        return self.roster.states()[server]


@asynccontextmanager
async def lab(folder: Path, *listed: str, **servers: ServerConfig) -> AsyncGenerator[Lab]:
    async with asyncio.timeout(200), Fleet(servers, log_dir=folder / "logs") as fleet:
        found = Lab(fleet, listed)
        try:
            yield found
        finally:
            await found.roster.close()


@pytest.fixture
def starts(tmp_path: Path) -> Callable[[], list[int]]:
    """The process ids of a server that was given `starts=` this file, one for each start."""

    def read() -> list[int]:
        with contextlib.suppress(FileNotFoundError):
            return [int(line) for line in (tmp_path / "starts").read_text().split()]
        return []

    return read


def _long(_failures: int) -> float:
    return 1000.0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that fails is not asked again for a long time, unless it is named."""
    monkeypatch.setattr("toolfold.upstream.roster.pause_after", _long)


async def test_nothing_is_asked_before_it_is_wanted(tmp_path: Path) -> None:
    async with lab(tmp_path, "b", a=awkward(), b=awkward()) as here:
        assert [(state.state, state.text) for state in here.roster.states().values()] == [
            ("idle", "a: not started yet"),
            ("listed", "b: ready"),
        ]
        assert await here.roster.wait_for(["b", "no such server"]) == {}
        assert [health.state for health in here.fleet.health()] == ["idle", "idle"]


async def test_a_server_that_fails_is_asked_again_until_it_works(
    tmp_path: Path, starts: Callable[[], list[int]]
) -> None:
    async with lab(tmp_path, a=awkward(f"starts={tmp_path / 'starts'}", "fails=3"), b=awkward()) as here:
        here.roster.want()
        assert here.state().text == "a: still starting"
        await eventually(lambda: here.state().state == "failed")
        failed = here.state()
        assert failed.next_try_in is not None
        assert "exit status 1" in failed.text
        assert "Next try in 1 s." in failed.text
        await eventually(lambda: here.state().state == "listed")
        assert here.state("b").state == "listed"
        assert len(starts()) == 4
        assert sorted(listing.server for listing in here.listings) == ["a", "b"]
        assert here.state().error is None


def test_pauses_grow_up_to_a_limit() -> None:
    pauses = [pause_after(failures) for failures in range(1, 2000)]
    assert pauses[0] == SHORTEST_PAUSE
    assert pauses == sorted(pauses)
    assert pauses[3] == 8 * SHORTEST_PAUSE
    assert pauses[-1] == LONGEST_PAUSE


@pytest.mark.usefixtures("patient")
async def test_a_server_that_is_named_is_asked_at_once_whatever_happened_before(
    tmp_path: Path, starts: Callable[[], list[int]]
) -> None:
    async with lab(tmp_path, a=awkward(f"starts={tmp_path / 'starts'}", "fails=1")) as here:
        here.roster.want()
        await eventually(lambda: here.state().state == "failed")
        here.roster.want()
        assert here.state().next_try_in is not None
        assert "Next try in 1000 s." in here.state().text
        here.roster.want(["a"])
        assert "Next try in 1 s." in here.state().text
        assert await here.roster.wait_for(["a"]) == {}
        assert len(starts()) == 2
        assert text_of(await here.fleet.call("a", "echo", {})) == "{}"


@pytest.mark.usefixtures("patient")
async def test_a_wait_outlasts_a_few_failures(tmp_path: Path, starts: Callable[[], list[int]]) -> None:
    async with lab(tmp_path, a=awkward(f"starts={tmp_path / 'starts'}", "fails=2")) as here:
        assert await here.roster.wait_for(["a"]) == {}
        assert len(starts()) == 3


@pytest.mark.usefixtures("patient")
async def test_a_wait_ends_when_a_server_goes_on_failing_and_later_ones_cover_one_attempt(
    tmp_path: Path, starts: Callable[[], list[int]]
) -> None:
    async with lab(tmp_path, a=awkward(f"starts={tmp_path / 'starts'}", "fails=99")) as here:
        missing = await here.roster.wait_for(["a"])
        assert list(missing) == ["a"]
        assert len(starts()) == 3
        assert (missing["a"].next_try_in or 0) > 900
        await here.roster.wait_for(["a"])
        assert len(starts()) == 4


async def test_a_server_that_is_asked_again_is_starting_again(tmp_path: Path, starts: Callable[[], list[int]]) -> None:
    async with lab(tmp_path, a=awkward(f"starts={tmp_path / 'starts'}", "fails=1", "sleeps=600")) as here:
        here.roster.want()
        await eventually(lambda: len(starts()) == 2)
        assert here.state().state == "starting"
        assert here.state().next_try_in is None


@pytest.mark.usefixtures("patient")
async def test_refreshing_does_not_wait_until_a_pause_is_over(tmp_path: Path, starts: Callable[[], list[int]]) -> None:
    async with lab(tmp_path, a=awkward(f"starts={tmp_path / 'starts'}", "fails=1")) as here:
        here.roster.want()
        await eventually(lambda: here.state().state == "failed")
        assert (await here.roster.refresh())["a"].state == "listed"
        assert len(starts()) == 2


@pytest.mark.usefixtures("patient")
async def test_the_first_answers_of_all_servers_can_be_waited_for(
    tmp_path: Path, starts: Callable[[], list[int]]
) -> None:
    broken = awkward(f"starts={tmp_path / 'starts'}", "fails=99")
    async with lab(tmp_path, "known", broken=broken, good=awkward(), known=broken) as here:
        await here.roster.first_answers(60)
        assert [state.state for state in here.roster.states().values()] == ["failed", "listed", "listed"]
        # There is nothing more to wait for.
        await here.roster.first_answers(60)
        assert len(starts()) == 1
    async with lab(tmp_path, hangs=awkward("sleeps=600")) as here:
        await here.roster.first_answers(0.1)
        assert here.state("hangs").state == "starting"


@pytest.mark.usefixtures("patient")
async def test_what_calls_have_failed_at_does_not_keep_a_server_from_being_asked(tmp_path: Path) -> None:
    async with lab(tmp_path, a=awkward(f"starts={tmp_path / 'starts'}", "fails=5")) as here:
        for _ in range(5):
            with pytest.raises(UpstreamUnavailable, match="exit status 1"):
                await here.fleet.call("a", "echo", {})
            here.fleet.hurry("a")
        with pytest.raises(UpstreamUnavailable, match="exit status 1"):
            await here.fleet.call("a", "die", {"status": 1})
        with pytest.raises(UpstreamUnavailable, match="will be tried again"):
            await here.fleet.call("a", "echo", {})
        assert (await here.roster.refresh())["a"].state == "listed"


@pytest.mark.usefixtures("patient")
async def test_a_server_that_used_up_its_start_timeout_is_not_waited_for_again(
    tmp_path: Path, starts: Callable[[], list[int]]
) -> None:
    async with lab(tmp_path, a=awkward(f"starts={tmp_path / 'starts'}", "sleeps=600", start_timeout=1)) as here:
        missing = await here.roster.wait_for(["a"])
        assert "did not answer the handshake within 1 s (its `start_timeout`)" in missing["a"].text
        assert len(starts()) == 1


async def test_two_waits_share_one_start(tmp_path: Path, starts: Callable[[], list[int]]) -> None:
    async with lab(tmp_path, a=awkward(f"starts={tmp_path / 'starts'}", "sleeps=0.5")) as here:
        here.roster.want()
        call = asyncio.create_task(here.fleet.call("a", "echo", {}))
        waits = [asyncio.create_task(here.roster.wait_for(["a"], timeout)) for timeout in (None, 50, 0.01)]
        assert await asyncio.gather(*waits[:2]) == [{}, {}]
        assert list(await waits[2]) == ["a"]
        assert text_of(await call) == "{}"
        assert len(starts()) == 1
        assert len(here.listings) == 1


async def test_a_wait_that_is_cancelled_or_too_long_does_not_stop_the_start(
    tmp_path: Path, starts: Callable[[], list[int]]
) -> None:
    async with lab(tmp_path, a=awkward(f"starts={tmp_path / 'starts'}", "sleeps=0.5")) as here:
        wait = asyncio.create_task(here.roster.wait_for(["a"]))
        await eventually(starts)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
        assert (await here.roster.wait_for(["a"], 0.01))["a"].state == "starting"
        assert await here.roster.wait_for(["a"]) == {}
        assert len(starts()) == 1


async def test_nothing_waits_for_a_server_that_it_did_not_name(tmp_path: Path) -> None:
    async with lab(tmp_path, hangs=awkward("never-answers"), good=awkward()) as here, asyncio.timeout(20):
        here.roster.want()
        assert await here.roster.wait_for(["good"]) == {}
        assert here.state("hangs").state == "starting"


class RecordingQueue(StartQueue):
    """Remembers which starts a caller waited for."""

    def __init__(self) -> None:
        super().__init__(1, slow_after=1000)
        self.urgent: list[bool] = []

    @asynccontextmanager
    async def wait_for(self, turn: Turn) -> AsyncGenerator[None]:
        self.urgent.append(turn.urgent)
        async with super().wait_for(turn):
            yield


async def test_only_attempts_that_somebody_waits_for_go_before_the_others(
    tmp_path: Path, starts: Callable[[], list[int]]
) -> None:
    queue = RecordingQueue()
    servers = {"hangs": awkward("sleeps=600"), "a": awkward(f"starts={tmp_path / 'starts'}", "fails=4")}
    async with asyncio.timeout(60), Fleet(servers, log_dir=tmp_path, starts=queue) as fleet:
        here = Lab(fleet, ())
        here.roster.want(["hangs"])
        await eventually(lambda: queue.urgent == [True])
        # Not kept from starting by the one that hangs, as long as somebody waits.
        assert list(await here.roster.wait_for(["a"])) == ["a"]
        await eventually(lambda: len(queue.urgent) == 5)
        assert queue.urgent == [True, True, True, True, False]
        assert len(starts()) == 3
        assert list(await here.roster.wait_for(["a"])) == ["a"]
        assert len(starts()) == 4
        await here.roster.close()


@pytest.mark.parametrize("seed", range(8))
async def test_a_server_that_is_killed_while_it_starts_is_there_later(
    tmp_path: Path, starts: Callable[[], list[int]], seed: int
) -> None:
    chance = random.Random(seed)
    server = awkward(f"starts={tmp_path / 'starts'}", "sleeps=0.2")
    async with lab(tmp_path, a=server) as here:
        here.roster.want()
        for kill in range(2):
            await eventually(lambda kill=kill: len(starts()) > kill)
            with contextlib.suppress(TimeoutError):
                await here.roster.wait_for(["a"], chance.uniform(0, 0.5))
            with contextlib.suppress(ProcessLookupError):
                os.kill(starts()[-1], signal.SIGKILL)
            if here.state().state == "listed":
                break
        assert await here.roster.wait_for(["a"]) == {}
        async with asyncio.timeout(20):
            while True:
                try:
                    assert text_of(await here.fleet.call("a", "echo", {"n": seed})) == f'{{"n": {seed}}}'
                    break
                except UpstreamUnavailable:
                    continue
    assert not alive(starts())


@pytest.mark.usefixtures("patient")
async def test_closing_during_a_pause_leaves_no_task_and_no_process(
    tmp_path: Path, starts: Callable[[], list[int]]
) -> None:
    before = asyncio.all_tasks()
    async with lab(tmp_path, a=awkward(f"starts={tmp_path / 'starts'}", "fails=99"), b=awkward()) as here:
        here.roster.want()
        await eventually(lambda: here.state().state == "failed" and here.state("b").state == "listed")
        pid = here.fleet.health()[1].pid
        assert pid is not None
    assert asyncio.all_tasks() == before
    assert not alive([*starts(), pid])
    assert here.state().state == "failed"
    assert here.state().next_try_in is None


async def test_closing_during_a_start_ends_every_wait(tmp_path: Path, starts: Callable[[], list[int]]) -> None:
    before = asyncio.all_tasks()
    async with lab(tmp_path, a=awkward(f"starts={tmp_path / 'starts'}", "never-answers")) as here:
        wait = asyncio.create_task(here.roster.wait_for(["a"]))
        refresh = asyncio.create_task(here.roster.refresh())
        await eventually(starts)
    assert list(await wait) == ["a"]
    await refresh
    # A closed roster answers from what it knows.
    assert list(await here.roster.wait_for(["a"])) == ["a"]
    assert here.fleet.on_listing is None
    here.roster.want()
    here.roster.used("a")
    assert asyncio.all_tasks() == before
    assert not alive(starts())
    assert len(starts()) == 1


async def test_refreshing_starts_each_server_once_and_closing_keeps_it_so(
    tmp_path: Path, starts: Callable[[], list[int]]
) -> None:
    count = f"starts={tmp_path / 'starts'}"
    servers = {"good": awkward(count), "broken": awkward(count, "fails=99"), "known": awkward(count)}
    async with lab(tmp_path, "known", **servers) as here:
        states = await here.roster.refresh()
        await here.roster.close()
        assert {name: state.state for name, state in states.items()} == {
            "good": "listed",
            "broken": "failed",
            "known": "listed",
        }
        assert list(await here.roster.refresh()) == list(servers)
        await here.roster.wait_for(["broken"])
        assert len(starts()) == 3
        assert sorted(listing.server for listing in here.listings) == ["good", "known"]


async def test_a_server_that_was_listed_before_and_fails_now_keeps_its_definitions(tmp_path: Path) -> None:
    async with lab(tmp_path, "a", a=ServerConfig(command="no-such-command-here")) as here:
        state = (await here.roster.refresh())["a"]
        assert state.state == "listed"
        assert "no-such-command-here" in str(state.error)
        assert await here.roster.wait_for(["a"]) == {}


async def test_a_server_that_is_known_from_before_is_asked_once_when_it_is_used(tmp_path: Path) -> None:
    async with lab(tmp_path, "a", a=awkward(), b=awkward()) as here:
        for _ in range(3):
            await here.fleet.call("a", "echo", {})
            here.roster.used("a")
        here.roster.used("no such server")
        await eventually(lambda: here.listings)
        await here.roster.wait_for(["b"])
        here.roster.used("b")
        assert [listing.server for listing in here.listings] == ["a", "b"]


async def test_what_a_server_says_has_changed_is_taken_over(tmp_path: Path) -> None:
    async with lab(tmp_path, a=awkward()) as here:
        # Called without having been listed, as by a name that was read from a file.
        await here.fleet.call("a", "change", {"name": "brand_new"})
        await eventually(lambda: here.listings)
        assert here.listings[-1].tools[-1].name == "brand_new"
        assert here.state().state == "listed"


@pytest.mark.usefixtures("patient")
async def test_a_listing_that_cannot_be_kept_is_a_failure_like_any_other(tmp_path: Path) -> None:
    async with lab(tmp_path, a=awkward()) as here:
        here.fault = OSError(28, "No space left on device", "/home/someone/.local/share/toolfold/catalog/a")
        here.roster.want()
        await eventually(lambda: here.state().state == "failed")
        assert "No space left" in here.state().text
        assert "/home" not in here.state().text
        assert "/home" in here.state().detail
        here.fault = None
        assert await here.roster.wait_for(["a"]) == {}


async def test_toolfold_itself_is_not_asked_again_and_again(tmp_path: Path, starts: Callable[[], list[int]]) -> None:
    async with lab(tmp_path, a=awkward(f"starts={tmp_path / 'starts'}", "is-toolfold")) as here:
        missing = await here.roster.wait_for(["a"])
        assert isinstance(missing["a"].error, UpstreamIsToolfold)
        assert here.state().next_try_in is None
        here.roster.want()
        assert here.state().state == "failed"
        assert len(starts()) == 1


@pytest.mark.usefixtures("patient")
async def test_naming_a_listed_server_that_is_down_lets_the_next_call_start_it(
    tmp_path: Path, starts: Callable[[], list[int]]
) -> None:
    async with lab(tmp_path, "a", a=awkward(f"starts={tmp_path / 'starts'}", "fails=2")) as here:
        for _ in range(2):
            with pytest.raises(UpstreamUnavailable, match="exit status 1"):
                await here.fleet.call("a", "echo", {})
            with pytest.raises(UpstreamUnavailable, match="will be tried again"):
                await here.fleet.call("a", "echo", {})
            here.roster.want(["a"])
        assert text_of(await here.fleet.call("a", "echo", {})) == "{}"
        assert len(starts()) == 3


async def test_a_server_that_was_never_used_has_not_been_restarted(tmp_path: Path) -> None:
    fresh = Health(server="a", state="idle", log_file=tmp_path)
    assert (fresh.restarts, fresh.retry_in, fresh.pid, fresh.problems) == (0, 0.0, None, ())
    async with lab(tmp_path, a=awkward()) as here:
        (found,) = here.fleet.health()
        assert (found.restarts, found.state) == (0, "idle")


async def test_a_program_in_a_hurry_waits_for_the_server_that_it_names(tmp_path: Path) -> None:
    server = {"command": sys.executable, "args": awkward("sleeps=0.5").args}
    async with Toolfold.open({"servers": {"slow": server}}, data_dir=tmp_path) as fold:
        await fold.live.listed_for_program(["slow"], 30)
        assert fold.catalog.tool("slow", "echo") is not None


@pytest.mark.usefixtures("patient")
async def test_no_path_of_this_machine_is_in_what_a_model_reads(tmp_path: Path) -> None:
    traceback = (
        f"import sys; sys.exit('File \"{tmp_path}/x.py\", line 3, file:///srv/y.py ~/z.py http://host/mcp no key')"
    )
    servers = {
        "ends": ServerConfig(command=sys.executable, args=("-c", traceback)),
        "nowhere": ServerConfig(command=sys.executable, cwd="/no/such/folder"),
        "missing": ServerConfig(command="/no/such/command"),
        "remote": ServerConfig(transport="http", url="http://127.0.0.1:9/mcp"),
    }
    async with lab(tmp_path, **servers) as here:
        states = await here.roster.refresh()
        texts = {name: state.text for name, state in states.items()}
        for name, text in texts.items():
            assert text.startswith(f"{name}: failed: ")
            assert not [word for word in (str(tmp_path), "/no/", "/srv", "~", "logs", sys.prefix) if word in text]
            assert "\n" not in text
            assert str(here.state(name).log_file) in here.state(name).detail
        assert "y.py" in texts["ends"]
        assert "`command` cannot be run" in texts["missing"]
        assert "http://127.0.0.1:9/mcp" in texts["remote"]
