"""The typed API in figures: how long it takes to write and import, how much it costs to read, how long a review is."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import Figure
from toolfold.codegen import render
from toolfold.codegen.from_schema import arguments
from toolfold.codegen.names import ApiNames
from toolfold.codegen.tree import write_tree
from toolfold.definitions import ToolDefinition
from toolfold.errors import ConfigError
from toolfold.review.review import review
from toolfold.telemetry import tokens

_IMPORT = """
import sys, time
sys.path.insert(0, sys.argv[1])
import asyncio, typing
start = time.perf_counter()
from servers.{module} import {function}
print((time.perf_counter() - start) * 1000)
"""


def measure(folder: Path, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    """All figures for the catalogs in `folder`, files of the form `{"server": …, "tools": [MCP tool…]}`."""
    raw, tools = _load(folder)
    names = ApiNames.of(tools)
    progress(f"{len(tools)} tools of {len(names.modules())} servers")
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as place:
        figures = _writing(tools, Path(place), rounds, progress)
        figures += _importing(names, tools, Path(place), rounds, progress)
    progress("counting what an agent reads")
    return [*figures, *_reading(names, raw, tools), _reviewing(names, tools, rounds)]


def _load(folder: Path) -> tuple[list[dict[str, Any]], list[ToolDefinition]]:
    raw: list[dict[str, Any]] = []
    tools: list[ToolDefinition] = []
    for path in sorted(folder.glob("*.json")):
        listing = json.loads(path.read_text(encoding="utf-8"))
        for tool in listing["tools"]:
            raw.append(tool)
            tools.append(
                ToolDefinition(
                    server=listing["server"],
                    name=tool["name"],
                    title=tool.get("title") or "",
                    description=tool.get("description") or "",
                    input_schema=tool["inputSchema"],
                    output_schema=tool.get("outputSchema"),
                    annotations=tool.get("annotations") or {},
                )
            )
    if not tools:
        raise ConfigError(f"{folder} holds no catalog.", hint="Name a folder of catalogs with --catalog.")
    return raw, tools


def _writing(tools: list[ToolDefinition], place: Path, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    progress("writing the tree")
    cold = [_timed(lambda n=n: write_tree(tools, place / f"cold{n}")) for n in range(min(rounds, 3))]
    write_tree(tools, place / "all")
    warm = [_timed(lambda: write_tree(tools, place / "all")) for _ in range(rounds)]
    return [
        Figure(f"write the tree of {len(tools):,} tools", statistics.median(cold), 5.0, "budget", "s", 1.0),
        Figure("the same when nothing changed", statistics.median(warm) * 1000, 50.0, "budget", "ms", 1.0),
    ]


def _importing(
    names: ApiNames, tools: list[ToolDefinition], place: Path, rounds: int, progress: Callable[[str], None]
) -> list[Figure]:
    progress("importing one tool in fresh interpreters")
    # From the server with the most tools: the worst case.
    counts = {server: len(names.functions(server)) for server in names.modules().values()}
    largest = max(counts, key=lambda server: counts[server])
    one = next(tool for tool in tools if tool.server == largest)
    write_tree([one], place / "one")
    alone = ApiNames.of([one])
    # In turns, so that a busy moment falls on both.
    pairs = [(_import_ms(place / "all", names, one), _import_ms(place / "one", alone, one)) for _ in range(rounds)]
    taken, least = statistics.median(many for many, _ in pairs), statistics.median(single for _, single in pairs)
    return [
        Figure(f"import one tool from {len(tools):,}", taken, least, "from a tree of one", "ms"),
        Figure("what the others add to it", max(taken - least, 0.0), 5.0, "budget", "ms", 1.0),
    ]


def _import_ms(tree: Path, names: ApiNames, tool: ToolDefinition) -> float:
    script = _IMPORT.format(module=names.server(tool.server), function=names.function(tool.server, tool.name))
    command = [sys.executable, "-I", "-B", "-c", script, str(tree)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


def _reading(names: ApiNames, raw: list[dict[str, Any]], tools: list[ToolDefinition]) -> list[Figure]:
    """As an agent reads it: the import line and the full rendering, against the definition's shortest JSON."""
    whole = [tokens.count(json.dumps(tool, separators=(",", ":"), ensure_ascii=False)) for tool in raw]
    read = [tokens.count(f"{render.import_line(names, tool)}\n{render.full(names, tool)}") for tool in tools]
    shares = [one / other for one, other in zip(read, whole, strict=True)]
    listing = "".join(f"{names.server(t.server)}.{names.function(t.server, t.name)}\n" for t in tools)
    return [
        Figure("read all tools in full", sum(read), sum(whole), "their JSON", "tokens", 0.6),
        Figure(
            "read one tool in full, median",
            statistics.median(read),
            statistics.median(whole),
            "its JSON",
            "tokens",
            0.6,
        ),
        Figure("the median of each tool's own share", statistics.median(shares), 1.0, "its JSON", "", 0.6),
        Figure("a name in a listing", tokens.count(listing) / len(tools), 8.0, "budget", "tokens", 1.0),
    ]


def _reviewing(names: ApiNames, tools: list[ToolDefinition], rounds: int) -> Figure:
    program = _program(names, tools)
    known = {(tool.server, tool.name): tool for tool in tools}
    taken = [
        _timed(lambda: review(program, names, lambda server, tool: known.get((server, tool)))) for _ in range(rounds)
    ]
    lines = program.count("\n")
    return Figure(f"review a program of {lines} lines", statistics.median(taken) * 1000, 5.0, "budget", "ms", 1.0)


def _program(names: ApiNames, tools: list[ToolDefinition]) -> str:
    """200 lines as an agent writes them: imports, calls with literal and computed arguments, loops, prints."""
    imports, body = list[str](), list[str]()
    for tool in tools:
        taken = arguments(tool)
        needed = [word for word, wire in taken.keywords.items() if wire in taken.required]
        properties: dict[str, dict[str, Any]] = tool.input_schema.get("properties") or {}
        types = [properties.get(taken.keywords[word], {}).get("type") for word in needed]
        if not needed or set(types) != {"string"}:
            continue
        function = names.function(tool.server, tool.name)
        imports.append(render.import_line(names, tool))
        body += [
            f"async def step_{len(imports)}(items):",
            "    found = []",
            "    for item in items:",
            f"        result = await {function}({', '.join(f'{word}=item[{word!r}]' for word in needed)})",
            "        found += [row for row in result if row.get('state') == 'open' and row['count'] > 3]",
            "    print(f\"{len(found)} rows, first: {found[0]['name'] if found else 'none'}\")",
            "    return sorted(found, key=lambda row: row['count'], reverse=True)[:10]",
        ]
        if len(imports) + len(body) >= 200:
            break
    return "\n".join([*imports, *body][:199]) + "\n"


def _timed(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
