"""What agent code may import from `toolfold`, `tool_discovery` and `client`."""

from __future__ import annotations

import asyncio
import inspect
import re
import textwrap
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from . import frames
from .channel import ToolError, channel, open_channel
from .results import File, part_value, to_value

__all__ = [
    "File",
    "SearchResults",
    "Tool",
    "ToolError",
    "call_mcp_tool",
    "get_client",
    "get_prompt",
    "open_channel",
    "progress",
    "read_resource",
    "save_skill",
    "search_tools",
]


class Tool:
    """One hit of `search_tools`: `name`, `server`, `kind`, `description`, `import_`, `signature`, `input_schema`."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.kind: str = data.get("kind", "tool")
        self.server: str = data.get("server", "")
        self.name: str = data.get("name", "")
        self.description: str = data.get("description", "")
        self.import_: str = data.get("import", "")
        self.signature: str = data.get("signature", "")
        self.input_schema: dict[str, Any] = data.get("input_schema") or {}

    def __repr__(self) -> str:
        return f"{self.server}.{self.name}"


class SearchResults(list[Tool]):
    """A list of hits that prints as the search's own text, and may be awaited or not."""

    text: str = ""

    def __str__(self) -> str:
        return self.text

    def __await__(self) -> Generator[Any, None, SearchResults]:
        return asyncio.sleep(0, self).__await__()


def search_tools(query: str = "", detail: str = "with_description", limit: int | None = None) -> SearchResults:
    """Find tools, resources and prompts by what they do. `detail`: name_only, with_description or full."""
    reply = channel().request_now(frames.search(query, detail, limit))
    results = SearchResults(Tool(hit) for hit in reply["hits"])
    results.text = reply["text"]
    return results


async def call_mcp_tool(name: str, arguments: dict[str, Any] | None = None, /, **keywords: Any) -> Any:
    """Call a tool by its full name, for example `mcp__github__create_issue`."""
    reply = await channel().request(frames.call_named(name, arguments, keywords))
    return to_value(reply, reply.get("server", ""), reply.get("tool", name))


async def read_resource(server: str, uri: str) -> Any:
    """A resource's content: text as `str` (JSON parsed), bytes as `File`."""
    parts = await channel().request(frames.resource(server, uri))
    stem = re.sub(r"\W+", "_", uri)[-40:] or "resource"
    values = [part_value(part, stem) for part in parts]
    return values[0] if len(values) == 1 else values


async def get_prompt(server: str, name: str, arguments: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """A prompt's messages: `[{"role": …, "content": …}]`."""
    return await channel().request(frames.prompt(server, name, arguments))


def progress(text: str = "", fraction: float | None = None) -> None:
    """Tell the person who waits how far the program is; the model does not see it."""
    channel().send(frames.progress(text, fraction))


def save_skill(function: Callable[..., Any] | str, name: str | None = None, description: str | None = None) -> str:
    """Keep a function for later runs of this session: `from skills.NAME import NAME`. Returns that line."""
    if isinstance(function, str):
        source, found = function, re.search(r"^(?:async )?def (\w+)", function, re.MULTILINE)
        title = name or (found[1] if found else "")
    else:
        source, title = textwrap.dedent(inspect.getsource(function)), name or function.__name__
    if not title.isidentifier():
        raise ValueError("save_skill: give a `name` that is a Python identifier")
    compile(source, title, "exec")
    doc = (description or "").replace("\\", "\\\\").replace('"""', "'''")
    folder = Path("skills")
    folder.mkdir(exist_ok=True)
    (folder / f"{title}.py").write_text(f'"""{doc}"""\n\n{source}\n', encoding="utf-8")
    return f"from skills.{title} import {title}"


class _Client:
    """The `client` module's object: the same calls, as methods."""

    call_tool = staticmethod(call_mcp_tool)
    call_mcp_tool = staticmethod(call_mcp_tool)
    search_tools = staticmethod(search_tools)
    read_resource = staticmethod(read_resource)
    get_prompt = staticmethod(get_prompt)


def get_client() -> _Client:
    return _Client()
