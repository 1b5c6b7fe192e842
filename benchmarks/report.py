"""How figures are printed: what was measured, against what, the ratio, the budget, and on which machine.

Ratios come from one run. Every benchmark prints a table, or one JSON document with `benchmark`, `machine`, `versions`
and what it found.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.machine import described, machine, versions

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Figure:
    """`ours` and `other` in the unit's own scale.

    `budget` is the ratio that must not be passed; `at_least`, for what is better when it is more, the one to reach.
    """

    what: str
    ours: float
    other: float | None
    against: str
    unit: str = "ms"
    budget: float | None = None
    at_least: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.ours / self.other if self.other else None

    @property
    def within(self) -> bool | None:
        if self.ratio is None or (self.budget is None and self.at_least is None):
            return None
        return self.ratio <= (self.budget or math.inf) and self.ratio >= (self.at_least or 0)

    @property
    def wanted(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least} ×"
        return "" if self.budget is None else f"≤ {self.budget} ×"

    def data(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "ours": round(self.ours, 4),
            "other": None if self.other is None else round(self.other, 4),
            "against": self.against,
            "unit": self.unit,
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "budget": self.budget,
            "at_least": self.at_least,
            "within": self.within,
        }


def document(benchmark: str, found: dict[str, Any], *packages: str) -> dict[str, Any]:
    """What `--json` prints. `packages` are those whose versions matter beside the ones that always do."""
    return {"benchmark": benchmark, "machine": machine(), "versions": versions(*packages), **found}


def show(figures: list[Figure], title: str, console: Console, *packages: str) -> None:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("what", "ours", "against", "theirs", "ratio", "budget"):
        table.add_column(name, justify="left" if name in ("what", "against") else "right")
    for figure in figures:
        ratio = "–" if figure.ratio is None else f"{figure.ratio:.2f} ×"
        colour = {True: "green", False: "red", None: ""}[figure.within]
        table.add_row(
            figure.what,
            _number(figure.ours, figure.unit),
            figure.against,
            "–" if figure.other is None else _number(figure.other, figure.unit),
            f"[{colour}]{ratio}[/]" if colour else ratio,
            figure.wanted,
        )
    console.print(table)
    console.print(described(*packages), highlight=False)


def _number(value: float, unit: str) -> str:
    return f"{value:,.{2 if value >= 0.1 else 3}f} {unit}".rstrip()


async def side_by_side(
    ours: Callable[[], Awaitable[Any]],
    other: Callable[[], Awaitable[Any]],
    times: int,
    *,
    in_a_row: int = 1,
    pause: float = 0.0,
) -> tuple[float, float]:
    """The medians of both, measured in turns of `in_a_row`, so that the machine's moods meet both alike."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(times):
        for work, into in zip((ours, other), taken, strict=True):
            into.append(await median_ms(work, in_a_row, pause=pause))
    return statistics.median(taken[0]), statistics.median(taken[1])


async def median_ms(work: Callable[[], Awaitable[Any]], times: int, *, pause: float = 0.0) -> float:
    """The median of several timings of an awaitable, in milliseconds."""
    import anyio

    taken: list[float] = []
    for _ in range(times):
        if pause:
            await anyio.sleep(pause)
        begun = time.perf_counter()
        await work()
        taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken)
