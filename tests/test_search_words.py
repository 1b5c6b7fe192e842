"""How text is taken apart: words, stems, clauses, misspellings, and what a request implies."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolfold.catalog.search.request import (
    MOST_PARTS,
    action_names,
    offered_action,
    parts,
    requested_action,
    with_implied_words,
)
from toolfold.catalog.search.words import Neighbours, Thesaurus, Words, distance, lexicon, picture_words

stem = Words().stem


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
    ("text", "words"),
    [
        ("Apple's notes", ["apple", "notes"]),
        ("what’s new, don't and I'll", ["what", "new", "don", "and", "i"]),
        ("l'API d'Arc", ["l", "api", "d", "arc"]),
        ("UUIDs", ["uuids"]),
        ("parseURLsFast", ["parse", "urls", "fast", "parseurlsfast"]),
        ("getIDs", ["get", "ids", "getids"]),
        ("café CAFÉ", ["cafe", "cafe"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("مُشْكِلَة", ["مشكلة"]),
        ("ความรัก", ["คว", "วา", "าม", "มร", "รั", "ัก"]),
        ("Новый user_id", ["новый", "user", "id"]),
    ],
)
def test_possessives_acronyms_accents_and_marks_do_not_tear_a_word(text: str, words: list[str]) -> None:
    assert Words().split(text) == words


@pytest.mark.parametrize(
    "forms",
    [
        ("create", "creates", "created", "creating"),
        ("query", "queries", "querying", "queried"),
        ("delete", "deleting", "deletes", "deleted"),
        ("run", "running", "runs"),
        ("message", "messages", "messaging"),
        ("uuid", "uuids"),
        ("сообщение", "сообщения", "сообщениями"),
        ("مشكلة", "المشكلة"),
        ("έγγραφο", "έγγραφα"),
        ("कार्य", "कार्यों"),
    ],
)
def test_the_forms_of_a_word_share_a_stem(forms: tuple[str, ...]) -> None:
    words = Words()
    assert len({words.stem(word) for form in forms for word in words.split(form)}) == 1


@pytest.mark.parametrize(
    ("one", "other"), [("news", "new"), ("universe", "uni"), ("four", "for"), ("s3", "s"), ("2024", "202")]
)
def test_different_words_keep_different_stems(one: str, other: str) -> None:
    assert stem(one) != stem(other)


anything = st.text(max_size=60)
lower_words = st.lists(st.text("abcdefghijklmnopqrstuvwxyz", min_size=2, max_size=8), min_size=1, max_size=4)


@given(anything)
def test_a_word_is_in_lower_case_without_blanks_and_has_a_stem(text: str) -> None:
    words = Words()
    for word in words.split(text):
        assert word == word.casefold()
        assert word
        assert not any(map(str.isspace, word))
        assert words.stem(word)
        assert words.stem(word) == Words().stem(word)


@given(anything)
def test_words_are_split_no_further_when_they_are_split_again(text: str) -> None:
    words = Words().split(text)
    assert Words().split(" ".join(words)) == words


@given(anything, anything)
def test_two_texts_have_the_words_of_both(one: str, other: str) -> None:
    words = Words()
    assert words.split(f"{one}\n{other}") == words.split(one) + words.split(other)


@given(anything)
def test_composed_and_decomposed_text_is_the_same(text: str) -> None:
    words = Words()
    assert words.split(unicodedata.normalize("NFC", text)) == words.split(unicodedata.normalize("NFD", text))


@given(lower_words)
def test_every_way_to_write_an_identifier_gives_its_words(given: list[str]) -> None:
    words = Words()
    for written in ("_".join(given), "-".join(given), ".".join(given), " ".join(given).upper()):
        assert words.split(written) == given
    camel = given[0] + "".join(map(str.capitalize, given[1:]))
    assert words.split(camel)[: len(given)] == given
    assert words.split(camel)[len(given) :] in ([], ["".join(given)])


@given(st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=2, max_size=6), lower_words)
def test_possessives_and_plural_acronyms_are_one_word(acronym: str, given: list[str]) -> None:
    words = Words()
    assert words.split(f"{acronym}s") == [f"{acronym.lower()}s"]
    assert words.split(" ".join(f"{word}'s" for word in given)) == given


@pytest.mark.parametrize(
    ("query", "expected"),
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
def test_a_task_is_split_into_what_it_asks_for(query: str, expected: list[str]) -> None:
    assert parts(query) == expected


@given(st.text(max_size=400))
def test_any_text_has_at_least_one_part_and_a_bounded_number(text: str) -> None:
    assert 1 <= len(parts(text)) <= MOST_PARTS


def test_a_path_is_a_file_and_saving_to_it_writes_one() -> None:
    assert "write file" in with_implied_words("summarize it and save the result to /tmp/out.md")
    assert "write file" not in with_implied_words("summarize /tmp/in.md")
    assert with_implied_words("summarize notes.txt").endswith("file")
    assert "webpage" in with_implied_words("what is on https://example.com/a?b=c")
    assert "calculate" in with_implied_words("17 * (3 + 4)")
    assert with_implied_words("create an issue on github") == "create an issue on github"


@pytest.mark.parametrize(
    "query", ["save " * 800, "/a" * 2000, "a." * 2000, "1 + " * 1000, "http://" * 500, "put x.md " * 400]
)
def test_hostile_requests_are_read_in_bounded_work(query: str) -> None:
    begun = time.process_time()
    with_implied_words(query[:4000])
    parts(query[:4000])
    assert time.process_time() - begun < 5


def test_the_verb_of_a_request_is_its_action_whatever_politeness_precedes_it() -> None:
    words = Words()
    for text in ("delete the branch", "please could you remove the branch", "I'd like to drop the branch"):
        assert action_names(requested_action(words.split(text))) == ["delete"]
    assert requested_action(words.split("branch of a tree")) == 0


def test_a_tools_action_is_its_first_verb_and_that_of_its_description() -> None:
    assert action_names(offered_action({"name": ["slack", "post", "message"], "server": ["slack"]})) == ["send"]
    assert action_names(offered_action({"name": ["branch"], "server": ["git"]})) == []
    described = {"name": ["branch"], "server": ["git"], "description": ["deletes", "a", "branch"]}
    assert action_names(offered_action(described)) == ["delete"]


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
    groups = Thesaurus.of([["create", "make"], ["pull-request", "merge-request"]], Words())
    assert groups.words[stem("make")] == {stem("create"): 1.0}
    assert groups.words[stem("create")] == {stem("make"): 0.8}
    assert stem("merge") in groups.phrases[stem("pull"), stem("request")]


@pytest.fixture(scope="module")
def thesaurus() -> Thesaurus:
    return Thesaurus.of(lexicon("thesaurus"), Words())


def test_the_thesaurus_is_well_formed(thesaurus: Thesaurus) -> None:
    assert len(thesaurus.words) > 500
    assert all(0 < weight <= 1 for near in thesaurus.words.values() for weight in near.values())
    assert all(word not in near for word, near in thesaurus.words.items())


@pytest.mark.parametrize(
    ("word", "unrelated"),
    [
        ("list", ["hotel", "airbnb", "property", "house"]),
        ("train", ["workout", "gym"]),
        ("read", ["sensor"]),
        ("record", ["video", "audio"]),
        ("guide", ["uuid"]),
    ],
)
def test_a_word_is_not_expanded_by_another_that_shares_its_stem(
    thesaurus: Thesaurus, word: str, unrelated: list[str]
) -> None:
    assert not thesaurus.words[stem(word)].keys() & set(map(stem, unrelated))
