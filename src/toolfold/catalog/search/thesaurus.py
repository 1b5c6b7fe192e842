"""Which words ask for the same thing: `notify` for `send`, `xlsx` for `excel`, `pull request` for `merge request`.

The groups are in `lexicon/thesaurus.txt`, in the vocabulary of tools rather than of literature. A group's first word is
its head: the others stand for it in full, and it stands for them a little less.
"""

from __future__ import annotations

from typing import NamedTuple

from toolfold.catalog.search import lexicon
from toolfold.catalog.search.stems import stem

_TO_HEAD = 1.0
_FROM_HEAD = 0.8
_PART = 0.6
"""Each word of a phrase says only a part of it."""


_Key = tuple[str, ...]


class Thesaurus(NamedTuple):
    words: dict[str, dict[str, float]]
    """Stem → stems that mean much the same, with how much."""
    phrases: dict[tuple[str, str], dict[str, float]]
    """Two stems in a row → the same."""


def load() -> Thesaurus:
    return of_groups(lexicon.lines("thesaurus"))


def of_groups(groups: list[list[str]]) -> Thesaurus:
    """Groups of words that stand for each other; a phrase of two words is written with `-` between them."""
    found: dict[_Key, dict[str, float]] = {}
    keys = {word: tuple(stem(part) for part in word.split("-")) for group in groups for word in group}
    for group in groups:
        stems = [keys[word] for word in group]
        for other in stems[1:]:
            _add(found, other, stems[0], _TO_HEAD)
            _add(found, stems[0], other, _FROM_HEAD)
    return Thesaurus(
        {key[0]: near for key, near in found.items() if len(key) == 1},
        {(key[0], key[1]): near for key, near in found.items() if len(key) == 2},
    )


def _add(
    found: dict[tuple[str, ...], dict[str, float]], word: tuple[str, ...], near: tuple[str, ...], weight: float
) -> None:
    known = found.setdefault(word, {})
    weight *= 1.0 if len(near) == 1 else _PART
    for part in near:
        if part not in word:
            known[part] = max(weight, known.get(part, 0.0))
