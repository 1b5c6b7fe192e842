"""A well-behaved server written with the SDK: over stdio, or over HTTP on a port that it prints.

`older` refuses the newer protocol, `token` demands an Authorization header, `forgetful` loses its sessions,
`mute` answers the POSTs of the handshake and no other, `flaky` breaks the first stream of changes and refuses the
second one for a moment, `clinging` never lets a session end.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import Annotated, Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel, Field
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

server = MCPServer("polite", instructions="Ask nicely.")
flags = set(sys.argv[2:])
requests: list[dict[str, str]] = []


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def big(megabytes: int) -> str:
    return "x" * (megabytes * 1_000_000)


@server.tool()
def where(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> dict[str, str]:
    """The headers of this very call."""
    return {"region": region} | requests[-1]


@server.tool()
async def grow(name: str, ctx: Context[Any]) -> str:
    """Offer one tool more, and say so in the way of either protocol."""
    server.add_tool(lambda: name, name=name)
    await ctx.notify_tools_changed()
    if "older" in flags:
        await ctx.session.send_tool_list_changed()
    return "grown"


@server.tool()
async def count(ctx: Context[Any]) -> str:
    for step in range(3):
        await ctx.report_progress(step + 1, 3, f"step {step + 1}")
    return "counted"


class Stay(BaseModel):
    city: str
    nights: int = 2


def where_to_stay() -> Elicit[Stay]:
    return Elicit("Where do you want to stay?", Stay)


@server.tool()
def book(stay: Annotated[Stay, Resolve(where_to_stay)]) -> str:
    """Book what the person wants: asked for in the way of either protocol."""
    return f"{stay.nights} nights in {stay.city}"


class Gate:
    """Stands before the application and turns requests away as the flags say."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.seen = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {key.decode(): value.decode() for key, value in scope["headers"]}
            requests.append(headers)
            if "token" in flags and headers.get("authorization") != "Bearer sesame":
                return await PlainTextResponse("who are you?", 401)(scope, receive, send)
            if "clinging" in flags and scope["method"] == "DELETE":
                await asyncio.sleep(600)
            if "mute" in flags and scope["method"] == "POST":
                self.seen += 1
                if self.seen > 2:
                    await asyncio.sleep(600)
            if "older" in flags and headers.get("mcp-method") == "server/discover":
                return await PlainTextResponse("what?", 400)(scope, receive, send)
            if "flaky" in flags and headers.get("mcp-method") == "subscriptions/listen":
                self.seen += 1
                if self.seen == 1:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.2):
                            await self.app(scope, receive, send)
                    return None
                if self.seen == 2:
                    return await PlainTextResponse("try again later", 503)(scope, receive, send)
            if "forgetful" in flags and "mcp-session-id" in headers and scope["method"] == "POST":
                self.seen += 1
                if self.seen % 4 == 0:
                    return await PlainTextResponse("which session?", 404)(scope, receive, send)
        return await self.app(scope, receive, send)


def main() -> None:
    if sys.argv[1] == "stdio":
        server.run("stdio")
        return
    listening = socket.create_server(("127.0.0.1", int(next((f for f in flags if f.isdigit()), 0))))
    app = server.sse_app() if sys.argv[1] == "sse" else server.streamable_http_app()
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(Gate(app), log_level="error")).run(sockets=[listening])


if __name__ == "__main__":
    main()
