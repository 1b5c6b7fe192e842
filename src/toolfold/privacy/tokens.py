"""How a token is written: the kind in capitals and a number, `EMAIL_1`.

No number is the beginning of another one, so a token is read back whatever follows it: `EMAIL_1` and then `5` is never
mistaken for another token. That is why 8 is followed by 900, 959 by 960000 and 989999 by 99000000.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_BLOCKS = ((1, 8), (900, 959), (960_000, 989_999), (99_000_000, 99_999_999))
_NUMBER = r"(?:[1-8]|9[0-5][0-9]|9[6-8][0-9]{4}|99[0-9]{6})"


def token(kind: str, index: int) -> str | None:
    """The token of the `index`th value of its kind, from 0; None when there are no more."""
    for first, last in _BLOCKS:
        if index <= last - first:
            return f"{kind.upper()}_{first + index}"
        index -= last - first + 1
    return None


class TokenSyntax:
    """Finds the tokens of these kinds in text."""

    def __init__(self, kinds: Iterable[str]) -> None:
        labels = "|".join(sorted((kind.upper() for kind in kinds), key=lambda label: (-len(label), label)))
        self.pattern = re.compile(f"(?:{labels})_{_NUMBER}")
        """A token anywhere in a text."""
        self._shape = re.compile(f"(?:{labels})_[0-9]+")

    def is_shaped(self, text: str) -> bool:
        """Whether the whole text looks like one token, given out or not."""
        return self._shape.fullmatch(text) is not None


def kind_of(token: str) -> str:
    return token.rpartition("_")[0].lower()
