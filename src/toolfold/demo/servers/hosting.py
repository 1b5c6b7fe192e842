"""What the demo's servers share: a tool is a definition and a function, and `host` serves them over stdio."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jsonschema_rs

from toolfold.demo.servers.schema import Schema

if TYPE_CHECKING:
    from mcp import types
    from mcp.server.context import ServerRequestContext

Arguments = dict[str, Any]


class Refusal(Exception):  # noqa: N818 - it is an answer, not a fault
    """The tool cannot do what was asked; the text goes to the caller as an `isError` result."""


@dataclass(frozen=True, kw_only=True)
class DemoTool:
    """One tool. `run` gets checked arguments and returns data.

    With an `output_schema` the data is sent as structured content and once more as JSON text, as the protocol
    asks for the sake of older clients. Without one a `str` is sent as it is and other data as JSON text.
    """

    name: str
    title: str
    description: str
    arguments: Schema
    run: Callable[[Arguments], Any]
    output_schema: Schema | None = None
    writes: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    defaults: Arguments = field(default_factory=dict[str, Any])
    """Values for arguments that were left out."""

    def answer(self, arguments: Arguments) -> tuple[str, Any, bool]:
        """The text, the structured content (or None) and whether it is an error."""
        if problem := self._problem(arguments):
            return problem, None, True
        try:
            data = self.run(self.defaults | arguments)
        except Refusal as refusal:
            return str(refusal), None, True
        if isinstance(data, str):
            return data, None, False
        return compact(data), data if self.output_schema else None, False

    def _problem(self, arguments: Arguments) -> str:
        errors = list(jsonschema_rs.validator_for(self.arguments).iter_errors(arguments))
        if not errors:
            return ""
        where = "/".join(str(step) for step in errors[0].instance_path)
        return f"invalid arguments for {self.name}{f' at {where}' if where else ''}: {errors[0].message}"


@dataclass(frozen=True)
class DemoServer:
    name: str
    tools: tuple[DemoTool, ...]


def compact(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def host(server: DemoServer) -> None:
    """Serve until stdin closes."""
    import anyio

    anyio.run(_serve, server)


async def _serve(server: DemoServer) -> None:
    from mcp import types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    tools = {tool.name: tool for tool in server.tools}
    definitions = [_definition(tool) for tool in server.tools]

    async def on_list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=definitions)

    async def on_call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = tools.get(params.name)
        if tool is None:
            text, structured, is_error = (
                f"no tool is called {params.name}; there are {', '.join(tools)}",
                None,
                True,
            )
        else:
            text, structured, is_error = tool.answer(params.arguments or {})
        return types.CallToolResult(
            content=[types.TextContent(text=text)], structured_content=structured, is_error=is_error
        )

    protocol: Server[Any] = Server(server.name, version="1.0.0", on_list_tools=on_list_tools, on_call_tool=on_call_tool)
    async with stdio_server() as (read, write):
        await protocol.run(read, write, protocol.create_initialization_options())


def _definition(tool: DemoTool) -> types.Tool:
    from mcp import types

    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.arguments,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=not tool.writes,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent or not tool.writes,
            open_world_hint=tool.open_world,
        ),
    )
