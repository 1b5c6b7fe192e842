"""What a program in Monty may call outside of it, by the dotted names that Monty reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from pydantic_monty import ClassInstance, ExternalModule

from toolfold.sandbox.guest.toolfold_guest import frames
from toolfold.sandbox.guest.toolfold_guest.api import Client, expected_type
from toolfold.sandbox.guest.toolfold_guest.channel import Channel, ToolError
from toolfold.sandbox.guest.toolfold_guest.results import File, Media, part_value, to_value, usage
from toolfold.sandbox.monty.worker.tree import Tree

_CLIENT = ("call_tool", "call_mcp_tool", "search_tools", "read_resource", "get_prompt")
_COUNTS = ("call_count", "tools_called", "total_tokens")
_OWN = ("call_mcp_tool", "get_client", "get_prompt", "progress", "read_resource", "save_skill", "search_tools")
_MODULES = {"toolfold": _OWN, "tool_discovery": ("search_tools",), "client": ("call_mcp_tool", "get_client")}


@dataclass(frozen=True)
class Function:
    """`awaited`: the program gets something to await; otherwise it gets the value at once."""

    call: Callable[..., Awaitable[Any]]
    awaited: bool
    server: str = ""
    tool: str = ""


class _Hit:
    """One hit of a search. Inside Monty an object has attributes and no keys."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.__dict__ = {"import_" if key == "import" else key: value for key, value in row.items()}


class Functions:
    """Answers calls over the channel. `say` prints."""

    def __init__(self, channel: Channel, tree: Tree, say: Callable[[str], None]) -> None:
        self._channel = channel
        self._tree = tree
        self._say = say

    def modules(self) -> dict[str, ExternalModule]:
        """What can be imported beside Monty's own modules."""
        ours = {name: ExternalModule(dict.fromkeys(words, _by_name)) for name, words in _MODULES.items()}
        return {"servers": self._tree.modules(ExternalModule), **ours}

    def find(self, name: str, *, method: bool) -> Function | None:
        """`method` when it is called on an object of ours, of which only the client has methods."""
        if not method and name.startswith("servers.") and name.count(".") == 2:
            return self._server_tool(name)
        word = name.rpartition(".")[2]
        if method and word not in _CLIENT:
            return None
        match word:
            case "call_mcp_tool" | "call_tool":
                return Function(self.call_mcp_tool, awaited=True)
            case "read_resource":
                return Function(self.read_resource, awaited=True)
            case "get_prompt":
                return Function(self.get_prompt, awaited=True)
            case "search_tools":
                return Function(self.search_tools, awaited=False)
            case "progress":
                return Function(self.progress, awaited=False)
            case "get_client":
                return Function(_get_client, awaited=False)
            case "save_skill":
                return Function(_save_skill, awaited=False)
            case "help":
                return Function(self._help, awaited=False)
            case _:
                return None

    def count(self, name: str) -> int | list[str] | None:
        """What `get_client().NAME` is at this moment; None where the client has no such figure."""
        client = Client()
        match name:
            case "call_count":
                return client.call_count
            case "total_tokens":
                return int(client.total_tokens)
            case "tools_called":
                return client.tools_called
            case _:
                return None

    def _server_tool(self, path: str) -> Function | None:
        tool = self._tree.tool(path)
        if tool is None:
            return None

        async def call(*args: Any, **keywords: Any) -> Any:
            frame = {"t": "call", "server": tool.server, "tool": tool.name}
            reply = await self._request({**frame, "arguments": tool.arguments(args, keywords)}, path)
            return _value(reply, tool.server, tool.name)

        return Function(call, awaited=True, server=tool.server, tool=tool.name)

    async def _request(self, frame: dict[str, Any], what: str) -> Any:
        try:
            return await self._channel.request(frame)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"{what}: arguments must be plain JSON data ({error})") from None

    async def call_mcp_tool(
        self,
        name: str | None = None,
        arguments: dict[str, Any] | None = None,
        type: Any = None,  # noqa: A002 - the word that programs use
        *,
        server: str | None = None,
        tool: str | None = None,
        input_data: dict[str, Any] | None = None,
        **keywords: Any,
    ) -> Any:
        frame = frames.call(name, arguments, server, tool, input_data, keywords)
        expected = expected_type(type)
        reply = await self._request(frame, name or f"{server}.{tool}")
        value = _value(reply, reply.get("server", server or ""), reply.get("tool", tool or name))
        return value if expected is None else expected.checked(value)

    async def read_resource(self, server: str, uri: str) -> Any:
        parts = await self._request(frames.resource(server, uri), "read_resource")
        values = [part_value(part, "resource") for part in parts]
        return _inside(values[0] if len(values) == 1 else values)

    async def get_prompt(self, server: str, name: str, arguments: dict[str, str] | None = None) -> Any:
        messages = await self._request(frames.prompt(server, name, arguments), "get_prompt")
        return _inside(Media(name).taken_out(messages))

    async def search_tools(
        self,
        query: str = "",
        detail_level: str | None = None,
        limit: int | None = None,
        server: str | None = None,
        *,
        detail: str | None = None,
    ) -> Any:
        reply = await self._request(frames.search(query, detail_level, detail, limit, server), "search_tools")
        return [ClassInstance(_Hit(hit), eager_attrs="all") for hit in reply["hits"]]

    async def progress(self, text: str = "", fraction: float | None = None) -> None:
        self._channel.send(frames.progress(text, fraction))

    async def _help(self, what: Any = "") -> None:
        tool = self._tree.tool(what) if isinstance(what, str) and what.startswith("servers.") else None
        self._say(f"{tool.signature}\n\n{tool.doc}\n" if tool is not None else "help(tool) shows a tool's signature\n")


def _by_name(*args: Any, **keywords: Any) -> Any:
    raise AssertionError("calls are answered by name")


async def _get_client() -> Any:
    return ClassInstance(Client(), allowed_methods=set(_CLIENT), lazy_attrs=set(_COUNTS))


async def _save_skill(*args: Any, **keywords: Any) -> None:
    raise ToolError("skills cannot be kept from Monty, which is a subset of Python; use another backend for them")


def _value(reply: dict[str, Any], server: str, tool: str) -> Any:
    files = usage.files
    value = to_value(reply, server, tool)
    # Without a new file in it, the result is plain data and needs no second look.
    return value if usage.files == files else _inside(value)


def _inside(value: Any) -> Any:
    """Files cross as objects with `path`, `mime_type` and `size`; everything else is plain data."""
    if isinstance(value, File):
        return ClassInstance(value, eager_attrs={"path", "mime_type", "size"})
    if isinstance(value, list):
        return [_inside(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _inside(item) for key, item in cast("dict[str, Any]", value).items()}
    return value
