"""Whether a call is what a rule means, told so that neither another spelling nor another type gets around it.

There are three answers. EXACT: it is what the rule says. LOOSE: another program may well read it as what the rule says
(`"1"` for `1`, `My-Org` for `my-org`, `/home/../etc` for `/etc`). NO: neither. A loose match may make a decision
stricter and never more lenient.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, cast
from urllib.parse import unquote

from toolfold.schema.defaults import ABSENT, default_at
from toolfold.schema.look_alikes import folded

_LONGEST_TEXT = 100_000
_MOST_VALUES = 10_000
"""What is larger than these is not looked at, and matches loosely."""
_MOST_TARGETS = 4_096
_LONGEST_KEPT = 500
_UNQUOTED = 3
"""How often a text is freed of percent-encoding."""
_TRUE = frozenset({"true", "1", "yes", "on", "y", "t"})
_FALSE = frozenset({"false", "0", "no", "off", "n", "f"})
_NOTHING = frozenset({"", "null", "none", "nil"})
_NUMBER = re.compile(r"[+-]?(?:\d{1,300}(?:\.\d{0,300})?|\.\d{1,300})(?:e[+-]?\d{1,3})?")


class Match(IntEnum):
    NO = 0
    LOOSE = 1
    EXACT = 2


NO, LOOSE, EXACT = Match.NO, Match.LOOSE, Match.EXACT


class TextPattern:
    """A text in which `*` stands for any text. `read` is how a lenient reader takes a text."""

    def __init__(self, pattern: str, read: Callable[[str], str]) -> None:
        self._read = read
        self._parts = pattern.split("*")
        self._loose_parts = read(pattern).split("*")
        self.matches_all = bool(pattern) and not pattern.strip("*")

    def match(self, text: str) -> Match:
        if self.matches_all:
            return EXACT
        if len(text) > _LONGEST_TEXT:
            return LOOSE
        if _glob(self._parts, text) and (len(self._parts) == 1 or not _climbs(text)):
            return EXACT
        return LOOSE if self.match_loosely(text) else NO

    def match_loosely(self, text: str) -> bool:
        read = self._read(text)
        # What is said of `/etc/*` is meant of `/etc` as well.
        return _glob(self._loose_parts, read) or _glob(self._loose_parts, f"{read}/")


def _glob(parts: list[str], text: str) -> bool:
    """In linear time, whatever the text."""
    first, *middle = parts
    if not middle:
        return text == first
    last = middle.pop()
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _read_value(text: str) -> str:
    """Folded, percent-encoding decoded, paths without detours."""
    plain = folded(_decoded(text))
    if "/" not in plain and "\\" not in plain:
        return plain
    kept: list[str] = []
    for segment in plain.replace("\\", "/").split("/"):
        if segment == "..":
            if kept:
                kept.pop()
        elif segment not in {"", "."}:
            kept.append(segment)
    return ("/" if plain[0] in "/\\" else "") + "/".join(kept)


def _decoded(text: str) -> str:
    for _ in range(_UNQUOTED):
        if "%" not in text:
            break
        text = unquote(text)
    return text


def _climbs(text: str) -> bool:
    """Whether a path in it goes up, or ends where another program may think that it ends."""
    if ".." not in text and "%" not in text and "\0" not in text and text.isascii():
        return False
    plain = folded(_decoded(text)).replace("\\", "/")
    return "\0" in text or "%00" in text or ".." in plain.split("/")


# ---- targets


class TargetPattern:
    """A pattern of `server.tool`, `resource:server:uri` or `prompt:server:name`; `*` is everything."""

    def __init__(self, pattern: str) -> None:
        kind, colon, rest = pattern.partition(":")
        self._everything = pattern == "*"
        self._known: dict[tuple[str, str, str], Match] = {}
        """Programs call the same few targets again and again."""
        self._kind = kind if colon and kind in {"resource", "prompt"} else "tool"
        text, separator = (pattern, ".") if self._kind == "tool" else (rest, ":")
        read = _read_value if self._kind == "resource" else read_name
        # Names may hold the separator: the pattern means every server and name that it can be read as.
        self._splits = [
            (TextPattern(text[:at], read_name), TextPattern(text[at + 1 :], read))
            for at, char in enumerate(text)
            if char == separator
        ]

    def match(self, kind: str, server: str, name: str) -> Match:
        target = (kind, server, name)
        found = self._known.get(target)
        if found is None:
            found = self._match(kind, server, name)
            if len(name) <= _LONGEST_KEPT:
                if len(self._known) >= _MOST_TARGETS:
                    self._known.clear()
                self._known[target] = found
        return found

    def _match(self, kind: str, server: str, name: str) -> Match:
        if self._everything:
            return EXACT
        if kind == self._kind:
            return max((min(left.match(server), right.match(name)) for left, right in self._splits), default=NO)
        # What is said of all tools of a server is meant of its resources and prompts, if it is a restriction.
        return LOOSE if self.covers(server) else NO

    def covers(self, server: str) -> bool:
        """Whether it means all tools of a server, if it is a restriction."""
        if self._kind != "tool":
            return False
        return self._everything or any(right.matches_all and left.match(server) for left, right in self._splits)

    def concerns_some(self, server: str) -> bool:
        """Whether it may mean something of a server."""
        return self._everything or any(left.match(server) == EXACT for left, _ in self._splits)


def read_name(text: str) -> str:
    """A name as a lenient reader takes it; generated code writes `create_issue` for `create-issue`."""
    return folded(text).replace("-", "_")


# ---- arguments


class ValuePattern:
    """One wanted value: a text (a pattern), a number, true, false or null."""

    def __init__(self, wanted: str | float | bool | None) -> None:
        self._wanted = wanted
        self._text = TextPattern(wanted, _read_value) if isinstance(wanted, str) else None
        self._readings = readings(wanted)

    def match(self, value: Any) -> Match:
        """Whether a plain value (no list, no object) is the wanted one."""
        if isinstance(value, str) and self._text is not None:
            found = self._text.match(value)
            if found != NO:
                return found
        elif value == self._wanted and isinstance(value, bool) == isinstance(self._wanted, bool):
            return EXACT
        if isinstance(value, str) and len(value) > _LONGEST_TEXT:
            return LOOSE
        read = readings(value)
        if not self._readings.isdisjoint(read):
            return LOOSE
        return LOOSE if self._text is not None and any(map(self._text.match_loosely, read)) else NO


def readings(value: Any) -> frozenset[str]:
    """The texts that a lenient reader may take a plain value for."""
    if value is None:
        return _NOTHING
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, int | float):
        return frozenset({_number(value)})
    text = folded(value)
    return frozenset({text, _number(float(text))} if _NUMBER.fullmatch(text) else {text})


def _number(value: float) -> str:
    try:
        return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
    except (OverflowError, ValueError):
        return str(value)


class ArgumentPattern:
    """What one argument must be. `path` is dotted and looks inside of objects, and of every entry of a list."""

    def __init__(self, path: str, wanted: Iterable[str | float | bool | None]) -> None:
        self._path = path.split(".")
        self._wanted = [ValuePattern(value) for value in wanted]

    def match(self, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> Match:
        """An argument that was left out is what its schema gives as the default. In a list, every entry must match."""
        found = _Values(self._path, arguments)
        if found.too_many:
            return LOOSE
        given = [(self._one(value), as_written) for value, as_written in found.values]
        if not given:
            given = [(self._one(value), as_written) for value, as_written in self._default(schema)]
        elif any(value is None for value, _ in found.values):
            # Null is read as "not given" by some, so the default is one more thing that it may mean.
            given += [(self._one(value), False) for value, _ in self._default(schema)]
        if given and all(match == EXACT and as_written for match, as_written in given):
            return EXACT
        return LOOSE if any(match for match, _ in given) else NO

    def _default(self, schema: Mapping[str, Any]) -> list[tuple[Any, bool]]:
        default = default_at(schema, self._path)
        return [] if default is ABSENT else _Values([], default).values

    def _one(self, value: Any) -> Match:
        return max(pattern.match(value) for pattern in self._wanted)


class _Values:
    """The plain values at a path, each with whether the path was followed as it is written."""

    def __init__(self, path: list[str], root: Any) -> None:
        self.values: list[tuple[Any, bool]] = []
        self.too_many = False
        pending: list[tuple[Any, list[str], bool]] = [(root, path, True)]
        steps = 0
        while pending:
            node, rest, as_written = pending.pop()
            steps += 1
            if steps > _MOST_VALUES:
                self.too_many = True
                return
            if isinstance(node, list):
                entries = cast("list[Any]", node)
                if len(entries) > _MOST_VALUES:
                    self.too_many = True
                    return
                pending.extend((entry, rest, as_written) for entry in entries)
            elif isinstance(node, dict):
                items = cast("dict[str, Any]", node)
                if len(items) > _MOST_VALUES:
                    self.too_many = True
                    return
                if rest:
                    pending.extend(_follow(items, rest, as_written))
                else:
                    pending.extend((inner, [], False) for inner in items.values())
            elif not rest:
                self.values.append((node, as_written))


def _follow(items: dict[str, Any], path: list[str], as_written: bool) -> Iterable[tuple[Any, list[str], bool]]:
    whole, first = ".".join(path), path[0]
    loose_whole, loose_first = read_name(whole), read_name(first)
    for key, value in items.items():
        if key == first:
            yield value, path[1:], as_written
        elif key == whole:
            yield value, [], as_written
        else:
            loose = read_name(key)
            if loose == loose_first:
                yield value, path[1:], False
            elif loose == loose_whole:
                yield value, [], False
