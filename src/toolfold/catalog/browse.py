"""Looking around without a question: the servers, and one server page by page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from toolfold.catalog.answer import BUDGET, Answer, Detail, Hit, fitting, told
from toolfold.catalog.entries import Entry
from toolfold.codegen.names import ApiNames
from toolfold.schema import text

_SERVER = re.compile(r"""(?:^|\s)server:\s*(?:"([^"]*)"|(\S*))""", re.IGNORECASE)
_PAGE = re.compile(r"(?:^|\s)page:\s*(\d{1,6})\b", re.IGNORECASE)
_MARKUP = re.compile(r"^[#*>\-\s]+|</?[A-Za-z][^<>]{0,40}>|[*`]", re.MULTILINE)
_LINE = 70
_SHORT_LINE = 36
_MANY = 30
"""Servers from which an overview says less about each."""
_OVERVIEW = 3 * BUDGET
_TOKENS_PER_CHARACTER = 0.3


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the catalog knows of one server. `source` is `cache` (a live listing), `file`, or empty when it has none."""

    name: str
    tools: int = 0
    resources: int = 0
    prompts: int = 0
    instructions: str = ""
    source: str = ""
    missing: bool = False


class Asked(NamedTuple):
    """A query taken apart: `server` is None when the query names none with `server:`."""

    words: str
    server: str | None
    page: int


def read_query(query: str) -> Asked:
    server = _SERVER.search(query)
    if server is None:
        return Asked(query.strip(), None, _page(query))
    rest = f"{query[: server.start()]} {query[server.end() :]}"
    return Asked(_PAGE.sub(" ", rest).strip(), server[1] or server[2] or "", _page(rest))


def overview(servers: Sequence[ServerInfo], entries: Sequence[Entry], page: int) -> Answer:
    """Every server with its counts and one line, in pages where there are very many."""
    if not servers:
        return Answer(text="No servers are configured. Add one to the config, or definitions with --catalog.")
    by_server: dict[str, list[Entry]] = {}
    for entry in entries:
        by_server.setdefault(entry.server, []).append(entry)
    width = _LINE if len(servers) <= _MANY else _SHORT_LINE
    lines = [_server_line(server, by_server.get(server.name, []), width) for server in servers]
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
    hits = [Hit(entry, names) for entry in entries]
    if not hits:
        why = "it has not been listed yet" if server.missing else "it offers nothing"
        return Answer(text=f"{text.one_line(server.name, 80)}: {why}.")
    reached, start = 1, 0
    shown = fitting(hits, detail, limit)
    while reached < page and start + len(shown) < len(hits):
        reached += 1
        start += len(shown)
        shown = fitting(hits[start:], detail, limit)
    end = start + len(shown)
    label = text.one_line(server.name, 80)
    before = f"{label}: {start + 1}-{end} of {len(hits)}"
    after = f'Next: query "server:{label} page:{reached + 1}".' if end < len(hits) else ""
    return Answer(shown, len(hits), told(shown, detail, before=before, after=after))


def _server_line(server: ServerInfo, entries: Sequence[Entry], width: int) -> str:
    counts = [str(server.tools)]
    if server.resources:
        counts.append(_count(server.resources, "resource"))
    if server.prompts:
        counts.append(_count(server.prompts, "prompt"))
    label = f"{text.one_line(server.name, 80)} ({', '.join(counts)})"
    if server.missing and not entries:
        return f"{label}: not listed yet"
    said = text.first_sentence(_MARKUP.sub("", server.instructions[:2000]), width)
    if not said:
        # Without words of its own, a server is best described by what it can do.
        step = max(1, len(entries) // 3)
        said = text.one_line(", ".join(entry.name for entry in list(entries)[::step][:3]), width)
    return f"{label}: {said}" if said else label


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _page(query: str) -> int:
    found = _PAGE.search(query)
    return max(1, int(found[1])) if found else 1


def _pages(costs: Sequence[float], budget: float) -> list[tuple[int, int]]:
    pages: list[tuple[int, int]] = []
    start, spent = 0, 0.0
    for place, cost in enumerate(costs):
        if spent + cost > budget and place > start:
            pages.append((start, place))
            start, spent = place, 0.0
        spent += cost
    return [*pages, (start, len(costs))]
