"""Text as recognisers read it: look-alike characters and escapes are undone; every place leads back to the original.

Full-width and other digits, dashes, spaces and letters that only look Latin become plain ones; characters without
width are dropped; `\\u0040` and `\\n`, as JSON and `repr` write them, are the characters that they stand for.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from functools import cache

_LOOK_ALIKES = (
    "АВЕЅІЈКМНОРСТХУаеіјорсухѕ" + "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧο" + "‐‑‒–—−﹣" + "。․" + "\u00a0\u2007\u202f\u2009\u2002\u2003\u3000",
    "ABESIJKMHOPCTXYaeijopcyxs" + "ABEZHIKMNOPTYXo" + "-------" + ".." + "       ",
)


_BEYOND = re.compile("[\U00010000-\U0001ffff]")
_LAST_DIGIT = 0x20000
"""No script has digits of its own from here on."""


@cache
def _one_to_one() -> tuple[dict[str, str], re.Pattern[str]]:
    """What can be replaced character by character, so that no place in the text moves; and a pattern that finds it."""
    table = dict(zip(*_LOOK_ALIKES, strict=True))
    for character in map(chr, range(0x80, _LAST_DIGIT)):
        if unicodedata.category(character) == "Nd":
            table[character] = str(unicodedata.digit(character))
    for character in map(chr, (*range(0xFF01, 0xFF5F), *range(0x1D400, 0x1D7CC), 0xFE6B)):  # full width, mathematical
        plain = unicodedata.normalize("NFKC", character)
        if len(plain) == 1:
            table.setdefault(character, plain)
    # `re` looks up a set within the basic plane in one step, and goes through any other one by one.
    basic = "".join(character for character in sorted(table) if character <= "\uffff")
    return table, re.compile(f"[{basic}]")


_INVISIBLE = (
    "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e007f"
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "/": "/", '"': '"', "'": "'", "\\": "\\"}
_LIGATURES = "\ufb00-\ufb06\u2460-\u249b\u2070-\u2079\u2080-\u2089\u00b2\u00b3\u00b9"
_MAY_MOVE = re.compile(f"[\\\\\u0300-\u036f{_INVISIBLE}{_LIGATURES}]")
_MOVES = re.compile(
    rf"(?P<dropped>[{_INVISIBLE}]+)"
    r"|\\u(?P<four>[0-9a-fA-F]{4})|\\x(?P<two>[0-9a-fA-F]{2})|\\(?P<short>[ntr/\"'\\])"
    r"|[^\W\d_][\u0300-\u036f]+"  # a letter and its accents
    rf"|[{_LIGATURES}]"  # and digits in circles or smaller ones
)


class Folded:
    """A text as recognisers read it. `original(start, end)` gives a span of it in the original's places."""

    __slots__ = ("_moved_at", "_moves", "text")

    def __init__(self, text: str) -> None:
        self._moved_at: list[int] = []
        """Where in the folded text something of another length was put."""
        self._moves: list[tuple[int, int, int]] = []
        """For each: where it ends in the folded text, and where what it replaced begins and ends in the original."""
        if text.isascii():
            if "\\" not in text:
                self.text = text
                return
        else:
            plain, pattern = _one_to_one()
            text = pattern.sub(lambda found: plain[found[0]], text)
            if _BEYOND.search(text):
                text = _BEYOND.sub(lambda found: plain.get(found[0], found[0]), text)
        self.text = self._moved(text) if _MAY_MOVE.search(text) else text

    def _moved(self, text: str) -> str:
        pieces: list[str] = []
        at = length = 0
        for found in _MOVES.finditer(text):
            put = _replacement(found)
            length += found.start() - at
            self._moved_at.append(length)
            pieces += (text[at : found.start()], put)
            length += len(put)
            at = found.end()
            self._moves.append((length, found.start(), at))
        return "".join((*pieces, text[at:])) if pieces else text

    def original(self, start: int, end: int) -> tuple[int, int]:
        """The span in the original text: whatever was replaced or dropped inside it belongs to it."""
        if not self._moves:
            return start, end
        number = bisect_right(self._moved_at, start) - 1
        if number >= 0:
            stop, begin, after = self._moves[number]
            start = begin if start < stop else after + start - stop
        number = bisect_left(self._moved_at, end) - 1
        if number >= 0:
            stop, _, after = self._moves[number]
            end = after if end <= stop else after + end - stop
        return start, end


def _replacement(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "dropped":
            return ""
        case "four" | "two" as group:
            return chr(int(found[group], 16))
        case "short":
            return _ESCAPES[found["short"]]
        case _:
            return unicodedata.normalize("NFKC", found[0])
