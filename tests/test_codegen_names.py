from __future__ import annotations

import keyword
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolfold.codegen.names import ApiNames, identifier, parameters
from toolfold.definitions import ToolDefinition

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=80)
# Names that are near each other, so that they meet after mapping.
NEAR = st.lists(st.sampled_from("ab-_. /A1é"), max_size=6).map("".join)


def tools(*names: str, server: str = "s") -> list[ToolDefinition]:
    return [ToolDefinition(server=server, name=name) for name in names]


def function_of(name: str, *others: str) -> str:
    return ApiNames.of(tools(name, *others)).function("s", name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("create_issue", "create_issue"),
        ("createIssue", "createIssue"),
        ("create-issue", "create_issue"),
        ("issues.create/now please", "issues_create_now_please"),
        ("class", "class_"),
        ("list", "list_"),
        ("print", "print_"),
        ("3d_model", "tool_3d_model"),
        ("_private", "private"),
        ("__init__", "init"),
        ("créer", "creer"),
        ("创建", "创建"),
        ("", "tool_"),
        ("!!!", "tool_"),
        ("tool", "tool_"),
        ("Any", "Any_"),
        ("ﬁle", "file"),
        ("x\ud800y", "x_y"),
    ],
)
def test_a_name_becomes_an_identifier_that_reads_like_it(name: str, expected: str) -> None:
    assert function_of(name) == expected


def test_a_letter_that_only_looks_latin_is_spelt_out() -> None:
    assert function_of("gіthub") == "gu0456thub"
    assert function_of("создать") == "создать"


@given(ANY_TEXT)
def test_every_text_gives_a_public_identifier_that_python_does_not_change(name: str) -> None:
    found = function_of(name)
    assert found.isidentifier()
    assert not keyword.iskeyword(found)
    assert not found.startswith("_")
    assert found not in dir(__builtins__)
    assert unicodedata.normalize("NFKC", found) == found
    assert len(found.encode()) <= 70


@given(st.lists(st.one_of(NEAR, ANY_TEXT), max_size=12))
def test_names_never_meet_and_do_not_depend_on_the_order(originals: list[str]) -> None:
    names = ApiNames.of(tools(*originals))
    found = {name: names.function("s", name) for name in originals}
    assert len({identifier.casefold() for identifier in found.values()}) == len(set(originals))
    for name, function in found.items():
        assert names.resolve("s", function) == ("s", name)
    backwards = ApiNames.of(tools(*reversed(originals)))
    assert all(backwards.function("s", name) == function for name, function in found.items())


@given(st.lists(NEAR, max_size=8), NEAR)
def test_a_good_name_keeps_itself_whatever_joins(others: list[str], newcomer: str) -> None:
    assert function_of("get_user", *others, newcomer) == "get_user"


def test_of_names_that_meet_the_exact_one_stays_and_the_rest_do_not_depend_on_each_other() -> None:
    assert function_of("get-user", "get_user") == function_of("get-user", "get_user", "get.user", "get user")
    assert function_of("get_user", "get-user", "get.user") == "get_user"


def test_names_that_differ_only_in_case_have_different_files() -> None:
    names = ApiNames.of(tools("getUser", "getuser"))
    assert names.function("s", "getuser") == "getuser"
    assert names.function("s", "getUser").casefold() != "getuser"


def test_servers_with_one_name_after_mapping_stay_apart() -> None:
    names = ApiNames.of([*tools("a", server="my-server"), *tools("a", server="my.server")])
    first, second = names.server("my-server"), names.server("my.server")
    assert first != second
    assert names.resolve(first, "a") == ("my-server", "a")
    assert names.behind(second) == "my.server"
    assert names.named("a") == sorted([first, second])


def test_what_does_not_exist_resolves_to_nothing() -> None:
    names = ApiNames.of(tools("a"))
    assert names.resolve("s", "b") is None
    assert names.resolve("t", "a") is None
    assert names.behind("t") is None


def test_long_names_are_cut_and_stay_apart() -> None:
    one, two = "x" * 1_000_000 + "1", "x" * 1_000_000 + "2"
    names = ApiNames.of(tools(one, two))
    assert names.function("s", one) != names.function("s", two)
    assert len(names.function("s", one)) <= 70


@pytest.mark.parametrize("name", ["id", "type", "self", "name", "args", "kwargs", "filter", "_meta", "list", "match"])
def test_a_parameter_that_is_legal_stays(name: str) -> None:
    assert parameters([name]) == {name: name}


def test_a_parameter_that_is_not_legal_is_renamed() -> None:
    found = parameters(["from", "If-Match", "$filter", "filter", "q", "Q", "__debug__", "2fa"])
    assert found["from"] == "from_"
    assert found["If-Match"] == "If_Match"
    assert found["filter"] == "filter"
    assert found["$filter"].startswith("filter_")
    assert (found["q"], found["Q"]) == ("q", "Q")
    assert found["2fa"] == "arg_2fa"
    assert len(set(found.values())) == len(found)


@given(st.lists(st.one_of(NEAR, ANY_TEXT), max_size=12, unique=True))
def test_parameters_are_distinct_keywords(wire: list[str]) -> None:
    found = parameters(wire)
    assert list(found) == wire
    assert len(set(found.values())) == len(wire)
    assert all(word.isidentifier() and not keyword.iskeyword(word) for word in found.values())
    compile(f"def f(*, {', '.join(found.values())}): pass" if found else "", "x", "exec")


@given(ANY_TEXT)
@example("0\N{GREEK CAPITAL LETTER HETA}")
def test_an_identifier_is_its_own_identifier(text: str) -> None:
    once = identifier(text, "x")
    assert identifier(once, "x").rstrip("_") == once.rstrip("_")
