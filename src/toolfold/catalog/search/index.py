"""Which entries hold which words: built from the entries, stored on disk, and rebuilt only for what has changed.

An entry becomes a row of weighted words. Each word has two weights: one for matching (the more specific the field, the
more a word there counts; long fields count less per word), one for the vector that stands for the entry's meaning. Both
depend on this entry alone, so a change elsewhere in the catalog changes nothing here and a stored row stays true.
"""

from __future__ import annotations

import math
import mmap
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from toolfold.catalog.entries import Entry
from toolfold.catalog.search.request import offered_action
from toolfold.catalog.search.words import STOPWORDS, Words, lexicon
from toolfold.catalog.skill_entries import SkillBody
from toolfold.catalog.store import replace_file

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]

# From an entry to a row

_ANALYSIS = "7"
"""Change it when the same entry would give another row: stored indexes are then discarded."""


class _Field(NamedTuple):
    weight: float
    """How much one occurrence in a field of typical length counts."""
    typical: float
    """Words in a usual field of this kind: what length is measured against."""
    slope: float
    """How far length matters: 0 not at all, 1 in full proportion."""
    meaning: float
    """The field's share in the entry's vector."""


_FIELDS = {
    "name": _Field(3.0, 3, 0.6, 1.0),
    "server": _Field(2.0, 2, 0.3, 0.6),
    "title": _Field(1.5, 4, 0.3, 0.0),
    "description": _Field(1.0, 45, 0.6, 1.0),
    "parameters": _Field(0.5, 10, 0.6, 0.3),
    "parameter docs": _Field(0.4, 60, 0.6, 0.2),
    "values": _Field(0.3, 15, 0.6, 0.0),
    "about": _Field(0.6, 6, 0.3, 0.5),
}
"""`about` is not the entry's own: it is what its server's or its own name is known for."""

_PRODUCTS = {line[0]: line[1:] for line in lexicon("products")}
_DESCRIPTION = 1500
_DOCS = 1500
_VALUES = 500
_DEPTH = 3
_PARAMETERS = 100


class _Row(NamedTuple):
    """One entry's words: the spelling, its weight in matching, its weight in meaning; and what the entry does."""

    words: list[str]
    match: list[float]
    meaning: list[float]
    actions: int


def field_words(entry: Entry, words: Words) -> dict[str, list[str]]:
    """Field → its words, in order. The same in the index and in an explanation."""
    texts = {
        "name": entry.name if not entry.uri else f"{entry.name} {entry.uri}",
        "server": entry.server,
        "title": entry.title,
        "description": entry.description[:_DESCRIPTION],
    }
    names: list[str] = []
    docs: list[str] = []
    values: list[str] = []
    if entry.kind == "tool":
        _read_schema(entry.tool().input_schema, names, docs, values)
    elif entry.kind == "prompt":
        for argument in entry.prompt().arguments:
            names.append(argument.name)
            docs.append(argument.description)
    elif entry.kind == "skill":
        body = msgspec.json.decode(entry.body, type=SkillBody)
        _read_schema(body.input_schema, names, docs, values)
        docs.append(body.doc)
    texts["parameters"] = " ".join(names)
    texts["parameter docs"] = " ".join(docs)[:_DOCS]
    texts["values"] = " ".join(values)[:_VALUES]
    found = {field: words.split(text) for field, text in texts.items() if text}
    products = dict.fromkeys(word for field in ("server", "name") for word in found.get(field, ()) if word in _PRODUCTS)
    if products:
        found["about"] = [word for product in products for word in _PRODUCTS[product]]
    return found


def _row(entry: Entry, words: Words) -> _Row:
    match: dict[str, float] = {}
    meaning: dict[str, float] = {}
    fields = field_words(entry, words)
    for field, found in fields.items():
        about = _FIELDS[field]
        counts = Counter(found)
        unit = about.weight / (1 - about.slope + about.slope * len(found) / about.typical)
        for word, count in counts.items():
            match[word] = match.get(word, 0.0) + unit * count
        if about.meaning:
            topical = [
                (word, 1.0 if count == 1 else 1 + math.log(count))
                for word, count in counts.items()
                if word not in STOPWORDS
            ]
            share = about.meaning / math.sqrt(sum(value * value for _, value in topical) or 1.0)
            for word, value in topical:
                meaning[word] = meaning.get(word, 0.0) + share * value
    shares = [meaning.get(word, 0.0) for word in match]
    return _Row(list(match), list(match.values()), shares, offered_action(fields))


def _read_schema(schema: Any, names: list[str], docs: list[str], values: list[str], depth: int = 0) -> None:
    """Collect parameter names, what is said about them, and the values they are limited to; odd shapes are skipped."""
    for name, about in _properties(schema):
        if len(names) >= _PARAMETERS:
            return
        names.append(name)
        if not isinstance(about, dict):
            continue
        known = cast(dict[str, Any], about)
        if isinstance(doc := known.get("description"), str):
            docs.append(doc[:_DOCS])
        options = known.get("enum")
        if isinstance(options, list):
            values += [option for option in cast(list[Any], options)[:50] if isinstance(option, str)]
        if depth < _DEPTH:
            _read_schema(known, names, docs, values, depth + 1)
            _read_schema(known.get("items"), names, docs, values, depth + 1)


def _properties(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, dict):
        properties: Any = schema.get("properties")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if isinstance(properties, dict):
            yield from properties.items()  # pyright: ignore[reportUnknownVariableType]


# From rows to postings

_SATURATION = 0.9
"""BM25's k1: how soon another occurrence of a word stops mattering."""
_DIGEST = 12


class WordIndex:
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

    # Building and storing

    @classmethod
    def build(cls, entries: Sequence[Entry], words: Words, previous: WordIndex | None = None) -> WordIndex:
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
            made = _row(entry, words)
            parts.append(([ids.setdefault(word, len(ids)) for word in made.words], made.match, made.meaning))
            acts.append(made.actions)
        return cls(_assemble(parts, acts, entries, list(ids), words))

    @classmethod
    def load(cls, path: Path) -> tuple[str, WordIndex] | None:
        """The stored index and the catalog version it was made for; None where there is none that we can use."""
        found = load_arrays(path)
        if found is None:
            return None
        stamp, stored = found
        analysis, _, version = stamp.partition(":")
        try:
            return (version, cls(stored)) if analysis == _ANALYSIS else None
        except (KeyError, ValueError):
            return None

    def save(self, path: Path, version: str) -> None:
        save_arrays(path, f"{_ANALYSIS}:{version}", self._arrays)

    # Reading

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
    # Words that only removed entries held are dropped, and the others renumbered.
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


# Named arrays in one file that is mapped, not read: opening it costs a few pages, whatever its size

_MAGIC = b"tfarr1\0\0"
_ALIGN = 64


class _Array(msgspec.Struct, array_like=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


class _Header(msgspec.Struct, array_like=True):
    stamp: str
    arrays: list[_Array]


def save_arrays(path: Path, stamp: str, arrays: dict[str, NDArray[Any]]) -> None:
    """Write the arrays with a `stamp` that says what they were made from. OSError where nothing can be written."""
    described: list[_Array] = []
    chunks: list[bytes] = []
    offset = 0
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).tobytes()
        described.append(_Array(name, array.dtype.str, array.shape, offset))
        data += bytes(-len(data) % _ALIGN)
        chunks.append(data)
        offset += len(data)
    header = msgspec.msgpack.encode(_Header(stamp, described))
    head = _MAGIC + len(header).to_bytes(8, "little") + header
    replace_file(path, head + bytes(-len(head) % _ALIGN) + b"".join(chunks))


def load_arrays(path: Path) -> tuple[str, dict[str, NDArray[Any]]] | None:
    """The stamp and the arrays, read-only; None where the file is missing, torn or not ours."""
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if mapped[:8] != _MAGIC:
            return None
        length = int.from_bytes(mapped[8:16], "little")
        header = msgspec.msgpack.decode(mapped[16 : 16 + length], type=_Header)
        start = 16 + length + -(16 + length) % _ALIGN
        found: dict[str, NDArray[Any]] = {}
        for one in header.arrays:
            dtype = np.dtype(one.dtype)
            size = int(np.prod(one.shape))
            flat: NDArray[Any] = np.frombuffer(mapped, dtype, size, start + one.offset)
            found[one.name] = flat.reshape(one.shape)
    except (OSError, ValueError, TypeError, msgspec.MsgspecError):
        return None
    return header.stamp, found
