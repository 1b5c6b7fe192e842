"""Runs, calls, gathered calls, rows, start-up and memory: Toolfold beside a plain SDK client and FastMCP's CodeMode."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.report import Figure, median_ms, side_by_side
from benchmarks.rivals import CODE_MODE, fastmcp_python

UPSTREAM = [str(Path(__file__).with_name("upstream.py"))]
"""By its path: servers do not start in this folder."""
_LOOP = "from servers.bench import echo\nfor _ in range(100):\n    await echo(text='hi')\nprint('ok')"
_GATHER = (
    "import asyncio\nfrom servers.bench import slow\n"
    "print(len(await asyncio.gather(*[slow(ms=50) for _ in range(20)])))"
)
_ROWS = "from servers.bench import rows\nprint(sum(r['amount'] for r in await rows(count=10000) if r['open']))"
_THEIR_LOOP = "for i in range(100):\n    x = await call_tool('echo', {'text': 'hi'})\nreturn x"
_THEIR_GATHER = (
    "import asyncio\nr = await asyncio.gather(*[call_tool('slow', {'ms': 50}) for i in range(20)])\nreturn len(r)"
)
_THEIR_ROWS = (
    "import json\nr = json.loads(await call_tool('rows', {'count': 10000}))\n"
    "return sum([x['amount'] for x in r if x['open']])"
)
_PACE = 0.5
"""Seconds between runs that each need a fresh sandbox: an agent thinks at least as long."""
_DRY = 20
"""Fresh runs in a row. A pool has six ready at most, so that their median is that of a run that waited for its own."""
_REFILLED = 3.0
"""Seconds in which a pool that ran dry is full again."""
_Call = Callable[..., Awaitable[None]]
_EMPTY_SERVER = """
import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
import mcp_types as types
async def tools(ctx, params): return types.ListToolsResult(tools=[])
async def main():
    server = Server("empty", version="1", on_list_tools=tools)
    async with stdio_server() as (r, w): await server.run(r, w, server.create_initialization_options())
anyio.run(main)
"""


async def measure(data_dir: Path, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    """All figures of one run. Each pair is measured side by side, on the same upstream."""
    progress("getting FastMCP ready in an environment of its own")
    rival = fastmcp_python(data_dir)
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as folder:
        home = Path(folder)
        figures = await _measure_calls(home, rival, rounds, progress)
        return figures + await _measure_start(home, rival, progress)


async def _measure_calls(home: Path, rival: Path | None, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    config = home / "one.json"
    config.write_text(json.dumps({"mcpServers": {"bench": {"command": sys.executable, "args": UPSTREAM}}}))
    serve = ["-m", "toolfold", "serve", "--config", str(config), "--data", str(home / "data")]
    async with AsyncExitStack() as clients:
        ours = await clients.enter_async_context(sdk_client(sys.executable, serve))
        sdk = await clients.enter_async_context(sdk_client(sys.executable, UPSTREAM))
        run = _caller(ours, "run_code")
        await run(_LOOP, session="warm")
        await run("1", session="live")
        progress("idle memory")
        memory = _memory()
        figures = await _beside_the_client(run, sdk, progress)
        if rival is None:
            figures += await _alone(run, rounds, progress)
        else:
            mode = await clients.enter_async_context(
                sdk_client(str(rival), ["-c", CODE_MODE, sys.executable, *UPSTREAM])
            )
            figures = await _beside_code_mode(run, _caller(mode, "execute"), rounds, progress) + figures
        strict = [*serve[:-1], str(home / "data-strict"), "--config", str(_strict(home))]
        other = await clients.enter_async_context(sdk_client(sys.executable, strict))
        figures += await _beside_one_bwrap_each(run, _caller(other, "run_code"), rounds, progress)
        figures.append(Figure("idle gateway, zygote, warm pool", memory, 110.0, "the budget", unit="MB", budget=1.0))
        return figures


def _strict(home: Path) -> Path:
    """Settings with which each sandbox has a bwrap of its own."""
    config = home / "toolfold.toml"
    config.write_text('[sandbox]\nisolation = "strict"\n')
    return config


async def _beside_the_client(run: _Call, sdk: Any, progress: Callable[[str], None]) -> list[Figure]:
    async def loop() -> None:
        for _ in range(100):
            await sdk.call_tool("echo", {"text": "hi"})

    async def gather() -> None:
        await asyncio.gather(*[sdk.call_tool("slow", {"ms": 50}) for _ in range(20)])

    async def rows() -> None:
        await sdk.call_tool("rows", {"count": 10000})

    figures: list[Figure] = []
    for what, program, theirs, times, title, budget in (
        ("100 calls in a loop", _LOOP, loop, 9, "SDK client", 1.3),
        ("20 slow calls, gathered", _GATHER, gather, 9, "SDK client", 1.2),
        ("10,000 rows filtered", _ROWS, rows, 15, "SDK client's bare call", 1.5),
    ):
        progress(f"{what}, against the SDK client")
        taken, other = await side_by_side(lambda: run(program, session="live"), theirs, times)  # noqa: B023 - awaited here
        figures.append(Figure(what, taken, other, title, budget=budget))
    return figures


async def _beside_code_mode(run: _Call, execute: _Call, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    mode = "FastMCP CodeMode"
    await execute(_THEIR_LOOP)
    progress("trivial programs, beside FastMCP CodeMode")

    async def theirs() -> None:
        await execute("return 1")

    new, paced = await side_by_side(lambda: run("1", session="new"), theirs, rounds, pause=_PACE)
    await asyncio.sleep(_REFILLED)
    live, trivial = await side_by_side(lambda: run("1", session="live"), theirs, rounds // 2, in_a_row=10)
    dry, busy = await side_by_side(lambda: run("1", session="new"), theirs, rounds // 2, in_a_row=_DRY)
    figures = [
        Figure("trivial run, fresh sandbox, two a second", new, paced, mode, budget=0.6),
        Figure("the same, back to back (pool runs dry)", dry, busy, mode, budget=1.5),
        Figure("trivial run, live session", live, trivial, mode, budget=0.35),
    ]
    await asyncio.sleep(_REFILLED)
    for what, program, their_program in (
        ("100 calls in a loop", _LOOP, _THEIR_LOOP),
        ("20 slow calls, gathered", _GATHER, _THEIR_GATHER),
        ("10,000 rows filtered", _ROWS, _THEIR_ROWS),
    ):
        progress(f"{what}, beside FastMCP CodeMode")
        taken, other = await side_by_side(
            lambda: run(program, session="live"),  # noqa: B023 - awaited here
            lambda: execute(their_program),  # noqa: B023
            5,
        )
        figures.append(Figure(what, taken, other, mode))
    return figures


async def _beside_one_bwrap_each(
    run: _Call, strict: _Call, rounds: int, progress: Callable[[str], None]
) -> list[Figure]:
    progress("trivial programs, beside one bwrap for each sandbox")
    await strict("1", session="new")
    await asyncio.sleep(_REFILLED)

    async def ours() -> None:
        await run("1", session="new")

    async def theirs() -> None:
        await strict("1", session="new")

    ready, other_ready = await side_by_side(ours, theirs, rounds, pause=_PACE)
    dry, other_dry = await side_by_side(ours, theirs, rounds // 2, in_a_row=_DRY)
    return [
        Figure("trivial run, fresh sandbox, two a second", ready, other_ready, "one bwrap each", budget=1.0),
        Figure("the same, back to back (pool runs dry)", dry, other_dry, "one bwrap each"),
    ]


async def _alone(run: _Call, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    """Without a rival there is nothing to compare with; the figures are still worth seeing."""
    progress("trivial programs")
    new = await median_ms(lambda: run("1", session="new"), rounds, pause=_PACE)
    live = await median_ms(lambda: run("1", session="live"), rounds)
    return [
        Figure("trivial run, fresh sandbox, two a second", new, None, ""),
        Figure("trivial run, live session", live, None, ""),
    ]


async def _measure_start(home: Path, rival: Path | None, progress: Callable[[str], None]) -> list[Figure]:
    progress("start-up with 50 configured servers")
    names = [f"bench_{number}" for number in range(50)]
    config = home / "fifty.json"
    entry = {"command": sys.executable, "args": UPSTREAM}
    config.write_text(json.dumps({"mcpServers": dict.fromkeys(names, entry)}))
    await _fill_cache(config, home / "data50")
    serve = ["-m", "toolfold", "serve", "--config", str(config), "--data", str(home / "data50")]

    commands = {"ours": (sys.executable, serve), "empty": (sys.executable, ["-c", _EMPTY_SERVER])}
    if rival is not None:
        commands["mode"] = (str(rival), ["-c", CODE_MODE, sys.executable, *UPSTREAM])
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(7):
        for name, (command, args) in commands.items():
            taken[name].append(await _until_listed(command, args))
    ours, empty, *mode = map(statistics.median, taken.values())
    figures = [Figure("serve → tools/list, 50 servers cached", ours, empty, "an empty SDK server", budget=1.0)]
    figures += [Figure("serve → tools/list", ours, theirs, "FastMCP CodeMode, one server") for theirs in mode]
    return figures


async def _until_listed(command: str, args: list[str]) -> float:
    """Milliseconds from starting the process to its answer to `tools/list`."""
    begun = time.perf_counter()
    async with sdk_client(command, args) as client:
        await client.list_tools()
        return (time.perf_counter() - begun) * 1000


async def _fill_cache(config: Path, data_dir: Path) -> None:
    """List one server for real and store its answer under all fifty names: the cache of an earlier day."""
    import msgspec

    from toolfold import Toolfold

    async with Toolfold.open(config, data_dir=data_dir) as fold:
        listing = await fold.fleet.listing("bench_0")
        for name in fold.settings.servers:
            tools = [msgspec.structs.replace(tool, server=name) for tool in listing.tools]
            fold.catalog.update(msgspec.structs.replace(listing, server=name, tools=tools))


@asynccontextmanager
async def sdk_client(command: str, args: list[str]) -> AsyncGenerator[Any]:
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    with open(os.devnull, "w", encoding="utf-8") as quiet:  # noqa: ASYNC230, PTH123 - a descriptor for the child
        parameters = StdioServerParameters(command=command, args=args)
        async with Client(stdio_client(parameters, errlog=quiet)) as client:
            yield client


def _caller(client: Any, tool: str) -> Callable[..., Any]:
    async def call(code: str, **arguments: Any) -> None:
        result = await client.call_tool(tool, {"code": code, **arguments})
        if result.is_error:
            raise RuntimeError(f"the benchmark's program failed: {result.content[0].text}")

    return call


def _memory() -> float:
    """Proportional memory, in MB, of the gateway, its sandboxes and its helpers, but not of the upstream servers."""
    total = 0.0
    children = [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    pending = [pid for pid in children if b"toolfold\0serve" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    while pending:
        pid = pending.pop()
        try:
            if UPSTREAM[0].encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                continue
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += next(float(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1000
            for task in Path(f"/proc/{pid}/task").iterdir():
                pending += [int(child) for child in (task / "children").read_text().split()]
        except (OSError, StopIteration):
            continue
    return total
