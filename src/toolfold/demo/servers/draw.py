"""Made-up data that is the same on every machine and every Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """Draws from a seed, by `Random.random` alone: the one method that is promised to stay the same."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random

    def whole(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + int(self._random() * (high - low + 1))

    def pick(self, values: Sequence[T]) -> T:
        return values[self.whole(0, len(values) - 1)]

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def money(self, low: float, high: float) -> float:
        return round(low + self._random() * (high - low), 2)

    def near(self, value: float, spread: float) -> float:
        """A value within `spread` (a fraction) of `value`."""
        return value * (1 + spread * (2 * self._random() - 1))
