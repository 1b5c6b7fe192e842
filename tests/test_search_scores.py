"""The numbers that order hits, pinned over the small office: a change of the ranking changes them on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.search_fixtures import OFFICE, office
from toolfold.catalog.catalog import Catalog
from toolfold.catalog.search import index as indexing
from toolfold.catalog.search import ranking, vectors
from toolfold.config.settings import Settings
from toolfold.definitions import Listing, ToolDefinition
from toolfold.errors import UnknownTool

Ranked = tuple[str, int, list[tuple[str, float]]]
"""A query, how many match, and the first of them."""

BY_WORDS: list[Ranked] = [
    ("create issue", 22, [("github.create_issue", 1.6), ("github.create_pull_request", 1.305)]),
    (
        "open a pull request and merge it",
        19,
        [("github.create_pull_request", 1.311), ("github.merge_pull_request", 1.3), ("github.create_issue", 1.084)],
    ),
    ("send a message to the channel", 6, [("slack.post_message", 1.6), ("slack.get_channel_history", 0.963)]),
    ("create_isue", 22, [("github.create_issue", 2.6), ("github.create_pull_request", 1.349)]),
    ("githb repository", 8, [("github.search_repositories", 1.3), ("github.delete_branch", 1.205)]),
    ("money back", 3, [("stripe.create_refund", 1.3), ("stripe.create_customer", 0.417)]),
    (
        "list the events of a day, then delete an event",
        10,
        [("calendar.list_events", 1.4), ("calendar.delete_event", 1.308), ("calendar.create_event", 0.79)],
    ),
    ("invoice", 3, [("stripe.list_invoices", 1.3), ("stripe.create_customer", 0.728)]),
    ("who works here", 2, [("slack.list_users", 1.6), ("filesystem.write_file", 0.961)]),
    ("alert rules", 4, [("grafana.list_alert_rules", 1.3), ("weather.get_alerts", 0.488)]),
    ("pullrequest", 8, [("github.create_pull_request", 1.3), ("github.merge_pull_request", 1.295)]),
]
BY_MEANING_TOO: list[Ranked] = [
    ("create issue", 22, [("github.create_issue", 2.64), ("github.create_pull_request", 1.685)]),
    (
        "open a pull request and merge it",
        19,
        [("github.merge_pull_request", 2.34), ("github.create_pull_request", 2.139), ("github.create_issue", 1.638)],
    ),
    ("send a message to the channel", 6, [("slack.post_message", 2.64), ("slack.get_channel_history", 1.976)]),
    ("githb repository", 8, [("github.search_repositories", 2.34), ("github.get_file_contents", 2.146)]),
    ("who works here", 1, [("slack.list_users", 2.64)]),
    ("alert rules", 4, [("grafana.list_alert_rules", 2.34), ("weather.get_alerts", 1.042)]),
]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return office(tmp_path_factory.mktemp("office"), semantic=False)


@pytest.fixture(scope="module")
def semantic(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = office(tmp_path_factory.mktemp("office"))
    if not catalog.semantic:
        pytest.skip("the `semantic` extra is not installed: pip install 'toolfold[semantic]'")
    return catalog


def ranked(catalog: Catalog, query: str, count: int) -> tuple[int, list[tuple[str, float]]]:
    answer = catalog.search(query, detail="name_only", limit=count)
    return answer.total, [(hit.label, hit.score) for hit in answer]


def near(first: list[tuple[str, float]]) -> list[tuple[str, Any]]:
    return [(label, pytest.approx(score, abs=0.002)) for label, score in first]


@pytest.mark.parametrize(("query", "total", "first"), BY_WORDS, ids=[query for query, _, _ in BY_WORDS])
def test_scores_by_words(plain: Catalog, query: str, total: int, first: list[tuple[str, float]]) -> None:
    assert ranked(plain, query, len(first)) == (total, near(first))


@pytest.mark.parametrize(("query", "total", "first"), BY_MEANING_TOO, ids=[query for query, _, _ in BY_MEANING_TOO])
def test_scores_by_words_and_meaning(semantic: Catalog, query: str, total: int, first: list[tuple[str, float]]) -> None:
    assert ranked(semantic, query, len(first)) == (total, near(first))


def test_the_reasons_name_words_fields_meaning_and_action(semantic: Catalog, plain: Catalog) -> None:
    reasons = semantic.search("open a pull request and merge it", limit=2, explain=True)
    assert reasons[0].why == [
        "pull in name, description, about",
        "request in name, description, about",
        "merge in name, description",
        "pull request → merge (synonym) in name, description",
        "meaning 0.85",
    ]
    assert reasons[1].why[-1] == "action create, read"
    typo = plain.search("githb reaktion", limit=1, explain=True)
    assert typo[0].why[0] == "reaktion → reaction (spelling) in name"
    parts = plain.search("list the events of a day, then delete an event", limit=2, explain=True)
    assert [hit.why[-1] for hit in parts] == ["for 'list the events of a day'", "for 'delete an event'"]


def test_a_rough_look_first_finds_the_same(semantic: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a catalog too large to be compared as a whole."""
    monkeypatch.setattr(vectors, "_WHOLE", 5)
    monkeypatch.setattr(vectors, "_CHOSEN", 12)
    rough = office(tmp_path)
    for query, _, _ in BY_MEANING_TOO:
        best, same = semantic.search(query, limit=1, explain=True)[0], rough.search(query, limit=1, explain=True)[0]
        assert same.label == best.label
        assert [why for why in same.why if "meaning" in why] == [why for why in best.why if "meaning" in why]


def test_a_rough_likeness_is_a_cosine_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_WHOLE", 20)
    monkeypatch.setattr(vectors, "_CHOSEN", 3)
    some = np.random.default_rng(7).normal(size=(41, 128)).astype(np.float32)
    some[:, 64:] *= 0.001  # so that a look at the first numbers is nearly exact
    some[5] = 0
    some /= np.maximum(np.linalg.norm(some, axis=1, keepdims=True), 1e-9)
    rows, queries = some[:40], np.stack([some[40], 1.0 * some[3]])
    hints = np.zeros((2, 40), np.float32)
    rough = vectors.Vectors(rows.astype(np.float16)).likeness(queries, hints)
    assert np.allclose(rough, queries @ rows.T, atol=0.01)
    assert rough[1].argmax() == 3
    assert rough[0, 5] == 0
    assert np.allclose(vectors.Vectors(rows[:20].astype(np.float16)).likeness(queries, hints), rough[:, :20], atol=0.01)


def test_stored_vectors_are_used_only_where_they_are_of_this_table(semantic: Catalog, tmp_path: Path) -> None:
    catalog = office(tmp_path)
    before = ranked(catalog, "create issue", 4)
    (stored,) = (tmp_path / "catalog").glob("*.vectors")
    stamp, arrays = indexing.load_arrays(stored) or ("", {})
    spoilt = {"digests": arrays["digests"], "vectors": arrays["vectors"][::-1]}
    indexing.save_arrays(stored, f"{stamp}0", spoilt)
    assert ranked(_again(tmp_path), "create issue", 4) == before, "those of another table are not believed"
    indexing.save_arrays(stored, stamp, spoilt)
    assert ranked(_again(tmp_path), "create issue", 4) != before, "those of this one are taken as they are"


def test_evidence_of_earlier_words_is_forgotten_when_it_is_too_much(
    plain: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ranking, "_REMEMBERED", 10)
    catalog = office(tmp_path, semantic=False)
    for query, total, first in BY_WORDS * 2:
        assert ranked(catalog, query, len(first)) == (total, near(first))
    kept = catalog._ranker().load()._matcher._found  # pyright: ignore[reportPrivateUsage]
    assert sum(len(evidence.entries) for evidence in kept.values()) <= 10 or len(kept) == 1


def _again(folder: Path) -> Catalog:
    """The same office as the next process sees it."""
    return office(folder)


def _tool(name: str, description: str = "", /, **properties: Any) -> ToolDefinition:
    schema = {"type": "object", "properties": properties}
    return ToolDefinition(server="s", name=name, description=description, input_schema=schema)


def _found(folder: Path, tool: ToolDefinition, query: str) -> bool:
    catalog = Catalog.open(Settings(data_dir=folder, semantic=False))
    catalog.update(Listing(server="s", tools=[tool, _tool("other", "Another thing")]))
    return any(hit.name == tool.name for hit in catalog.search(query) if hit.score > 0)


def _plain(count: int) -> dict[str, Any]:
    return {f"p{number}": {} for number in range(count)}


def _nested(*names: str) -> dict[str, Any]:
    """A schema with one property in another."""
    return {"properties": {names[0]: _nested(*names[1:])}} if names else {}


FILLER = "word " * 400


@pytest.mark.parametrize(
    ("tool", "found"),
    [
        (_tool("t", FILLER[:1490] + " zebra"), True),
        (_tool("t", FILLER[:1500] + " zebra"), False),
        (_tool("t", x={"description": FILLER[:1480] + " zebra"}), True),
        (_tool("t", x={"description": FILLER[:1500] + " zebra"}), False),
        (_tool("t", x={"enum": ["y" * 480, "zebra"]}), True),
        (_tool("t", x={"enum": ["y" * 500, "zebra"]}), False),
        (_tool("t", x={"enum": [*map(str, range(49)), "zebra"]}), True),
        (_tool("t", x={"enum": [*map(str, range(50)), "zebra"]}), False),
        (_tool("t", **_plain(99), zebra={}), True),
        (_tool("t", **_plain(100), zebra={}), False),
        (_tool("t", x={"items": {"properties": {"zebra": {}}}}), True),
        (_tool("t", a=_nested("b", "c", "zebra")), True),
        (
            _tool(
                "t",
                a={"properties": {"b": {"properties": {"c": {"properties": {"d": {"properties": {"zebra": {}}}}}}}}},
            ),
            False,
        ),
        (_tool("t", x="zebra"), False),
    ],
)
def test_only_so_much_of_a_definition_is_indexed(tmp_path: Path, tool: ToolDefinition, found: bool) -> None:
    assert _found(tmp_path, tool, "zebra") is found


def test_the_rarest_words_of_a_long_request_count(tmp_path: Path) -> None:
    catalog = Catalog.open(Settings(data_dir=tmp_path, semantic=False))
    common = " ".join(f"common{n}" for n in range(64))
    tools = [_tool(f"t{n}", common) for n in range(5)]
    catalog.update(Listing(server="s", tools=[*tools, _tool("rare", "zebra")]))
    assert any(hit.name == "rare" for hit in catalog.search(f"{common} zebra", limit=20))
    assert catalog.search(common, limit=20).total == 5


def test_nearest_names_are_few_and_near(tmp_path: Path) -> None:
    catalog = Catalog.open(Settings(data_dir=tmp_path, semantic=False))
    catalog.update(Listing(server="s", tools=[_tool(f"frobnicate{letter * 4}") for letter in "abcdefgh"]))
    answer = catalog.search("frobnicat")
    assert (len(answer), answer.total) == (5, 0)
    with pytest.raises(UnknownTool) as unknown:
        catalog.find("q")
    assert "Nearest" not in unknown.value.hint
    catalog = office(tmp_path / "office", semantic=False)
    text = catalog.search("server:githb").text
    assert text == f'There is no server "githb". Nearest: github. "" lists all {len(OFFICE) + 1}.'
    assert "Nearest: slack, " not in catalog.search("server:zzzz").text


def test_an_overview_samples_what_a_server_can_do(tmp_path: Path) -> None:
    for count, shown in ((2, "t0, t1"), (3, "t0, t1, t2"), (5, "t0, t1, t2"), (6, "t0, t2, t4"), (9, "t0, t3, t6")):
        catalog = Catalog.open(Settings(data_dir=tmp_path / str(count)))
        catalog.update(Listing(server="s", tools=[_tool(f"t{n}") for n in range(count)]))
        assert f"s ({count}): {shown}\n" in catalog.search("").text
