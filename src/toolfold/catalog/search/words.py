"""Text into words, words into stems, and which other words may stand for a word: synonyms and misspellings.

`getUserByID` gives get, user, by, id; `GitHub` gives git, hub and github, since prose joins what identifiers split.
The word lists are plain text in `lexicon/`, which anyone can read and correct.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import Stemmer
from numpy.typing import NDArray

_LONGEST = 40
"""Characters of a word that count: longer runs are keys, hashes and base64."""
_REMEMBERED = 200_000
"""Words whose parts and stems are kept."""


def lexicon(name: str) -> list[list[str]]:
    """The words of each line of `lexicon/<name>.txt`; what follows `#` is for people."""
    text = files("toolfold.catalog.search").joinpath("lexicon", f"{name}.txt").read_text("utf-8")
    return [words for line in text.splitlines() if (words := line.partition("#")[0].split())]


STOPWORDS = frozenset(word for line in lexicon("stopwords") for word in line)
"""Words that carry no topic."""

# Indic, Thai, Lao, Burmese and Khmer vowels are marks, which `\w` leaves out.
_RUN = re.compile(r"[\w\u0300-\u036f\u0900-\u0963\u0966-\u0dff\u0e00-\u0eff\u1000-\u109f\u1780-\u17d3]+")
_CONTRACTION = re.compile(r"(?<=\w)['’](?:s|t|d|m|ll|re|ve)\b", re.IGNORECASE)
# An acronym ends before the capital of the next word, but keeps its plural: `XMLHttp` is two words, `UUIDs` is one.
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z](?!s(?![a-z]))[a-z])")
_ACCENTS = re.compile(r"(?<=[A-Za-z\u0370-\u03ff])[\u0300-\u036f]+|[\u0591-\u05bd\u05bf-\u05c7\u0640\u064b-\u0652]+")
# Kana, Chinese characters, Hangul, Thai, Lao, Burmese, Khmer.
_NO_SPACES = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+"
)
_LANGUAGES = {
    "ARABIC": "arabic",
    "ARMENIAN": "armenian",
    "CYRILLIC": "russian",
    "DEVANAGARI": "hindi",
    "GREEK": "greek",
    "TAMIL": "tamil",
}
"""The script of a word, as Unicode names it, to the language whose endings are taken off. Latin letters are English."""


class Words:
    """Splits and stems, remembering what it has seen: the vocabulary of a catalog is small and repeats."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[str, ...]] = {}
        self._stems: dict[str, str] = {}
        self._stemmers: dict[str, Any] = {}

    def split(self, text: str) -> list[str]:
        """The lower-case words of a text, in order, without accents and contractions."""
        if not text.isascii():
            text = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", text)))
        if "'" in text or "’" in text:
            text = _CONTRACTION.sub("", text)
        words: list[str] = []
        known = self._parts
        for run in _RUN.findall(text.replace("_", " ")):
            parts = known.get(run)
            if parts is None:
                parts = tuple(_parts(run))
                if len(known) < _REMEMBERED:
                    known[run] = parts
            words += parts
        return words

    def stem(self, word: str) -> str:
        """What the forms of a word share. Numbers and scripts that we have no rules for are left as they are."""
        found = self._stems.get(word)
        if found is None:
            found = self._stemmed(word)
            if len(self._stems) < _REMEMBERED:
                self._stems[word] = found
        return found

    def _stemmed(self, word: str) -> str:
        if word.isascii():
            language = "english" if word.isalpha() else None
        else:
            language = _LANGUAGES.get(unicodedata.name(word[0], "").partition(" ")[0])
        if language is None:
            return word
        if language not in self._stemmers:
            # We remember stems ourselves, for as long as the catalog lives.
            self._stemmers[language] = Stemmer.Stemmer(language, 0)  # pyright: ignore[reportUnknownMemberType]
        return self._stemmers[language].stemWord(word) or word


def has_no_spaces(word: str) -> bool:
    """Whether a word is written in a script that puts no spaces between words."""
    return not word.isascii() and _NO_SPACES.match(word) is not None


def picture_words(text: str) -> str:
    """The text with every pictogram followed by its Unicode name, so that an envelope asks for mail."""
    if text.isascii():
        return text
    return "".join(f" {unicodedata.name(c, '').lower()} " if unicodedata.category(c) == "So" else c for c in text)


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


# Synonyms

_TO_HEAD = 1.0
_FROM_HEAD = 0.8
_PART_OF_PHRASE = 0.6


class Thesaurus(NamedTuple):
    """Words that ask for the same thing: `notify` for `send`, `xlsx` for `excel`, `pull request` for `merge request`.

    A group's first word is its head: the others stand for it in full, and it stands for them a little less.
    """

    words: dict[str, dict[str, float]]
    """Stem → stems that mean much the same, with how much."""
    phrases: dict[tuple[str, str], dict[str, float]]
    """Two stems in a row → the same."""

    @classmethod
    def of(cls, groups: list[list[str]], words: Words) -> Thesaurus:
        """Groups of words that stand for each other; a phrase of two words is written with `-` between them."""
        found: dict[tuple[str, ...], dict[str, float]] = {}
        for group in groups:
            head, *others = (tuple(words.stem(part) for part in word.split("-")) for word in group)
            for other in others:
                _relate(found, other, head, _TO_HEAD)
                _relate(found, head, other, _FROM_HEAD)
        return cls(
            {key[0]: near for key, near in found.items() if len(key) == 1},
            {(key[0], key[1]): near for key, near in found.items() if len(key) == 2},
        )


def _relate(
    found: dict[tuple[str, ...], dict[str, float]], word: tuple[str, ...], near: tuple[str, ...], weight: float
) -> None:
    known = found.setdefault(word, {})
    weight *= 1.0 if len(near) == 1 else _PART_OF_PHRASE
    for part in near:
        if part not in word:
            known[part] = max(weight, known.get(part, 0.0))


# Misspellings

_SHORTEST = 4
"""Shorter words have too many neighbours to guess among."""


class Neighbours:
    """Finds spellings within one edit (two for long words), where a swap of neighbours is one edit."""

    def __init__(self, spellings: Sequence[str]) -> None:
        self._spellings = [word for word in spellings if len(word) >= _SHORTEST and word.isalpha()]
        self._lengths = np.array([len(word) for word in self._spellings], np.int16)
        self._letters = np.array([_letters(word) for word in self._spellings], np.uint32)

    def of(self, word: str) -> list[tuple[str, int]]:
        """Spellings and their distances, nearest first, then by alphabet. The word itself is not among them."""
        if len(word) < _SHORTEST or not word.isalpha() or not self._spellings:
            return []
        allowed = 1 if len(word) < 8 else 2
        # One edit changes the set of letters by at most two: almost every word is ruled out without comparing.
        different = np.bitwise_count(self._letters ^ np.uint32(_letters(word)))
        near: NDArray[np.intp] = np.flatnonzero(
            (different <= 2 * allowed) & (np.abs(self._lengths - len(word)) <= allowed)
        )
        found: list[tuple[int, str]] = []
        for place in map(int, near):
            other = self._spellings[place]
            steps = distance(word, other, allowed)
            if 0 < steps <= allowed:
                found.append((steps, other))
        found.sort()
        return [(other, steps) for steps, other in found]


def distance(a: str, b: str, limit: int) -> int:
    """The edits between two words (insert, delete, replace, swap neighbours); anything over `limit` is `limit + 1`."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        older, before, row = before, row, [i]
        for j, right in enumerate(b, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                best = min(best, older[j - 2] + 1)
            row.append(best)
        if min(row) > limit:
            return limit + 1
    return min(row[-1], limit + 1)


def _letters(word: str) -> int:
    bits = 0
    for letter in word:
        bits |= 1 << (ord(letter) % 32)
    return bits
