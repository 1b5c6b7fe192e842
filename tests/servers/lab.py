"""A well-behaved MCP server over stdio with one tool for each kind of answer. Started by path, by tests."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

PIXEL = base64.b64encode(b"\x89PNG not really a picture").decode()
NUMBER = {"type": "number"}
STRING = {"type": "string"}


def tool(name: str, properties: dict[str, Any], output: dict[str, Any] | None = None) -> types.Tool:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return types.Tool(name=name, description=f"The lab's {name}.", input_schema=schema, output_schema=output)


TOOLS = [
    tool("add", {"a": NUMBER, "b": NUMBER}, {"type": "object", "properties": {"sum": NUMBER}, "required": ["sum"]}),
    tool("fail", {"message": STRING}),
    tool("image", {}),
    tool("big", {"size": {"type": "integer"}}),
    tool("sleep", {"seconds": NUMBER}),
    tool("json-text", {}),
    tool("number_text", {}),
    tool("two_parts", {}),
    tool("nothing", {}),
    tool("lies", {}, {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}),
    tool("die", {}),
    tool("deep_text", {}),
    tool("echo", {"value": {}}),
]


TEXTS = {
    "json-text": '{"rows": [1, 2, 3]}',
    "deep_text": "[" * 100_000 + "]" * 100_000,
    "number_text": "007",
}


def text(value: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)])


async def call(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    match params.name:
        case "add":
            total = {"sum": arguments["a"] + arguments["b"]}
            return types.CallToolResult(
                content=[types.TextContent(type="text", text=json.dumps(total))], structured_content=total
            )
        case "fail":
            return types.CallToolResult(
                content=[types.TextContent(type="text", text=arguments["message"])], is_error=True
            )
        case "image":
            return types.CallToolResult(content=[types.ImageContent(type="image", data=PIXEL, mime_type="image/png")])
        case "big":
            return text("x" * arguments["size"])
        case "sleep":
            await anyio.sleep(arguments["seconds"])
            return text("slept")
        case name if name in TEXTS:
            return text(TEXTS[name])
        case "two_parts":
            return types.CallToolResult(
                content=[types.TextContent(type="text", text="one"), types.TextContent(type="text", text="[2]")]
            )
        case "lies":
            return types.CallToolResult(content=[], structured_content={"ok": "yes"})
        case "die":
            os._exit(7)
        case "echo":
            return types.CallToolResult(content=[], structured_content={"value": arguments["value"]})
        case _:
            return types.CallToolResult(content=[])


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=TOOLS)


async def list_resources(_ctx: Any, _params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[types.Resource(uri="lab://notes", name="notes")])


async def read_resource(_ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    content = types.TextResourceContents(uri=params.uri, text="the lab's notes")
    return types.ReadResourceResult(contents=[content])


async def list_prompts(_ctx: Any, _params: Any) -> types.ListPromptsResult:
    argument = types.PromptArgument(name="who", required=True)
    return types.ListPromptsResult(prompts=[types.Prompt(name="greet", arguments=[argument])])


async def get_prompt(_ctx: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    greeting = types.TextContent(type="text", text=f"Hello {(params.arguments or {})['who']}")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=greeting)])


async def main() -> None:
    server = Server(
        "lab",
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
