"""From scores to a list: the things that a request asks for take turns, and no server fills the page alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_FREE = 5
"""Entries of one server that cost nothing."""
_CROWDING = 0.1
"""What each further entry of a server loses, in the units of scores."""
_POOL = 4
"""How many more entries are considered than are taken."""


class Ranked(NamedTuple):
    place: int
    score: float
    line: int
    """Which of the request's parts it answers."""


def in_turns(lines: NDArray[np.float32], servers: Sequence[int], count: int) -> list[Ranked]:
    """The best `count` places: from each line in turn its best, none twice, minus infinity never.

    What is equal goes by place. Sums of floats differ in their last bits between machines, so five digits decide.
    """
    queues = [_Queue(line, servers, count * _POOL) for line in np.round(lines, 5)]
    taken: dict[int, Ranked] = {}
    crowd: Counter[int] = Counter()
    empty = 0
    while len(taken) < count and empty < len(queues):
        empty = 0
        for line, queue in enumerate(queues):
            place = queue.next(crowd, taken)
            if place is None:
                empty += 1
            elif len(taken) < count:
                taken[place] = Ranked(place, queue.score(place), line)
                crowd[servers[place]] += 1
    return list(taken.values())


class _Queue:
    """One line's best places, with the best of each server in a heap."""

    def __init__(self, line: NDArray[np.float32], servers: Sequence[int], count: int) -> None:
        threshold = np.partition(line, -count)[-count] if count < len(line) else -np.inf
        found = np.flatnonzero((line >= threshold) & (line > -np.inf))
        ordered = found[np.argsort(-line[found], kind="stable")]
        self._scores: dict[int, float] = dict(zip(ordered.tolist(), line[ordered].tolist(), strict=True))
        self._waiting: dict[int, list[int]] = {}
        for place in reversed(self._scores):
            self._waiting.setdefault(servers[place], []).append(place)
        self._heap = [(-self._scores[places[-1]], places[-1], server) for server, places in self._waiting.items()]
        heapify(self._heap)

    def score(self, place: int) -> float:
        return self._scores[place]

    def next(self, crowd: Counter[int], taken: dict[int, Ranked]) -> int | None:
        """The best place that is not taken, after what its server has lost by crowding."""
        while self._heap:
            key, place, server = self._heap[0]
            places = self._waiting[server]
            while places and places[-1] in taken:
                places.pop()
            if not places:
                heappop(self._heap)
                continue
            worth = -self._scores[places[-1]] + _CROWDING * max(0, crowd[server] + 1 - _FREE)
            if (worth, places[-1]) == (key, place):
                return place
            # Scores only fall: what is out of date goes back with what it is worth now.
            heapreplace(self._heap, (worth, places[-1], server))
        return None
