"""What passes through a model's context, in o200k tokens: counted, or estimated without the `tokens` extra.

Counted the same way for both sides of the demo:

- a tool's definition is its name, description and input schema as compact JSON, plus the server's instructions;
- a call is the tool's name and its arguments as compact JSON;
- a result is the text that the server sent, or its structured content as compact JSON when it sent no text: never
  both, though the wire carries both.

The person's question and the model's closing words are the same on both sides and are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from toolfold.demo.servers.hosting import compact
from toolfold.telemetry.tokens import measure

if TYPE_CHECKING:
    from mcp import types


@dataclass
class Context:
    """One conversation: the definitions, then one entry for each round trip."""

    definitions: int = 0
    turns: list[int] = field(default_factory=list[int])
    written: int = 0
    """What the model wrote: its calls. Part of `turns`."""
    calls: int = 0

    def turn(self, calls: Iterable[tuple[str, dict[str, Any]]], results: Iterable[str]) -> None:
        """One round trip: the calls that the model wrote in one answer, and all their results."""
        written = [compact({"name": name, "arguments": arguments}) for name, arguments in calls]
        tokens = sum(measure(text).tokens for text in written)
        self.calls += len(written)
        self.written += tokens
        self.turns.append(tokens + sum(measure(text).tokens for text in results))

    @property
    def tokens(self) -> int:
        """The context's size at the end: the definitions once, and everything that was said."""
        return self.definitions + sum(self.turns)

    @property
    def sent(self) -> int:
        """Input tokens over all requests when nothing is cached: every request sends all that came before it."""
        rounds = len(self.turns)
        said = sum(tokens * (rounds - at) for at, tokens in enumerate(self.turns))
        return self.definitions * (rounds + 1) + said

    def sent_with_cache(self, share: float = 0.1) -> float:
        """The same where each request pays only a share for what an earlier one has sent already."""
        fresh = self.definitions + sum(self.turns)
        return fresh + (self.sent - fresh) * share


def result_text(result: types.CallToolResult) -> str:
    """What a model reads of a result."""
    texts = [block.text for block in result.content if block.type == "text"]
    if texts or result.structured_content is None:
        return "\n".join(texts)
    return compact(result.structured_content)
