"""From scores to a list: the things that a request asks for take turns, and no server fills the page alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_FREE = 4
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
    lines = np.round(lines, 5)
    queues = [_by_server(line, servers, count * _POOL) for line in lines]
    taken: dict[int, Ranked] = {}
    crowd: Counter[int] = Counter()
    which = 0
    while queues and len(taken) < count:
        queue = queues[which % len(queues)]
        place = _next(queue, lines[which % len(queues)], crowd, taken)
        if place is None:
            if not any(waiting for one in queues for waiting in one.values()):
                break
        else:
            taken[place] = Ranked(place, float(lines[which % len(queues)][place]), which % len(queues))
            crowd[servers[place]] += 1
        which += 1
    return list(taken.values())


def _by_server(line: NDArray[np.float32], servers: Sequence[int], count: int) -> dict[int, list[int]]:
    """Server → its best places, the best last; only the line's best `count` (and all that equal the last of them)."""
    threshold = np.partition(line, -count)[-count] if count < len(line) else -np.inf
    found = np.flatnonzero((line >= threshold) & (line > -np.inf))
    ordered = found[np.argsort(-line[found], kind="stable")]
    queues: dict[int, list[int]] = {}
    for place in map(int, ordered[::-1]):
        queues.setdefault(servers[place], []).append(place)
    return queues


def _next(
    queue: dict[int, list[int]], line: NDArray[np.float32], crowd: Counter[int], taken: dict[int, Ranked]
) -> int | None:
    best: tuple[float, int] | None = None
    for server, places in queue.items():
        while places and places[-1] in taken:
            places.pop()
        if places:
            score = float(line[places[-1]]) - _CROWDING * max(0, crowd[server] - _FREE + 1)
            if best is None or (score, -places[-1]) > (best[0], -best[1]):
                best = (score, places[-1])
    return None if best is None else best[1]
