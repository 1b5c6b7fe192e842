"""Entries of opencode in the words that other clients use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

_VARIABLE = re.compile(r"\{(env|file):([^}]+)\}|\$\{")
_OUR_LIMITS = (("start_timeout", "startup", 30), ("call_timeout", "request", 60))
"""Our key, its name in opencode 2, and our default in seconds."""


def translated(entry: object, folder: Path) -> object:
    """An entry of a config in `folder`. Its time-outs (milliseconds) count where they are longer than our own: the
    older one is mostly for the listing alone, and short."""
    if not isinstance(entry, Mapping):
        return entry
    fields = {str(key): value for key, value in cast("Mapping[object, Any]", entry).items()}
    given = fields.pop("timeout", None)
    limits = cast("dict[str, Any]", given) if isinstance(given, dict) else {"startup": given, "request": given}
    if "environment" in fields:
        fields["env"] = fields.pop("environment")
    fields = {key: _with_our_variables(value, folder) for key, value in fields.items()}
    for key, name, default in _OUR_LIMITS:
        limit = limits.get(name)
        if isinstance(limit, int) and limit > default * 1000:
            fields[key] = limit / 1000
    return fields


def _with_our_variables(value: Any, folder: Path) -> Any:
    """`{env:NAME}` is empty when it is not set, `{file:PATH}` starts at `folder`, and `${` means nothing there."""

    def ours(found: re.Match[str]) -> str:
        kind, name = found.groups()
        if kind is None:
            return "$${"
        return f"${{env:{name}:-}}" if kind == "env" else f"${{file:{name if name[0] == '~' else folder / name}}}"

    if isinstance(value, str):
        return _VARIABLE.sub(ours, value)
    if isinstance(value, list):
        return [_with_our_variables(each, folder) for each in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        return {key: _with_our_variables(each, folder) for key, each in cast("Mapping[str, Any]", value).items()}
    return value
