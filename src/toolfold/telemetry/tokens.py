"""Exact o200k token counts, offline: the vocabulary comes inside a wheel."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def _encoder() -> Any:
    # Loading the vocabulary takes a moment; only those who count pay for it.
    import bpe_openai

    return bpe_openai.get_encoding("o200k_base")


def count(text: str) -> int:
    """How many o200k tokens `text` costs. Words that look like special tokens count as plain text."""
    return len(_encoder().encode_ordinary(text))
