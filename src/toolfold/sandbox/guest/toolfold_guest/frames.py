"""The requests that a program can make, as the host takes them.

A wrong type is refused here: the host would end the sandbox for it.
"""

from __future__ import annotations

import math
from typing import Any

DETAILS = ("name_only", "with_description", "full")
_PROGRESS_CHARS = 500
_NAME_CHARS = 1000


def search(query: object, detail_level: object, detail: object, limit: object, server: object) -> dict[str, Any]:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
        raise TypeError(f"search_tools: limit must be a whole number, not {limit!r}")
    if detail_level is not None and detail is not None and detail_level != detail:
        raise TypeError("search_tools: detail_level and detail are two names of one argument")
    level = detail_level or detail or DETAILS[1]
    if level not in DETAILS:
        raise ValueError(f"search_tools: detail must be one of {', '.join(DETAILS)}, not {level!r}")
    frame = {"t": "search", "query": _text("search_tools: query", query or ""), "detail": level, "limit": limit}
    return {**frame, "server": _text("search_tools: server", server)} if server else frame


def call(
    name: object, arguments: object, server: object, tool: object, input_data: object, keywords: dict[str, Any]
) -> dict[str, Any]:
    """A call by the tool's full name, or by its server and its own name."""
    if arguments is not None and input_data is not None:
        raise TypeError("call_mcp_tool: arguments and input_data are two names of one argument")
    given = input_data if arguments is None else arguments
    if given is not None and not isinstance(given, dict):
        raise TypeError(f"call_mcp_tool: arguments must be a dict, not {type(given).__name__}")
    everything: dict[str, Any] = {**(given or {}), **keywords}
    if name is not None:
        # Beside a full name, these are arguments of the tool.
        everything |= {key: value for key, value in (("server", server), ("tool", tool)) if value is not None}
        return {"t": "call_named", "name": _text("call_mcp_tool: name", name), "arguments": everything}
    if server is None or tool is None:
        raise TypeError("call_mcp_tool: give a name, or server and tool")
    where = {"server": _text("call_mcp_tool: server", server), "tool": _text("call_mcp_tool: tool", tool)}
    return {"t": "call", **where, "arguments": everything}


def resource(server: object, uri: object) -> dict[str, Any]:
    return {"t": "resource", "server": _text("read_resource: server", server), "uri": str(uri)}


def prompt(server: object, name: object, arguments: object) -> dict[str, Any]:
    if arguments is not None and not isinstance(arguments, dict):
        raise TypeError(f"get_prompt: arguments must be a dict, not {type(arguments).__name__}")
    given: dict[Any, Any] = {**(arguments or {})}
    texts = {str(key): str(value) for key, value in given.items()}
    frame = {"t": "prompt", "server": _text("get_prompt: server", server), "name": _text("get_prompt: name", name)}
    return {**frame, "arguments": texts}


def skill(name: str) -> dict[str, Any]:
    return {"t": "skill", "name": name}


def save_skill(name: object, source: object, description: object, tags: object, document: object) -> dict[str, Any]:
    if isinstance(tags, str):
        tags = tags.split(",")
    if tags is not None and not isinstance(tags, list | tuple | set | frozenset):
        raise TypeError(f"save_skill: tags must be a list of texts, not {type(tags).__name__}")
    labels: list[Any] = list(tags or ())  # pyright: ignore[reportUnknownArgumentType]
    return {
        "t": "save_skill",
        "name": _text("save_skill: name", name)[:_NAME_CHARS],
        "source": _text("save_skill: source", source),
        "description": _text("save_skill: description", description or ""),
        "tags": [_text("save_skill: a tag", tag).strip()[:_NAME_CHARS] for tag in labels][:100],
        "document": _text("save_skill: document", document or ""),
    }


def progress(text: object, fraction: object) -> dict[str, Any]:
    if fraction is not None and (not isinstance(fraction, int | float) or not math.isfinite(fraction)):
        raise TypeError(f"progress: fraction must be a number from 0 to 1, not {fraction!r}")
    return {"t": "progress", "text": str(text)[:_PROGRESS_CHARS], "fraction": fraction}


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, not {type(value).__name__}")
    return value
