"""The `NAME=value` files that `envFile` names."""

from __future__ import annotations

import re

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][\w.]*)\s*=\s*(.*)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def parse(text: str) -> dict[str, str]:
    """The variables of a dotenv file. Quotes are removed, comments and lines that are no assignment are skipped."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        assigned = _LINE.fullmatch(line)
        if assigned is not None:
            found[assigned[1]] = _value(assigned[2].rstrip())
    return found


def _value(raw: str) -> str:
    quote = raw[:1]
    if quote in {'"', "'"}:
        inside = re.match(r'"((?:[^"\\]|\\.)*+)"' if quote == '"' else r"'([^']*+)'", raw)
        if inside is not None:
            return inside[1] if quote == "'" else re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), inside[1])
    return re.split(r"\s#|^#", raw, maxsplit=1)[0].rstrip()
