"""A model without Toolfold: it has every definition in its context and reads every result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from toolfold.demo.connection import ask
from toolfold.demo.context import Context, result_text
from toolfold.telemetry.savings import definition_tokens

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
        answers = await asyncio.gather(*(self._one(call) for call in calls))
        self.context.turn([(call.tool, call.arguments) for call in calls], [text for text, _ in answers])
        return [data for _, data in answers]

    async def _one(self, call: Call) -> tuple[str, Any]:
        result = await ask(self.clients[call.server], call.server, call.tool, call.arguments)
        return result_text(result), _data(result)


async def definitions(client: Client) -> tuple[int, int]:
    """How many tools a server has, and what its definitions and instructions cost in tokens."""
    listed = await client.list_tools()
    tools = [(tool.name, tool.description or "", tool.input_schema) for tool in listed.tools]
    return len(tools), definition_tokens(tools, client.instructions or "")


def _data(result: types.CallToolResult) -> Any:
    if result.structured_content is not None:
        return result.structured_content
    text = result_text(result)
    try:
        return json.loads(text)
    except ValueError:
        return text
