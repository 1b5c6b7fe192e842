"""Subscriptions to resources of one server, of either era, and what is left of them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.upstream_lab import awkward, eventually, text_of
from toolfold.config.settings import ServerConfig
from toolfold.errors import UpstreamError, UpstreamUnavailable
from toolfold.upstream import subscriptions
from toolfold.upstream.fleet import Fleet

pytestmark = pytest.mark.anyio

ASKS = str(Path(__file__).parent / "servers" / "asks.py")
WATCHED = str(Path(__file__).parent / "servers" / "watched.py")


@dataclass
class Watched:
    fleet: Fleet
    folder: Path
    heard: list[str] = field(default_factory=list[str])

    def now(self) -> list[str]:
        """What the server is subscribed to."""
        return json.loads((self.folder / "now.json").read_text())

    async def touch(self, uri: str) -> None:
        await self.fleet.call("a", "touch", {"uri": uri})


@pytest.fixture(params=["older", "newer"])
async def watched(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Watched]:
    monkeypatch.setattr(subscriptions, "FIRST_DELAY", 0.01)
    config = ServerConfig(command=sys.executable, args=(WATCHED, str(tmp_path / "now.json"), request.param))
    async with Fleet({"a": config, "plain": awkward()}, log_dir=tmp_path / "logs") as fleet:
        yield Watched(fleet, tmp_path)


async def test_the_server_is_subscribed_once_for_all_and_until_the_last_leaves(watched: Watched) -> None:
    fleet, heard = watched.fleet, watched.heard
    first = await fleet.subscribe("a", "w://one", lambda: heard.append("first"))
    second = await fleet.subscribe("a", "w://one", lambda: heard.append("second"))
    other = await fleet.subscribe("a", "w://two", lambda: heard.append("other"))
    # A stream of the newer era is replaced by one for both, and the first is ended after that.
    await eventually(lambda: watched.now() == ["w://one", "w://two"])
    await watched.touch("w://one")
    await eventually(lambda: len(heard) == 2)
    first()
    first()
    await watched.touch("w://one")
    await watched.touch("w://two")
    await eventually(lambda: len(heard) == 4)
    assert heard == ["first", "second", "second", "other"]
    assert watched.now() == ["w://one", "w://two"]
    second()
    await eventually(lambda: watched.now() == ["w://two"])
    other()
    await eventually(lambda: watched.now() == [])
    await fleet.subscribe("a", "w://one", lambda: heard.append("again"))
    await watched.touch("w://one/below")
    await eventually(lambda: heard[4:] == ["again"])
    await fleet.subscribe("a", "w://two/", lambda: heard.append("folder"))
    await watched.touch("w://two/below")
    await eventually(lambda: heard[5:] == ["folder"])


async def test_what_a_server_refuses_is_told_and_leaves_nothing(watched: Watched) -> None:
    fleet, heard = watched.fleet, watched.heard
    with pytest.raises(UpstreamError, match=r"^a: .*updates of `w://shy`"):
        await fleet.subscribe("a", "w://shy", lambda: heard.append("shy"))
    assert watched.now() == []
    with pytest.raises(UpstreamError, match="plain: does not send updates of its resources"):
        await fleet.subscribe("plain", "memo://a/b.txt", lambda: heard.append("plain"))
    await fleet.subscribe("a", "w://one", lambda: heard.append("one"))
    assert watched.now() == ["w://one"]
    await watched.touch("w://shy")
    await watched.touch("w://one")
    await eventually(lambda: heard)
    assert heard == ["one"]


async def test_a_server_that_never_opens_a_stream_is_waited_for_as_long_as_for_a_call(tmp_path: Path) -> None:
    args = (WATCHED, str(tmp_path / "now.json"), "newer", "silent")
    config = ServerConfig(command=sys.executable, args=args, call_timeout=0.3)
    tasks = asyncio.all_tasks()
    async with Fleet({"a": config}, log_dir=tmp_path / "logs") as fleet, asyncio.timeout(60):
        with pytest.raises(UpstreamError, match="did not begin to send updates in time"):
            await fleet.subscribe("a", "w://one", lambda: None)
    await eventually(lambda: asyncio.all_tasks() == tasks)


async def test_a_server_that_was_restarted_is_subscribed_again_and_may_have_changed(watched: Watched) -> None:
    fleet, heard = watched.fleet, watched.heard
    await fleet.subscribe("a", "w://one", lambda: heard.append("one"))
    with pytest.raises(UpstreamUnavailable):
        await fleet.call("a", "leave", {})
    await eventually(lambda: heard == ["one"])
    assert watched.now() == ["w://one"]
    await watched.touch("w://one")
    await eventually(lambda: heard == ["one", "one"])
    assert fleet.health()[0].restarts == 1


async def test_a_server_whose_streams_end_at_once_is_asked_less_and_less_until_one_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "FIRST_DELAY", 0.01)
    clock, tasks = asyncio.get_running_loop().time, asyncio.all_tasks()
    config = ServerConfig(command=sys.executable, args=(WATCHED, str(tmp_path / "now.json"), "newer", "hasty"))
    times: list[float] = []

    def heard() -> None:
        """What is set here, between a stream and the pause after it, holds for that pause."""
        times.append(clock())
        if len(times) == 6:  # from now on each stream counts as one that has held
            monkeypatch.setattr(subscriptions, "LONGEST_DELAY", 0.0)
            monkeypatch.setattr(subscriptions, "FIRST_DELAY", 0.3)
        elif len(times) == 8:
            monkeypatch.setattr(subscriptions, "FIRST_DELAY", 1000.0)

    async with Fleet({"a": config}, log_dir=tmp_path / "logs") as fleet:
        await fleet.subscribe("a", "w://one", heard)
        await eventually(lambda: len(times) >= 8)
    # The pauses are 0.01, 0.02, 0.04, … seconds at least, and then the first one again.
    assert times[5] - times[4] >= 0.01 * 2**5
    assert times[7] - times[6] >= 0.3
    await eventually(lambda: asyncio.all_tasks() == tasks)


@pytest.mark.parametrize("era", ["older", "newer"])
async def test_roots_that_our_client_has_are_the_servers_to_know(tmp_path: Path, era: str) -> None:
    async def roots() -> list[dict[str, str]]:
        return [{"uri": "file:///work", "name": "work"}, {"uri": "no address"}, {"uri": "file:///tmp"}]

    async with Fleet({"a": ServerConfig(command=sys.executable, args=(ASKS, era))}, log_dir=tmp_path) as fleet:
        assert json.loads(text_of(await fleet.call("a", "roots", {}))) == {"roots": []}
        assert "roots" not in text_of(await fleet.call("a", "capabilities", {}))
    async with Fleet({"a": ServerConfig(command=sys.executable, args=(ASKS, era))}, log_dir=tmp_path) as fleet:
        fleet.roots = roots
        told = json.loads(text_of(await fleet.call("a", "roots", {})))
        assert [root["uri"] for root in told["roots"]] == ["file:///work", "file:///tmp"]
        offered = json.loads(text_of(await fleet.call("a", "capabilities", {})))
        assert "roots" in (offered if era == "older" else offered["now"])
