"""From values to HTML: jinja2 with escaping always on, and how times, sizes and other people's texts are written."""

from __future__ import annotations

import hashlib
import json
import re
import time
from functools import cache
from pathlib import Path
from typing import Any, NewType

import jinja2

Rendered = NewType("Rendered", str)
_FOLDER = Path(__file__).parent
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# What a browser would hide or act on: controls, marks that change the direction of text, other invisible characters.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)


def render(template: str, **values: Any) -> Rendered:
    return Rendered(_environment().get_template(template).render(values))


def plain(text: object, limit: int = 20_000) -> str:
    """Text of others as it can be shown: colours of terminals are dropped, what cannot be seen is written out."""
    whole = str(text)
    shown = _ANSI.sub("", whole[: limit * 2]).replace("\r\n", "\n")
    shown = exact(shown)
    return shown if len(shown) <= limit and len(whole) <= limit * 2 else f"{shown[:limit]}…"


def exact(text: object) -> str:
    """Text that a person decides on: nothing is dropped, what cannot be seen is written out."""
    return _HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", str(text))


def number(value: float) -> str:
    """1234567 → 1,234,567."""
    return f"{value:,.0f}"


def plural(word: str, count: float) -> str:
    return word if count == 1 else f"{word}s"


def short(value: float) -> str:
    """1234567 → 1.23 M, for cards."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size * 10 or (size > 1e3 and abs(value) >= size):
            return f"{float(f'{value / size:.3g}'):g}{unit}"  # and no 1e+03
    return f"{value:,.0f}"


def duration(ms: float) -> str:
    if ms < 1:
        return f"{ms:.2f} ms"
    if ms < 1000:
        return f"{ms:.3g} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def ago(moment: float) -> str:
    passed = max(0.0, time.time() - moment)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if passed >= size:
            return f"{passed // size:.0f} {unit} ago"
    return "just now" if passed < 2 else f"{passed:.0f} s ago"


def clock(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def size(count: float) -> str:
    for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def static(name: str) -> str:
    """The address of one of our files, which changes with its content."""
    return f"/dashboard/static/{name}?{_version(name)}"


@cache
def _version(name: str) -> str:
    return hashlib.sha256((_FOLDER / "static" / name).read_bytes()).hexdigest()[:8]


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters: dict[str, Any] = {
        "plain": plain,
        "exact": exact,
        "number": number,
        "plural": plural,
        "short": short,
        "duration": duration,
        "ago": ago,
        "clock": clock,
        "size": size,
        "json": as_json,
    }
    made.filters.update(filters)
    shared: Any = made.globals
    shared["static"] = static
    return made
