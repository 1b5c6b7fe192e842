"""What happens during a run, as small values to `match` on, and the result it ends with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call that the program made. While it runs, `ok` is None; afterwards it is told again with the outcome."""

    server: str
    tool: str
    ok: bool | None = None
    ms: float = 0.0
    error: str = ""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. `output` is what the model reads: printed text, then the last expression's value."""

    success: bool
    output: str = ""
    value: Any = None
    error: str | None = None
    execution_time_ms: float = 0.0
    tool_calls: list[ToolCall] = []
    session: str | None = None
    truncated: bool = False
    output_file: str | None = None

    def text(self) -> str:
        """One compact block: the output, and the error when there is one. Nothing twice."""
        parts = [self.output.rstrip("\n")] if self.output.strip() else []
        if self.error:
            parts.append(f"ERROR\n{self.error}")
        elif not parts:
            parts.append("(finished; nothing printed. print() what you need.)")
        return "\n".join(parts)


@dataclass(frozen=True)
class Output:
    text: str


@dataclass(frozen=True)
class Progress:
    text: str
    fraction: float | None = None


@dataclass(frozen=True)
class Finished:
    result: RunResult


Event = Output | Progress | ToolCall | Finished
