"""The generated API is as new as the catalog when a run begins, whatever happens while it is written."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.test_catalog_store import listing, settings, tool
from toolfold.catalog.catalog import Catalog
from toolfold.catalog.entries import Scope
from toolfold.catalog.trees import ApiTrees
from toolfold.codegen import tree
from toolfold.definitions import ToolDefinition

pytestmark = pytest.mark.anyio


class Place:
    """A catalog with one tool, and its trees."""

    def __init__(self, folder: Path) -> None:
        self.catalog = Catalog.open(settings(folder))
        self.catalog.update(listing(tool("one")))
        self.trees = ApiTrees(self.catalog, settings(folder))

    def modules(self, scope: Scope | None = None) -> set[str]:
        folder = self.trees.folder(scope) if scope is not None else self.trees.folder()
        return {path.stem for path in (folder / "servers" / "github").glob("*.py")} - {"__init__", "index"}


async def _updated(place: Place, *tools: ToolDefinition) -> None:
    place.catalog.update(listing(*tools))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[set[str]]]:
    """Have each writing of a tree begin with `before`; the tools of each are in the list that is returned."""
    write_tree = tree.write_tree

    def watch(before: Callable[[int], None] = lambda number: None) -> list[set[str]]:
        seen: list[set[str]] = []

        def watched(tools: Any, *args: Any, **more: Any) -> Any:
            seen.append({each.name for each in tools})
            assert len(seen) < 5, "it is written again and again"
            before(len(seen))
            return write_tree(tools, *args, **more)

        monkeypatch.setattr(tree, "write_tree", watched)
        return seen

    return watch


async def test_a_catalog_that_changes_before_the_writer_begins_is_written_once(
    place: Place, writes: Callable[..., list[set[str]]]
) -> None:
    seen = writes()
    run = asyncio.create_task(place.trees.fresh())
    await asyncio.sleep(0)  # it has asked for the tree, and the writer has not begun
    place.catalog.update(listing(tool("one"), tool("two")))
    async with asyncio.timeout(60):
        await run
    assert place.modules() == {"one", "two"}
    await place.trees.fresh()
    assert seen == [{"one", "two"}]


async def test_a_catalog_that_changes_during_the_writing_is_written_again(
    place: Place, writes: Callable[..., list[set[str]]]
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(number: int) -> None:
        begun.set()
        assert go_on.wait(60)

    seen = writes(wait)
    runs = [asyncio.create_task(place.trees.fresh())]
    await asyncio.to_thread(begun.wait, 60)
    place.catalog.update(listing(tool("two")))
    runs.append(asyncio.create_task(place.trees.fresh()))
    await asyncio.sleep(0)
    # A run that gives up does not stop the writing that others wait for.
    runs[0].cancel()
    await asyncio.wait(runs[:1])
    go_on.set()
    async with asyncio.timeout(60):
        await runs[1]
    assert seen == [{"one"}, {"two"}]
    assert place.modules() == {"two"}


async def test_a_catalog_that_always_changes_holds_up_no_run(
    place: Place, writes: Callable[..., list[set[str]]]
) -> None:
    loop = asyncio.get_running_loop()

    def change(number: int) -> None:
        tools = [tool(f"tool{each}") for each in range(number + 1)]
        asyncio.run_coroutine_threadsafe(_updated(place, *tools), loop).result(60)

    seen = writes(change)
    async with asyncio.timeout(60):
        await asyncio.gather(place.trees.fresh(), place.trees.fresh())
    assert seen == [{"one"}], "it is as new as it was when they asked"
    async with asyncio.timeout(60):
        await place.trees.fresh()
    assert seen == [{"one"}, {"tool0", "tool1"}]


async def test_a_writing_that_failed_fails_its_runs_and_is_tried_again(
    place: Place, writes: Callable[..., list[set[str]]]
) -> None:
    def fail(number: int) -> None:
        if number == 1:
            raise OSError("No space left on device")

    writes(fail)
    for failure in await asyncio.gather(place.trees.fresh(), place.trees.fresh(), return_exceptions=True):
        assert isinstance(failure, OSError)
    await place.trees.fresh()
    assert place.modules() == {"one"}


async def test_each_scope_has_a_tree_of_its_own(place: Place) -> None:
    place.catalog.update(listing(tool("one"), tool("two")))
    scope = Scope("ci", lambda entry: entry.name == "two")
    await place.trees.fresh()
    await place.trees.fresh(scope)
    assert place.modules() == {"one", "two"}
    assert place.modules(scope) == {"two"}
