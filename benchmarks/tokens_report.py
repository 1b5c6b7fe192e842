"""The curve of `scripts/bench tokens` as a person reads it, and as a script does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.machine import described
from benchmarks.report import document
from benchmarks.tokens import METHOD, Crossover, Curve, Size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

TOKENIZER = "rs-bpe"
OWN = 200
"""Tokens of both tools with instructions, at most."""
HUNDRED, ALL = 0.97, 0.995
"""Shares of the tokens that are saved at least, over all scenarios, with a hundred tools and with 2,310."""


@dataclass(frozen=True)
class Promise:
    what: str
    measured: float
    wanted: float
    kept: bool
    text: str


def promises(curve: Curve) -> list[Promise]:
    """What the project promises, for the sizes that were measured."""
    own = max(size.own for size in curve.sizes)
    sizes = "any number of tools" if len(curve.sizes) > 1 else f"{max(size.tools for size in curve.sizes):,} tools"
    text = f"Two tools and instructions: {own} tokens with {sizes} (at most {OWN})"
    made = [Promise("two tools and instructions, tokens", own, OWN, own <= OWN, text)]
    for tools, wanted in ((100, HUNDRED), (2310, ALL)):
        for size in curve.sizes:
            if size.tools == tools:
                text = (
                    f"{tools:,} tools: {size.saved:.2%} fewer tokens over all scenarios (at least {wanted:.1%}); "
                    f"the median scenario {size.median:.2%}"
                )
                made.append(Promise(f"saved with {tools} tools", size.saved, wanted, size.saved >= wanted, text))
    return made


def as_data(curve: Curve) -> dict[str, Any]:
    """Everything, for `--json`."""
    found: dict[str, Any] = {
        "method": METHOD,
        "seed": curve.seed,
        "catalog": {"tools": curve.catalog_tools, "tokens": curve.catalog_tokens},
        "hundred_tools_in_other_orders": curve.hundred,
        "sizes": [_size(size) for size in curve.sizes],
        "crossovers": [asdict(each) | {"always": each.always} for each in curve.crossovers],
        "promises": [asdict(promise) for promise in promises(curve)],
    }
    return document("tokens", found, TOKENIZER)


def _size(size: Size) -> dict[str, Any]:
    scenarios = [
        asdict(point)
        | {
            "direct_tokens": point.direct.tokens,
            "folded_tokens": point.folded.tokens,
            "saved": round(point.saved, 5),
            "saved_with_cache": round(point.saved_with_cache, 5),
        }
        for point in size.points
    ]
    return {
        "tools": size.tools,
        "direct_tokens": size.direct,
        "folded_tokens": size.folded,
        "saved": round(size.saved, 5),
        "median_saved": round(size.median, 5),
        "saved_with_cache": round(size.saved_with_cache, 5),
        "scenarios": scenarios,
    }


def show(curve: Curve, console: Console) -> None:
    console.print(_totals(curve))
    for size in (size for size in curve.sizes if size.tools in (100, curve.sizes[-1].tools)):
        console.print(_scenarios(curve, size))
    for promise in promises(curve):
        console.print(f"{'[green]✓[/]' if promise.kept else '[red]✗[/]'} {promise.text}", highlight=False)
    console.print()
    for line in _remarks(curve):
        console.print(line, highlight=False, markup=False)
        console.print()


def _table(title: str, first: str, *headings: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, justify="right" if first == "tools" else "left", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _totals(curve: Curve) -> Table:
    table = _table(
        "Tokens of all six scenarios, by the number of tools",
        "tools",
        "direct",
        "folded",
        "saved",
        "median scenario\nsaves",
        "saved with a cache\n(computed)",
    )
    for size in curve.sizes:
        numbers = f"{size.direct:,}", f"{size.folded:,}", f"{size.saved:.2%}", f"{size.median:.2%}"
        table.add_row(f"{size.tools:,}", *numbers, f"{size.saved_with_cache:.2%}")
    return table


def _scenarios(curve: Curve, size: Size) -> Table:
    table = _table(
        f"Among {size.tools:,} tools",
        "scenario",
        "direct\nrequests",
        "folded\nrequests",
        "direct\ntokens",
        "folded\ntokens",
        "saved",
        "folding is cheaper\nfrom",
    )
    for point, crossover in zip(size.points, curve.crossovers, strict=True):
        table.add_row(
            point.scenario,
            str(point.direct.requests),
            str(point.folded.requests),
            f"{point.direct.tokens:,}",
            f"{point.folded.tokens:,}",
            f"{point.saved:.2%}",
            _cheaper_from(crossover),
        )
    return table


def _cheaper_from(crossover: Crossover) -> str:
    if crossover.tools is None:
        return "never"
    return "always" if crossover.always else f"{crossover.tools:,} tools"


def _remarks(curve: Curve) -> list[str]:
    catalog = f"{curve.catalog_tools:,} tools of {curve.catalog_tokens:,} tokens in all; seed {curve.seed}."
    if curve.hundred is not None:
        least, median, most = curve.hundred
        catalog += (
            f" A hundred of them cost {least:,} to {most:,} tokens in a thousand other orders, {median:,} in the median"
            " one (computed)."
        )
    return [f"The catalog: {catalog}", METHOD, described(TOKENIZER)]
