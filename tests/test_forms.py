"""Forms that servers ask for: what is read of them, and which values they take."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolfold.schema.forms import Form, InvalidValueError, UnsupportedFormError, Value, read_form, url_form


def form(**properties: Any) -> Form:
    return read_form({"type": "object", "properties": properties, "required": []})


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string"}, ["", "x" * 4000], [1, None, "x" * 4001, ["x"]]),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc"], ["a", "abcd"]),
        ({"type": "string", "format": "email"}, ["a@b.c"], ["a", "@b", "a@", "a b@c"]),
        ({"type": "string", "format": "uri"}, ["https://a.b/c"], ["nothing"]),
        ({"type": "string", "format": "date"}, ["2026-02-28"], ["2026-02-30", "today"]),
        ({"type": "string", "format": "date-time"}, ["2026-02-28T10:00:00"], ["2026-02-28"]),
        ({"type": "integer", "minimum": 1, "maximum": 3}, [1, 3, 2.0], [0, 4, 1.5, True, "2", float("nan")]),
        ({"type": "number"}, [1, 1.5], [float("inf"), float("nan"), True, "1"]),
        ({"type": "boolean"}, [True, False], [0, "true", None]),
        ({"type": "string", "enum": ["a", "b"]}, ["a"], ["c", ["a"]]),
        ({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, ["a"], ["A"]),
        (
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "maxItems": 1},
            [["a"], []],
            [["a", "b"], "a"],
        ),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}, [["a"]], [["A"], [1]]),
    ],
)
def test_each_kind_takes_what_its_schema_says(schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    [field] = form(x=schema).fields
    for value in good:
        assert field.check(value) == value
    for value in bad:
        with pytest.raises(InvalidValueError, match="x must be"):
            field.check(value)
    # What is written anew for a client means the same.
    assert read_form(form(x=schema).schema) == form(x={**schema, "title": "x"})


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "integer"}, "7", 7),
        ({"type": "number"}, "7.5", 7.5),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "string", "enum": ["x", "y"], "enumNames": ["First", "Second"]}, "2", "y"),
        ({"type": "string", "enum": ["x", "y"], "enumNames": ["First", "Second"]}, "First", "x"),
        ({"type": "array", "items": {"enum": ["x", "y"]}}, "2, x", ["y", "x"]),
    ],
)
def test_what_a_person_types_becomes_a_value(schema: dict[str, Any], typed: str, value: Value) -> None:
    assert form(x=schema).parse({"x": typed}) == {"x": value}


def test_defaults_stand_in_for_what_is_missing_and_required_values_must_be_there() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 3}, "c": {"type": "string"}},
        "required": ["a"],
    }
    read = read_form(schema)
    assert read.check({"a": "x", "unknown": 1}) == {"a": "x", "b": 3}
    assert read.parse({"a": "x", "b": "", "c": ""}, defaults=False) == {"a": "x"}
    with pytest.raises(InvalidValueError, match="a is required"):
        read.check({"b": 1})
    assert form(x={"type": "integer", "default": "three"}).check({}) == {}


def test_texts_are_one_visible_line_each() -> None:
    [field] = form(x={"type": "string", "title": "a\u202eb\n\x1b[2Jc", "description": "d" * 1000}).fields
    assert field.label == "ab [2Jc"
    assert len(field.description) <= 300


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
        {"type": "object", "properties": {"a": {"$ref": "#/x"}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}},
        {"type": "object", "properties": {"a": {"type": "string", "enum": []}}},
        {"type": "object", "properties": {"a": {"type": "string", "enum": [1]}}},
        {"type": "object", "properties": {"": {"type": "string"}}},
        {"type": "object", "properties": {f"a{n}": {"type": "string"} for n in range(21)}},
    ],
)
def test_what_is_no_flat_form_is_not_shown(schema: Any) -> None:
    with pytest.raises(UnsupportedFormError):
        read_form(schema)


@pytest.mark.parametrize("url", ["javascript:alert(1)", "https://", "http://[", "ftp://a", "https://a\n.b", None])
def test_only_addresses_of_the_web_are_shown(url: Any) -> None:
    with pytest.raises(UnsupportedFormError):
        url_form(url)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "enum", "items"]), inner),
    max_leaves=8,
)
keys = st.sampled_from(
    ["type", "enum", "enumNames", "oneOf", "items", "default", "minimum", "maxLength", "title", "format"]
)
kinds = st.sampled_from(["string", "number", "integer", "boolean", "array"])


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(keys, json_values), kinds, json_values, st.text(max_size=10))
def test_whatever_a_server_sends_is_a_form_or_refused(facts: Any, kind: str, value: Any, typed: str) -> None:
    try:
        read = form(x={**facts, "type": kind})
    except UnsupportedFormError:
        return
    for attempt in (lambda: read.check({"x": value}), lambda: read.parse({"x": typed})):
        try:
            checked = attempt()
        except InvalidValueError:
            continue
        assert read.check(checked) == checked
