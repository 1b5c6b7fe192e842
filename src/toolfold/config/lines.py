"""Where in a file a setting stands, for messages that point at it."""

from __future__ import annotations

import re

_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?")
_ASSIGNED = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w.-])+)\s*=""")


def line_of(text: str, key: str) -> int:
    """The line of a dotted key such as `policy.rules[2].do`, or of the nearest thing around it; 0 when none is there.

    In TOML tables and lists of tables are followed; elsewhere the names are looked for one after the other.
    """
    found = _in_toml(text, key)
    return found or _by_names(text, [name for name, _ in _PART.findall(key) if name])


def _in_toml(text: str, key: str) -> int:
    best, deepest, inner = 0, 0, 0
    counts: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            table = _plain(header[2])
            if header[1] == "[[":
                counts[table] = counts.get(table, 0) + 1
                table = f"{table}[{counts[table]}]"
            else:
                outer = next((name for name in counts if table.startswith(f"{name}.")), None)
                table = f"{outer}[{counts[outer]}]{table.removeprefix(outer)}" if outer else table
            place = table
        elif assigned := _ASSIGNED.match(line):
            place = f"{table}.{_plain(assigned[1])}".lstrip(".")
        else:
            continue
        around = key == place or key.startswith((f"{place}.", f"{place}["))
        if around and len(place) > deepest:
            best, deepest = number, len(place)
        if place.startswith((f"{key}.", f"{key}[")):
            inner = inner or number
    return best or inner


def _by_names(text: str, names: list[str]) -> int:
    at = line = 0
    for name in names:
        found = re.compile(rf"[\"']?{re.escape(name)}[\"']?\s*[:=\]]").search(text, at)
        if found is None:
            break
        at = found.start()
        line = text.count("\n", 0, at) + 1
    return line


def _plain(name: str) -> str:
    return re.sub(r"[\"'\s]", "", name)
