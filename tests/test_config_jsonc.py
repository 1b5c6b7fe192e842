from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolfold.config import documents

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(alphabet=st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
_TRICKY = st.text(alphabet='/*",\\{}[]: \n\r\tab$')


@given(_JSON, st.sampled_from([None, 2]))
def test_plain_json_means_what_it_always_meant(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert documents.strip_comments(text) == text
    assert documents.parse_jsonc(text) == value


@given(st.dictionaries(_TRICKY, st.lists(_TRICKY, max_size=3), max_size=4), st.data())
def test_comments_and_trailing_commas_change_nothing_whatever_the_strings_hold(
    value: dict[str, list[str]], data: st.DataObject
) -> None:
    comment = st.sampled_from(["", " ", "\n", '/* a, } " */', '// ] , "\n', "/***/", "/*//*/", "//*\n"])
    draw = lambda: data.draw(comment)  # noqa: E731
    parts = [draw(), "{"]
    for name, items in value.items():
        listed = "".join(f"{draw()}{json.dumps(item)}{draw()},{draw()}" for item in items)
        parts.append(f"{draw()}{json.dumps(name)}{draw()}:{draw()}[{listed}]{draw()},{draw()}")
    parts += ["}", draw()]
    assert documents.parse_jsonc("".join(parts)) == value


@given(_TRICKY)
def test_stripping_keeps_every_line_and_column(text: str) -> None:
    stripped = documents.strip_comments(text)
    assert len(stripped) == len(text)
    assert [i for i, c in enumerate(stripped) if c in "\r\n"] == [i for i, c in enumerate(text) if c in "\r\n"]


def test_a_url_in_a_string_is_not_a_comment() -> None:
    assert documents.parse_jsonc('{"u": "https://a/b", /* c */ "v": "/* no */", // end\n}') == {
        "u": "https://a/b",
        "v": "/* no */",
    }


@pytest.mark.parametrize(
    "text", ["{} /* never closed", "{} /*/", '{"a": "unclosed}', "{/}", '{"a" 1}', "{,,}", "[1,,]", "/"]
)
def test_what_is_not_jsonc_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        documents.parse_jsonc(text)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", ['\\"', "/*", "//", '"', "/", ",", "/**", "*/", '"\\'])
def test_millions_of_unclosed_pieces_are_done_in_one_pass(unit: str) -> None:
    """Work that grew with the square of the text would outlast the timeout by hours."""
    text = '"' + unit * 1_000_000
    assert len(documents.strip_comments(text)) == len(text)


def test_a_repeated_name_keeps_its_last_value_and_is_told() -> None:
    repeated: list[str] = []
    assert documents.parse_jsonc('{"a": 1, "b": {"c": 1, "c": 2}, "a": 3, /**/}', repeated) == {"a": 3, "b": {"c": 2}}
    assert sorted(repeated) == ["a", "c"]
