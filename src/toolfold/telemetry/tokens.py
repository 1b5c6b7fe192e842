"""Exact o200k token counts, offline: the vocabulary comes inside a wheel."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def _encoder() -> Any:
    # Loading the vocabulary takes a moment; only those who count pay for it.
    import bpe_openai  # pyright: ignore[reportMissingTypeStubs]

    return bpe_openai.o200k()  # pyright: ignore[reportUnknownMemberType]


def count(text: str) -> int:
    """How many o200k tokens `text` costs."""
    return int(_encoder().count(text))
