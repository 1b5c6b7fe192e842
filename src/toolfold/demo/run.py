"""The demo: each scenario directly and folded, measured, with both answers compared."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from toolfold.demo.catalogs import CatalogCost, catalog_cost
from toolfold.demo.connection import connect
from toolfold.demo.context import Context
from toolfold.demo.direct import Direct, definitions
from toolfold.demo.fleet import demo_servers
from toolfold.demo.folded import fold, gateway
from toolfold.demo.scenarios import SCENARIOS, Scenario


@dataclass(frozen=True)
class Way:
    """One scenario done one way."""

    tokens: int
    """The context's size at the end."""
    tokens_sent: int
    """Input tokens over all requests when nothing is cached."""
    round_trips: int
    calls: int
    """Tool calls that the model wrote."""
    answer: str


@dataclass(frozen=True)
class Row:
    scenario: str
    question: str
    servers: tuple[str, ...]
    direct: Way
    folded: Way
    direct_tokens_with_needed_servers_only: int
    """The same direct calls, had the person connected only the servers that this scenario needs."""

    @property
    def same_answer(self) -> bool:
        return self.direct.answer.strip() == self.folded.answer.strip()


@dataclass(frozen=True)
class Report:
    servers: int
    tools: int
    direct_definitions: int
    folded_definitions: int
    rows: tuple[Row, ...]
    seconds: float
    catalog: CatalogCost | None = None

    @property
    def same_answers(self) -> bool:
        return all(row.same_answer for row in self.rows)


async def run_demo(
    *,
    catalog: Path | None = None,
    scenarios: tuple[Scenario, ...] = SCENARIOS,
    progress: Callable[[str], None] = lambda text: None,
) -> Report:
    """Run every scenario twice through real MCP clients. `progress` hears what is happening.

    Raises `ToolfoldError` when a server does not start, a call fails or a search misses a tool that is needed. A
    pair of answers that differ is no error but is seen in `Report.same_answers`.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="toolfold-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # Read first: a folder that is not a catalog should be said at once, not after all the work.
        cost = catalog_cost(catalog, folder / "catalog") if catalog else None
        per_server, tools, direct = await _directly(scenarios, folder / "servers.log", progress)
        own, folded = await _folded(scenarios, folder, progress)
    everything = sum(per_server.values())
    rows = tuple(
        Row(
            scenario.name,
            scenario.question,
            scenario.servers,
            direct[at],
            folded[at],
            direct[at].tokens - everything + sum(per_server[server] for server in scenario.servers),
        )
        for at, scenario in enumerate(scenarios)
    )
    return Report(len(per_server), tools, everything, own, rows, time.monotonic() - started, cost)


async def _directly(
    scenarios: tuple[Scenario, ...], log: Path, progress: Callable[[str], None]
) -> tuple[dict[str, int], int, list[Way]]:
    servers = demo_servers()
    progress(f"starting {len(servers)} MCP servers")
    async with connect(servers, log) as clients:
        costs = {name: await definitions(client) for name, client in clients.items()}
        per_server = {name: tokens for name, (_, tokens) in costs.items()}
        ways: list[Way] = []
        for scenario in scenarios:
            progress(f"{scenario.name}: direct calls")
            context = Context(sum(per_server.values()))
            answer = await scenario.direct(Direct(clients, context))
            ways.append(_way(context, answer))
    return per_server, sum(tools for tools, _ in costs.values()), ways


async def _folded(
    scenarios: tuple[Scenario, ...], folder: Path, progress: Callable[[str], None]
) -> tuple[int, list[Way]]:
    progress("starting toolfold serve")
    async with gateway(folder, folder / "gateway.log") as client:
        _, own = await definitions(client)
        ways: list[Way] = []
        for scenario in scenarios:
            progress(f"{scenario.name}: folded")
            context = Context(own)
            answer = await fold(client, scenario, context)
            ways.append(_way(context, answer))
    return own, ways


def _way(context: Context, answer: str) -> Way:
    return Way(context.tokens, context.sent, len(context.turns), context.calls, answer)
