"""What the definitions of tools cost in every request of a model, and what Toolfold's two tools cost instead."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from toolfold.telemetry.tokens import tokens_of

Definition = tuple[str, str, dict[str, Any]]
"""Name, description and input schema: what a model reads of a tool."""


class ServerCost(NamedTuple):
    server: str
    tools: int
    tokens: int


@dataclass(frozen=True)
class Savings:
    """Tokens of definitions, as every request sends them. Nothing of it depends on what a conversation does."""

    servers: tuple[ServerCost, ...]
    own: int
    """Toolfold's two tools and its instructions."""
    search: int
    """One search with its answer, on average over questions about these very tools."""
    tokenizer: str = ""
    """The setting by which they were counted; empty for o200k."""

    @property
    def tools(self) -> int:
        return sum(each.tools for each in self.servers)

    @property
    def direct(self) -> int:
        return sum(each.tokens for each in self.servers)

    @property
    def saved(self) -> int:
        return self.direct - self.own

    @property
    def crossover(self) -> int:
        """With fewer tokens of definitions than this, direct calls are cheaper in a conversation with one search."""
        return self.own + self.search

    @property
    def crossover_tools(self) -> int:
        """How many tools of the average size of these that is."""
        return round(self.crossover * self.tools / self.direct) if self.direct else 0


def definition_tokens(
    tools: Iterable[Definition], instructions: str = "", count: Callable[[str], int] = tokens_of
) -> int:
    """What tools cost a model that has them in its context; `count` is for another tokenizer than o200k."""
    return sum(map(count, definition_texts(tools, instructions)))


def definition_texts(tools: Iterable[Definition], *instructions: str) -> list[str]:
    """What a model reads of tools, each by itself, and the instructions of their servers."""
    texts = [
        json.dumps(
            {"name": name, "description": description, "input_schema": schema},
            ensure_ascii=False,
            separators=(",", ":"),
        )
        for name, description, schema in tools
    ]
    return [*texts, *filter(None, instructions)]


def price(tokens: int, per_million: float, requests: int = 1000) -> float:
    """What it costs to send so many tokens in so many requests, when nothing is cached."""
    return tokens * requests * per_million / 1_000_000
