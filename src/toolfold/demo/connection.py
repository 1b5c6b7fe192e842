"""Real MCP clients of real server processes: the only way in which the demo reaches anything."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import anyio

from toolfold.demo.context import result_text
from toolfold.errors import UpstreamError, UpstreamUnavailable

if TYPE_CHECKING:
    from mcp import Client, types

_START_SECONDS = 60.0


@asynccontextmanager
async def connect(servers: dict[str, dict[str, Any]], log: Path) -> AsyncGenerator[dict[str, Client]]:
    """Start all servers side by side; what they write to stderr goes to `log`. All have ended on exit."""
    clients: dict[str, Client] = {}
    failed: dict[str, Exception] = {}
    settled, done = anyio.Event(), anyio.Event()
    problem: Exception | None = None

    async def hold(name: str, errlog: TextIO) -> None:
        try:
            async with _client(servers[name], errlog) as client:
                clients[name] = client
                if len(clients) == len(servers):
                    settled.set()
                await done.wait()
        except Exception as error:
            failed[name] = error
            settled.set()

    with log.open("a", encoding="utf-8") as errlog:
        async with anyio.create_task_group() as group:
            for name in servers:
                group.start_soon(hold, name, errlog)
            try:
                with anyio.move_on_after(_START_SECONDS):
                    await settled.wait()
                if failed or len(clients) < len(servers):
                    raise _not_started(servers.keys() - clients.keys() | failed.keys(), log)
                yield {name: clients[name] for name in servers}
            except Exception as error:
                # Kept aside, so that the caller sees this error and not a group around it.
                problem = error
            done.set()
            if len(clients) < len(servers):
                group.cancel_scope.cancel()
    if problem is not None:
        raise problem


async def ask(client: Client, server: str, tool: str, arguments: dict[str, Any]) -> types.CallToolResult:
    """Call a tool. A result that says it is an error, and an error of the protocol, are raised as `UpstreamError`."""
    from mcp import MCPError

    try:
        result = await client.call_tool(tool, arguments)
    except MCPError as error:
        raise UpstreamError(server, f"{tool}: {error}") from error
    if result.is_error:
        raise UpstreamError(server, f"{tool}: {result_text(result)}")
    return result


def _client(server: dict[str, Any], errlog: TextIO) -> Client:
    from mcp import Client, StdioServerParameters, stdio_client

    return Client(stdio_client(StdioServerParameters(**server), errlog=errlog))


def _not_started(names: set[str], log: Path) -> UpstreamUnavailable:
    words = log.read_text(encoding="utf-8", errors="replace").strip().split("\n")[-4:]
    said = f"its last words: {' '.join(words)}" if any(words) else "it wrote nothing to stderr"
    return UpstreamUnavailable(", ".join(sorted(names)), f"did not start; {said}")
