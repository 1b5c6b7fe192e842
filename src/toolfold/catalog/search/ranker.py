"""The order in which entries answer a request.

For each thing that a request asks for, an entry's score is the sum of

    words       BM25 over fields; synonyms, misspellings and joined words count as the word, a little less
    meaning     the cosine between the request's vector and the entry's, where vectors are installed
    server      how well its server's best entries do, so that a server named or implied pulls its tools up
    action      whether it does what the request's verb asks for

each scaled to the best entry. A request for several things takes turns between them.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolfold.catalog.entries import Entry
from toolfold.catalog.search import actions, hints, intents
from toolfold.catalog.search.index import Index
from toolfold.catalog.search.thesaurus import Thesaurus
from toolfold.catalog.search.turns import Ranked, in_turns
from toolfold.catalog.search.typos import Neighbours
from toolfold.catalog.search.vectors import Meanings, Vectors
from toolfold.catalog.search.words import FAINT, STOPWORDS, Words, picture_words

Floats = NDArray[np.float32]

_SYNONYM = 0.8
_TYPO = 0.7
_JOINED = 0.9
_FAINT = 0.5
_MEANING = 0.8
_SERVER = 0.3
_ACTION = 0.3
_UNDECIDED = 0.5
"""The share of the action's bonus for entries that name no action."""
_CONTEXT = 2.0
"""How much the whole request counts beside one thing that it asks for."""
_RARITY_IN_MEANING = 0.3
_LONGEST = 4_000
"""Characters of a request that are read."""
_WORDS = 64
"""Different words of a request that count, the rarest first."""
_LIKE = 0.35
"""A cosine from which meaning alone is a reason to show an entry."""
_REMEMBERED = 4_000_000
"""Numbers kept of earlier words' evidence."""


class Evidence(NamedTuple):
    """What one word of a request says about the catalog."""

    entries: NDArray[np.int32]
    values: Floats
    because: tuple[tuple[str, float, str], ...]
    """(stem, weight, why it stands for the word), the strongest first."""


class Ranking(NamedTuple):
    order: list[Ranked]
    parts: list[str]
    """The things that the request asks for; `Ranked.line` counts them."""
    total: int
    """Entries that match at all."""
    because: dict[str, Evidence]
    """Word of the request → what it found."""
    likeness: Floats | None


class Ranker:
    """Answers requests over one state of the catalog."""

    def __init__(
        self,
        index: Index,
        entries: Sequence[Entry],
        words: Words,
        thesaurus: Thesaurus,
        meanings: Meanings | None = None,
        vectors: Vectors | None = None,
    ) -> None:
        self._index = index
        self._words = words
        self._thesaurus = thesaurus
        self._meanings = meanings
        self._vectors = vectors
        servers = [entry.server for entry in entries]
        self._server_start = np.array(
            [place for place, server in enumerate(servers) if place == 0 or server != servers[place - 1]], np.intp
        )
        self._server_size = np.diff(np.append(self._server_start, len(servers)))
        self._servers: list[int] = np.repeat(np.arange(len(self._server_start)), self._server_size).tolist()
        self._best = np.zeros(index.size, np.float32)
        self._evidence: OrderedDict[str, Evidence] = OrderedDict()
        self._held = 0
        self._neighbours: Neighbours | None = None

    def rank(self, query: str, count: int, allowed: NDArray[np.bool_] | None = None) -> Ranking:
        """The best `count` entries for `query`, always in the same order; ties go by catalog order."""
        query = hints.spelt_out(picture_words(query[:_LONGEST]))
        parts = intents.split(query)
        texts = [query] if len(parts) == 1 else [query, *parts]
        bags = [self._bag(text) for text in texts]
        if self._index.size == 0 or not bags[0]:
            return Ranking([], parts, 0, {}, None)
        because = {word: self._find(word) for word in bags[0]}
        for word in {word for bag in bags[1:] for word in bag} - because.keys():
            because[word] = self._find(word)
        lexical = np.zeros((len(texts), self._index.size), np.float32)
        for line, bag in zip(lexical, bags, strict=True):
            for word, weight in bag.items():
                found = because[word]
                line[found.entries] += found.values * np.float32(weight)
        matches = lexical[0] > 0
        _scale(lexical)
        scores = lexical
        likeness = None
        if self._vectors is not None and self._meanings is not None:
            cosines = self._vectors.likeness(np.stack([self._vector(bag) for bag in bags]), lexical)
            likeness = cosines[0].copy()
            matches |= likeness >= _LIKE
            cosines -= cosines.mean(axis=1, keepdims=True)
            _scale(cosines)
            scores = lexical + np.float32(_MEANING) * cosines
        best = np.maximum.reduceat(scores, self._server_start, axis=1)
        scores += np.float32(_SERVER) * np.repeat(best, self._server_size, axis=1)
        acting = scores if len(texts) == 1 else scores[1:]
        for line, text in zip(acting, parts, strict=True):
            self._add_action(line, text)
        if len(texts) > 1:
            acting += np.float32(_CONTEXT) * scores[0]
            acting /= np.float32(1 + _CONTEXT)
        if allowed is not None:
            matches &= allowed
            acting[:, ~allowed] = -np.inf
        acting[:, ~matches] = -np.inf
        order = in_turns(acting, self._servers, count)
        return Ranking(order, parts, int(matches.sum()), because, likeness)

    # Words

    def _bag(self, text: str) -> dict[str, float]:
        """The words that count, with their weights: what is repeated counts more, what is faint less."""
        index, stem = self._index, self._words.stem
        spoken = self._words.split(text)
        counts: Counter[str] = Counter()
        for word in spoken:
            if word not in STOPWORDS or word in FAINT:
                counts[word] += 1
        for left, right in pairwise(spoken):
            joined = left + right
            if len(joined) > 3 and joined not in counts and joined not in STOPWORDS:
                phrase = (stem(left), stem(right)) in self._thesaurus.phrases
                if phrase:
                    counts[f"{left} {right}"] += 1
                elif index.stem_id(stem(joined)) is not None:
                    counts[joined] += 1
        bag = {word: (1 + math.log(count)) * (_FAINT if word in FAINT else 1.0) for word, count in counts.items()}
        if len(bag) > _WORDS:
            rarest = sorted(bag, key=lambda word: (-self._rarity(word), word))[:_WORDS]
            bag = {word: bag[word] for word in rarest}
        return bag

    def _rarity(self, word: str) -> float:
        known = self._index.stem_id(self._words.stem(word))
        return float(self._index.idf[known]) if known is not None else 0.0

    def _find(self, word: str) -> Evidence:
        found = self._evidence.get(word)
        if found is not None:
            self._evidence.move_to_end(word)
            return found
        found = self._gather(word)
        self._evidence[word] = found
        self._held += len(found.entries)
        while self._held > _REMEMBERED and len(self._evidence) > 1:
            self._held -= len(self._evidence.popitem(last=False)[1].entries)
        return found

    def _gather(self, word: str) -> Evidence:
        """Every entry with the word or what may stand for it; each entry by the strongest of them."""
        index = self._index
        stems = self._stand_ins(word)
        own = index.stem_id(self._words.stem(word))
        ceiling = float(index.idf[own]) if own is not None else math.inf
        best = self._best
        touched: list[NDArray[np.int32]] = []
        because: list[tuple[str, float, str]] = []
        for stem, (weight, why) in stems.items():
            place = index.stem_id(stem)
            if place is None:
                continue
            entries, impact = index.postings(place)
            # A common word's rare synonym says no more than the word itself would.
            worth = np.float32(weight * min(float(index.idf[place]), ceiling))
            best[entries] = np.maximum(best[entries], impact * worth)
            touched.append(entries)
            because.append((stem, weight, why))
        if not touched:
            return Evidence(np.zeros(0, np.int32), np.zeros(0, np.float32), ())
        entries = touched[0] if len(touched) == 1 else np.flatnonzero(best).astype(np.int32)
        values = best[entries]
        best[entries] = 0
        return Evidence(entries, values, tuple(sorted(because, key=lambda one: (-one[1], one[0]))))

    def _stand_ins(self, word: str) -> dict[str, tuple[float, str]]:
        """Stem → its weight and why, for the word itself and all that may stand for it."""
        stem = self._words.stem
        found: dict[str, tuple[float, str]] = {}
        if " " in word:
            left, right = word.split(" ")
            near = self._thesaurus.phrases[stem(left), stem(right)]
            return {other: (_SYNONYM * weight, "synonym") for other, weight in near.items()}
        own = stem(word)
        if word not in FAINT:
            found[own] = (1.0, "")
        for other, weight in self._thesaurus.words.get(own, {}).items():
            found.setdefault(other, (_SYNONYM * weight, "synonym"))
        if self._index.stem_id(own) is None:
            for other, weight, why in self._repaired(word):
                found.setdefault(other, (weight, why))
        return found

    def _repaired(self, word: str) -> list[tuple[str, float, str]]:
        """What an unknown word may be: two words written as one, or a word misspelt."""
        stem, index = self._words.stem, self._index
        for cut in range(3, len(word) - 2):
            left, right = stem(word[:cut]), stem(word[cut:])
            if index.stem_id(left) is not None and index.stem_id(right) is not None:
                return [(left, _JOINED / 2, "part"), (right, _JOINED / 2, "part")]
        if self._meanings is not None and self._meanings.is_word(word):
            return []
        if self._neighbours is None:
            self._neighbours = Neighbours(index.spellings)
        return [(stem(other), _TYPO / steps, "spelling") for other, steps in self._neighbours.of(word)[:8]]

    # Meaning and action

    def _vector(self, bag: dict[str, float]) -> Floats:
        assert self._meanings is not None
        total = np.zeros(self._meanings.width, np.float32)
        rarest = float(math.log(1 + self._index.size))
        for word, weight in bag.items():
            if " " in word:
                continue
            place = self._index.stem_id(self._words.stem(word))
            rarity = float(self._index.idf[place]) if place is not None else rarest
            total += np.float32(weight * max(rarity, 0.1) ** _RARITY_IN_MEANING) * self._meanings.vector(word)
        size = float(np.linalg.norm(total))
        return total / np.float32(size) if size > 0 else total

    def _add_action(self, line: Floats, text: str) -> None:
        wanted = actions.of_request(self._words.split(text))
        if wanted:
            does = self._index.actions
            line += np.float32(_ACTION) * ((does & wanted) != 0)
            line += np.float32(_ACTION * _UNDECIDED) * (does == 0)


def _scale(lines: NDArray[Any]) -> None:
    """Divide each line by its largest value, so that lines can be added."""
    most = lines.max(axis=1, keepdims=True)
    np.divide(lines, most, out=lines, where=most > 0)
