"""An MCP server with one tool for each kind of answer that a program can get. Started by path, by tests."""

from __future__ import annotations

import base64
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

PIXEL = base64.b64encode(b"\x89PNG not really a picture").decode()
IMAGE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
BLOB = {"uri": "file:///docs/report.pdf", "mimeType": "application/pdf", "blob": PIXEL}
STRING = {"type": "string"}
ROWS = {"type": "array", "items": {"type": "object"}}
PYTHON = """[{'id': 1, 'name': None, 'tags': ('a', "it's")}]"""


def wrapper(inner: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"result": inner}, "required": ["result"]}


def text(value: str) -> types.TextContent:
    return types.TextContent(type="text", text=value)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PIXEL, mime_type="image/png")


def resource(contents: Any) -> types.EmbeddedResource:
    return types.EmbeddedResource(type="resource", resource=contents)


def answer(*content: Any, error: bool = False, **structured: Any) -> types.CallToolResult:
    """`structured=…` sets structured content, also to null."""
    given = {"structured_content": structured["structured"]} if structured else {}
    return types.CallToolResult(content=list(content), is_error=error, **given)


# Tool → what it declares, what it answers.
ANSWERS: dict[str, tuple[dict[str, Any] | None, types.CallToolResult]] = {
    "structured": (None, answer(text("{}"), structured={"rows": [1, 2]})),
    "wrapped": (wrapper(ROWS), answer(structured={"result": [{"id": 1}]})),
    "wrapped_null": (wrapper({"type": "null"}), answer(structured={"result": None})),
    "wrongly_unwrapped": (wrapper(STRING), answer(structured={"rows": 1})),
    "own_result": (None, answer(structured={"result": "mine"})),
    "mismatch": (
        {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
        answer(structured={"ok": "yes"}),
    ),
    "image_beside": (None, answer(image(), structured={"width": 3})),
    "image_twice": (None, answer(image(), structured={"content": [IMAGE]})),
    "image_inside": (None, answer(structured={"page": {"shots": [IMAGE, {"type": "resource", "resource": BLOB}]}})),
    "image_in_text": (None, answer(text(f'[{{"type": "image", "mimeType": "image/png", "data": "{PIXEL}"}}]'))),
    "not_an_image": (None, answer(structured=[{"type": "image", "data": "see the next page", "mimeType": "x/y"}])),
    "image_in_many_rows": (None, answer(structured={"rows": [{"number": n} for n in range(10_000)], "shot": IMAGE})),
    "json": (None, answer(text(' [{"id": 1}]\n'))),
    "null": (None, answer(text("null"))),
    "python": (None, answer(text(PYTHON))),
    "plain": (None, answer(text("hello"))),
    "number": (None, answer(text("007"))),
    "broken_json": (None, answer(text('{"id": 1'))),
    "empty_text": (None, answer(text(""))),
    "declared_text": (wrapper(STRING), answer(text('{"id": 1}'))),
    "declared_texts": (wrapper(STRING), answer(text("one"), text("two"))),
    "declared_list": (wrapper(ROWS), answer(text('{"id": 1}'))),
    "declared_list_whole": (wrapper(ROWS), answer(text('[{"id": 1}, {"id": 2}]'))),
    "declared_list_empty": (wrapper(ROWS), answer()),
    "several": (None, answer(text("one"), text("[2]"), image())),
    "image": (None, answer(image())),
    "blob": (None, answer(resource(types.BlobResourceContents.model_validate(BLOB)))),
    "text_resource": (None, answer(resource(types.TextResourceContents(uri="file:///a.json", text='{"id": 1}')))),
    "link": (None, answer(types.ResourceLink(type="resource_link", uri="file:///a.txt", name="a"))),
    "nothing": (None, answer()),
    "fails": (None, answer(text("no such row"), text("try another"), error=True)),
    "fails_silently": (None, answer(structured={"code": 404}, error=True)),
}


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    tools = [
        types.Tool(name=name, input_schema={"type": "object"}, output_schema=declared)
        for name, (declared, _) in ANSWERS.items()
    ]
    return types.ListToolsResult(tools=tools)


async def call(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    return ANSWERS[params.name][1]


async def list_resources(_ctx: Any, _params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[types.Resource(uri="file:///docs/report.pdf", name="report")])


async def read_resource(_ctx: Any, _params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    return types.ReadResourceResult(contents=[types.BlobResourceContents.model_validate(BLOB)])


async def list_prompts(_ctx: Any, _params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[types.Prompt(name="look")])


async def get_prompt(_ctx: Any, _params: types.GetPromptRequestParams) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=image())])


async def main() -> None:
    server = Server(
        "answers",
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
