"""What a run is called in a list: what its program says of itself, and the tools that it called."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from toolfold.gateway.dashboard.render import plain

if TYPE_CHECKING:
    from toolfold.telemetry.observe import SeenCall

_CHARS = 160
_MOST_TOOLS = 3
_LOOKED_AT = 4000
_MARKS = re.compile(r"""^(#+!?|[rRuU]?\"{3}|[rRuU]?'{3})\s*""")
_NOISE = re.compile(r"(from\s+\S+\s+import\b|import\s|@|async\s+def\s|def\s|class\s|try:|pass$|[)\]}])")


def title(code: str) -> str:
    """The program's first comment, else its first line that does something, else its first line."""
    lines = [line.strip() for line in code[:_LOOKED_AT].split("\n")]
    lines = [line for line in lines if line]
    if lines and (mark := _MARKS.match(lines[0])):
        said = lines[0][mark.end() :].rstrip("\"' ") or (lines[1].rstrip("\"' ") if len(lines) > 1 else "")
        if said:
            return plain(said, _CHARS)
    doing = next((line for line in lines if not _NOISE.match(line) and not line.startswith("#")), "")
    return plain(doing or (lines[0] if lines else ""), _CHARS)


def tools(calls: list[SeenCall], total: int) -> str:
    """Such as `slack.post_message, github.create_issue × 3`. Of very many calls, only the first ones are known."""
    counted = Counter(call.target for call in calls)
    named = [f"{target} × {count}" if count > 1 else target for target, count in counted.items()]
    more = f" and {len(named) - _MOST_TOOLS} more" if len(named) > _MOST_TOOLS else ""
    more += f" and {total - len(calls):,} more calls" if total > len(calls) else ""
    return plain(", ".join(named[:_MOST_TOOLS]), 300) + more
