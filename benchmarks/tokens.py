"""What the six scenarios cost a model in tokens, with direct calls and folded, from one tool to a whole catalog.

Both ways really happen, through real MCP clients: the direct one on the demo's servers, the folded one on
`toolfold serve` in front of the same servers and of so many tools of the catalog. METHOD says how it is counted.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from toolfold.demo.connection import connect
from toolfold.demo.context import Context
from toolfold.demo.direct import Direct, definitions
from toolfold.demo.fleet import SERVERS, demo_config, demo_servers
from toolfold.demo.folded import fold
from toolfold.demo.scenarios import SCENARIOS, Scenario
from toolfold.errors import ConfigError, ToolfoldError
from toolfold.telemetry.savings import definition_tokens
from toolfold.telemetry.tokens import count

SEED = 2310
SIZES = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Tools, and then all that there are."""
CACHED = 0.1
_SHAPE = 'Expected files of the form {"server": …, "tools": [MCP tool…]}.'
_AT_ONCE = 3
"""Gateways that run side by side: nothing here is timed."""
METHOD = (
    "One tool is its name, description and input schema as compact JSON. N tools are those that the scenario needs and "
    "as many of the catalog's, in an order shuffled with the seed (never fewer than it needs; servers' instructions "
    "are left out on the direct side, since the order takes single tools). Every request of the model sends the "
    "definitions and all that was said before; calls that do not need each other share a request, and one more request "
    "reads the last result. Tokens are the input of all requests without a prompt cache, and the calls and programs "
    "that the model writes. Folded is measured at every N: two tools with instructions, real searches over all N tools "
    "with their answers, the program, what it printed. A search that misses a tool is sent again for twice as many. "
    "The question and the closing words are the same on both sides and not counted. 'With a cache' is computed: what "
    "an earlier request sent already counts a tenth."
)


@dataclass(frozen=True)
class Cost:
    """One conversation."""

    requests: int
    definitions: int
    """In each request."""
    sent: int
    """Input of all requests."""
    written: int
    """Output: the calls or programs that the model writes."""
    with_cache: float
    """Input and output, where what an earlier request sent counts a tenth. Computed."""

    @property
    def tokens(self) -> int:
        return self.sent + self.written

    @classmethod
    def of(cls, context: Context) -> Cost:
        cached = context.sent_with_cache(CACHED) + context.written
        return cls(len(context.turns) + 1, context.definitions, context.sent, context.written, cached)


@dataclass(frozen=True)
class Point:
    """One scenario among so many tools."""

    scenario: str
    tools: int
    direct: Cost
    folded: Cost

    @property
    def saved(self) -> float:
        """The share of the tokens that folding saves; negative where direct calls are cheaper."""
        return 1 - self.folded.tokens / self.direct.tokens

    @property
    def saved_with_cache(self) -> float:
        return 1 - self.folded.with_cache / self.direct.with_cache


@dataclass(frozen=True)
class Size:
    """All scenarios among `tools` tools."""

    tools: int
    points: tuple[Point, ...]

    @property
    def direct(self) -> int:
        return sum(point.direct.tokens for point in self.points)

    @property
    def folded(self) -> int:
        return sum(point.folded.tokens for point in self.points)

    @property
    def saved(self) -> float:
        return 1 - self.folded / self.direct

    @property
    def saved_with_cache(self) -> float:
        direct = sum(point.direct.with_cache for point in self.points)
        return 1 - sum(point.folded.with_cache for point in self.points) / direct

    @property
    def median(self) -> float:
        """What the median scenario saves."""
        return statistics.median(point.saved for point in self.points)

    @property
    def own(self) -> int:
        """Toolfold's two tools and instructions."""
        return max(point.folded.definitions for point in self.points)


@dataclass(frozen=True)
class Crossover:
    """The fewest tools with which folding is cheaper; None where direct calls stay cheaper."""

    scenario: str
    needed: int
    """Tools that the scenario needs: with fewer it cannot be done."""
    tools: int | None

    @property
    def always(self) -> bool:
        return self.tools == self.needed


@dataclass(frozen=True)
class Curve:
    seed: int
    catalog_tools: int
    catalog_tokens: int
    sizes: tuple[Size, ...]
    crossovers: tuple[Crossover, ...]
    hundred: tuple[int, int, int] | None = None
    """Tokens of a hundred tools of the catalog over many other orders: least, median, most. Computed."""


class Catalog:
    """The catalog's tools in their shuffled order, and what the first so many cost."""

    def __init__(self, folder: Path, seed: int) -> None:
        read = _read(folder)
        random.Random(seed).shuffle(read)
        self.tools = [(server, tool) for server, tool, _ in read]
        self.costs = [cost for _, _, cost in read]
        self._sums = [0, *itertools.accumulate(self.costs)]

    def tokens(self, tools: int) -> int:
        return self._sums[tools]

    def write(self, tools: int, folder: Path) -> None:
        """Write the first so many, as `--catalog` reads them."""
        folder.mkdir(parents=True, exist_ok=True)
        servers: dict[str, list[dict[str, Any]]] = {}
        for server, tool in self.tools[:tools]:
            servers.setdefault(server, []).append(tool)
        for number, (server, listed) in enumerate(servers.items()):
            (folder / f"{number}.json").write_text(json.dumps({"server": server, "tools": listed}), encoding="utf-8")

    def other_orders(self, tools: int, orders: int = 1000) -> tuple[int, int, int] | None:
        """What so many of the tools cost when others come first: least, median, most."""
        if tools > len(self.costs):
            return None
        chance = random.Random(0)
        sums = [sum(chance.sample(self.costs, tools)) for _ in range(orders)]
        return min(sums), round(statistics.median(sums)), max(sums)


def _read(folder: Path) -> list[tuple[str, dict[str, Any], int]]:
    """Server, tool and its tokens, in the order of the files; ConfigError names a file that is no catalog."""
    tools: list[tuple[str, dict[str, Any], int]] = []
    for path in sorted(folder.glob("*.json")):
        try:
            listing = json.loads(path.read_text(encoding="utf-8"))
            # A person may well have two servers for one product: the demo's own keeps its name.
            server = f"{listing['server']}-2" if listing["server"] in SERVERS else str(listing["server"])
            tools += [(server, tool, _cost(tool)) for tool in listing["tools"]]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path} is no catalog: {error!r}.", hint=_SHAPE) from None
    if not tools:
        raise ConfigError(f"{folder} holds no catalog.", hint=_SHAPE)
    return tools


def _cost(tool: dict[str, Any]) -> int:
    return definition_tokens([(tool["name"], tool.get("description") or "", tool["inputSchema"])])


async def measure(
    folder: Path,
    sizes: Sequence[int],
    progress: Callable[[str], None],
    *,
    seed: int = SEED,
    scenarios: Sequence[Scenario] = SCENARIOS,
) -> Curve:
    """Run every scenario directly, and folded at every size; then look for the crossovers between the sizes."""
    count("")  # Without the exact tokenizer there is nothing to publish: this raises.
    catalog = Catalog(folder, seed)
    wanted = sorted({min(size, len(catalog.tools)) for size in sizes})
    with tempfile.TemporaryDirectory(prefix="toolfold-tokens-", ignore_cleanup_errors=True) as name:
        done = await _directly(scenarios, Path(name), progress)
        labs = [_Lab(catalog, scenario, done[scenario.name], Path(name), progress) for scenario in scenarios]
        await _all([partial(lab.measure, wanted) for lab in labs])
    rows = tuple(Size(size, tuple(lab.points[lab.size(size)] for lab in labs)) for size in wanted)
    crossovers = tuple(lab.crossover for lab in labs)
    total = len(catalog.tools)
    return Curve(seed, total, catalog.tokens(total), rows, crossovers, catalog.other_orders(100))


async def _all(work: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Some at once; the first error as it is."""
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def one(each: Callable[[], Awaitable[None]]) -> None:
        async with limiter:
            await each()

    try:
        async with anyio.create_task_group() as group:
            for each in work:
                group.start_soon(one, each)
    except* ToolfoldError as errors:
        raise errors.exceptions[0] from None


@dataclass(frozen=True)
class _Said:
    """A scenario that was done with direct calls: what the tools that it needs cost, what was said, the answer."""

    needed: int
    context: Context
    answer: str


async def _directly(scenarios: Sequence[Scenario], folder: Path, progress: Callable[[str], None]) -> dict[str, _Said]:
    progress("six scenarios with direct calls")
    done: dict[str, _Said] = {}
    used = {server for scenario in scenarios for server in scenario.servers}
    servers = {name: server for name, server in demo_servers().items() if name in used}
    async with connect(servers, folder / "servers.log") as clients:
        listed = {name: (await client.list_tools()).tools for name, client in clients.items()}
        costs = {
            f"{server}.{tool.name}": definition_tokens([(tool.name, tool.description or "", tool.input_schema)])
            for server, tools in listed.items()
            for tool in tools
        }
        for scenario in scenarios:
            context = Context()
            answer = await scenario.direct(Direct(clients, context))
            done[scenario.name] = _Said(sum(costs[tool] for tool in scenario.tools), context, answer)
    return done


class _Lab:
    """Measures one scenario among more and more tools, each time with a gateway that knows nothing of the last one."""

    def __init__(
        self, catalog: Catalog, scenario: Scenario, said: _Said, folder: Path, progress: Callable[[str], None]
    ) -> None:
        self._catalog = catalog
        self._scenario = scenario
        self._said = said
        self._folder = folder
        self._runtime = folder / "runtime"
        self._runtime.mkdir(exist_ok=True)
        self._progress = progress
        self.points: dict[int, Point] = {}
        self.crossover = Crossover(scenario.name, len(scenario.tools), None)

    def size(self, tools: int) -> int:
        return max(tools, len(self._scenario.tools))

    async def measure(self, sizes: Sequence[int]) -> None:
        for size in sizes:
            await self._point(size)
        await self._find_crossover()

    async def _find_crossover(self) -> None:
        """Between the last size where direct calls are cheaper and the next, halve until they are neighbours."""
        dearer = [size for size, point in self.points.items() if point.saved <= 0]
        low = max(dearer, default=0)
        high = min((size for size in self.points if size > low), default=None)
        while high is not None and low and high - low > 1:
            middle = (low + high) // 2
            cheaper = (await self._point(middle)).saved > 0
            low, high = (low, middle) if cheaper else (middle, high)
        self.crossover = replace(self.crossover, tools=high)

    async def _point(self, tools: int) -> Point:
        tools = self.size(tools)
        if tools not in self.points:
            self._progress(f"{self._scenario.name}, folded, among {tools:,} tool{'s'[: tools != 1]}")
            self.points[tools] = await self._measured(tools)
        return self.points[tools]

    async def _measured(self, tools: int) -> Point:
        others = tools - len(self._scenario.tools)
        direct = replace(self._said.context, definitions=self._said.needed + self._catalog.tokens(others))
        place = self._folder / f"{'-'.join(self._scenario.tools)}-{tools}"
        self._catalog.write(others, place / "catalog")
        (place / "data").mkdir()
        (place / "data" / "runtime").symlink_to(self._runtime)  # what sandboxes are made of is the same
        context, answer = await _folded(self._scenario, place)
        if answer.strip() != self._said.answer.strip():
            raise ToolfoldError(
                f"{self._scenario.name!r} gave another answer when folded: {answer!r}, directly {self._said.answer!r}"
            )
        return Point(self._scenario.name, tools, Cost.of(direct), Cost.of(context))


async def _folded(scenario: Scenario, place: Path) -> tuple[Context, str]:
    """The scenario by `toolfold serve`, in front of the demo's servers with the tools that are needed and a catalog."""
    config = demo_config()
    config["mcpServers"] = {
        server: {"command": sys.executable, "args": ["-m", "toolfold.demo", "serve", server, *_tools(scenario, server)]}
        for server in scenario.servers
    }
    (place / "mcp.json").write_text(json.dumps(config), encoding="utf-8")
    files = ["--config", str(place / "mcp.json"), "--catalog", str(place / "catalog"), "--data", str(place / "data")]
    serve = {"command": sys.executable, "args": ["-m", "toolfold", "serve", *files], "cwd": str(place)}
    async with connect({"toolfold": serve}, place / "gateway.log") as clients:
        client = clients["toolfold"]
        _, own = await definitions(client)
        context = Context(own)
        return context, await fold(client, scenario, context)


def _tools(scenario: Scenario, server: str) -> list[str]:
    return [tool.partition(".")[2] for tool in scenario.tools if tool.startswith(f"{server}.")]
