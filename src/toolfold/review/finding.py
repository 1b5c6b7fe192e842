"""What the review says about a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Code = Literal[
    "syntax",
    "unknown_server",
    "upstream_unavailable",
    "unknown_tool",
    "unknown_argument",
    "missing_argument",
    "invalid_argument",
    "not_awaited",
    "policy_denied",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One certain mistake. `line` counts from 1, `column` from 0, as Python's own `ast` does."""

    line: int
    column: int
    code: Code
    message: str
    hint: str = ""
    """The next step, where there is one to name."""
    tool: tuple[str, str] | None = None
    """The server and the tool whose signature would help."""
    raises: str = ""
    """The exception that this would raise, which the program may be prepared for."""
