"""How often search finds the right tools: recall and rank, beside FastMCP's BM25 on the same data in the same run.

And how many of them a model reads in an answer, with and without the line that names further tools of the same servers.

Three collections: the tasks of LiveMCPBench with the tools that people chose for them, and one-sentence requests of our
own over the same tools and over the catalogs. The tools are other people's texts and are read from the shared folder.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.rivals import bm25
from toolfold.catalog.answer import DETAILS, MOST_HITS, Detail, ranked_answer
from toolfold.catalog.catalog import Catalog
from toolfold.config.settings import Settings
from toolfold.telemetry.tokens import count

if TYPE_CHECKING:
    from rich.console import Console

_DEPTH = 10
_FASTMCP = "FastMCP BM25"

Name = tuple[str, str]


@dataclass(frozen=True)
class Task:
    """What is asked, and what answers it: one tool of each group is needed."""

    query: str
    gold: tuple[frozenset[Name], ...]


@dataclass(frozen=True)
class Collection:
    name: str
    servers: dict[str, list[dict[str, Any]]]
    """Server → its tools as MCP writes them."""
    tasks: list[Task]

    @property
    def tools(self) -> int:
        return sum(map(len, self.servers.values()))


@dataclass(frozen=True)
class Score:
    """Averages over a collection's tasks. The reciprocal rank is that of the first tool that answers any part."""

    collection: Collection
    ranking: str
    recall: dict[int, float]
    mrr: float

    def data(self) -> dict[str, Any]:
        return {
            "collection": self.collection.name,
            "tools": self.collection.tools,
            "tasks": len(self.collection.tasks),
            "ranking": self.ranking,
            **{f"recall@{depth}": round(value, 4) for depth, value in self.recall.items()},
            "mrr": round(self.mrr, 4),
        }


@dataclass(frozen=True)
class Reading:
    """What a model reads: the share of the wanted tools that an answer's text names, and its tokens. Averages."""

    collection: Collection
    detail: Detail
    limit: int | None
    further: bool
    recall: float
    tokens: float

    def data(self) -> dict[str, Any]:
        return {
            "collection": self.collection.name,
            "detail": self.detail,
            "limit": self.limit,
            "further": self.further,
            "recall": round(self.recall, 4),
            "tokens": round(self.tokens, 1),
        }


def collections(shared: Path) -> list[Collection]:
    """The collections whose data is in the shared folder; FileNotFoundError names what is absent."""
    bench = shared / "retrieval" / "livemcpbench"
    servers: dict[str, list[dict[str, Any]]] = {}
    for one in _lines(bench / "tools.jsonl"):
        tool: dict[str, Any] = {
            "name": one["tool"],
            "description": one["description"],
            "inputSchema": one["inputSchema"],
        }
        servers.setdefault(one["server"], []).append(tool)
    tasks = [
        Task(one["query"], tuple(map(_group, one["gold_alternatives"]))) for one in _lines(bench / "queries.jsonl")
    ]
    catalogs: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((shared / "catalogs").glob("*.json")):
        listing = json.loads(path.read_text("utf-8"))
        catalogs[listing["server"]] = listing["tools"]
    own = _own_requests()
    return [
        Collection("LiveMCPBench tasks", servers, tasks),
        Collection("own requests, LiveMCPBench tools", servers, own["livemcpbench"]),
        Collection("own requests, catalogs", catalogs, own["catalogs"]),
    ]


def measure(
    shared: Path, fastmcp_python: Path | None = None, progress: Callable[[str], None] = lambda _: None
) -> list[Score]:
    """Our default, our words alone and, where a Python that has FastMCP is given, its BM25, on every collection."""
    scores: list[Score] = []
    for collection in collections(shared):
        for ranking, semantic in (("toolfold", True), ("toolfold, words only", False)):
            progress(f"{collection.name}: {ranking}")
            scores.append(score(collection, ranking, ours(collection, semantic=semantic)))
        if fastmcp_python is not None:
            progress(f"{collection.name}: FastMCP")
            scores.append(score(collection, _FASTMCP, fastmcp(collection, fastmcp_python)))
    return scores


def ours(collection: Collection, *, semantic: bool) -> list[list[Name]]:
    """The tools that our search gives for each task, best first."""
    with opened(collection, semantic=semantic) as catalog:
        found = (catalog.search(task.query, detail="name_only", limit=_DEPTH) for task in collection.tasks)
        return [[(hit.entry.server, hit.entry.name) for hit in answer.hits] for answer in found]


def readings(shared: Path, progress: Callable[[str], None] = lambda _: None) -> list[Reading]:
    """Answers to the tasks that people annotated, hits alone and with further tools, at the default limit and at 5."""
    collection = collections(shared)[0]
    found: list[Reading] = []
    with opened(collection, semantic=True) as catalog:
        for detail in DETAILS:
            for limit in (None, 5):
                progress(f"{collection.name}: {detail}, limit {limit or 'by tokens'}")
                found += [reading(catalog, collection, detail, limit, further=further) for further in (False, True)]
    return found


def reading(catalog: Catalog, collection: Collection, detail: Detail, limit: int | None, *, further: bool) -> Reading:
    recall: list[float] = []
    tokens: list[float] = []
    for task in collection.tasks:
        ranked = catalog.search(task.query, detail="name_only", limit=MOST_HITS)
        answer = ranked_answer(iter(ranked.hits), ranked.total, detail, limit, further=further)
        names = [(hit.entry.server, hit.entry.name) for hit in answer.hits if hit.kind == "tool"]
        _, _, line = answer.text.rpartition("Also on these servers: ") if further else ("", "", "")
        for group in line.split("; "):
            module, _, functions = group.partition(": ")
            named = (catalog.names.resolve(module, function) for function in functions.split(", "))
            names += [tool for tool in named if tool is not None]
        recall.append(_recall(task, names))
        tokens.append(count(answer.text))
    return Reading(collection, detail, limit, further, _mean(recall), _mean(tokens))


@contextmanager
def opened(collection: Collection, *, semantic: bool) -> Generator[Catalog]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        _write(collection, home / "catalogs")
        yield Catalog.open(Settings(catalog_dirs=(home / "catalogs",), data_dir=home / "data", semantic=semantic))


def fastmcp(collection: Collection, python: Path) -> list[list[Name]]:
    """The same by FastMCP."""
    found, _ = bm25(python, collection.servers, [task.query for task in collection.tasks], _DEPTH)
    return found


def score(collection: Collection, ranking: str, found: list[list[Name]]) -> Score:
    pairs = list(zip(collection.tasks, found, strict=True))
    recall = {depth: _mean(_recall(task, got[:depth]) for task, got in pairs) for depth in (1, 5, _DEPTH)}
    return Score(collection, ranking, recall, _mean(_reciprocal_rank(task, got) for task, got in pairs))


def show(scores: list[Score], console: Console) -> None:
    from rich import box
    from rich.table import Table

    table = Table(title="Finding the right tools", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("collection", "tools", "tasks", "ranking", "recall@1", "recall@5", "recall@10", "MRR"):
        table.add_column(name, justify="left" if name in ("collection", "ranking") else "right")
    for one in scores:
        sizes = (f"{one.collection.tools:,}", f"{len(one.collection.tasks):,}")
        figures = (f"{value:.3f}" for value in (*one.recall.values(), one.mrr))
        table.add_row(one.collection.name, *sizes, one.ranking, *figures)
    console.print(table)
    if not any(one.ranking == _FASTMCP for one in scores):
        console.print("FastMCP is not compared: no Python that has it was given.")


def show_readings(found: list[Reading], console: Console) -> None:
    from rich import box
    from rich.table import Table

    title = f"What an answer names ({found[0].collection.name})"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("detail", "limit", "further tools", "recall of names", "tokens"):
        table.add_column(name, justify="left" if name == "detail" else "right")
    for one in found:
        table.add_row(
            one.detail,
            str(one.limit or "by tokens"),
            "named" if one.further else "–",
            f"{one.recall:.3f}",
            f"{one.tokens:.0f}",
        )
    console.print(table)


def _group(alternatives: list[list[str]]) -> frozenset[Name]:
    return frozenset((server, tool) for server, tool in alternatives)


def _recall(task: Task, got: list[Name]) -> float:
    return sum(not group.isdisjoint(got) for group in task.gold) / len(task.gold)


def _reciprocal_rank(task: Task, got: list[Name]) -> float:
    wanted = {tool for group in task.gold for tool in group}
    return next((1 / place for place, tool in enumerate(got, 1) if tool in wanted), 0.0)


def _write(collection: Collection, folder: Path) -> None:
    folder.mkdir(parents=True)
    for place, (server, tools) in enumerate(collection.servers.items()):
        (folder / f"{place}.json").write_text(json.dumps({"server": server, "tools": tools}), "utf-8")


def _own_requests() -> dict[str, list[Task]]:
    found: dict[str, list[Task]] = {"livemcpbench": [], "catalogs": []}
    for line in files(__package__ or "").joinpath("requests.tsv").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            collection, gold, query = line.split("\t")
            group = frozenset((server, tool) for server, _, tool in (one.partition("/") for one in gold.split("|")))
            found[collection].append(Task(query, (group,)))
    return found


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    return map(json.loads, path.read_text("utf-8").splitlines())


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0
