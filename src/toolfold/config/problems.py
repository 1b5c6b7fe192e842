"""What is wrong in a config, said in one line that is safe to show."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

_LONGEST = 200
_LONGEST_PATH = 4096


def one_line(text: str, longest: int = _LONGEST) -> str:
    """`text` fit for a terminal or a log: no control, direction or invisible characters, and bounded."""
    head = text[:longest]
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in head)
    return clean if len(text) <= longest else f"{clean}…"


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", one_line(self.file, _LONGEST_PATH))
        object.__setattr__(self, "key", one_line(self.key))
        object.__setattr__(self, "server", one_line(self.server))

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.file, self.key) if part)
        return f"{where}: {self.expected}" if where else self.expected
