"""Where certain words stand in a text. Plain searches for words are many times faster than one pattern for all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def places(lower: str, words: Iterable[str]) -> Iterator[int]:
    """Where each of the words begins, in no order; `lower` is the text in small letters."""
    for word in words:
        at = lower.find(word)
        while at >= 0:
            yield at
            at = lower.find(word, at + 1)
