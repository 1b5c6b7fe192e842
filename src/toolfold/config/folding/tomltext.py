"""Small edits to TOML. Everything that is not edited keeps its bytes.

Only whole tables and whole `key = value` lines are taken out or added; what is inside an inline table stays there.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from typing import Any, cast

from toolfold.config.folding.jsonc import EditError

Path = tuple[str, ...]

_PART = re.compile(r"""[ \t]*([A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*""")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'", re.DOTALL
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class _Statement:
    """A table's header, or one `key = value`, with the lines that it takes."""

    path: Path
    header: bool
    start: int
    end: int


def remove(text: str, path: Path, name: str) -> tuple[str, str]:
    """`text` without the table `path.name` and all inside it, and what was taken out. Comments around it stay."""
    wanted = (*path, name)
    cuts: list[tuple[int, int]] = []
    inside = False
    for statement in _statements(text):
        ours = statement.path[: len(wanted)] == wanted
        if ours and inside and not statement.header:
            # A comment between two lines of the table goes with them.
            cuts[-1] = (cuts[-1][0], statement.end)
        elif ours:
            cuts.append((statement.start, statement.end))
        inside = ours and (statement.header or inside)
    taken = "".join(text[start:end] for start, end in cuts)
    for start, end in reversed(cuts):
        text = text[:start] + text[end:]
    if not cuts:
        raise EditError(f"expected a table `{name}`")
    return text, taken


def put(text: str, path: Path, name: str, value: Mapping[str, Any], comments: Sequence[str] = ()) -> tuple[str, str]:
    """`text` with the table `path.name` at its end, and what was added."""
    lines = [f"# {line}".rstrip() for line in comments]
    lines.append(f"[{'.'.join(_key(part) for part in (*path, name))}]")
    lines += [f"{_key(key)} = {dumped(given)}" for key, given in value.items()]
    return put_back(text, "\n".join(lines) + "\n")


def put_back(text: str, tables: str) -> tuple[str, str]:
    """`text` with `tables` at its end, behind an empty line, and all that was added."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if "\r\n" not in tables:
        tables = tables.replace("\n", newline)
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    return text + gap + tables, gap + tables


def comments(text: str) -> list[str]:
    """The comments in a piece of TOML, without their signs."""
    found: list[str] = []
    at = 0
    while at < len(text):
        string = _STRING.match(text, at)
        if string is not None:
            at = string.end()
        elif text[at] == "#":
            end = _end_of_line(text, at)
            found.append(text[at:end].strip().lstrip("#").strip())
            at = end
        else:
            at += 1
    return found


def dumped(value: Any) -> str:
    """A value as TOML writes it, in one line; `None` inside an object is left out."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, int | date | time):
        return value.isoformat() if isinstance(value, date | time) else str(value)
    if isinstance(value, Mapping):
        pairs = [(key, given) for key, given in cast("Mapping[str, Any]", value).items() if given is not None]
        return "{ " + ", ".join(f"{_key(key)} = {dumped(given)}" for key, given in pairs) + " }" if pairs else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(dumped(each) for each in cast("list[Any]", value)) + "]"
    raise EditError("expected text, numbers, lists and objects")


def _key(part: str) -> str:
    return part if _BARE.fullmatch(part) else dumped(part)


# ---- reading


def _statements(text: str) -> list[_Statement]:
    found: list[_Statement] = []
    table: Path = ()
    at = 1 if text.startswith("\ufeff") else 0
    while at < len(text):
        start = at
        at = _after_spaces(text, at)
        if text[at : at + 1] in {"", "\n", "\r", "#"}:
            at = _end_of_line(text, at)
            continue
        header = text[at] == "["
        if header:
            at += 2 if text.startswith("[[", at) else 1
        path, at = _path(text, at)
        if header:
            table = path
        else:
            path = table + path
        at = _end_of_statement(text, at)
        found.append(_Statement(path, header, start, at))
    return found


def _path(text: str, at: int) -> tuple[Path, int]:
    parts: list[str] = []
    while True:
        part = _PART.match(text, at)
        if part is None:
            raise EditError("expected a key")
        quoted = part[1][0] in "\"'"
        parts.append(str(tomllib.loads(f"k = {part[1]}")["k"]) if quoted else part[1])
        at = part.end()
        if text[at : at + 1] != ".":
            return tuple(parts), at
        at += 1


def _end_of_statement(text: str, at: int) -> int:
    """Behind the line break that ends the statement: none inside strings and brackets counts."""
    depth = 0
    while at < len(text):
        string = _STRING.match(text, at)
        if string is not None:
            at = string.end()
            continue
        sign = text[at]
        if sign == "#":
            at = _end_of_line(text, at)
            if depth <= 0:
                return at
            continue
        if sign == "\n" and depth <= 0:
            return at + 1
        depth += (sign in "[{") - (sign in "]}")
        at += 1
    return at


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _after_spaces(text: str, at: int) -> int:
    while text[at : at + 1] in {" ", "\t"} and at < len(text):
        at += 1
    return at
