"""An MCP server that declares the tools of a file and answers with the results of that file, in turn.

The file is JSON: {"tools": [{"name": …, "outputSchema": …}], "results": {name: [structured content, …]}}. A call's
argument `number` says which of a tool's results is wanted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

FILE = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
INPUT = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    tools = [
        types.Tool(name=tool["name"], input_schema=INPUT, output_schema=tool["outputSchema"]) for tool in FILE["tools"]
    ]
    return types.ListToolsResult(tools=tools)


async def call(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    number = (params.arguments or {})["number"]
    return types.CallToolResult(content=[], structured_content=FILE["results"][params.name][number])


async def main() -> None:
    server = Server("replay", version="1", on_list_tools=list_tools, on_call_tool=call)
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
