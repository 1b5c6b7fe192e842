"""What a search says: typed hits for programs, and the text that a model reads and pays for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

from toolfold.catalog.entries import Entry
from toolfold.codegen import render
from toolfold.codegen.names import ApiNames
from toolfold.definitions import ToolDefinition
from toolfold.schema import text

Detail = Literal["name_only", "with_description", "full"]
DETAILS: tuple[Detail, ...] = get_args(Detail)

BUDGET = 500
"""Tokens that an answer takes by default."""
MOST = 200
"""Hits that one answer may hold, however many are asked for."""
LIKELY = {"name_only": 64, "with_description": 24, "full": 10}
"""More hits than fit the budget at each level, as a rule."""
_SUMMARY = 100
# Measured over real answers; the exact count needs a vocabulary of 70 MB, which a gateway has no other use for.
_CHARACTERS_PER_TOKEN = {"name_only": 3.6, "with_description": 4.2, "full": 4.0}


class Hit:
    """One found thing. What is costly to make (`signature`, `schema`) is made when it is first read."""

    def __init__(self, entry: Entry, names: ApiNames, *, score: float = 0.0, why: Sequence[str] = ()) -> None:
        self.entry = entry
        self.kind: str = entry.kind
        self.server = entry.server
        self.name = entry.name
        self.score = score
        self.why = list(why)
        self._names = names

    @property
    def description(self) -> str:
        return self.entry.description or self.entry.title

    @cached_property
    def spelt(self) -> str:
        """The name as the API tree writes it: `github.create_issue`."""
        if self.kind == "tool":
            return f"{self._names.server(self.server)}.{self._names.function(self.server, self.name)}"
        return text.one_line(f"{self.server}.{self.name}", 120)

    @cached_property
    def summary(self) -> str:
        # A summary is made of the first paragraph's beginning; some descriptions are books.
        beginning = " ".join(self.description[: 3 * _SUMMARY].strip().split("\n\n", 1)[0].split())
        return render.summary(ToolDefinition(server="", name="", description=beginning), _SUMMARY)

    @cached_property
    def import_line(self) -> str:
        if self.kind == "tool":
            return render.import_line(self._names, ToolDefinition(server=self.server, name=self.name))
        if self.kind == "resource":
            return f"await read_resource({_literal(self.server)}, {_literal(self.entry.uri)})"
        arguments = ", ".join(f"{_literal(one.name)}: …" for one in self.entry.prompt().arguments)
        return f"await get_prompt({_literal(self.server)}, {_literal(self.name)}, {{{arguments}}})"

    @cached_property
    def signature(self) -> str:
        return render.signature(self._names, self.entry.tool()) if self.kind == "tool" else self.import_line

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of what it takes."""
        if self.kind == "tool":
            return self.entry.tool().input_schema
        if self.kind == "resource":
            return {}
        arguments = self.entry.prompt().arguments
        return {
            "type": "object",
            "properties": {one.name: {"type": "string", "description": one.description} for one in arguments},
            "required": [one.name for one in arguments if one.required],
        }

    @cached_property
    def full(self) -> str:
        if self.kind == "tool":
            return f"{self.import_line}\n{render.full(self._names, self.entry.tool())}"
        lines = [f"{self.kind} {self.spelt}", *text.clean(self.description).split("\n"), self.import_line]
        if self.kind == "resource" and self.entry.resource().template:
            lines.append("Fill in the {placeholders}.")
        return "\n".join(line for line in lines if line)

    def shown(self, detail: Detail) -> str:
        """The hit as an answer's text holds it."""
        if detail == "full":
            return self.full
        mark = "" if self.kind == "tool" else f" ({self.kind})"
        if detail == "name_only":
            return f"{self.spelt}{mark}"
        summary = f": {self.summary}" if self.summary else ""
        return f"{self.spelt}{mark}{summary}\n  {self.import_line}"

    def row(self) -> dict[str, Any]:
        """The hit as plain data, whole."""
        row: dict[str, Any] = {
            "kind": self.kind,
            "server": self.server,
            "name": self.name,
            "description": self.description,
            "import_line": self.import_line,
            "signature": self.signature,
            "schema": self.schema,
            "score": round(self.score, 4),
        }
        if self.entry.uri:
            row["uri"] = self.entry.uri
        return row | ({"why": self.why} if self.why else {})

    def __repr__(self) -> str:
        return f"Hit({self.spelt!r}, score={self.score:.3f})"


@dataclass(frozen=True)
class Answer:
    """`hits` are those shown, best first; `total` is how many match; `text` is what the model reads.

    It is read like a list of its hits.
    """

    hits: list[Hit] = field(default_factory=list[Hit])
    total: int = 0
    text: str = ""

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, index: int) -> Hit:
        return self.hits[index]

    def rows(self) -> list[dict[str, Any]]:
        """The hits as plain data, for a frame or for JSON."""
        return [hit.row() for hit in self.hits]


def fitting(hits: Sequence[Hit], detail: Detail, limit: int | None) -> list[Hit]:
    """The first hits that were asked for, or that fit the budget where nothing was: at least one."""
    if limit is not None and limit > 0:
        return list(hits[: min(limit, MOST)])
    left = BUDGET * _CHARACTERS_PER_TOKEN[detail]
    chosen: list[Hit] = []
    for hit in hits[:MOST]:
        left -= len(hit.shown(detail)) + 1
        if chosen and left < 0:
            break
        chosen.append(hit)
    return chosen


def told(hits: Sequence[Hit], detail: Detail, *, before: str = "", after: str = "") -> str:
    """The text of an answer: a line before, the hits, the next step."""
    gap = "\n\n" if detail == "full" else "\n"
    shown = [_with_reasons(hit, detail) for hit in hits]
    return "\n".join(part for part in (before, gap.join(shown), after) if part)


def _with_reasons(hit: Hit, detail: Detail) -> str:
    if not hit.why:
        return hit.shown(detail)
    return f"{hit.shown(detail)}\n  score {hit.score:.3f}: {'; '.join(hit.why)}"


def _literal(value: str) -> str:
    return json.dumps(value, ensure_ascii=not value.isprintable())
