"""What agent code may import from `toolfold`, `tool_discovery` and `client`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from . import frames, skills
from .channel import ApprovalDenied, PolicyDenied, ToolError, call_tool, channel, open_channel, program_line, warn
from .context import context
from .kept import keep, kept
from .results import File, Media, part_value, to_value, usage
from .sessions import sessions
from .show import show

if TYPE_CHECKING:
    from .expected import Expected

__all__ = [
    "ApprovalDenied",
    "File",
    "Hit",
    "PolicyDenied",
    "SearchResults",
    "ToolError",
    "call_mcp_tool",
    "context",
    "get_client",
    "get_prompt",
    "keep",
    "kept",
    "open_channel",
    "progress",
    "read_resource",
    "save_skill",
    "search_tools",
    "sessions",
    "show",
]


class Hit(dict[str, Any]):
    """One hit of `search_tools`: a dict whose keys are attributes too; the key `import` is `hit.import_`.

    `name` and `server`; with descriptions also `description` and `import`; in full also `signature`, `input_schema`
    and `output_schema`. A resource or a prompt says so in `kind`.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self["import" if name == "import_" else name]
        except KeyError:
            if name == "kind":
                return "tool"
            keys = ", ".join(self)
            raise AttributeError(f"a hit at this detail has {keys}, not {name!r}; detail='full' has all") from None

    def __repr__(self) -> str:
        return f"<{self.get('server')}.{self.get('name')}>"


class SearchResults(list[Hit]):
    """A list of hits that prints as the search's own text, and may be awaited or not."""

    text: str = ""

    def __str__(self) -> str:
        return self.text

    def __await__(self) -> Generator[Any, None, SearchResults]:
        return asyncio.sleep(0, self).__await__()


def search_tools(
    query: str = "",
    detail_level: str | None = None,
    limit: int | None = None,
    server: str | None = None,
    *,
    detail: str | None = None,
) -> SearchResults:
    """Find tools, resources and prompts by what they do; without a query, all of them, or all of one `server`.

    `detail_level`, or `detail`: name_only, with_description (the default) or full.
    """
    reply = channel().request_now(frames.search(query, detail_level, detail, limit, server))
    return search_results(reply)


def search_results(reply: dict[str, Any]) -> SearchResults:
    results = SearchResults(map(Hit, reply["hits"]))
    results.text = reply["text"]
    return results


async def call_mcp_tool(
    name: str | None = None,
    arguments: dict[str, Any] | None = None,
    type: Any = None,  # noqa: A002 - the word that programs use
    *,
    server: str | None = None,
    tool: str | None = None,
    input_data: dict[str, Any] | None = None,
    **keywords: Any,
) -> Any:
    """Call a tool by its full name, `mcp__github__create_issue`, or by `server` and `tool`.

    The arguments are `arguments`, or `input_data`, or further keywords. With a `type`, a result of another type is a
    TypeError: a class, a generic such as `list[dict]`, a TypedDict, or a dataclass, of which an instance is made.
    """
    frame = frames.call(name, arguments, server, tool, input_data, keywords)
    expected = expected_type(type)
    if frame["t"] == "call":
        value = await call_tool(frame["server"], frame["tool"], frame["arguments"])
    else:
        reply = await channel().request({**frame, "line": program_line()})
        value = to_value(reply, reply.get("server", ""), reply.get("tool", name))
    return value if expected is None else expected.checked(value)


def expected_type(kind: Any) -> Expected | None:
    """What a result must be. TypeError, before anything is called, where `kind` is no type."""
    if kind is None:
        return None
    from .expected import Expected

    return Expected(kind)


async def read_resource(server: str, uri: str) -> Any:
    """A resource's content: text as `str` (JSON parsed), bytes as `File`."""
    parts = await channel().request(frames.resource(server, uri))
    stem = re.sub(r"\W+", "_", uri)[-40:] or "resource"
    values = [part_value(part, stem) for part in parts]
    return values[0] if len(values) == 1 else values


async def get_prompt(server: str, name: str, arguments: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """A prompt's messages: `[{"role": …, "content": …}]`."""
    messages = await channel().request(frames.prompt(server, name, arguments))
    return Media(name).taken_out(messages)


def progress(text: str = "", fraction: float | None = None) -> None:
    """Tell the person who waits how far the program is; the model does not see it."""
    channel().send(frames.progress(text, fraction))


def save_skill(
    function: Callable[..., Any] | str,
    name: str | None = None,
    description: str | None = None,
    tags: Sequence[str] = (),
    *,
    source: str | None = None,
    code: str | None = None,
) -> str:
    """Keep a function for later programs, in this session and in others. Returns the line that imports it.

    `function` is a function, or its source. Type hints and a docstring say how it is used; examples in the docstring
    (`>>> double(2)`) are tried first.
    """
    from .skill_source import skill_source

    title, text = skill_source(function, name, source or code)
    reply = channel().request_now(frames.save_skill(title, text, description, tags, ""))
    module = reply["module"]
    skills.forget(module)
    if reply["pending"]:
        warn(f"the skill {module} waits for a person's approval before other sessions can use it")
    return f"from skills.{module} import {module}"


class Tokens(int):
    """A number of tokens that was estimated, and prints as such."""

    def __repr__(self) -> str:
        return f"{int(self)} (estimated)"

    __str__ = __repr__


class Client:
    """The `client` module's object: the same calls as methods, and what they have come to since the sandbox started."""

    call_tool = staticmethod(call_mcp_tool)
    call_mcp_tool = staticmethod(call_mcp_tool)
    search_tools = staticmethod(search_tools)
    read_resource = staticmethod(read_resource)
    get_prompt = staticmethod(get_prompt)

    @property
    def call_count(self) -> int:
        """Tool calls that were answered, by whatever way they were made."""
        return usage.calls

    @property
    def tools_called(self) -> list[str]:
        """The tools that answered, each once: `github.create_issue`."""
        return list(usage.tools)

    @property
    def total_tokens(self) -> int:
        """About how many tokens the results would have been in the model's context: a quarter of their bytes."""
        return Tokens(usage.bytes // 4)


_client = Client()


def get_client() -> Client:
    return _client
