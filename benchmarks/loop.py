"""What a hostile session costs another one: the longest stall of the event loop, and the other's slowest runs.

For each kind of hostile program, a second session runs a small program again and again: alone, and beside the hostile
one, in turns. A thread that keeps the interpreter's lock stalls the loop like work in it, and is measured as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from benchmarks.report import Figure
from toolfold import Toolfold
from toolfold.errors import ToolfoldError

_SERVER = {"command": sys.executable, "args": [str(Path(__file__).with_name("heavy_upstream.py"))]}
_TOOLS = 2000
_PAUSE = 0.01
"""Seconds between two runs of the second session: people and models do not ask without a break."""
_TICK = 0.001
_BUDGET = 3.0

_CALLS = """
import asyncio
from toolfold import call_mcp_tool, search_tools
def take(value):
    return call_mcp_tool("heavy.take", {{"value": value}})
print("begun")
while True:
    try:
        {call}
    except Exception as error:
        pass
"""
KINDS = {
    "495,000 empty lists in a call": "await take([[]] * 495_000)",
    "as many lists as are let through": "await take([[]] * 99_000)",
    "900,000 keys in a call": "await take({str(n): 0 for n in range(900_000)})",
    "as many keys as are let through": "await take({str(n): 0 for n in range(199_000)})",
    "a flood of invalid arguments": (
        'await asyncio.gather(*[call_mcp_tool("heavy.strict", {"rows": ["long"] * 50_000, "more": [[]] * 40_000}) '
        "for _ in range(20)], return_exceptions=True)"
    ),
    "a flood of small invalid calls": (
        'await asyncio.gather(*[call_mcp_tool("heavy.strict", {"row": number}) for number in range(500)], '
        "return_exceptions=True)"
    ),
    "a result of 3,000,000 lists": 'await call_mcp_tool("heavy.lists", {})',
    "hundreds of full searches": '[search_tools(f"create issue {number}", detail="full") for number in range(300)]',
}
"""What a hostile program does again and again. Where that ends its sandbox, it is started again."""


class Samples:
    def __init__(self) -> None:
        self.alone: list[float] = []
        self.beside: list[float] = []
        self.stalls: list[float] = []


async def measure(
    data_dir: Path, seconds: float, rounds: int, progress: Callable[[str], None], kinds: dict[str, str] = KINDS
) -> list[Figure]:
    """`seconds` of each kind in each round, half of them without it."""
    catalog = _catalog(data_dir)
    found = {kind: Samples() for kind in kinds}
    config = {"servers": {"heavy": _SERVER}}
    async with Toolfold.open(config, catalog_dirs=(catalog,), data_dir=data_dir) as fold:
        await fold.listed()
        await fold.run("1", session="second")
        for number in range(rounds):
            for kind, samples in found.items():
                progress(f"{kind} (round {number + 1} of {rounds})")
                samples.alone += await _second_session(fold, seconds / 2)
                async with _hostile(fold, kinds[kind]), _stalls(samples.stalls):
                    samples.beside += await _second_session(fold, seconds / 2)
    figures: list[Figure] = []
    for kind, samples in found.items():
        beside, alone = _p99(samples.beside), _p99(samples.alone)
        figures.append(Figure(kind, beside, alone, "p99 alone", budget=_BUDGET))
        beside, alone = statistics.median(samples.beside), statistics.median(samples.alone)
        figures.append(Figure("  its median", beside, alone, "median alone"))
        figures.append(Figure("  longest stall of the loop", max(samples.stalls, default=0.0), None, ""))
    return figures


async def _second_session(fold: Toolfold, seconds: float) -> list[float]:
    """Milliseconds of each run of the second session."""
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        result = await fold.run("1 + 1", session="second")
        assert result.value == 2, result.error
        taken.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(_PAUSE)
    return taken


@contextlib.asynccontextmanager
async def _hostile(fold: Toolfold, call: str) -> AsyncGenerator[None]:
    """A session that does its worst until the context ends."""
    begun = asyncio.Event()

    async def work() -> None:
        while True:
            with contextlib.suppress(ToolfoldError):
                await fold.run(_CALLS.format(call=call), session="hostile", timeout=600, on_event=lambda _: begun.set())

    working = asyncio.create_task(work())
    try:
        await begun.wait()
        yield
    finally:
        working.cancel()
        await asyncio.wait([working])
        # Its sandbox is gone with it; the next one starts from nothing.
        await fold.run("1", session="hostile")


@contextlib.asynccontextmanager
async def _stalls(into: list[float]) -> AsyncGenerator[None]:
    """Milliseconds by which a timer of the loop is late."""

    async def watch() -> None:
        while True:
            due = time.perf_counter() + _TICK
            await asyncio.sleep(_TICK)
            into.append((time.perf_counter() - due) * 1000)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait([watching])


def _p99(taken: list[float]) -> float:
    return statistics.quantiles(taken, n=100, method="inclusive")[98] if len(taken) > 1 else taken[0]


def _catalog(data_dir: Path) -> Path:
    """Tools that are only searched."""
    verbs, nouns = ("create", "list", "delete", "update"), ("issue", "file", "message", "order", "user")
    tools = [
        {
            "name": f"{verbs[number % 4]}_{nouns[number % 5]}_{number}",
            "description": f"{verbs[number % 4]} {nouns[number % 5]} number {number} of the project, with all details.",
            "inputSchema": {"type": "object", "properties": {f"field_{n}": {"type": "string"} for n in range(8)}},
        }
        for number in range(_TOOLS)
    ]
    folder = data_dir / "catalog-files"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "many.json").write_text(json.dumps({"server": "many", "tools": tools}))
    return folder
