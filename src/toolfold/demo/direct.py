"""A model without Toolfold: it has every definition in its context and reads every result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from toolfold.demo.context import Context, definition_tokens, result_text
from toolfold.errors import UpstreamError

if TYPE_CHECKING:
    from mcp import Client, types


class Call(NamedTuple):
    server: str
    tool: str
    arguments: dict[str, Any]


def call(server: str, tool: str, **arguments: Any) -> Call:
    return Call(server, tool, arguments)


@dataclass(frozen=True)
class Direct:
    """The calls of one conversation. What a model would work out by reading, the scenario works out in Python."""

    clients: Mapping[str, Client]
    context: Context

    async def turn(self, *calls: Call) -> list[Any]:
        """One round trip. A model may ask for several independent calls at once, so they count as one."""
        results: list[Any] = [None] * len(calls)
        texts = [""] * len(calls)

        async def one(at: int) -> None:
            server, tool, arguments = calls[at]
            result = await self.clients[server].call_tool(tool, arguments)
            texts[at] = result_text(result)
            results[at] = _data(server, result, texts[at])

        async with anyio.create_task_group() as group:
            for at in range(len(calls)):
                group.start_soon(one, at)
        self.context.turn([(call.tool, call.arguments) for call in calls], texts)
        return results


async def definitions(client: Client) -> tuple[int, int]:
    """How many tools a server has, and what its definitions and instructions cost in tokens."""
    listed = await client.list_tools()
    tools = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools]
    return len(tools), definition_tokens(tools, client.instructions or "")


def _data(server: str, result: types.CallToolResult, text: str) -> Any:
    if result.is_error:
        raise UpstreamError(server, text)
    if result.structured_content is not None:
        return result.structured_content
    try:
        return json.loads(text)
    except ValueError:
        return text
