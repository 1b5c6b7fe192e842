"""What the person who runs Toolfold adds: patterns, word lists, and Presidio."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from toolfold.config.privacy import PrivacySettings
from toolfold.config.safe_regex import compiled
from toolfold.privacy.matches import Match, Recogniser

_WORD = re.compile(r"\w+")


class Pattern:
    """A regular expression that is known to be safe."""

    def __init__(self, kind: str, pattern: str) -> None:
        self._kind = kind
        self._pattern = compiled(pattern)

    def find(self, text: str) -> Iterator[Match]:
        for found in self._pattern.finditer(text):
            # As one text with a separator in it, several values are scanned at once.
            if "\0" not in found[0]:
                yield Match(*found.span(), self._kind)


class Words:
    """Words and names, whatever their case, as whole words. The time does not depend on how many there are."""

    def __init__(self, kind: str, words: Sequence[str]) -> None:
        self._kind = kind
        self._by_first: dict[str, list[str]] = {}
        self._others: list[str] = []
        for word in sorted({word.strip().lower() for word in words}, key=lambda word: (-len(word), word)):
            first = _WORD.match(word)
            self._by_first.setdefault(first[0], []).append(word) if first else self._others.append(word)

    def find(self, text: str) -> Iterator[Match]:
        lower = text.lower()
        if len(lower) != len(text):
            lower = text
        for found in _WORD.finditer(lower):
            for word in self._by_first.get(found[0], ()):
                end = found.start() + len(word)
                if lower.startswith(word, found.start()) and not (
                    lower[end - 1 : end].isalnum() and lower[end : end + 1].isalnum()
                ):
                    yield Match(found.start(), end, self._kind)
                    break
        for word in self._others:
            start = lower.find(word)
            while start >= 0:
                yield Match(start, start + len(word), self._kind)
                start = lower.find(word, start + 1)


def recognisers(settings: PrivacySettings) -> list[Recogniser]:
    """All that the settings ask for."""
    found: list[Recogniser] = [Pattern(kind, pattern) for kind, pattern in settings.patterns.items()]
    found += [Words(kind, words) for kind, words in settings.words.items()]
    if settings.presidio:
        from toolfold.privacy.recognisers.presidio import Presidio

        found.append(Presidio.for_language(settings.presidio))
    return found
