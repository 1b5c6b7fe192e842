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
    """The matches in the order of the text, without overlaps.

    Those that overlap become one, of the kind of the longest: no part of any of them is left over.
    """
    kept: list[Match] = []
    longest: tuple[int, int, tuple[int, str]] = (0, 0, (0, ""))
    for match in sorted(matches, key=lambda one: (one.start, one.end, _rank(one.kind))):
        size = (match.start - match.end, match.start, _rank(match.kind))
        if not kept or match.start >= kept[-1].end:
            kept.append(match)
            longest = size
            continue
        last = kept[-1]
        winner, longest = (match, size) if size < longest else (last, longest)
        kept[-1] = winner._replace(start=last.start, end=max(last.end, match.end))
    return kept


def _rank(kind: str) -> tuple[int, str]:
    # Kinds of the person's own come first.
    return (KINDS.index(kind) + 1, kind) if kind in KINDS else (0, kind)
