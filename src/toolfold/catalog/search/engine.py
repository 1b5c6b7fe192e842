"""Search over one state of the catalog: makes or loads what ranking needs, and answers with entries."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from toolfold.catalog.entries import Entry
from toolfold.catalog.search import thesaurus
from toolfold.catalog.search.explain import reasons
from toolfold.catalog.search.index import Index
from toolfold.catalog.search.ranker import Ranker
from toolfold.catalog.search.vectors import Meanings, Vectors
from toolfold.catalog.search.words import Words


class Found(NamedTuple):
    entry: Entry
    score: float
    why: list[str]


class FoundAll(NamedTuple):
    ranked: list[Found]
    total: int


class Engine:
    """Nothing is loaded until the first question; an engine of an earlier state lends what has not changed."""

    def __init__(
        self,
        scope: str,
        version: str,
        entries: Sequence[Entry],
        folder: Path,
        semantic: bool,
        previous: Engine | None = None,
    ) -> None:
        self.version = version
        self._entries = entries
        self._index_file = folder / f"search-{scope}.index"
        self._vectors_file = folder / f"search-{scope}.vectors"
        self._semantic = semantic
        self._words = previous._words if previous is not None else Words()
        self._meanings = previous._meanings if previous is not None else None
        self._before = (previous._index or previous._before) if previous is not None else None
        self._index: Index | None = None
        self._ranker: Ranker | None = None

    def ready(self) -> Ranker:
        if self._ranker is None:
            self._index = index = self._indexed()
            vectors = None
            if self._semantic:
                self._meanings = self._meanings or Meanings.open()
                if self._meanings is not None:
                    vectors = Vectors.open(index, self._meanings, self._vectors_file)
            self._ranker = Ranker(index, self._entries, self._words, thesaurus.load(), self._meanings, vectors)
            self._before = None
        return self._ranker

    def find(self, query: str, count: int, mask: list[bool] | None, explain: bool) -> FoundAll:
        """The best `count` of the entries that `mask` (all, if None) lets through, and how many of them match."""
        ranker = self.ready()
        ranking = ranker.rank(query, count, None if mask is None else np.array(mask, np.bool_))
        found = [
            Found(
                self._entries[one.place],
                one.score,
                reasons(self._entries[one.place], one, ranking, self._words) if explain else [],
            )
            for one in ranking.order
        ]
        return FoundAll(found, ranking.total)

    def _indexed(self) -> Index:
        """The kept index if it is of this very state; else a new one, with the old one's rows where they still hold."""
        kept = Index.load(self._index_file)
        if kept is not None and kept[0] == self.version and kept[1].size == len(self._entries):
            return kept[1]
        index = Index.build(self._entries, self._words, self._before or (kept[1] if kept is not None else None))
        # A folder that cannot be written costs the next process the same work, nothing more.
        with contextlib.suppress(OSError):
            index.save(self._index_file, self.version)
        return index
