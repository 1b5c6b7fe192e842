"""JSON as editors write it: `//` and `/* */` comments and trailing commas, in one pass over the text."""

from __future__ import annotations

import json
import re
from typing import Any

# One alternation, tried from left to right at each place: a string is taken whole, so what looks like a comment
# or a comma inside it is never seen. A string or comment that is never closed takes the rest of the text, so no
# part of it is looked at twice and the pass stays linear.
_PIECE = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*+"?)'
    r"|(?P<line>//[^\r\n]*+)"
    r"|(?P<block>/\*(?:[^*]|\*(?!/))*+(?:\*/)?)"
    r"|(?P<comma>,)"
    r"|(?P<close>[}\]])"
    r"|(?P<other>[^\"/,}\]\s]++|/)",
    re.DOTALL,
)
_NOT_BREAK = re.compile(r"[^\r\n]")


def strip(text: str) -> str:
    """`text` with comments and trailing commas blanked out. Lines and columns stay where they were.

    What is not valid JSONC (an unclosed comment, a stray slash) is left for the JSON parser to refuse.
    """
    kept: list[str] = []
    done = 0
    comma = -1
    for piece in _PIECE.finditer(text):
        kind = piece.lastgroup
        if kind == "block" and not piece[0].endswith("*/", 2):
            break
        if kind in {"line", "block"}:
            kept += (text[done : piece.start()], _NOT_BREAK.sub(" ", piece[0]))
            done = piece.end()
        elif kind == "comma":
            kept += (text[done : piece.start()], ",")
            done = piece.end()
            comma = len(kept) - 1
        else:
            if kind == "close" and comma >= 0:
                kept[comma] = " "
            comma = -1
    kept.append(text[done:])
    return "".join(kept)


class Duplicates(list[str]):
    """Names that an object of the document holds more than once."""


def parse(text: str, duplicates: Duplicates | None = None) -> Any:
    """The value that `text` holds; raises `ValueError` (bad syntax) or `RecursionError` (nested too deep).

    An object's repeated name keeps its last value, as in every client; `duplicates` collects such names.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items) and duplicates is not None:
            seen: set[str] = set()
            duplicates.extend(name for name, _ in items if name in seen or seen.add(name))
        return found

    try:
        return json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError:
        # Most files are plain JSON; only those that are not pay for the second pass.
        if duplicates is not None:
            duplicates.clear()
        return json.loads(strip(text), object_pairs_hook=pairs)
