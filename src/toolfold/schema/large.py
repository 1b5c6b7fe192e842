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
    """How deep `value` is nested, no further than `deepest`, and how many values it holds down to there."""
    level: list[Any] = [value]
    depth = size = 0
    while level and depth <= deepest:
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += cast("dict[str, Any]", item).values()
            elif isinstance(item, list):
                below += cast("list[Any]", item)
        size += len(below)
        level = [item for item in below if item and isinstance(item, dict | list)]
        depth += 1
    return depth, size
