"""What words mean, by static embeddings that come inside a wheel: a table lookup and a sum, without network or model.

The `wordllama` wheel (the extra `semantic`) carries 256 numbers for each of 32,000 pieces of words (MIT). Only its two
data files are read; the package is never imported, which would cost more than everything here. The table is
memory-mapped: only the rows of words that occur are ever in memory.
"""

from __future__ import annotations

import contextlib
import mmap
from importlib.util import find_spec
from operator import add
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from toolfold.catalog.search.index import Floats, WordIndex, load_arrays, save_arrays

_WEIGHTS = Path("weights", "l2_supercat_256.safetensors")
_TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")
_SPACE = "\u2581"
_PREFIX = 64
"""The first numbers of a vector, trained to be a smaller vector by themselves."""
_WHOLE = 20_000
"""Entries up to which whole vectors are compared; beyond, prefixes choose which ones to compare in full."""
_CHOSEN = 2_000
_REMEMBERED = 4_096
"""Words whose vectors are kept."""


class _Model(msgspec.Struct):
    vocab: dict[str, int]


class _Tokenizer(msgspec.Struct):
    model: _Model


class _Tensor(msgspec.Struct):
    dtype: str
    shape: tuple[int, int]
    data_offsets: tuple[int, int]


class Meanings:
    """Word → vector. A word is the sum of its pieces; a word of no known piece is nothing."""

    def __init__(self, table: NDArray[np.float16], vocabulary: dict[str, int]) -> None:
        self._table = table
        self._vocabulary = vocabulary
        self._seen: dict[str, Floats] = {}
        self.width = table.shape[1]

    @classmethod
    def open(cls) -> Meanings | None:
        """The installed table; None where it is not installed or has another format."""
        try:
            spec = find_spec("wordllama")
        except (ImportError, ValueError):
            return None
        if spec is None or spec.origin is None:
            return None
        folder = Path(spec.origin).parent
        try:
            table = _read_table(folder / _WEIGHTS)
            tokenizer = msgspec.json.decode((folder / _TOKENIZER).read_bytes(), type=_Tokenizer)
        except (OSError, ValueError, msgspec.MsgspecError):
            return None
        vocabulary = tokenizer.model.vocab
        return cls(table, vocabulary) if max(vocabulary.values(), default=0) < len(table) else None

    def vector(self, word: str) -> Floats:
        found = self._seen.get(word)
        if found is None:
            found = np.zeros(self.width, np.float32)
            for piece in self._pieces(word):
                found += self._table[piece]
            if len(self._seen) >= _REMEMBERED:
                self._seen.clear()
            self._seen[word] = found
        return found

    def is_word(self, word: str) -> bool:
        """Whether the word is common enough to be a piece by itself."""
        return _SPACE + word in self._vocabulary

    def _pieces(self, word: str) -> list[int]:
        """Byte-pair encoding: the neighbours that make the commonest piece are joined until none do.

        A piece's number is its rank, so the vocabulary alone says which pair goes first.
        """
        ranks = self._vocabulary
        whole = ranks.get(_SPACE + word)
        if whole is not None:
            return [whole]
        pieces = [_SPACE, *word]
        while len(pieces) > 1:
            best, at = len(ranks), -1
            for place, pair in enumerate(map(add, pieces, pieces[1:])):
                rank = ranks.get(pair, best)
                if rank < best:
                    best, at = rank, place
            if at < 0:
                break
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
        return [ranks[piece] for piece in pieces if piece in ranks and piece != _SPACE]


class Vectors:
    """One unit vector per entry, in catalog order."""

    def __init__(self, vectors: NDArray[np.float16]) -> None:
        self._vectors = vectors
        self._whole = len(vectors) <= _WHOLE
        head = vectors if self._whole else vectors[:, :_PREFIX]
        self._compared: Floats = head.astype(np.float32)
        if not self._whole:
            _normalize(self._compared)

    @classmethod
    def open(cls, index: WordIndex, meanings: Meanings, path: Path | None) -> Vectors:
        """The stored vectors of entries that have not changed, new ones for the others; all are stored again."""
        stamp = f"1:{meanings.width}"
        found = load_arrays(path) if path is not None else None
        known: dict[bytes, int] = {}
        old: NDArray[np.float16] = np.zeros((0, meanings.width), np.float16)
        if found is not None and found[0] == stamp and {"digests", "vectors"} <= found[1].keys():
            digests = found[1]["digests"]
            if digests.shape == index.digests.shape and np.array_equal(digests, index.digests):
                return cls(found[1]["vectors"])
            known = {digest.tobytes(): place for place, digest in enumerate(digests)}
            old = found[1]["vectors"]
        vectors = _computed(index, meanings, known, old)
        if path is not None:
            # A folder that cannot be written costs the next process the same work, nothing more.
            with contextlib.suppress(OSError):
                save_arrays(path, stamp, {"digests": index.digests, "vectors": vectors})
        return cls(vectors)

    def likeness(self, queries: Floats, hints: Floats) -> Floats:
        """Every entry's cosine to every query; in a large catalog exact only where `hints` or a rough look are high."""
        if self._whole:
            return _products(self._compared, queries)
        short = queries[:, :_PREFIX].copy()
        _normalize(short)
        rough = _products(self._compared, short)
        for query, hint, estimate in zip(queries, hints, rough, strict=True):
            chosen = np.argpartition(estimate + hint, -_CHOSEN)[-_CHOSEN:]
            estimate[chosen] = np.vecdot(self._vectors[chosen].astype(np.float32), query)
        return rough


def _computed(
    index: WordIndex, meanings: Meanings, known: dict[bytes, int], old: NDArray[np.float16]
) -> NDArray[np.float16]:
    vectors = np.zeros((index.size, meanings.width), np.float16)
    todo: list[int] = []
    for place, digest in enumerate(index.digests):
        stored = known.get(digest.tobytes())
        if stored is None:
            todo.append(place)
        else:
            vectors[place] = old[stored]
    if not todo:
        return vectors
    wanted = np.unique(np.concatenate([index.row(place)[0] for place in todo]))
    spellings = index.spellings
    table = np.stack([meanings.vector(spellings[word]) for word in map(int, wanted)]) if len(wanted) else None
    for place in todo:
        words, _, weights = index.row(place)
        if table is None or not len(words):
            continue
        total = weights.astype(np.float32) @ table[np.searchsorted(wanted, words)]
        size = float(np.linalg.norm(total))
        if size > 0:
            vectors[place] = total / size
    return vectors


def _products(rows: Floats, queries: Floats) -> Floats:
    # Row by row, not as one matrix product: BLAS would spread that over threads, which costs far more than it gains on
    # a busy machine.
    return np.stack([np.vecdot(rows, query) for query in queries])


def _normalize(rows: Floats) -> None:
    sizes = np.linalg.norm(rows, axis=1, keepdims=True)
    np.divide(rows, sizes, out=rows, where=sizes > 0)


def _read_table(path: Path) -> NDArray[np.float16]:
    """The one tensor of a safetensors file: eight bytes of length, a JSON header, the numbers."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > 1_000_000:
            raise ValueError("not a safetensors file")
        header: dict[str, Any] = msgspec.json.decode(file.read(length))
    tensors = [msgspec.convert(value, _Tensor) for key, value in header.items() if key != "__metadata__"]
    if len(tensors) != 1 or tensors[0].dtype != "F16":
        raise ValueError("expected one half-precision table")
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    rows, columns = tensors[0].shape
    start = 8 + length + tensors[0].data_offsets[0]
    return np.frombuffer(mapped, np.float16, rows * columns, start).reshape(rows, columns)
