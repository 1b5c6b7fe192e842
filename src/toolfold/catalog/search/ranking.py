"""The order in which entries answer a request.

For each thing that a request asks for, an entry's score is the sum of

    words       BM25 over fields; synonyms, misspellings and joined words count as the word, a little less
    meaning     the cosine between the request's vector and the entry's, where the vectors are installed
    server      how well its server's best entry does, so that a server named or implied pulls its tools up
    action      whether it does what the request's verb asks for
    worth       of a skill, how well it has worked so far

each scaled to the best entry. A request for several things takes turns between them.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolfold.catalog.entries import Entry
from toolfold.catalog.search.index import Floats, Ints, WordIndex, field_words
from toolfold.catalog.search.request import action_names, offered_action, parts, requested_action, with_implied_words
from toolfold.catalog.search.vectors import Meanings, Vectors
from toolfold.catalog.search.words import (
    STOPWORDS,
    Neighbours,
    Thesaurus,
    Words,
    has_no_spaces,
    lexicon,
    picture_words,
)

_SYNONYM = 0.8
_TYPO = 0.7
_JOINED = 0.9
_MEANING = 0.8
_SERVER = 0.3
_ACTION = 0.3
_UNDECIDED = 0.5
"""The share of the action's bonus for entries that name no action."""
_WORTH = 0.2
_CONTEXT = 2.0
"""How much the whole request counts beside one thing that it asks for."""
_RARITY_IN_MEANING = 0.3
_LONGEST = 4_000
"""Characters of a request that are read."""
_WORDS = 64
"""Different words of a request that count, the rarest first."""
_LIKE = 0.35
"""A cosine from which meaning alone is a reason to show an entry."""
_GUESSES = 8
"""Words that may be meant by one that the catalog does not know."""
_RANKED = 200
"""Entries that are put in order for each part of a request: more than any answer shows."""
_REMEMBERED = 4_000_000
"""Numbers kept of earlier words' evidence."""


class Match(NamedTuple):
    entry: Entry
    score: float
    place: int
    part: str
    """The part of the request that it answers."""


class Matches:
    """The entries that answer a request, best first, ordered only as far as they are read. `top` is the best score."""

    def __init__(self, entries: Sequence[Entry], scores: _Scores, words: Words) -> None:
        self._entries = entries
        self._scores = scores
        self._words = words
        self.total = scores.total
        self.top = max([0.0, *(float(line.max()) for line in scores.lines.values())])

    def __iter__(self) -> Iterator[Match]:
        for place, score, part in _in_turns(self._scores.lines):
            yield Match(self._entries[place], score, place, part)

    def why(self, match: Match) -> list[str]:
        """One reason a line: words and their fields, likeness of meaning, the action, the part of the request."""
        stem, scores = self._words.stem, self._scores
        fields = field_words(match.entry, self._words)
        stems = {field: {stem(word) for word in found} for field, found in fields.items()}
        said: list[str] = []
        for word, evidence in scores.evidence.items():
            for other, _, why in evidence.because:
                where = [field for field, found in stems.items() if other in found]
                if where:
                    spelling = next(one for one in fields[where[0]] if stem(one) == other)
                    said.append(f"{f'{word} → {spelling} ({why})' if why else word} in {', '.join(where)}")
                    break
        if scores.likeness is not None:
            said.append(f"meaning {float(scores.likeness[match.place]):.2f}")
        if shared := requested_action(self._words.split(match.part)) & offered_action(fields):
            said.append(f"action {', '.join(action_names(shared))}")
        if len(scores.lines) > 1:
            said.append(f"for {match.part[:60]!r}")
        return said


class Ranker:
    """Ranks one state of the catalog. Nothing is loaded before the first request.

    The ranker of an earlier state, as `previous`, lends what has not changed.
    """

    def __init__(
        self,
        scope: str,
        version: str,
        entries: Sequence[Entry],
        folder: Path,
        semantic: bool,
        previous: Ranker | None = None,
    ) -> None:
        self.version = version
        self._entries = entries
        self._index_file = folder / f"search-{scope}.index"
        self._vectors_file = folder / f"search-{scope}.vectors"
        self._semantic = semantic
        self._words = previous._words if previous is not None else Words()
        self._meanings = previous._meanings if previous is not None else None
        self._thesaurus = previous._thesaurus if previous is not None else None
        self._before = (previous._index or previous._before) if previous is not None else None
        self._index: WordIndex | None = None
        self._scorer: _Scorer | None = None

    def load(self) -> _Scorer:
        """Make ready what ranking needs, from disk where it is there."""
        if self._scorer is None:
            self._index = index = self._open_index()
            vectors = None
            if self._semantic:
                self._meanings = self._meanings or Meanings.open()
                if self._meanings is not None:
                    vectors = Vectors.open(index, self._meanings, self._vectors_file)
            self._thesaurus = self._thesaurus or Thesaurus.of(lexicon("thesaurus"), self._words)
            matcher = _WordMatcher(index, self._words, self._thesaurus, self._meanings)
            servers = [entry.server for entry in self._entries]
            self._scorer = _Scorer(index, servers, matcher, self._words, self._meanings, vectors)
            self._before = None
        return self._scorer

    def rank(self, query: str, mask: Sequence[bool] | None = None, worth: Floats | None = None) -> Matches:
        """The entries that match, of those that `mask` (all, if None) lets through, always in the same order.

        `worth` is that of the last entries; those before have none.
        """
        scores = self.load().score(query, None if mask is None else np.array(mask, np.bool_), worth)
        return Matches(self._entries, scores, self._words)

    def _open_index(self) -> WordIndex:
        """The stored index if it is of this state; else a new one, with the old rows of what has not changed."""
        stored = WordIndex.load(self._index_file)
        if stored is not None and stored[0] == self.version and stored[1].size == len(self._entries):
            return stored[1]
        index = WordIndex.build(self._entries, self._words, self._before or (stored[1] if stored is not None else None))
        # A folder that cannot be written costs the next process the same work, nothing more.
        with contextlib.suppress(OSError):
            index.save(self._index_file, self.version)
        return index


def _in_turns(lines: dict[str, Floats]) -> Iterator[tuple[int, float, str]]:
    """Places with their scores and parts: from each part in turn its best, none twice."""
    queues = {part: _best_first(line) for part, line in lines.items()}
    taken: set[int] = set()
    while queues:
        for part, queue in list(queues.items()):
            found = next((one for one in queue if one[0] not in taken), None)
            if found is None:
                del queues[part]
                continue
            taken.add(found[0])
            yield *found, part


def _best_first(line: Floats) -> Iterator[tuple[int, float]]:
    """The best places and their scores, ties in catalog order; minus infinity never."""
    # Sums of floats differ in their last bits between machines, so five digits decide.
    line = np.round(line, 5)
    threshold = np.partition(line, -_RANKED)[-_RANKED] if len(line) > _RANKED else -np.inf
    found = np.flatnonzero((line >= threshold) & (line > -np.inf))
    ordered = found[np.argsort(-line[found], kind="stable")]
    return zip(ordered.tolist(), line[ordered].tolist(), strict=True)


class _Evidence(NamedTuple):
    """What one word of a request says about the catalog."""

    entries: Ints
    values: Floats
    because: tuple[tuple[str, float, str], ...]
    """(stem, weight, why it stands for the word), the strongest first."""


class _Scores(NamedTuple):
    lines: dict[str, Floats]
    """Part of the request → every entry's score for it, minus infinity where it does not match."""
    total: int
    evidence: dict[str, _Evidence]
    """Word of the request → what it found."""
    likeness: Floats | None


class _Scorer:
    def __init__(
        self,
        index: WordIndex,
        servers: Sequence[str],
        matcher: _WordMatcher,
        words: Words,
        meanings: Meanings | None,
        vectors: Vectors | None,
    ) -> None:
        self._index = index
        self._matcher = matcher
        self._words = words
        self._meanings = meanings
        self._vectors = vectors
        self._server_start = np.array(
            [place for place, server in enumerate(servers) if place == 0 or server != servers[place - 1]], np.intp
        )
        self._server_size = np.diff(np.append(self._server_start, len(servers)))

    def score(self, query: str, allowed: NDArray[np.bool_] | None, worth: Floats | None = None) -> _Scores:
        query = with_implied_words(picture_words(query[:_LONGEST]))
        clauses = parts(query)
        texts = [query] if len(clauses) == 1 else [query, *clauses]
        bags = [self._matcher.bag(text) for text in texts]
        if self._index.size == 0 or not bags[0]:
            return _Scores({}, 0, {}, None)
        evidence = {word: self._matcher.evidence(word) for bag in bags for word in bag}
        lexical = np.zeros((len(texts), self._index.size), np.float32)
        for line, bag in zip(lexical, bags, strict=True):
            for word, weight in bag.items():
                found = evidence[word]
                line[found.entries] += found.values * np.float32(weight)
        matches = lexical[0] > 0
        _scale(lexical)
        scores = lexical
        likeness = None
        if self._vectors is not None and self._meanings is not None:
            queries = np.stack([self._vector(bag, self._meanings) for bag in bags])
            cosines = self._vectors.likeness(queries, lexical)
            likeness = cosines[0].copy()
            matches |= likeness >= _LIKE
            cosines -= cosines.mean(axis=1, keepdims=True)
            _scale(cosines)
            scores = lexical + np.float32(_MEANING) * cosines
        best = np.maximum.reduceat(scores, self._server_start, axis=1)
        scores += np.float32(_SERVER) * np.repeat(best, self._server_size, axis=1)
        lines = scores if len(texts) == 1 else scores[1:]
        for line, text in zip(lines, clauses, strict=True):
            self._add_action(line, text)
        if len(texts) > 1:
            lines += np.float32(_CONTEXT) * scores[0]
            lines /= np.float32(1 + _CONTEXT)
        if worth is not None:
            lines[:, -len(worth) :] += np.float32(_WORTH) * worth
        if allowed is not None:
            matches &= allowed
        lines[:, ~matches] = -np.inf
        return _Scores(dict(zip(clauses, lines, strict=True)), int(matches.sum()), evidence, likeness)

    def _vector(self, bag: dict[str, float], meanings: Meanings) -> Floats:
        total = np.zeros(meanings.width, np.float32)
        rarest = math.log(1 + self._index.size)
        for word, weight in bag.items():
            if " " in word:
                continue
            rarity = max(self._matcher.rarity(word, rarest), 0.1)
            total += np.float32(weight * rarity**_RARITY_IN_MEANING) * meanings.vector(word)
        size = float(np.linalg.norm(total))
        return total / np.float32(size) if size > 0 else total

    def _add_action(self, line: Floats, text: str) -> None:
        wanted = requested_action(self._words.split(text))
        if wanted:
            offered = self._index.actions
            line += np.float32(_ACTION) * ((offered & wanted) != 0)
            line += np.float32(_ACTION * _UNDECIDED) * (offered == 0)


class _WordMatcher:
    """From the words of a request to the entries that hold them, or what may stand for them."""

    def __init__(self, index: WordIndex, words: Words, thesaurus: Thesaurus, meanings: Meanings | None) -> None:
        self._index = index
        self._words = words
        self._thesaurus = thesaurus
        self._meanings = meanings
        self._best = np.zeros(index.size, np.float32)
        self._found: OrderedDict[str, _Evidence] = OrderedDict()
        self._held = 0
        self._neighbours: Neighbours | None = None

    def bag(self, text: str) -> dict[str, float]:
        """The words that count, with their weights: what is repeated counts more. A phrase is two words and a blank."""
        stem = self._words.stem
        spoken = self._words.split(text)
        counts = Counter(word for word in spoken if word not in STOPWORDS)
        if not any(self.evidence(word).because for word in counts):
            # "who works here": where no topic is known, the small words are all there is to go by.
            counts = Counter(spoken)
        stems = {stem(word) for word in counts}
        for left, right in pairwise(spoken):
            joined = left + right
            known = self._index.stem_id(stem(joined)) is not None
            if (stem(left), stem(right)) in self._thesaurus.phrases:
                counts[f"{left} {right}"] += 1
            elif known and len(joined) > 3 and joined not in STOPWORDS and stem(joined) not in stems:
                counts[joined] += 1
        bag = {word: 1 + math.log(count) for word, count in counts.items()}
        if len(bag) > _WORDS:
            rarest = sorted(bag, key=lambda word: (-self.rarity(word, 0.0), word))[:_WORDS]
            bag = {word: bag[word] for word in rarest}
        return bag

    def rarity(self, word: str, unknown: float) -> float:
        known = self._index.stem_id(self._words.stem(word))
        return float(self._index.idf[known]) if known is not None else unknown

    def evidence(self, word: str) -> _Evidence:
        """Every entry with the word or what may stand for it; each entry by the strongest of them."""
        found = self._found.get(word)
        if found is not None:
            self._found.move_to_end(word)
            return found
        found = self._found[word] = self._gather(word)
        self._held += len(found.entries)
        while self._held > _REMEMBERED and len(self._found) > 1:
            self._held -= len(self._found.popitem(last=False)[1].entries)
        return found

    def _gather(self, word: str) -> _Evidence:
        index, best = self._index, self._best
        ceiling = self.rarity(word, math.inf)
        touched: list[Ints] = []
        because: list[tuple[str, float, str]] = []
        for stem, (weight, why) in self._stand_ins(word).items():
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
            return _Evidence(np.zeros(0, np.int32), np.zeros(0, np.float32), ())
        entries = touched[0] if len(touched) == 1 else np.flatnonzero(best).astype(np.int32)
        values = best[entries]
        best[entries] = 0
        return _Evidence(entries, values, tuple(sorted(because, key=lambda one: (-one[1], one[0]))))

    def _stand_ins(self, word: str) -> dict[str, tuple[float, str]]:
        """Stem → its weight and why, for the word itself and all that may stand for it."""
        stem = self._words.stem
        if " " in word:
            left, right = word.split(" ")
            near = self._thesaurus.phrases[stem(left), stem(right)]
            return {other: (_SYNONYM * weight, "synonym") for other, weight in near.items()}
        own = stem(word)
        found = {own: (1.0, "")}
        for other, weight in self._thesaurus.words.get(own, {}).items():
            found.setdefault(other, (_SYNONYM * weight, "synonym"))
        if self._index.stem_id(own) is None:
            for other, weight, why in self._guesses(word):
                found.setdefault(other, (weight, why))
        return found

    def _guesses(self, word: str) -> list[tuple[str, float, str]]:
        """What an unknown word may be: a part of another, two words written as one, or a word misspelt."""
        stem, index = self._words.stem, self._index
        if has_no_spaces(word):
            holding = [other for other in index.spellings if word in other]
            return [(stem(other), _JOINED, "part") for other in holding[:_GUESSES]]
        for cut in range(3, len(word) - 2):
            left, right = stem(word[:cut]), stem(word[cut:])
            if index.stem_id(left) is not None and index.stem_id(right) is not None:
                return [(left, _JOINED / 2, "part"), (right, _JOINED / 2, "part")]
        if self._meanings is not None and self._meanings.is_word(word):
            return []
        if self._neighbours is None:
            self._neighbours = Neighbours(index.spellings)
        return [(stem(other), _TYPO / steps, "spelling") for other, steps in self._neighbours.of(word)[:_GUESSES]]


def _scale(lines: NDArray[Any]) -> None:
    """Divide each line by its largest value, so that lines can be added."""
    most = lines.max(axis=1, keepdims=True)
    np.divide(lines, most, out=lines, where=most > 0)
