"""The catalog of a running fold: whom a search waits for, what it says of those that are absent, and what it locks."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.test_catalog_store import listing, settings, tool
from tests.upstream_lab import eventually
from toolfold.catalog.catalog import Catalog
from toolfold.catalog.live import LiveCatalog
from toolfold.config.settings import ServerConfig, Settings
from toolfold.definitions import Listing, ToolDefinition
from toolfold.errors import UnknownTool
from toolfold.telemetry.audit_records import ToolNoted
from toolfold.upstream.fleet import Fleet
from toolfold.upstream.roster import ServerState

pytestmark = pytest.mark.anyio

NAMES = ("one", "two", "three", "four", "five")


def five(folder: Path) -> Settings:
    return Settings(servers={name: ServerConfig(command="/no/such/command") for name in NAMES}, data_dir=folder)


async def test_three_servers_that_are_absent_are_named_and_the_others_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause_after(failures: int) -> float:
        return 1000.0

    monkeypatch.setattr("toolfold.upstream.roster.SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr("toolfold.upstream.roster.pause_after", pause_after)
    async with Fleet(five(tmp_path).servers, log_dir=tmp_path) as fleet:
        live = LiveCatalog(Catalog.open(five(tmp_path)), fleet, NAMES)
        absent = (await live.search("pay a bill")).text.splitlines()[-1]
        assert absent.startswith("Not available now: five: failed: the command `command` cannot be run")
        assert absent.count("failed") == 3
        assert absent.endswith("; and 2 more")
        with pytest.raises(UnknownTool) as unknown:
            await live.find("nowhere.pay")
        assert unknown.value.hint.endswith(absent[-12:])
        assert sorted(live.unlisted) == sorted(NAMES)
        await live.close()


async def test_a_search_waits_once_for_each_server_and_again_for_those_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[tuple[list[str], float | None]] = []

    async def wait_for(servers: Iterable[str], timeout: float | None = None) -> dict[str, ServerState]:
        waits.append((sorted(servers), timeout))
        return {}

    catalog = Catalog.open(five(tmp_path))
    live = LiveCatalog(catalog, Fleet(five(tmp_path).servers, log_dir=tmp_path), NAMES)
    monkeypatch.setattr(live.roster, "wait_for", wait_for)
    await live.search("pay a bill")
    await live.search("pay a bill")
    await live.search("pay by two")
    assert waits == [(sorted(NAMES), 20.0), (["two"], 20.0)]
    catalog.update(Listing(server="one", tools=[ToolDefinition(server="one", name="pay")]))
    await live.search("pay with one, or three")
    assert waits[2:] == [(["three"], 5.0)], "less long, where there is something to search in"
    await live.close()


async def test_a_question_that_was_given_up_still_keeps_changes_from_the_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    catalog = Catalog.open(settings(tmp_path))

    def everything(*args: Any, **more: Any) -> list[dict[str, Any]]:
        begun.set()
        assert go_on.wait(60)
        return []

    monkeypatch.setattr(catalog, "everything", everything)
    fleet = Fleet(settings(tmp_path).servers, log_dir=tmp_path)
    live = LiveCatalog(catalog, fleet, ["github"])
    question = asyncio.create_task(live.everything("name_only", None, None))
    await asyncio.to_thread(begun.wait, 60)
    question.cancel()
    assert fleet.on_listing is not None
    fleet.on_listing(listing(tool("one")))
    for _ in range(10):
        await asyncio.sleep(0)
    missing = catalog.missing
    go_on.set()
    assert missing == ["github"], "its thread was still reading the catalog"
    await eventually(lambda: not catalog.missing)
    assert question.cancelled()
    await live.close()


async def test_what_a_server_offers_is_stored_off_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writers: set[threading.Thread] = set()
    noted: list[ToolNoted] = []
    fsync = os.fsync

    def recorded(fd: int) -> None:
        writers.add(threading.current_thread())
        fsync(fd)

    monkeypatch.setattr(os, "fsync", recorded)
    catalog = Catalog.open(settings(tmp_path))
    catalog.acceptance.on_noted = noted.append
    fleet = Fleet(settings(tmp_path).servers, log_dir=tmp_path)
    live = LiveCatalog(catalog, fleet, ["github"])
    assert fleet.on_listing is not None
    fleet.on_listing(listing(tool("one")))
    await eventually(lambda: not catalog.missing)
    assert [each.name for each in catalog.tools] == ["one"], "it is not missing any more, so its tools are there"
    assert noted
    assert writers
    assert threading.current_thread() not in writers, "a slow disk would hold up all runs"
    await live.close()
