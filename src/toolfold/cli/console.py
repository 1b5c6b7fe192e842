"""Where commands write: results to stdout, everything else to stderr; colours only on a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

# Control characters but for newline and tab (an escape sequence is harmless without its first one), characters that
# change the direction of text, other invisible ones, and lone surrogates, which no terminal can be sent.
_ACTED_ON = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def printable(text: str) -> str:
    """`text` with everything that a terminal would act on made visible, such as `\\x1b`; newlines and tabs stay.

    For text that is not ours: names and descriptions of tools, output of programs and servers, configs of projects.
    """
    return _ACTED_ON.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


@cache
def stdout() -> Console:
    from rich.console import Console

    return Console()


@cache
def stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def note(text: str, style: str = "") -> None:
    """A line for the person, on stderr."""
    if not style:  # nothing to do for rich, which takes a while to import
        sys.stderr.write(printable(text) + "\n")
        return
    stderr().print(printable(text), style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)


def counted(number: int, what: str, plural: str = "s") -> str:
    """Such as `1 run`, `2,000 runs`."""
    return f"{number:,} {what}{plural if number != 1 else ''}"


def cell(text: str) -> str:
    """`text` that is not ours, for `print_table`: on one line, and not read as markup."""
    from rich.markup import escape

    return escape(printable(text).replace("\n", " "))


def print_table(headings: Iterable[str], rows: Iterable[tuple[str, ...]], *, lines_after: Collection[int] = ()) -> None:
    """A table on stdout, of rich markup, with a line after some of its rows. The first column is text; of the others,
    those with a heading are numbers, which are never broken over lines: a table may be wider than the terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for at, heading in enumerate(headings):
        cells = (heading, *(Text.from_markup(row[at]).plain for row in rows))
        width = max((len(word) for text in cells for word in text.split()), default=0)
        justify = "right" if at and heading else "left"
        table.add_column(heading, justify=justify, overflow="fold", min_width=width if at else min(width, 12))
    for at, row in enumerate(rows):
        table.add_row(*row, end_section=at in lines_after)
    stdout().print(table, crop=False)


def write_json(document: Any) -> None:
    """`document` as JSON on stdout, with escapes for what a terminal would act on."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    sys.stdout.write(_ACTED_ON.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
