"""One run that asks too much keeps no other run waiting."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.lab import lab_fold
from toolfold import Toolfold

pytestmark = pytest.mark.anyio

FLOOD = """
import asyncio
from toolfold import call_mcp_tool, search_tools
async def unknown(number):
    try:
        await call_mcp_tool(f"ad{number}", {})
    except Exception as problem:
        return str(problem)
answers = await asyncio.gather(*[unknown(number) for number in range(100)])
found = [len(search_tools("add numbers", detail="full")) for _ in range(20)]
print(len(answers), "Nearest" in answers[0], min(found) > 0)
"""


async def test_what_costs_time_is_done_one_at_a_time_and_not_in_the_loop(
    lab: Toolfold, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lab.run("1")
    inside = 0
    seen: set[tuple[str, int, bool]] = set()

    def watched(name: str) -> None:
        original = getattr(lab.catalog, name)

        def work(*given: Any, **more: Any) -> Any:
            nonlocal inside
            inside += 1
            seen.add((name, inside, threading.current_thread() is threading.main_thread()))
            try:
                return original(*given, **more)
            finally:
                inside -= 1

        monkeypatch.setattr(lab.catalog, name, work)

    watched("find")
    watched("search")
    flood, other = await asyncio.gather(lab.run(FLOOD), lab.run("1"))
    assert flood.output == "100 True True\n"
    assert other.success
    assert seen == {("find", 1, False), ("search", 1, False)}


async def test_a_search_that_is_given_up_still_keeps_others_out_until_it_is_done(
    lab: Toolfold, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = lab.catalog.search
    begun, go_on = threading.Event(), threading.Event()
    inside: list[int] = []

    def slow(*given: Any, **more: Any) -> Any:
        inside.append(1)
        assert len(inside) == 1
        begun.set()
        go_on.wait(10)
        try:
            return original(*given, **more)
        finally:
            inside.pop()

    monkeypatch.setattr(lab.catalog, "search", slow)
    first = asyncio.create_task(lab.search("add"))
    assert await asyncio.to_thread(begun.wait, 10)
    first.cancel()
    second = asyncio.create_task(lab.search("add"))
    await asyncio.sleep(0.05)
    go_on.set()
    assert (await second).hits
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_program_that_is_mostly_data_is_not_read_before_it_runs(lab: Toolfold) -> None:
    data = "x" * 100_000
    assert (await lab.run(f"text = '{data}'\nlen(text)")).value == 100_000
    wrong = await lab.run(f"text = '{data}'\nfrom servers.lab import ad")
    assert "Nothing was run" not in str(wrong.error)
    assert "add" in str(wrong.error)


async def test_a_bare_name_waits_for_servers_that_have_not_been_listed(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir) as fold:
        assert fold.catalog.missing == ["lab"]
        result = await fold.run(
            "from toolfold import call_mcp_tool\nprint(await call_mcp_tool('add', {'a': 1, 'b': 2}))"
        )
    assert result.output == "{'sum': 3}\n", result.text
