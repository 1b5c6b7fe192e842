"""How fast search is over catalogs of thousands: real tools, and as many more as are wanted by perturbing them."""

from __future__ import annotations

import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.report import Figure
from benchmarks.rivals import bm25
from toolfold.catalog.catalog import Catalog
from toolfold.config.settings import Settings

_SEED = 5
_KEPT_WORDS = 60
_KEPT_PARAMETERS = 6
_ASKED = 40
"""Questions that FastMCP is asked."""
_CHANGED = 5
"""One word in this many is another in a perturbed description."""


def measure(
    shared: Path,
    progress: Callable[[str], None] = lambda _: None,
    *,
    large: bool = True,
    fastmcp_python: Path | None = None,
) -> list[Figure]:
    """Each figure against its budget, on one core: first questions over 4,000 tools, then (if `large`) over 100,000.

    Where a Python that has FastMCP is given, its search answers the same questions over the 4,000.
    """
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder, one_core():
        # Loading numpy is paid once per process and is no part of any index.
        import_module("numpy")
        for size, budget in ((4_000, 1.5), (100_000, 12.0)) if large else ((4_000, 1.5),):
            home = Path(folder, str(size))
            progress(f"writing {size:,} tools")
            queries = synthesize(shared, home / "catalogs", size)
            settings = Settings(catalog_dirs=(home / "catalogs",), data_dir=home / "data")
            progress(f"indexing {size:,} tools")
            cold = timed(Catalog.open(settings).warm)
            catalog = Catalog.open(settings)
            warm = timed(catalog.warm)
            progress(f"asking {len(queries)} questions over {size:,} tools")
            taken = [timed(partial(catalog.search, query)) for query in queries]
            if size == 4_000:
                figures.append(Figure(f"index of {size:,} tools, cold", cold, 1500.0, "budget", budget=1.0))
                figures.append(Figure(f"index of {size:,} tools, from disk", warm, 50.0, "budget", budget=1.0))
            label = f"search over {size:,} tools, median of {len(queries)}"
            figures.append(Figure(label, statistics.median(taken), budget, "budget", budget=1.0))
            if size == 4_000 and fastmcp_python is not None:
                progress(f"asking FastMCP's BM25 over {size:,} tools")
                theirs = _fastmcp(home / "catalogs", queries[:_ASKED], fastmcp_python)
                figures.append(Figure(f"search over {size:,} tools", statistics.median(taken), theirs, "FastMCP BM25"))
            if size == 4_000:
                rows = timed(catalog.everything)
                figures.append(Figure(f"names of all {size:,} tools as rows", rows, 10.0, "budget", budget=1.0))
    return figures


def _fastmcp(catalogs: Path, queries: list[str], python: Path) -> float:
    """The median of its questions after the first, in milliseconds of its processor time."""
    listings = [json.loads(path.read_text("utf-8")) for path in sorted(catalogs.glob("*.json"))]
    _, taken = bm25(python, {one["server"]: one["tools"] for one in listings}, queries)
    return statistics.median(taken[1:])


def synthesize(shared: Path, folder: Path, size: int) -> list[str]:
    """Write catalogs of `size` tools in all: the real ones, then copies with other words; returns questions to ask.

    Questions are the first sentences of real descriptions with a word left out: what people type looks like that.
    """
    chance = random.Random(_SEED)
    listings = [json.loads(path.read_text("utf-8")) for path in sorted((shared / "catalogs").glob("*.json"))]
    words = [word for one in listings for tool in one["tools"] for word in (tool.get("description") or "").split()[:30]]
    folder.mkdir(parents=True)
    made = round_ = 0
    while made < size:
        for one in listings:
            tools = one["tools"][: size - made]
            if not tools:
                break
            if round_:
                tools = [_perturbed(tool, round_, words, chance) for tool in tools]
            server = f"{one['server']}-{round_}" if round_ else one["server"]
            (folder / f"{server}.json").write_text(json.dumps({"server": server, "tools": tools}), "utf-8")
            made += len(tools)
        round_ += 1
    sentences = [
        (tool.get("description") or "").split(". ")[0].split()[:14] for one in listings for tool in one["tools"]
    ]
    chosen = chance.sample([sentence for sentence in sentences if len(sentence) >= 4], 200)
    return [" ".join(word for place, word in enumerate(sentence) if place != 1) for sentence in chosen]


def _perturbed(tool: dict[str, Any], round_: int, words: list[str], chance: random.Random) -> dict[str, Any]:
    said: list[str] = str(tool.get("description") or "").split()[:_KEPT_WORDS]
    for _ in range(len(said) // _CHANGED + 1 if said else 0):
        said[chance.randrange(len(said))] = chance.choice(words)
    schema: dict[str, Any] = tool.get("inputSchema") or {}
    properties: dict[str, Any] = schema.get("properties") or {}
    kept = dict(list(properties.items())[:_KEPT_PARAMETERS])
    name = f"{tool['name']}_{''.join(filter(str.isalnum, chance.choice(words)))[:8]}_{round_}"
    return {"name": name, "description": " ".join(said), "inputSchema": {"type": "object", "properties": kept}}


def timed(work: Callable[[], object]) -> float:
    """Milliseconds of one core's time: what others do on the machine is not ours."""
    begun = time.process_time()
    work()
    return (time.process_time() - begun) * 1000


@contextmanager
def one_core() -> Generator[None]:
    """This process on one of its cores, where the system lets it choose."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
