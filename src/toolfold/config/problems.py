"""What is wrong in a config, said in one line that is safe to show."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_LONGEST = 200


def one_line(text: str) -> str:
    """`text` fit for a terminal or a log: no control or direction characters, no line breaks, bounded."""
    clean = _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)
    return clean if len(clean) <= _LONGEST else f"{clean[:_LONGEST]}…"


def known_key(key: str, known: Iterable[str]) -> str:
    """What to say about a key that nobody knows: the nearest one that exists, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(key[:60], names, n=1, cutoff=0.5)
    choice = f"`{near[0]}`, the nearest known key" if near else f"one of {', '.join(names)}"
    return f"expected {choice}; this key is ignored"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to put right: where it is and what was expected there.

    It holds names and places, never a value from the file: values are where people keep their secrets.
    """

    file: str
    key: str
    expected: str
    server: str = ""
    """The server that is left out (or got a default) because of this; empty when it is about a setting."""

    def __str__(self) -> str:
        where = ": ".join(one_line(part) for part in (self.file, self.key) if part)
        return f"{where}: {self.expected}" if where else self.expected
