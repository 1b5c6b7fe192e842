"""The words of a vocabulary that a misspelt word may have meant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_SHORTEST = 4
"""Shorter words have too many neighbours to guess among."""


class Neighbours:
    """Finds spellings within one edit (two for long words), where a swap of neighbours is one edit."""

    def __init__(self, spellings: Sequence[str]) -> None:
        self._spellings = [word for word in spellings if len(word) >= _SHORTEST and word.isalpha()]
        self._lengths = np.array([len(word) for word in self._spellings], np.int16)
        self._letters = np.array([_letters(word) for word in self._spellings], np.uint32)

    def of(self, word: str) -> list[tuple[str, int]]:
        """Spellings and their distances, nearest first, then by alphabet. The word itself is not among them."""
        if len(word) < _SHORTEST or not word.isalpha() or not self._spellings:
            return []
        allowed = 1 if len(word) < 8 else 2
        # One edit changes the set of letters by at most two: almost every word is ruled out without comparing.
        different = np.bitwise_count(self._letters ^ np.uint32(_letters(word)))
        near: NDArray[np.intp] = np.flatnonzero(
            (different <= 2 * allowed) & (np.abs(self._lengths - len(word)) <= allowed)
        )
        found: list[tuple[int, str]] = []
        for place in map(int, near):
            other = self._spellings[place]
            steps = distance(word, other, allowed)
            if 0 < steps <= allowed:
                found.append((steps, other))
        found.sort()
        return [(other, steps) for steps, other in found]


def distance(a: str, b: str, limit: int) -> int:
    """The edits between two words (insert, delete, replace, swap neighbours); anything over `limit` is `limit + 1`."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        older, before, row = before, row, [i]
        for j, right in enumerate(b, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                best = min(best, older[j - 2] + 1)
            row.append(best)
        if min(row) > limit:
            return limit + 1
    return min(row[-1], limit + 1)


def _letters(word: str) -> int:
    bits = 0
    for letter in word:
        bits |= 1 << (ord(letter) % 32)
    return bits
