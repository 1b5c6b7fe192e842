"""The figures that search promises, on real tools and tasks, measured the way the benchmark command does."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import retrieval
from benchmarks.search_speed import synthesize

from toolfold.catalog.answer import DETAILS
from toolfold.catalog.catalog import Catalog
from toolfold.config.settings import Settings


@pytest.fixture(scope="module")
def collections(shared: Path) -> dict[str, retrieval.Collection]:
    return {one.name: one for one in retrieval.collections(shared)}


@pytest.mark.parametrize(("semantic", "at_five", "at_ten"), [(True, 0.47, 0.54), (False, 0.40, 0.50)])
def test_recall_on_tasks_that_people_annotated(
    collections: dict[str, retrieval.Collection], semantic: bool, at_five: float, at_ten: float
) -> None:
    tasks = collections["LiveMCPBench tasks"]
    score = retrieval.score(tasks, "ours", retrieval.ours(tasks, semantic=semantic))
    assert score.recall[5] >= at_five
    assert score.recall[10] >= at_ten


@pytest.mark.parametrize("name", ["own requests, LiveMCPBench tools", "own requests, catalogs"])
def test_recall_on_one_sentence_requests(collections: dict[str, retrieval.Collection], name: str) -> None:
    requests = collections[name]
    score = retrieval.score(requests, "ours", retrieval.ours(requests, semantic=True))
    assert score.recall[5] >= 0.65
    assert score.mrr >= 0.45


def test_naming_further_tools_shows_more_of_those_wanted_for_no_more_tokens(
    collections: dict[str, retrieval.Collection],
) -> None:
    tasks = collections["LiveMCPBench tasks"]
    with retrieval.opened(tasks, semantic=True) as catalog:
        for detail in DETAILS[1:]:
            alone = retrieval.reading(catalog, tasks, detail, None, further=False)
            named = retrieval.reading(catalog, tasks, detail, None, further=True)
            assert named.recall >= alone.recall + 0.04, detail
            assert named.tokens <= alone.tokens, detail


def test_every_request_of_ours_is_about_tools_that_exist(collections: dict[str, retrieval.Collection]) -> None:
    for collection in collections.values():
        known = {(server, tool["name"]) for server, tools in collection.servers.items() for tool in tools}
        assert all(group <= known for task in collection.tasks for group in task.gold), collection.name
        assert len(collection.tasks) > 50


def test_a_score_is_what_its_name_says() -> None:
    a, b, c = ("s", "a"), ("s", "b"), ("s", "c")
    tasks = [retrieval.Task("q", (frozenset({a}), frozenset({b, c}))), retrieval.Task("r", (frozenset({c}),))]
    collection = retrieval.Collection("tiny", {"s": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}, tasks)
    score = retrieval.score(collection, "made up", [[b, a], [a, b]])
    assert score.recall == {1: 0.25, 5: 0.5, 10: 0.5}
    assert score.mrr == 0.5


def test_synthesized_catalogs_have_the_asked_size_and_differ(shared: Path, tmp_path: Path) -> None:
    queries = synthesize(shared, tmp_path / "catalogs", 3_000)
    catalog = Catalog.open(Settings(catalog_dirs=(tmp_path / "catalogs",), data_dir=tmp_path / "data", semantic=False))
    assert len(catalog.tools) == 3_000
    assert catalog.problems == []
    assert len(set(queries)) > 150
    assert all(catalog.search(query, limit=1).hits for query in queries[:20])
