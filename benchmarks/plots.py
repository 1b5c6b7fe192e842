"""The curve of `scripts/bench tokens` as SVG pictures: small, without a library, readable on light and on dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.tokens import Crossover, Curve

SCENARIOS, TOTAL = "tokens-scenarios.svg", "tokens-total.svg"
_STYLE = """
text{font:12px system-ui,sans-serif;fill:#57606a}
.title{font-size:13px;font-weight:600;fill:#24292f}
.grid{stroke:#d0d7de;stroke-width:1}
.line{fill:none;stroke-width:2.5;stroke-linejoin:round}
.direct{stroke:#cf5c1a}.folded{stroke:#0969da}
text.direct{stroke:none;fill:#cf5c1a;font-weight:600}text.folded{stroke:none;fill:#0969da;font-weight:600}
.crossover{fill:none;stroke:#57606a;stroke-width:2}
@media(prefers-color-scheme:dark){
text{fill:#9198a1}.title{fill:#e6edf3}.grid{stroke:#3d444d}.crossover{stroke:#9198a1}
.direct{stroke:#f0883e}.folded{stroke:#58a6ff}text.direct{fill:#f0883e}text.folded{fill:#58a6ff}}
"""
Line = Sequence[tuple[float, float]]


def write(curve: Curve, folder: Path) -> list[Path]:
    """Write both pictures into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, picture in ((SCENARIOS, scenarios(curve)), (TOTAL, total(curve))):
        (folder / name).write_text(picture, encoding="utf-8")
        written.append(folder / name)
    return written


def scenarios(curve: Curve) -> str:
    """A panel for each scenario, all with the same scales, and the crossover where there is one."""
    columns, width, height = 3, 300, 220
    points = list(zip(*(size.points for size in curve.sizes), strict=True))
    tallest = max(point.direct.tokens for each in points for point in each)
    lowest = min(min(point.direct.tokens, point.folded.tokens) for each in points for point in each)
    panels: list[str] = []
    for at, (each, crossover) in enumerate(zip(points, curve.crossovers, strict=True)):
        panel = _Panel(
            left=at % columns * width + 48,
            top=at // columns * height + 58,
            width=width - 66,
            height=height - 66,
            across=(1, curve.sizes[-1].tools),
            up=(lowest, tallest),
        )
        panels.append(panel.frame(each[0].scenario))
        panels += [
            panel.line([(point.tools, point.direct.tokens) for point in each], "direct"),
            panel.line([(point.tools, point.folded.tokens) for point in each], "folded"),
            panel.crossover(crossover, [(point.tools, point.folded.tokens) for point in each]),
        ]
    rows = -(-len(points) // columns)
    title = "Tokens of one conversation, by the number of tools"
    return _picture(columns * width, rows * height + 38, title, panels)


def total(curve: Curve) -> str:
    """All scenarios together."""
    direct = [(size.tools, size.direct) for size in curve.sizes]
    folded = [(size.tools, size.folded) for size in curve.sizes]
    values = [tokens for _, tokens in [*direct, *folded]]
    panel = _Panel(58, 44, 560, 262, (1, curve.sizes[-1].tools), (min(values), max(values)))
    parts = [panel.frame(""), panel.line(direct, "direct"), panel.line(folded, "folded")]
    last = curve.sizes[-1]
    for tokens, way in ((last.direct, "direct"), (last.folded, "folded")):
        x, y = panel.place(last.tools, tokens)
        parts.append(f'<text class="{way}" x="{x - 6:.0f}" y="{y - 10:.0f}" text-anchor="end">{_short(tokens)}</text>')
    return _picture(640, 348, "Tokens of the six scenarios together, by the number of tools", parts)


class _Panel:
    """A frame with two logarithmic scales, which begin and end at a power of ten or, across, at the last value."""

    def __init__(
        self, left: float, top: float, width: float, height: float, across: tuple[int, int], up: tuple[int, int]
    ) -> None:
        self._left, self._top, self._width, self._height = left, top, width, height
        self._across = (math.log10(across[0]), max(math.log10(across[1]), math.log10(across[0]) + 1))
        self._up = (math.floor(math.log10(up[0])), math.ceil(math.log10(up[1])))

    def place(self, tools: float, tokens: float) -> tuple[float, float]:
        across = (math.log10(tools) - self._across[0]) / (self._across[1] - self._across[0])
        up = (math.log10(tokens) - self._up[0]) / (self._up[1] - self._up[0])
        return self._left + across * self._width, self._top + (1 - up) * self._height

    def frame(self, title: str) -> str:
        right, bottom = self._left + self._width, self._top + self._height
        parts = (
            [f'<text class="title" x="{self._left:.0f}" y="{self._top - 9:.0f}">{escape(title)}</text>']
            if title
            else []
        )
        for power in range(self._up[0], self._up[1] + 1):
            _, y = self.place(1, 10.0**power)
            parts.append(f'<path class="grid" d="M{self._left:.0f} {y:.1f}H{right:.0f}"/>')
            parts.append(f'<text x="{self._left - 6:.0f}" y="{y + 4:.1f}" text-anchor="end">{_short(10**power)}</text>')
        for power in range(math.floor(self._across[1]) + 1):
            x, _ = self.place(10.0**power, 10.0 ** self._up[0])
            parts.append(f'<path class="grid" d="M{x:.1f} {bottom:.0f}v4"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 17:.0f}" text-anchor="middle">{_short(10**power)}</text>')
        return "".join(parts)

    def line(self, values: Line, way: str) -> str:
        places = [self.place(*value) for value in dict.fromkeys(values)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        return f'<path class="line {way}" d="M{path}"/>'

    def crossover(self, crossover: Crossover, folded: Line) -> str:
        """A ring where the lines meet."""
        if crossover.tools is None or crossover.always:
            return ""
        after = next(tokens for tools, tokens in folded if tools >= crossover.tools)
        x, y = self.place(crossover.tools, after)
        tools = f"from {crossover.tools} tools"
        return (
            f'<circle class="crossover" cx="{x:.1f}" cy="{y:.1f}" r="6"/>'
            f'<text x="{x + 10:.1f}" y="{y + 18:.1f}">{tools}</text>'
        )


def _short(number: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return str(number)


def _picture(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    legend = (
        f'<text class="direct" x="{width - 88}" y="20" text-anchor="end">direct calls</text>'
        f'<text class="folded" x="{width - 18}" y="20" text-anchor="end">Toolfold</text>'
        f'<text x="{width - 18}" y="{height - 8}" text-anchor="end">tools (both scales logarithmic)</text>'
    )
    body = "\n".join(part for part in parts if part)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">\n<style>{_STYLE}</style>\n'
        f'<text class="title" x="14" y="20">{escape(title)}</text>{legend}\n{body}\n</svg>\n'
    )
