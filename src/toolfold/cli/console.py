"""Where commands write: results to stdout, everything else to stderr; colours only on a terminal."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@cache
def stdout() -> Console:
    from rich.console import Console

    return Console()


@cache
def stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True)
