"""The calls of a run along its time, in percent of it: the page's policy lets no style in, so SVG places them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolfold.gateway.dashboard.render import duration

if TYPE_CHECKING:
    from toolfold.gateway.views.shapes import Call, RunDetail

_TICKS = 5
_NARROWEST = 0.4


@dataclass(frozen=True)
class Bar:
    target: str
    line: int | None
    ok: bool | None
    kind: str
    """How it is drawn."""
    start: float
    width: float
    took: str
    label: str
    error: str
    approved_by: str


@dataclass
class LineCalls:
    """The calls that one line of a program made."""

    count: int = 0
    failed: int = 0


def timeline(run: RunDetail) -> tuple[list[Bar], list[float]]:
    """A bar for each call, and the moments of the scale above them, in milliseconds."""
    calls = run.call_list
    whole = max([run.ms, 0.001, *(call.after_ms + call.ms for call in calls)])
    return [_bar(call, whole) for call in calls], [whole * tick / (_TICKS - 1) for tick in range(_TICKS)]


def calls_by_line(run: RunDetail) -> dict[int, LineCalls]:
    found: dict[int, LineCalls] = {}
    for call in run.call_list:
        if call.line is not None:
            line = found.setdefault(call.line, LineCalls())
            line.count += 1
            line.failed += call.ok is False
    return found


def _bar(call: Call, whole: float) -> Bar:
    # One that is under way goes on to the end.
    ms = call.ms if call.ok is not None else max(0.0, whole - call.after_ms)
    start = min(100 - _NARROWEST, 100 * call.after_ms / whole)
    width = max(_NARROWEST, min(100 - start, 100 * ms / whole))
    target = f"{call.server}.{call.name}" if call.kind == "tool" else f"{call.kind}:{call.server}:{call.name}"
    state = "under way" if call.ok is None else "ok" if call.ok else call.error_code or "failed"
    return Bar(
        target=target,
        line=call.line,
        ok=call.ok,
        kind="busy" if call.ok is None else "good" if call.ok else "bad",
        start=round(start, 2),
        width=round(width, 2),
        took=duration(ms) if call.ok is not None else "…",
        label=f"{state}, after {duration(call.after_ms)}, took {duration(ms)}",
        error=call.error if call.ok is False else "",
        approved_by=call.approved_by,
    )
