"""The requests a program can make, as the host takes them. A wrong type is told here; sent, it ends the sandbox."""

from __future__ import annotations

import math
from typing import Any

_PROGRESS_CHARS = 500


def search(query: object, detail: object, limit: object) -> dict[str, Any]:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
        raise TypeError(f"search_tools: limit must be a whole number, not {limit!r}")
    return {"t": "search", "query": _text("search_tools: query", query), "detail": str(detail), "limit": limit}


def call_named(name: object, arguments: object, keywords: dict[str, Any]) -> dict[str, Any]:
    if arguments is not None and not isinstance(arguments, dict):
        raise TypeError(f"call_mcp_tool: arguments must be a dict, not {type(arguments).__name__}")
    given: dict[str, Any] = {**(arguments or {}), **keywords}
    return {"t": "call_named", "name": _text("call_mcp_tool: name", name), "arguments": given}


def resource(server: object, uri: object) -> dict[str, Any]:
    return {"t": "resource", "server": _text("read_resource: server", server), "uri": str(uri)}


def prompt(server: object, name: object, arguments: object) -> dict[str, Any]:
    if arguments is not None and not isinstance(arguments, dict):
        raise TypeError(f"get_prompt: arguments must be a dict, not {type(arguments).__name__}")
    given: dict[Any, Any] = {**(arguments or {})}
    texts = {str(key): str(value) for key, value in given.items()}
    frame = {"t": "prompt", "server": _text("get_prompt: server", server), "name": _text("get_prompt: name", name)}
    return {**frame, "arguments": texts}


def progress(text: object, fraction: object) -> dict[str, Any]:
    if fraction is not None and (not isinstance(fraction, int | float) or not math.isfinite(fraction)):
        raise TypeError(f"progress: fraction must be a number from 0 to 1, not {fraction!r}")
    return {"t": "progress", "text": str(text)[:_PROGRESS_CHARS], "fraction": fraction}


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, not {type(value).__name__}")
    return value
