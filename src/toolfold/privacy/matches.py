"""What recognisers find: spans of a text, with the kind of value that is there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from toolfold.config.privacy import KINDS


class Match(NamedTuple):
    """A value at `text[start:end]`."""

    start: int
    end: int
    kind: str
    needs_context: bool = False
    """Whether it was recognised by the words around it: elsewhere the same text is found only because it is known."""


class Recogniser(Protocol):
    """The seam for recognisers, ours and others (see `recognisers.presidio`)."""

    def find(self, text: str, /) -> Iterable[Match]:
        """Every value in `text`. Matches may overlap and come in any order."""
        ...


def resolved(matches: Iterable[Match]) -> list[Match]:
    """The matches in the order of the text without overlaps: the longest wins, then the first, then the kind's order."""
    ordered = sorted(matches, key=lambda match: (match.start, match.start - match.end, _rank(match.kind)))
    kept: list[Match] = []
    for match in ordered:
        if not kept or match.start >= kept[-1].end:
            kept.append(match)
        elif match.end - match.start > kept[-1].end - kept[-1].start:
            kept[-1] = match
    return kept


def _rank(kind: str) -> tuple[int, str]:
    # Kinds of the person's own come first.
    return (KINDS.index(kind) + 1, kind) if kind in KINDS else (0, kind)
