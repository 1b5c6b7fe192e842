"""A model with Toolfold: it has two definitions in its context, searches once, and writes one program."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolfold.demo.connection import ask, connect
from toolfold.demo.context import Context, result_text
from toolfold.demo.fleet import demo_config
from toolfold.demo.scenarios import Scenario
from toolfold.errors import ToolfoldError

if TYPE_CHECKING:
    from mcp import Client

HITS = 3
"""How many tools a search asks for: few, since each one is shown in full."""
MOST_HITS = 24
"""What it asks for at most, when the tools that are needed were not among the first."""


@asynccontextmanager
async def gateway(folder: Path, log: Path) -> AsyncGenerator[Client]:
    """`toolfold serve` in front of the demo's servers, as any MCP client would start it. Its state is in `folder`."""
    config = folder / "mcp.json"
    config.write_text(json.dumps(demo_config()), encoding="utf-8")
    serve = {
        "command": sys.executable,
        "args": ["-m", "toolfold", "serve", "--config", str(config), "--data", str(folder / "data")],
        "cwd": str(folder),
    }
    async with connect({"toolfold": serve}, log) as clients:
        yield clients["toolfold"]


async def fold(client: Client, scenario: Scenario, context: Context) -> str:
    """Do the scenario: one round trip of searches, one program. Returns what the program printed.

    Where the searches do not bring every tool that is needed, they are sent again and ask for twice as many.
    """
    limit = HITS
    while missed := await _search(client, scenario, context, limit):
        limit *= 2
        if limit > MOST_HITS:
            raise ToolfoldError(f"the searches for {scenario.name!r} did not bring {', '.join(missed)}")
    program = {"code": scenario.program}
    printed = await _ask(client, "run_code", program)
    context.turn([("run_code", program)], [printed])
    return printed


async def _search(client: Client, scenario: Scenario, context: Context, limit: int) -> list[str]:
    """One round trip of searches. Returns the tools that they did not bring."""
    searches = [{"query": query, "detail": "full", "limit": limit} for query in scenario.searches]
    found = [await _ask(client, "search_tools", search) for search in searches]
    context.turn([("search_tools", search) for search in searches], found)
    return [tool for tool in scenario.tools if not _shows(tool, "\n".join(found))]


def _shows(tool: str, text: str) -> bool:
    server, _, name = tool.partition(".")
    return re.search(rf"^from servers\.{server} import {name}$", text, re.MULTILINE) is not None


async def _ask(client: Client, tool: str, arguments: dict[str, Any]) -> str:
    return result_text(await ask(client, "toolfold", tool, arguments))
