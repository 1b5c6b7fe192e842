from __future__ import annotations

import ast
import io
import re
import tokenize
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolfold.schema import text

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=200)
# What would matter in a source file, more often than chance would bring it.
NASTY = st.lists(
    st.one_of(
        st.sampled_from(
            ['"', "'", '"""', "'''", "\\", "\n", "\r", "\u2028", "\x0c", "\x00", "#", " ", "\t", "{", "\u202e"]
        ),
        st.text(max_size=4),
    ),
    max_size=20,
).map("".join)
PROSE = st.one_of(ANY_TEXT, NASTY)


def invisible(prose: str) -> list[str]:
    return [c for c in prose if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")]


@given(PROSE)
def test_prose_has_only_visible_characters_and_plain_lines(prose: str) -> None:
    cleaned = text.clean(prose)
    assert invisible(cleaned) == []
    assert cleaned == cleaned.strip()
    assert all(line == line.rstrip() for line in cleaned.split("\n"))
    cleaned.encode()


@given(PROSE)
@example("\r0\x1e 0")
def test_cleaning_is_done_once_and_for_all(prose: str) -> None:
    assert text.clean(text.clean(prose)) == text.clean(prose)


@given(PROSE)
def test_a_literal_is_exactly_the_text(value: str) -> None:
    written = text.quote(value)
    assert ast.literal_eval(written) == value
    assert "\n" not in written
    assert invisible(written) == []
    written.encode()


@given(PROSE)
def test_a_docstring_is_one_string_and_nothing_else(prose: str) -> None:
    lines = text.docstring(prose, "    ")
    if not text.clean(prose):
        assert lines == []
        return
    source = "\n".join(["def f():", *lines])
    source.encode()
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    (only,) = function.body
    assert isinstance(only, ast.Expr)
    assert isinstance(only.value, ast.Constant)
    said = ast.get_docstring(function) or ""
    assert said.split() == text.clean(prose).replace('"""', "'''").split()


@given(PROSE)
def test_a_comment_stays_a_comment(prose: str) -> None:
    lines = text.comment(prose)
    source = "\n".join([*lines, ""])
    source.encode()
    kinds = {token.type for token in tokenize.generate_tokens(io.StringIO(source).readline)}
    assert kinds <= {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}
    assert ast.parse(source).body == []


@pytest.mark.parametrize(
    "order",
    ["type: ignore", "pyright: basic", "fmt: off", "ruff: noqa", "noqa", "x # type: ignore", "# noqa: E501", "nosec"],
)
def test_a_comment_gives_no_orders(order: str) -> None:
    (line,) = text.comment(order)
    # The forms that pyright and ruff look for.
    assert re.search(r"#\s*(type|pyright|fmt|ruff):|noqa|nosec", line, re.IGNORECASE) is None


@pytest.mark.parametrize("value", [None, True, False, 0, -7, 1.5, 1e100, "", "a'b", 'a"b', [], {}])
def test_a_short_value_is_written_as_python_reads_it(value: text.Json) -> None:
    written = text.literal(value)
    assert written is not None
    assert ast.literal_eval(written) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**30, [1], {"a": 1}])
def test_a_value_without_a_short_exact_form_is_not_written(value: text.Json) -> None:
    assert text.literal(value) is None


@given(PROSE, st.integers(5, 60))
def test_one_line_is_one_line_within_its_limit(prose: str, limit: int) -> None:
    line = text.one_line(prose, limit)
    assert "\n" not in line
    assert len(line) <= limit
    assert invisible(line) == []


@given(PROSE, st.integers(5, 60))
@example("0\n0000\t0", 8)
def test_an_opening_is_the_text_or_its_beginning(prose: str, limit: int) -> None:
    opening = text.opening(prose, limit)
    assert len(opening) <= limit + 2
    assert text.clean(prose).startswith(opening.removesuffix("…").rstrip()[: limit // 2])


def test_a_huge_text_costs_no_more_than_a_long_one_in_a_listing() -> None:
    assert text.first_sentence("word " * 1_000_000, 60).endswith("…")
    assert len(text.opening("word " * 1_000_000, 300)) <= 302


@pytest.mark.parametrize(
    ("prose", "expected"),
    [
        ("Creates an issue. Then it waits.", "Creates an issue."),
        ("Creates an issue, e.g. a bug. More.", "Creates an issue, e.g. a bug."),
        ("First line\ncontinues here\n\nSecond paragraph", "First line continues here"),
        ("Uses v1.2 of the API", "Uses v1.2 of the API"),
        ("", ""),
    ],
)
def test_the_first_sentence_ends_where_a_reader_would_end_it(prose: str, expected: str) -> None:
    assert text.first_sentence(prose, 100) == expected
