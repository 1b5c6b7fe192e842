"""How text is taken apart: words, stems, clauses, misspellings, and what a request implies."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolfold.catalog.search import actions, hints, intents, thesaurus
from toolfold.catalog.search.stems import stem
from toolfold.catalog.search.typos import Neighbours, distance
from toolfold.catalog.search.words import Words, picture_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("getUserByID", ["get", "user", "by", "id", "getuserbyid"]),
        ("list_pull-requests", ["list", "pull", "requests"]),
        ("GitHub issue", ["git", "hub", "github", "issue"]),
        ("XMLHttpRequest", ["xml", "http", "request", "xmlhttprequest"]),
        ("s3.bucket/key", ["s3", "bucket", "key"]),
        ("搜索关键词", ["搜索", "索关", "关键", "键词"]),
        ("ｆｕｌｌ ｗｉｄｔｈ", ["full", "width"]),
        ("", []),
        ("🎉 ***", []),
    ],
)
def test_identifiers_and_scripts_are_split_where_their_words_meet(text: str, words: list[str]) -> None:
    assert Words().split(text) == words


@pytest.mark.parametrize(
    "forms",
    [
        ("create", "creates", "created", "creating", "creation"),
        ("query", "queries", "querying", "queried"),
        ("organise", "organize", "organising", "organization", "organisation"),
        ("delete", "deleting", "deletes", "deleted"),
        ("run", "running", "runs"),
        ("message", "messages", "messaging"),
    ],
)
def test_the_forms_of_a_word_share_a_stem(forms: tuple[str, ...]) -> None:
    assert len({stem(form) for form in forms}) == 1, {form: stem(form) for form in forms}


@pytest.mark.parametrize(
    ("one", "other"), [("news", "new"), ("universe", "uni"), ("four", "for"), ("kubernetes", "kubernet")]
)
def test_different_words_keep_different_stems(one: str, other: str) -> None:
    assert stem(one) != stem(other)


@given(st.text(max_size=60))
def test_stemming_and_splitting_take_anything(text: str) -> None:
    words = Words()
    for word in words.split(text):
        assert word
        assert words.stem(word) == words.stem(word)


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        (
            "read the sheet, then open an issue for each row",
            ["read the sheet", "open an issue for each row"],
        ),
        ("Find the invoice. Email it to Bob.", ["Find the invoice.", "Email it to Bob."]),
        ("search and replace text", ["search replace text"]),
        (
            "pull the logs and post them to the channel and close the ticket",
            ["pull the logs", "post them to the channel", "close the ticket"],
        ),
        ("compare size, weight and order of the items", ["compare size, weight and order of the items"]),
        ("create issue", ["create issue"]),
        ("", [""]),
    ],
)
def test_a_task_is_split_into_what_it_asks_for(query: str, parts: list[str]) -> None:
    assert intents.split(query) == parts


@given(st.text(max_size=400))
def test_any_text_has_at_least_one_part_and_a_bounded_number(text: str) -> None:
    parts = intents.split(text)
    assert 1 <= len(parts) <= intents.MOST


def test_a_path_is_a_file_and_saving_to_it_writes_one() -> None:
    assert "write file" in hints.spelt_out("summarize it and save the result to /tmp/out.md")
    assert "write file" not in hints.spelt_out("summarize /tmp/in.md")
    assert hints.spelt_out("summarize notes.txt").endswith("file")
    assert "webpage" in hints.spelt_out("what is on https://example.com/a?b=c")
    assert "calculate" in hints.spelt_out("17 * (3 + 4)")
    assert hints.spelt_out("create an issue on github") == "create an issue on github"


@pytest.mark.parametrize(
    "query", ["save " * 800, "/a" * 2000, "a." * 2000, "1 + " * 1000, "http://" * 500, "put x.md " * 400]
)
def test_hostile_requests_are_read_in_bounded_work(query: str) -> None:
    begun = time.process_time()
    hints.spelt_out(query[:4000])
    intents.split(query[:4000])
    assert time.process_time() - begun < 5


def test_the_verb_of_a_request_is_its_action_whatever_politeness_precedes_it() -> None:
    words = Words()
    for text in ("delete the branch", "please could you remove the branch", "I want to drop the branch"):
        assert actions.named(actions.of_request(words.split(text))) == ["delete"]
    assert actions.of_request(words.split("branch of a tree")) == 0


def test_a_tools_action_is_its_verb_and_not_its_object() -> None:
    assert actions.named(actions.of_entry(["slack", "post", "message"], ["slack"], [])) == ["send"]
    assert actions.named(actions.of_entry(["pin", "chat", "message"], ["chat"], [])) == []
    assert "delete" in actions.named(actions.of_entry(["branch"], ["git"], ["deletes", "a", "branch"]))


@pytest.mark.parametrize(
    ("a", "b", "edits"),
    [("issue", "isue", 1), ("issue", "issue", 0), ("create", "craete", 1), ("slack", "slcak", 1), ("abc", "xyz", 3)],
)
def test_distance_counts_edits_and_swaps(a: str, b: str, edits: int) -> None:
    assert distance(a, b, 3) == edits
    assert distance(b, a, 3) == edits


@given(st.text("abcde", max_size=8), st.text("abcde", max_size=8))
def test_distance_is_symmetric_and_zero_only_for_the_same_word(a: str, b: str) -> None:
    assert distance(a, b, 9) == distance(b, a, 9)
    assert (distance(a, b, 9) == 0) == (a == b)
    assert distance(a, b, 1) == min(distance(a, b, 9), 2)


words = st.text("abcdefgh", min_size=4, max_size=10)


@given(st.lists(words, unique=True, max_size=20), words)
def test_neighbours_are_exactly_the_spellings_within_reach(spellings: list[str], word: str) -> None:
    reach = 1 if len(word) < 8 else 2
    expected = {other for other in spellings if 0 < distance(word, other, reach) <= reach}
    assert {other for other, _ in Neighbours(spellings).of(word)} == expected


def test_pictograms_say_their_names() -> None:
    assert "envelope" in picture_words("✉ to Bob")
    assert picture_words("plain") == "plain"


def test_the_thesaurus_leads_both_ways_and_through_phrases() -> None:
    groups = thesaurus.of_groups([["create", "make"], ["pull-request", "merge-request"]])
    assert groups.words[stem("make")] == {stem("create"): 1.0}
    assert groups.words[stem("create")] == {stem("make"): 0.8}
    assert stem("merge") in groups.phrases[stem("pull"), stem("request")]


def test_the_lexicon_is_well_formed() -> None:
    loaded = thesaurus.load()
    assert len(loaded.words) > 500
    assert all(0 < weight <= 1 for near in loaded.words.values() for weight in near.values())
    assert all(word not in near for word, near in loaded.words.items())
