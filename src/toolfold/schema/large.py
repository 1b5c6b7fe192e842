"""Work on large data: what it costs is bounded, and the garbage collector keeps out of it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator
from typing import Any, cast

LARGE = 64 * 1024
"""Bytes from which a message is large."""


@contextlib.contextmanager
def uncollected() -> Generator[None]:
    """No garbage is looked for meanwhile. Decoding makes many objects and no garbage, but each of them counts towards
    the next search, and a search walks the whole process: it is most of what a large message costs."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def depth_and_size(value: Any, deepest: int) -> tuple[int, int]:
    """How deep decoded JSON is nested, no further than `deepest`, and how many values it holds down to there."""
    if not isinstance(value, dict | list):
        return 1, 0
    level: list[Any] = [value]
    depth = size = 0
    while level and depth <= deepest:
        below: list[Any] = []
        for item in level:
            below += cast("dict[str, Any]", item).values() if isinstance(item, dict) else cast("list[Any]", item)
        size += len(below)
        # Most lists hold plain values only: their types are looked at much faster than they are.
        inner: set[type] = {kind for kind in set(map(type, below)) if issubclass(kind, dict | list)}
        level = [item for item in below if item and type(item) in inner] if inner else []
        depth += 1
    return depth, size
