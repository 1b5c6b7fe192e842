"""Local references: the only ones that are ever followed."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import unquote


def lookup(target: str, document: dict[str, Any]) -> dict[str, Any] | None:
    """The node that a local JSON pointer names. Anything else (a remote file, an anchor) is not looked for."""
    if target == "#":
        return document
    if not target.startswith("#/"):
        return None
    here: Any = document
    for part in target[2:].split("/"):
        word = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict):
            here = cast(dict[str, Any], here).get(word)
        elif isinstance(here, list) and word.isdecimal() and int(word) < len(cast(list[Any], here)):
            here = cast(list[Any], here)[int(word)]
        else:
            return None
    return cast(dict[str, Any], here) if isinstance(here, dict) else None
