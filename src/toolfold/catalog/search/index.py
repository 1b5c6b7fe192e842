"""Which entries hold which words: built from weighted rows, kept on disk, and rebuilt from what has not changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolfold.catalog.entries import Entry
from toolfold.catalog.search import arrays
from toolfold.catalog.search.fields import ANALYSIS, row
from toolfold.catalog.search.words import Words

_SATURATION = 0.9
"""BM25's k1: how soon another occurrence of a word stops mattering."""
_DIGEST = 12

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]


class Index:
    """Rows (entry → words) and postings (stem → entries), over entries in their catalog order.

    Rows hold what depends on one entry alone, so an entry that has not changed is never read again.
    """

    def __init__(self, found: dict[str, NDArray[Any]]) -> None:
        self._arrays = found
        self.size = len(found["actions"])
        self.actions: NDArray[np.uint32] = found["actions"]
        self.digests: NDArray[np.uint8] = found["digests"]
        self.row_start: NDArray[np.int64] = found["row_start"]
        self.row_word: Ints = found["row_word"]
        self.row_match: NDArray[np.float16] = found["row_match"]
        self.row_meaning: NDArray[np.float16] = found["row_meaning"]
        self._start: list[int] = found["start"].tolist()
        self._entry: Ints = found["entry"]
        self._impact: NDArray[np.float16] = found["impact"]
        self.idf: Floats = found["idf"]
        self.stem_of: Ints = found["stem_of"]
        self.stems: list[str] = _texts(found["stems"])
        self._stem_ids = {stem: place for place, stem in enumerate(self.stems)}

    # Made and kept

    @classmethod
    def build(cls, entries: Sequence[Entry], words: Words, previous: Index | None = None) -> Index:
        """The index of `entries`, reusing the rows of `previous` for every entry that is in both."""
        old = previous.rows_by_digest() if previous is not None else {}
        ids: dict[str, int] = {}
        if previous is not None:
            ids = {spelling: place for place, spelling in enumerate(previous.spellings)}
        parts: list[tuple[Any, Any, Any]] = []
        acts: list[int] = []
        for entry in entries:
            place = old.get(entry.digest)
            if place is not None and previous is not None:
                parts.append(previous.row(place))
                acts.append(int(previous.actions[place]))
                continue
            made = row(entry, words)
            parts.append(([ids.setdefault(word, len(ids)) for word in made.words], made.match, made.meaning))
            acts.append(made.actions)
        return cls(_assemble(parts, acts, entries, list(ids), words))

    @classmethod
    def load(cls, path: Path) -> tuple[str, Index] | None:
        """The kept index and the catalog version it was made for; None where there is none that we can use."""
        found = arrays.load(path)
        if found is None:
            return None
        stamp, kept = found
        analysis, _, version = stamp.partition(":")
        try:
            return (version, cls(kept)) if analysis == ANALYSIS else None
        except (KeyError, ValueError):
            return None

    def save(self, path: Path, version: str) -> None:
        arrays.save(path, f"{ANALYSIS}:{version}", self._arrays)

    # Asked

    def stem_id(self, stem: str) -> int | None:
        return self._stem_ids.get(stem)

    def postings(self, stem_id: int) -> tuple[Ints, NDArray[np.float16]]:
        """The entries that hold a stem, ascending, and how strongly each does (without the stem's rarity)."""
        begin, end = self._start[stem_id], self._start[stem_id + 1]
        return self._entry[begin:end], self._impact[begin:end]

    def frequency(self, stem_id: int) -> int:
        return self._start[stem_id + 1] - self._start[stem_id]

    def row(self, place: int) -> tuple[Ints, NDArray[np.float16], NDArray[np.float16]]:
        begin, end = int(self.row_start[place]), int(self.row_start[place + 1])
        return self.row_word[begin:end], self.row_match[begin:end], self.row_meaning[begin:end]

    @cached_property
    def spellings(self) -> list[str]:
        return _texts(self._arrays["spellings"])

    def rows_by_digest(self) -> dict[bytes, int]:
        return {digest.tobytes(): place for place, digest in enumerate(self.digests)}


def _assemble(
    parts: list[tuple[Any, Any, Any]], acts: list[int], entries: Sequence[Entry], spellings: list[str], words: Words
) -> dict[str, NDArray[Any]]:
    size = len(parts)
    lengths = np.array([len(part[0]) for part in parts], np.int64)
    row_start = np.zeros(size + 1, np.int64)
    np.cumsum(lengths, out=row_start[1:])
    row_word = _joined([part[0] for part in parts], np.int32)
    row_match = _joined([part[1] for part in parts], np.float16)
    row_meaning = _joined([part[2] for part in parts], np.float16)
    # Words that only removed entries held go; the rest move together.
    used = np.unique(row_word)
    if len(used) < len(spellings):
        row_word = np.searchsorted(used, row_word).astype(np.int32)
        spellings = [spellings[place] for place in used.tolist()]
    stem_ids: dict[str, int] = {}
    stem_of = np.array([stem_ids.setdefault(words.stem(one), len(stem_ids)) for one in spellings], np.int32)
    start, entry, impact = _postings(
        stem_of[row_word], np.repeat(np.arange(size), lengths), row_match, len(stem_ids), size
    )
    frequency = np.diff(start)
    digests = np.frombuffer(b"".join(one.digest for one in entries), np.uint8).reshape(size, _DIGEST)
    return {
        "actions": np.array(acts, np.uint32),
        "digests": digests,
        "row_start": row_start,
        "row_word": row_word,
        "row_match": row_match,
        "row_meaning": row_meaning,
        "start": start,
        "entry": entry,
        "impact": impact,
        "idf": np.log(1 + (size - frequency + 0.5) / (frequency + 0.5)).astype(np.float32),
        "stem_of": stem_of,
        "stems": _packed(list(stem_ids)),
        "spellings": _packed(spellings),
    }


def _postings(
    stems: Ints, owners: NDArray[np.int64], weights: NDArray[np.float16], vocabulary: int, size: int
) -> tuple[NDArray[np.int64], Ints, NDArray[np.float16]]:
    """Turn (entry, stem, weight) around into stem → entries, where two spellings of a stem in an entry add up."""
    keys = stems.astype(np.int64) * max(size, 1) + owners
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    total = np.add.reduceat(weights[order].astype(np.float32), first) if len(first) else np.zeros(0, np.float32)
    stem_ids, entry = np.divmod(keys[first], max(size, 1))
    start = np.searchsorted(stem_ids, np.arange(vocabulary + 1)).astype(np.int64)
    impact = total * (_SATURATION + 1) / (total + _SATURATION)
    return start, entry.astype(np.int32), impact.astype(np.float16)


def _joined(parts: list[Any], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([np.asarray(part, dtype) for part in parts]) if parts else np.zeros(0, dtype)


def _packed(texts: list[str]) -> NDArray[np.uint8]:
    return np.frombuffer("\n".join(texts).encode(), np.uint8)


def _texts(packed: NDArray[np.uint8]) -> list[str]:
    return packed.tobytes().decode().split("\n") if len(packed) else []
