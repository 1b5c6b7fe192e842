"""When a server is tried again and when it is left alone, with commands that end at once and so cost little."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.upstream_lab import awkward, eventually
from toolfold.config.settings import ServerConfig
from toolfold.definitions import Listing
from toolfold.errors import UpstreamUnavailable
from toolfold.upstream import roster as module
from toolfold.upstream import server, stdio
from toolfold.upstream.fleet import Fleet
from toolfold.upstream.roster import SHORTEST_PAUSE, Roster

pytestmark = pytest.mark.anyio

ENDS = ServerConfig(command="sh", args=("-c", "echo no luck >&2; exit 3"))


@pytest.fixture
def long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause ends during a test, however busy the machine is."""
    monkeypatch.setattr(server, "FIRST_DELAY", 100.0)
    monkeypatch.setattr(server, "LONGEST_DELAY", 1000.0)


@pytest.mark.usefixtures("long_pauses")
async def test_a_failed_start_is_not_repeated_at_once_unless_it_is_named(tmp_path: Path) -> None:
    async with Fleet({"a": ENDS}, log_dir=tmp_path) as fleet:
        assert fleet.health()[0].state == "idle"
        with pytest.raises(UpstreamUnavailable, match="exit status 3") as first:
            await fleet.call("a", "t", {})
        assert "no luck" in first.value.message
        assert first.value.hint.startswith("The call was not sent.")
        health = fleet.health()[0]
        assert (health.state, health.restarts, health.pid) == ("backoff", 0, None)
        assert 0 < health.retry_in <= 100
        assert "exit status 3" in health.last_error
        with pytest.raises(UpstreamUnavailable, match=r"will be tried again in \d+\.\d s.*exit status 3"):
            await fleet.call("a", "t", {})
        fleet.hurry("a")
        with pytest.raises(UpstreamUnavailable, match="before it was ready"):
            await fleet.call("a", "t", {})
        assert fleet.health()[0].retry_in > 100, "the second pause is longer"


async def test_it_is_tried_again_when_the_pause_is_over(tmp_path: Path) -> None:
    async with Fleet({"a": ENDS}, log_dir=tmp_path) as fleet:
        for _ in range(2):
            with pytest.raises(UpstreamUnavailable, match="before it was ready"):
                await fleet.call("a", "t", {})
            await eventually(lambda: fleet.health()[0].state == "failed")


@pytest.mark.usefixtures("long_pauses")
async def test_a_listing_may_ask_in_spite_of_the_pause(tmp_path: Path) -> None:
    async with Fleet({"a": ENDS}, log_dir=tmp_path) as fleet:
        for now, words in (
            (False, "before it was ready"),
            (False, "will be tried again"),
            (True, "before it was ready"),
        ):
            with pytest.raises(UpstreamUnavailable, match=words):
                await fleet.listing("a", now=now)


async def test_a_server_that_answered_is_asked_once(tmp_path: Path) -> None:
    kept: list[Listing] = []

    async def keep(listing: Listing) -> None:
        kept.append(listing)

    async with Fleet({"a": awkward()}, log_dir=tmp_path) as fleet:
        roster = Roster(fleet, keep)
        assert await roster.wait_for(["a"], 30) == {}
        assert roster.states()["a"].state == "listed"
        await asyncio.sleep(SHORTEST_PAUSE * 1.5)
        assert len(kept) == 1
        roster.used("a")
        roster.want(["a"])
        await asyncio.sleep(0.05)
        assert len(kept) == 1, "what it offers is of this process already"
        await roster.refresh(["a"])
        assert len(kept) == 2
        await roster.close()


async def test_a_server_known_from_before_is_asked_when_it_is_used(tmp_path: Path) -> None:
    kept: list[Listing] = []

    async def keep(listing: Listing) -> None:
        kept.append(listing)

    async with Fleet({"a": awkward()}, log_dir=tmp_path) as fleet:
        roster = Roster(fleet, keep, listed=["a"])
        roster.used("unknown")
        roster.used("a")
        roster.used("a")
        await eventually(lambda: kept)
        await asyncio.sleep(0.05)
        assert len(kept) == 1
        await roster.close()
        roster.used("a")
        assert not roster.states()["a"].error


async def test_a_known_server_that_failed_is_asked_again_when_it_is_used_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Listing] = []

    async def keep(listing: Listing) -> None:
        kept.append(listing)

    async with Fleet({"a": awkward(f"starts={tmp_path / 'starts'}", "fails=1")}, log_dir=tmp_path) as fleet:
        roster = Roster(fleet, keep, listed=["a"])
        monkeypatch.setattr(module, "SHORTEST_PAUSE", 3600.0)
        roster.used("a")
        await eventually(lambda: roster.states()["a"].error)
        tasks = len(asyncio.all_tasks())
        roster.used("a")
        assert len(asyncio.all_tasks()) == tasks, "a server that has just failed is left alone"
        await roster.close()
        roster = Roster(fleet, keep, listed=["a"])
        monkeypatch.setattr(module, "SHORTEST_PAUSE", 0.0)
        (tmp_path / "starts").unlink()
        roster.used("a")
        await eventually(lambda: roster.states()["a"].error)
        await eventually(lambda: roster.used("a") or kept)
        assert roster.states()["a"].error is None
        await roster.close()


async def test_a_command_that_never_speaks_mcp_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "JUNK_LINES", 50)
    talks = ServerConfig(command="sh", args=("-c", "while echo hello; do :; done"))
    async with Fleet({"a": talks}, log_dir=tmp_path) as fleet, asyncio.timeout(30):
        with pytest.raises(UpstreamUnavailable, match="sent 50 lines and no MCP message"):
            await fleet.call("a", "t", {})


async def test_a_few_lines_of_junk_are_no_reason_to_give_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "JUNK_LINES", 5)
    async with Fleet({"a": awkward("banner")}, log_dir=tmp_path) as fleet:
        for _ in range(6):
            assert (await fleet.call("a", "echo", {})).parts


async def test_waiters_share_the_end_of_a_fleet(tmp_path: Path) -> None:
    slow = ServerConfig(command="sleep", args=("600",))
    fleet = Fleet({"a": slow}, log_dir=tmp_path)
    async with fleet:
        calls = [asyncio.create_task(fleet.call("a", "t", {})) for _ in range(2)]
        await eventually(lambda: fleet.health()[0].state == "starting")
    for call in calls:
        with pytest.raises(UpstreamUnavailable, match="was closed before it had started"):
            await asyncio.wait_for(call, 60)
    with pytest.raises(UpstreamUnavailable, match="is closed"):
        await fleet.call("a", "t", {})
