"""What a search answers: hits for programs, and the text that a model reads and pays for.

A question is answered with ranked hits, `server:NAME` with that server's entries page by page, an empty query with an
overview of the servers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from toolfold.catalog.entries import Entry, HeldEntry, ServerInfo
from toolfold.catalog.skill_entries import SERVER, SkillBody, SkillEntries
from toolfold.catalog.suspicion import suspicion
from toolfold.codegen import render
from toolfold.codegen.names import ApiNames
from toolfold.definitions import ToolDefinition
from toolfold.errors import InvalidArguments
from toolfold.schema import text
from toolfold.schema.wrapper import result_schema

Detail = Literal["name_only", "with_description", "full"]
DETAILS: tuple[Detail, ...] = get_args(Detail)

BUDGET = 500
"""Tokens that an answer takes by default."""
MOST_HITS = 200
"""Hits that one answer may hold, however many are asked for."""
_FURTHER = 75
"""Tokens for the line that names further tools of the servers found."""
_SUMMARY = 100
"""Characters of a description's first sentence."""
_SIGNATURE = 160
"""Characters of a skill's signature beside its summary."""
# Measured over real answers. An exact count needs a vocabulary of 48 MB, which is an extra.
_CHARACTERS_PER_TOKEN = {"name_only": 3.6, "with_description": 4.2, "full": 4.0}


def check_detail(detail: str) -> None:
    """InvalidArguments with the valid levels for any other word: the edges pass on what a program or model wrote."""
    if detail not in DETAILS:
        raise InvalidArguments(
            f"unknown detail {detail[:60]!r};", hint=f"use {', '.join(DETAILS[:-1])} or {DETAILS[-1]}."
        )


def server_label(names: ApiNames, server: str) -> str:
    """A server as every text names it: the module to import, or its own name where it has no tools."""
    try:
        return names.server(server)
    except KeyError:
        return text.one_line(server, 80)


class Hit:
    """One found thing. What is costly to make (`signature`, `input_schema`) is made when it is first read.

    `server` and `name` are what a program imports: `from servers.<server> import <name>`. For a resource or a prompt
    they are the server's own names, as `read_resource` and `get_prompt` take them.
    """

    def __init__(
        self, entry: Entry, names: ApiNames, *, score: float = 0.0, why: Callable[[], list[str]] | None = None
    ) -> None:
        self.entry = entry
        self.kind: str = entry.kind
        self.server = names.server(entry.server) if entry.kind == "tool" else entry.server
        self.name = names.function(entry.server, entry.name) if entry.kind == "tool" else entry.name
        self.score = score
        self._names = names
        self._why = why

    @cached_property
    def why(self) -> list[str]:
        """Why it ranked, one reason a line; empty unless the search was asked to explain."""
        return self._why() if self._why is not None else []

    @property
    def label(self) -> str:
        """`github.create_issue`"""
        label = f"{self.server}.{self.name}"
        return label if self.kind in {"tool", "skill"} else text.one_line(label, 120)

    @property
    def description(self) -> str:
        return self.entry.description or self.entry.title

    @property
    def summary(self) -> str:
        """The description's first sentence, cut where it is long."""
        return _summary(self.description)

    @cached_property
    def import_(self) -> str:
        """The line that makes it usable: an import, or the call that reads a resource or gets a prompt."""
        if self.kind == "tool":
            return f"from servers.{self.server} import {self.name}"
        if self._skill is not None:
            return f"from skills import {self.name}"
        if self.kind == "resource":
            return f"await read_resource({_literal(self.server)}, {_literal(self.entry.uri)})"
        arguments = ", ".join(f"{_literal(one.name)}: …" for one in self.entry.prompt().arguments)
        return f"await get_prompt({_literal(self.server)}, {_literal(self.name)}, {{{arguments}}})"

    @cached_property
    def signature(self) -> str:
        if self._skill is not None:
            return self._skill.signature
        return render.signature(self._names, self._tool) if self.kind == "tool" else self.import_

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of what it takes."""
        if self.kind == "tool":
            return self._tool.input_schema
        if self._skill is not None:
            return self._skill.input_schema
        if self.kind == "resource":
            return {}
        arguments = self.entry.prompt().arguments
        return {
            "type": "object",
            "properties": {one.name: {"type": "string", "description": one.description} for one in arguments},
            "required": [one.name for one in arguments if one.required],
        }

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON Schema of what a tool returns to a program, where it declares one."""
        return result_schema(self._tool.output_schema) if self.kind == "tool" else None

    @cached_property
    def _tool(self) -> ToolDefinition:
        return self.entry.tool()

    @property
    def _is_template(self) -> bool:
        return self.kind == "resource" and self.entry.resource().template

    @cached_property
    def _skill(self) -> SkillBody | None:
        return msgspec.json.decode(self.entry.body, type=SkillBody) if self.kind == "skill" else None

    @cached_property
    def full(self) -> str:
        if self.kind == "tool":
            return f"{self.import_}\n{render.full(self._names, self._tool)}"
        if self._skill is not None:
            words = self._skill.doc or self.description
            return f"{self.import_}\n{self._skill.signature}\n{text.clean(words)}"
        lines = [f"{self.kind} {self.label}", *text.clean(self.description).split("\n"), self.import_]
        if self._is_template:
            lines.append("Fill in the {placeholders}.")
        return "\n".join(line for line in lines if line)

    def warning(self, detail: Detail = "full") -> str:
        """Why a person should look at it first, in a few words: it has changed, or its texts are suspicious."""
        if isinstance(self.entry, HeldEntry):
            return "changed, not callable until accepted"
        return suspicion(self.entry, schema=detail == "full")

    def shown(self, detail: Detail) -> str:
        """The hit as an answer's text holds it."""
        warning = self.warning(detail)
        if detail == "full":
            return f"{self.full}\n# Beware: {warning}." if warning else self.full
        mark = "" if self.kind == "tool" else f" ({self.kind}{' template' if self._is_template else ''})"
        mark += f" [{warning}]" if warning else ""
        if detail == "name_only":
            return f"{self.label}{mark}"
        summary = f": {self.summary}" if self.summary else ""
        signature = f"  # {_cut(self.signature)}" if self.kind == "skill" else ""
        return f"{self.label}{mark}{summary}\n  {self.import_}{signature}"

    def row(self, detail: Detail) -> dict[str, Any]:
        """The hit as plain data; each level adds keys to the one before. Only what is not a tool says its `kind`."""
        row: dict[str, Any] = {"name": self.name, "server": self.server}
        if self.kind != "tool":
            row["kind"] = self.kind
        if self.entry.uri:
            row["uri"] = self.entry.uri
        if detail != "name_only":
            row["description"] = self.description if detail == "full" else self.summary
            row["import"] = self.import_
            if self.kind == "skill":
                row["signature"] = self.signature
        if detail == "full":
            row["signature"] = self.signature
            row["input_schema"] = self.input_schema
            row["output_schema"] = self.output_schema
        if warning := self.warning(detail):
            row["warning"] = warning
        if self._why is not None:
            row |= {"score": round(self.score, 4), "why": self.why}
        return row

    def __repr__(self) -> str:
        return f"Hit({self.label!r}, score={self.score:.3f})"


def _cut(signature: str) -> str:
    return signature if len(signature) <= _SIGNATURE else f"{signature[: _SIGNATURE - 1]}…"


@lru_cache(maxsize=8192)
def _summary(description: str) -> str:
    # Only the beginning of the first paragraph is read; some descriptions are books.
    beginning = " ".join(description[: 3 * _SUMMARY].strip().split("\n\n", 1)[0].split())
    return text.first_sentence(beginning, _SUMMARY)


@dataclass(frozen=True)
class Answer:
    """`hits` are those shown, best first; `total` is how many match; `text` is what the model reads.

    It is read like a list of its hits.
    """

    hits: list[Hit] = field(default_factory=list[Hit])
    total: int = 0
    text: str = ""
    detail: Detail = "with_description"

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, index: int) -> Hit:
        return self.hits[index]

    def rows(self) -> list[dict[str, Any]]:
        """The hits as plain data at the answer's level of detail, for a frame or for JSON."""
        return [hit.row(self.detail) for hit in self.hits]


# Ranked hits


def ranked_answer(
    hits: Iterator[Hit], total: int, detail: Detail, limit: int | None, *, further: bool = True
) -> Answer:
    """The first of `hits` that were asked for or fit; if `further`, a line that names more tools of their servers."""
    # Where names alone fill the budget, that line could only repeat what the hits would have said.
    further = further and (limit is not None or detail != "name_only")
    shown, rest = fitting(hits, detail, limit, BUDGET - _FURTHER if further else BUDGET)
    total = max(total, len(shown))
    lines = [f"{len(shown)} of {total:,} matches:", show(shown, detail)]
    if further:
        line = _further_tools(shown, rest)
        lines.append(f"# {line}" if line and detail == "full" else line)
    return Answer(shown, total, "\n".join(filter(None, lines)), detail)


def fitting(
    hits: Iterable[Hit], detail: Detail, limit: int | None, budget: int = BUDGET
) -> tuple[list[Hit], Iterator[Hit]]:
    """The hits that were asked for, or, where no limit is given, that fit the budget (at least one); and the rest."""
    hits = iter(hits)
    if limit is not None and limit > 0:
        return list(islice(hits, min(limit, MOST_HITS))), hits
    left = budget * _CHARACTERS_PER_TOKEN[detail]
    chosen: list[Hit] = []
    for hit in hits:
        left -= len(hit.shown(detail)) + 1
        if chosen and (left < 0 or len(chosen) == MOST_HITS):
            return chosen, chain([hit], hits)
        chosen.append(hit)
    return chosen, hits


def show(hits: Sequence[Hit], detail: Detail) -> str:
    """The hits as text, with the reasons of those that have some."""
    shown = [
        f"{hit.shown(detail)}\n  score {hit.score:.3f}: {'; '.join(hit.why)}" if hit.why else hit.shown(detail)
        for hit in hits
    ]
    return ("\n\n" if detail == "full" else "\n").join(shown)


def _further_tools(shown: Sequence[Hit], rest: Iterable[Hit]) -> str:
    """`Also on these servers: github: list_issues, get_issue; slack: list_users`, the best of `rest` first."""
    label = "Also on these servers: "
    found: dict[str, list[str]] = {hit.server: [] for hit in shown if hit.kind == "tool"}
    left = _FURTHER * _CHARACTERS_PER_TOKEN["name_only"] - len(label)
    for hit in rest if found else ():
        if hit.kind != "tool" or hit.server not in found:
            continue
        left -= len(hit.name) + 2 + (0 if found[hit.server] else len(hit.server) + 2)
        if left < 0:
            break
        found[hit.server].append(hit.name)
    groups = [f"{server}: {', '.join(names)}" for server, names in found.items() if names]
    return label + "; ".join(groups) if groups else ""


# Looking around without a question


def with_skills(answer: Answer, skills: SkillEntries, names: ApiNames) -> Answer:
    """An overview with a line about the skills."""
    line = f'{_server_line(skills.info, skills.entries, names, _LINE)}; "server:{SERVER}" lists them.'
    return replace(answer, text=f"{answer.text}\n{line}")


_SERVER = re.compile(r"""(?:^|\s)server:\s*(?:"([^"]*)"|(\S*))""", re.IGNORECASE)
_PAGE = re.compile(r"(?:^|\s)page:\s*(\d{1,6})\b", re.IGNORECASE)
_MARKUP = re.compile(r"^[#*>\-\s]+|</?[A-Za-z][^<>]{0,40}>|[*`]", re.MULTILINE)
_LINE = 70
_SHORT_LINE = 36
_MANY_SERVERS = 30
"""Servers from which an overview says less about each."""
_OVERVIEW = 3 * BUDGET
_TOKENS_PER_CHARACTER = 0.3


class Query(NamedTuple):
    """A query taken apart: the words that ask, and what it names with `server:` and `page:`."""

    words: str
    server: str
    page: int

    @classmethod
    def read(cls, query: str) -> Query:
        server = _SERVER.search(query)
        page = _PAGE.search(query)
        words = _PAGE.sub(" ", _SERVER.sub(" ", query, count=1)).strip()
        return cls(words, (server[1] or server[2] or "") if server else "", max(1, int(page[1])) if page else 1)


def nothing_known(servers: Sequence[ServerInfo]) -> Answer:
    """There is nothing to search in, and why."""
    waiting = [text.one_line(server.name, 80) for server in servers if server.missing]
    if waiting:
        return Answer(text=f"No tools are known yet; not listed so far: {', '.join(waiting[:20])}. Try again shortly.")
    return Answer(text="No tools are known. Add a server to the config, or definitions with --catalog.")


def overview(servers: Sequence[ServerInfo], entries: Sequence[Entry], names: ApiNames, page: int) -> Answer:
    """Every server with its counts and one line, in pages where there are very many."""
    if not servers:
        return Answer(text="No servers are configured. Add one to the config, or definitions with --catalog.")
    by_server: dict[str, list[Entry]] = {}
    for entry in entries:
        by_server.setdefault(entry.server, []).append(entry)
    width = _LINE if len(servers) <= _MANY_SERVERS else _SHORT_LINE
    lines = [_server_line(server, by_server.get(server.name, []), names, width) for server in servers]
    pages = _pages([len(line) * _TOKENS_PER_CHARACTER for line in lines], _OVERVIEW)
    first, last = pages[min(page, len(pages)) - 1]
    tools = sum(server.tools for server in servers)
    head = f"{last - first} of {_count(len(servers), 'server')}, {_count(tools, 'tool')}:"
    more = f'Next: query "page:{page + 1}".' if page < len(pages) else 'Next: "server:NAME" browses one.'
    return Answer(total=len(servers), text="\n".join([head, *lines[first:last], more]))


def one_server(
    server: ServerInfo, entries: Sequence[Entry], names: ApiNames, detail: Detail, limit: int | None, page: int
) -> Answer:
    """The page of one server's entries, by name."""
    label = server_label(names, server.name)
    hits = [Hit(entry, names) for entry in entries]
    if not hits:
        why = "it has not been listed yet" if server.missing else "it offers nothing"
        return Answer(text=f"{label}: {why}.")
    reached, start = 1, 0
    shown, rest = fitting(hits, detail, limit)
    while reached < page and start + len(shown) < len(hits):
        reached += 1
        start += len(shown)
        shown, rest = fitting(rest, detail, limit)
    end = start + len(shown)
    lines = [f"{label}: {start + 1}-{end} of {len(hits)}", show(shown, detail)]
    if end < len(hits):
        lines.append(f'Next: query "server:{label} page:{reached + 1}".')
    return Answer(shown, len(hits), "\n".join(lines), detail)


def _server_line(server: ServerInfo, entries: Sequence[Entry], names: ApiNames, width: int) -> str:
    counts = [str(server.tools)]
    if server.resources:
        counts.append(_count(server.resources, "resource"))
    if server.prompts:
        counts.append(_count(server.prompts, "prompt"))
    label = f"{server_label(names, server.name)} ({', '.join(counts)})"
    if server.missing and not entries:
        return f"{label}: not listed yet"
    said = text.first_sentence(_MARKUP.sub("", server.instructions[:2000]), width)
    if not said:
        # Without words of its own, a server is best described by what it can do.
        step = max(1, len(entries) // 3)
        said = text.one_line(", ".join(Hit(entry, names).name for entry in entries[::step][:3]), width)
    return f"{label}: {said}" if said else label


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _pages(costs: Sequence[float], budget: float) -> list[tuple[int, int]]:
    pages: list[tuple[int, int]] = []
    start, spent = 0, 0.0
    for place, cost in enumerate(costs):
        if spent + cost > budget and place > start:
            pages.append((start, place))
            start, spent = place, 0.0
        spent += cost
    return [*pages, (start, len(costs))]


def _literal(value: str) -> str:
    return json.dumps(value, ensure_ascii=not value.isprintable())
