"""Named arrays in one file that is mapped, not read: opening it costs a few pages, whatever its size."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from toolfold.catalog.store import replace_file

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


def save(path: Path, stamp: str, arrays: dict[str, NDArray[Any]]) -> None:
    """`stamp` says what the arrays were made from; raises OSError where nothing can be written."""
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


def load(path: Path) -> tuple[str, dict[str, NDArray[Any]]] | None:
    """The stamp and the arrays, read-only; None where there is no whole file of ours."""
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
