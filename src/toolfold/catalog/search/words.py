"""Text into words: identifiers are split where their parts meet, scripts without spaces into pairs of characters.

`getUserByID` gives get, user, by, id; `GitHub` gives git, hub and github, since prose joins what identifiers split.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from toolfold.catalog.search import lexicon
from toolfold.catalog.search.stems import stem

_RUN = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Kana, Chinese characters, Hangul, Thai, Lao, Burmese, Khmer.
_NO_SPACES = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+"
)
_LONGEST = 40
"""Characters of a word that count: longer runs are keys, hashes and base64."""

STOPWORDS = lexicon.words("stopwords")
"""Words that carry no topic."""

FAINT = lexicon.words("faint")
"""Words that say what kind of request it is, and little about what it concerns."""


class Words:
    """Splits and stems, remembering what it has seen: the vocabulary of a catalog is small and repeats."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[str, ...]] = {}
        self._stems: dict[str, str] = {}

    def split(self, text: str) -> list[str]:
        """The lower-case words of a document, in order."""
        if not text.isascii():
            text = unicodedata.normalize("NFKC", text)
        words: list[str] = []
        known = self._parts
        for run in _RUN.findall(text):
            parts = known.get(run)
            if parts is None:
                parts = tuple(_parts(run))
                if len(known) < 200_000:
                    known[run] = parts
            words += parts
        return words

    def stem(self, word: str) -> str:
        found = self._stems.get(word)
        if found is None:
            found = stem(word)
            if len(self._stems) < 200_000:
                self._stems[word] = found
        return found


def _parts(run: str) -> Iterator[str]:
    if not run.isascii() and _NO_SPACES.search(run):
        yield from _characters(run)
        return
    pieces = _CAMEL.split(run) if not (run.islower() or run.isupper()) else [run]
    for piece in pieces:
        yield piece[:_LONGEST].casefold()
    if len(pieces) > 1 and len(run) <= 20:
        yield run.casefold()


def _characters(run: str) -> Iterator[str]:
    """Pairs of neighbours in scripts that put no spaces between words; what stands between them as it is."""
    at = 0
    for match in _NO_SPACES.finditer(run):
        if match.start() > at:
            yield run[at : match.start()].casefold()
        piece = match[0][: _LONGEST * 4]
        yield from (piece[i : i + 2] for i in range(max(1, len(piece) - 1)))
        at = match.end()
    if at < len(run):
        yield run[at:].casefold()


def picture_words(text: str) -> str:
    """The text with every pictogram followed by its Unicode name, so that an envelope asks for mail."""
    if text.isascii():
        return text
    return "".join(f" {unicodedata.name(c, '').lower()} " if unicodedata.category(c) == "So" else c for c in text)
