"""The MCP server that the benchmarks call: an echo, a slow tool, one with many rows."""

from __future__ import annotations

import json
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

_TOOLS = {
    "echo": {"text": {"type": "string"}},
    "slow": {"ms": {"type": "integer"}},
    "rows": {"count": {"type": "integer"}},
}


async def _list(_ctx: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[
            types.Tool(
                name=name,
                description=f"{name} for the benchmark.",
                input_schema={"type": "object", "properties": properties, "required": list(properties)},
            )
            for name, properties in _TOOLS.items()
        ]
    )


async def _call(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    text = ""
    match params.name:
        case "echo":
            text = str(arguments["text"])
        case "slow":
            await anyio.sleep(arguments["ms"] / 1000)
            text = "done"
        case "rows":
            rows = [
                {"id": n, "name": f"row {n}", "amount": n % 997, "open": n % 3 == 0} for n in range(arguments["count"])
            ]
            text = json.dumps(rows)
        case _:
            pass
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def _main() -> None:
    server = Server("bench", version="1", on_list_tools=_list, on_call_tool=_call)
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(_main)
