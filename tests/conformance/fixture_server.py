"""The conformance suite's fixture tools, resources and prompts, over streamable HTTP. It prints its port.

The texts and shapes are the suite's own, and the suite is run on this server to prove it.
"""

from __future__ import annotations

import base64
import json
import re
import socket
import struct
import sys
import zlib
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError


def _png() -> bytes:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\x00\xff\x00\x00")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")


def _wav() -> bytes:
    """Eight samples of silence."""
    layout = struct.pack("<4sIHHIIHH4sI", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8, b"data", 8)
    return b"RIFF" + struct.pack("<I", 4 + len(layout) + 8) + b"WAVE" + layout + b"\x80" * 8


PNG = base64.b64encode(_png()).decode()
WAV = base64.b64encode(_wav()).decode()
EMPTY: dict[str, Any] = {"type": "object", "properties": {}}


def text(value: str) -> types.TextContent:
    return types.TextContent(type="text", text=value)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri: str, mime_type: str, value: str) -> types.EmbeddedResource:
    content = types.TextResourceContents(uri=uri, mime_type=mime_type, text=value)
    return types.EmbeddedResource(type="resource", resource=content)


CONTENT: dict[str, list[types.ContentBlock]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [image()],
    "test_audio_content": [types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")],
    "test_embedded_resource": [
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        image(),
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
    "test_error_handling": [text("This tool intentionally returns an error for testing")],
    "test_tool_with_progress": [text("Done.")],
}


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    tools = [types.Tool(name=name, description="A fixture.", input_schema=EMPTY) for name in CONTENT]
    return types.ListToolsResult(tools=tools)


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    if params.name not in CONTENT:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
    if params.name == "test_tool_with_progress":
        for done in (0, 50, 100):
            await ctx.session.report_progress(done, 100)
    return types.CallToolResult(content=CONTENT[params.name], is_error=params.name == "test_error_handling")


async def list_resources(_ctx: Any, _params: Any) -> types.ListResourcesResult:
    static = types.Resource(uri="test://static-text", name="text", description="A text.", mime_type="text/plain")
    binary = types.Resource(uri="test://static-binary", name="binary", description="Bytes.", mime_type="image/png")
    return types.ListResourcesResult(resources=[static, binary])


async def list_templates(_ctx: Any, _params: Any) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(uri_template="test://template/{id}/data", name="data", description="By id.")
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(_ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = params.uri
    if uri == "test://static-text":
        value, kind = "This is the content of the static text resource.", "text/plain"
    elif uri == "test://static-binary":
        blob = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
        return types.ReadResourceResult(contents=[blob])
    elif found := re.fullmatch(r"test://template/([^/]+)/data", uri):
        value = json.dumps({"id": found[1], "templateTest": True, "data": f"Data for ID: {found[1]}"})
        kind = "application/json"
    else:
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=kind, text=value)])


PROMPTS = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
}


async def list_prompts(_ctx: Any, _params: Any) -> types.ListPromptsResult:
    def prompt(name: str, arguments: list[str]) -> types.Prompt:
        needed = [types.PromptArgument(name=each, description="Needed.", required=True) for each in arguments]
        return types.Prompt(name=name, description="A fixture.", arguments=needed)

    return types.ListPromptsResult(prompts=[prompt(*each) for each in PROMPTS.items()])


async def get_prompt(_ctx: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    given = params.arguments or {}
    content: list[types.ContentBlock]
    match params.name:
        case "test_simple_prompt":
            content = [text("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            content = [text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")]
        case "test_prompt_with_embedded_resource":
            resource = embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
            content = [resource, text("Please process the embedded resource above.")]
        case "test_prompt_with_image":
            content = [image(), text("Please analyze the image above.")]
        case other:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {other}")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=each) for each in content])


async def main() -> None:
    server = Server(
        "fixtures",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )
    sock = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning", lifespan="on")
    sys.stdout.write(f"{sock.getsockname()[1]}\n")
    sys.stdout.flush()
    await uvicorn.Server(config).serve(sockets=[sock])


if __name__ == "__main__":
    anyio.run(main)
