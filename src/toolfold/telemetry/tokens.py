"""How many o200k tokens a text costs: counted exactly with the `tokens` extra, estimated and labelled so without it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from toolfold.errors import ConfigError

INSTALL = "pip install 'toolfold[tokens]'"
"""Brings the vocabulary (48 MB), with which counts are exact."""

# About one token each: most words, a few capitals, three digits, a run of punctuation, a line break. Other alphabets
# are cut finer. Over real tool definitions the sum is within 5 % of the exact count, a single one mostly within 15 %.
# White space is looked at from its beginning only: from every place in it, long ones would take seconds.
_PIECE = re.compile(
    r"[A-Z]?[a-z]{1,11}|[A-Z]{1,3}|\d{1,3}|[\u3040-\u9fff\uac00-\ud7af]{1,2}|[^\x00-\x7f]{1,4}"
    r"|[!-/:-@\[-`{-~]{1,6}|(?<![\t-\r\x1c- ])[\t-\r\x1c- ]*\n\s*| {2,}"
)


class TokenCount(NamedTuple):
    tokens: int
    exact: bool

    def __str__(self) -> str:
        return f"{self.tokens:,}" if self.exact else f"about {self.tokens:,} (estimated; exact with: {INSTALL})"


def count(text: str) -> int:
    """The exact number; ConfigError without the `tokens` extra. Words that look like special tokens are plain text."""
    encoder = _encoder()
    if encoder is None:
        raise ConfigError("Exact token counts need the `tokens` extra.", hint=f"Run: {INSTALL}")
    return int(encoder.count(text))


def estimate(text: str) -> int:
    """About how many tokens `text` costs, by its length in words, digits and punctuation."""
    return len(_PIECE.findall(text))


def measure(text: str) -> TokenCount:
    """The exact number where it can be counted, else an estimate."""
    return TokenCount(count(text), True) if is_exact() else TokenCount(estimate(text), False)


def tokens_of(text: str) -> int:
    """The number that `measure` gives."""
    return measure(text).tokens


def is_exact() -> bool:
    """Whether the `tokens` extra is installed."""
    return _encoder() is not None


@cache
def _encoder() -> Any:
    # Loading the vocabulary costs 0.2 s and 60 MB; only a process that counts pays for it.
    try:
        from rs_bpe.bpe import openai  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]
    except ImportError:
        return None
    return openai.o200k_base()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def load_tokenizer(name: str) -> Callable[[str], int]:
    """The function that `package.module:function` names; ConfigError where there is none."""
    import importlib

    module, _, function = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), function)
    except Exception as error:
        raise ConfigError(
            f"The tokenizer {name!r} cannot be loaded: {type(error).__name__}: {error}",
            hint="`tokenizer` names a function that takes a text and returns a number: package.module:function.",
        ) from None
    return found
