"""An MCP server with people in it. What it is sent is written to the file that is its argument. Started by path."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

ADA = {
    "name": "Ada Quilligan",
    "email": "ada.quilligan@example.com",
    "phone": "+1 415 555 2671",
    "ssn": "078-05-1120",
    "card": "4111 1111 1111 1111",
    "iban": "GB82WEST12345698765432",
    "order_id": "4155550000",
    "born": {"date_of_birth": "1985-05-12"},
}
"""One person, with values that occur nowhere else."""
VALUES = [
    "Quilligan",
    "ada.quilligan",
    "555 2671",
    "078-05-1120",
    "4111 1111",
    "GB82WEST",
    "1985-05-12",
    "half@example",
]
"""Parts of values of which none may be seen."""

ANY: dict[str, Any] = {
    "type": "object",
    "properties": {name: {} for name in ("to", "body", "ids", "n", "second", "count", "filler")},
}
TOOLS = ["person", "as_text", "note", "fail", "refuse", "progress", "half", "send", "many", "with_key"]


def note(sent: list[Any]) -> None:
    with Path(sys.argv[1]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(sent, ensure_ascii=False) + "\n")


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[types.Tool(name=name, description=f"people: {name}", input_schema=ANY) for name in TOOLS]
    )


def text(value: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)], is_error=is_error)


def data(value: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[], structured_content=value)


async def call(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    note([params.name, arguments])
    match params.name:
        case "person":
            return data(ADA)
        case "as_text":
            return text(json.dumps([ADA]))
        case "note":
            return text(f"Call Ada Quilligan on {ADA['phone']} or write to {ADA['email']}, card {ADA['card']}.")
        case "fail":
            return text(f"no account for {ADA['email']}", is_error=True)
        case "refuse":
            raise MCPError(-32602, f"{arguments.get('to')} is not {ADA['email']}")
        case "progress":
            await ctx.session.report_progress(1, 2, f"asking {ADA['email']}")
            return text("asked")
        case "half":
            return data({"part": "half@example.c" if arguments.get("second") is None else "om"})
        case "many":
            rows = [{"email": f"user{number}@example.com", "n": number} for number in range(arguments["count"])]
            return data({"rows": rows, "filler": "x" * arguments.get("filler", 0)})
        case "with_key":
            return data({"ada.quilligan@example.com": {"score": 3}})
        case _:
            return data({"got": arguments})


async def list_resources(_ctx: Any, _params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[types.Resource(uri="people://notes", name="notes")])


async def read_resource(_ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    note(["resource", str(params.uri)])
    content = types.TextResourceContents(uri=params.uri, text=f"{ADA['email']} wrote")
    return types.ReadResourceResult(contents=[content])


async def list_prompts(_ctx: Any, _params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[types.Prompt(name="greet", arguments=[])])


async def get_prompt(_ctx: Any, _params: types.GetPromptRequestParams) -> types.GetPromptResult:
    greeting = types.TextContent(type="text", text=f"Write to {ADA['email']}")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=greeting)])


async def main() -> None:
    server = Server(
        "people",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
