from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.random_schemas import SCHEMAS
from tests.typed_api import simple
from toolfold.definitions import ToolDefinition
from toolfold.errors import InvalidArguments
from toolfold.guards.arguments import check_arguments
from toolfold.schema.validation import Validators

POINT = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "label": {"type": "string", "maxLength": 5}},
    "required": ["x"],
    "additionalProperties": False,
}
TOOL = simple(
    "draw",
    "art",
    points_={"type": "array", "items": POINT, "minItems": 1},
    colour={"anyOf": [{"type": "string"}, {"type": "null"}]},
    style={"enum": ["solid", "dotted"]},
    target={
        "oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": "file"}, "path": {"type": "string"}},
                "required": ["kind"],
            },
            {
                "type": "object",
                "properties": {"kind": {"const": "url"}, "url": {"type": "string"}},
                "required": ["kind"],
            },
        ]
    },
)
TOOL.input_schema["additionalProperties"] = False


def refusal(arguments: dict[str, Any], tool: ToolDefinition = TOOL) -> str:
    with pytest.raises(InvalidArguments) as caught:
        check_arguments(Validators(), tool, arguments)
    assert caught.value.message.startswith(f"{tool.server}.{tool.name}: ")
    assert caught.value.hint.startswith(f"Signature: {tool.name}(")
    return caught.value.message.split(": ", 1)[1]


@pytest.mark.parametrize(
    "arguments",
    [
        {"points": [{"x": 1}]},
        {"points": [{"x": 1.5, "label": "here"}], "colour": None, "style": "dotted"},
        {"points": [{"x": 1}], "target": {"kind": "url", "url": "https://example.com"}},
    ],
)
def test_valid_arguments_pass(arguments: dict[str, Any]) -> None:
    check_arguments(Validators(), TOOL, arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "missing required argument 'points'."),
        ({"points": [{"x": "1"}]}, "points[0].x: must be number, not string."),
        ({"points": [{"x": 1}, {}]}, "points[1]: missing required key 'x'."),
        ({"points": [{"x": 1, "lable": "a"}]}, "points[0]: unexpected key 'lable' (did you mean 'label'?)."),
        ({"points": [{"x": 1}], "color": "red"}, "unexpected argument 'color' (did you mean 'colour'?)."),
        ({"points": [{"x": 1}], "colour": 5}, "colour: must be string or null, not integer."),
        ({"points": [{"x": 1}], "style": "wavy"}, "style: must be one of 'solid', 'dotted'."),
        ({"points": [{"x": 1}], "target": {"kind": "file", "path": 5}}, "target.path: must be string, not integer."),
        ({"points": [{"x": 1, "label": "too long"}]}, "points[0].label: is longer than 5 characters."),
        ({"points": None}, "points: must be array, not null."),
    ],
)
def test_a_refusal_names_the_path_and_what_was_wrong(arguments: dict[str, Any], expected: str) -> None:
    assert refusal(arguments) == expected


def test_a_refusal_never_repeats_a_value() -> None:
    secret = "hunter2-very-secret"
    for arguments in ({"points": secret}, {"points": [{"x": secret}]}, {"points": [{"x": 1}], "style": secret}):
        with pytest.raises(InvalidArguments) as caught:
            check_arguments(Validators(), TOOL, arguments)
        assert secret not in str(caught.value)


def test_many_problems_are_cut_short() -> None:
    said = refusal({"points": [{"x": "a"}] * 50})
    assert said.count("must be number") == 3
    assert said.endswith("and more.")


def test_a_result_that_breaks_its_promise_is_a_warning() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = ToolDefinition(server="s", name="count", output_schema=schema)
    validators = Validators()
    assert validators.check_result(tool, {"n": 1}) is None
    assert (
        validators.check_result(tool, {"n": "1"})
        == "the result is not what count declares: n: must be integer, not string"
    )
    assert validators.check_result(ToolDefinition(server="s", name="free"), object()) is None


def test_one_argument_can_be_checked_alone() -> None:
    validators = Validators()
    assert validators.problems_with(TOOL, "style", "solid") == []
    assert validators.problems_with(TOOL, "style", "wavy") == ["style: must be one of 'solid', 'dotted'"]
    assert validators.problems_with(TOOL, "points", [], kind_only=True) == []
    assert validators.problems_with(TOOL, "points", {}, kind_only=True) == ["points: must be array, not object"]
    assert validators.problems_with(TOOL, "target", "", kind_only=True) == ["target: must be object, not string"]


def test_a_changed_definition_is_checked_by_its_new_schema() -> None:
    validators = Validators()
    check_arguments(validators, simple(x={"type": "string"}), {"x": "text"})
    with pytest.raises(InvalidArguments):
        check_arguments(validators, simple(x={"type": "integer"}), {"x": "text"})


def test_only_the_most_recent_tools_stay_compiled() -> None:
    validators = Validators(limit=2)
    compiled: list[str] = []

    class Watched(dict[str, Any]):
        """A schema that tells when it is compiled: only then its dialect is asked for."""

        def get(self, key: str, default: Any = None) -> Any:
            if key == "$schema":
                compiled.append(self["title"])
            return super().get(key, default)

    def check(name: str) -> None:
        schema = Watched(type="object", properties={"x": {"type": "string"}}, title=name)
        check_arguments(validators, ToolDefinition(server="s", name=name, input_schema=schema), {"x": "text"})

    for name in ("a", "b", "a", "c", "a", "c", "b", "c", "a"):
        check(name)
    assert compiled == ["a", "b", "c", "b", "a"], "the one that was used longest ago goes"


def test_truth_is_no_number() -> None:
    tool = simple(n={"type": "integer"}, x={"type": "number"}, yes={"type": "boolean"})
    check_arguments(Validators(), tool, {"n": 1, "x": 1, "yes": True})
    assert refusal({"n": True}, tool) == "n: must be integer, not boolean."
    assert refusal({"x": False}, tool) == "x: must be number, not boolean."
    assert refusal({"yes": 1}, tool) == "yes: must be boolean, not integer."
    check_arguments(Validators(), tool, {"n": 2.0})
    assert refusal({"n": 2.5}, tool) == "n: must be integer, not number."


def test_a_remote_schema_is_never_fetched(tmp_path: Path) -> None:
    """Neither over the network nor from a file: a schema that refers to one checks nothing."""
    local = tmp_path / "schema.json"
    local.write_text('{"type": "string"}')
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        for uri in (f"http://127.0.0.1:{server.getsockname()[1]}/schema.json", local.as_uri()):
            tool = simple(x={"$ref": uri})
            check_arguments(Validators(), tool, {"x": 5})
        with pytest.raises(TimeoutError):
            server.accept()


NOT_SCHEMAS: list[dict[str, Any]] = [
    {"type": "strin"},
    {"type": 5, "properties": []},
    {"$ref": "#/nowhere"},
    {"$ref": "https://127.0.0.1:9/remote.json"},
    {"$ref": "file:///etc/passwd"},
    {"properties": {"x": {"pattern": "("}}},
    {"properties": {"x": {"enum": ["\ud800"]}}},
    {"$schema": "https://example.com/own-dialect"},
    {"$schema": 7},
]


@pytest.mark.parametrize("schema", NOT_SCHEMAS)
def test_what_is_no_schema_checks_nothing(schema: dict[str, Any]) -> None:
    tool = ToolDefinition(server="s", name="t", input_schema=schema, output_schema=schema)
    check_arguments(Validators(), tool, {"x": 1})
    assert Validators().check_result(tool, {"x": 1}) is None


def test_an_unknown_dialect_is_still_checked_as_json_schema() -> None:
    tool = simple(x={"type": "string"})
    tool.input_schema["$schema"] = "https://example.com/own-dialect"
    assert refusal({"x": 1}, tool) == "x: must be string, not integer."


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


DOUBLING = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
BOMBS: list[tuple[dict[str, Any], Any]] = [
    ({"$defs": {**DOUBLING, "d40": {}}, "$ref": "#/$defs/d0"}, {}),
    ({"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}, deep(100)),
    ({"anyOf": [{"properties": {"a": {"$ref": "#"}}, "required": ["b"]}] * 8}, deep(60)),
    ({"type": "object"}, deep(100_000)),
    ({"properties": {"a": {"pattern": "^(?=(a+)+$)(a+)+b\\1$"}}}, {"a": "a" * 5000 + "!"}),
]


def try_bomb(number: int) -> None:
    schema, value = BOMBS[number]
    with contextlib.suppress(InvalidArguments):
        check_arguments(Validators(), ToolDefinition(server="s", name="t", input_schema=schema), value)


@pytest.mark.parametrize("number", range(len(BOMBS)))
def test_a_schema_cannot_hold_the_host(number: int) -> None:
    # In a process of its own: nothing inside this one could stop a check that does not end.
    script = f"from tests.test_codegen_validation import try_bomb; try_bomb({number})"
    done = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[1], timeout=60, check=False)
    assert done.returncode == 0


@settings(max_examples=200, deadline=None)
@given(
    SCHEMAS, st.dictionaries(st.text(max_size=3), st.one_of(st.none(), st.integers(), st.text(max_size=5)), max_size=3)
)
def test_no_schema_and_no_value_breaks_the_check(schema: Any, value: dict[str, Any]) -> None:
    tool = ToolDefinition(
        server="s", name="t", input_schema={"properties": {"a": schema}}, output_schema={"not": schema}
    )
    said = ""
    try:
        check_arguments(Validators(), tool, value)
    except InvalidArguments as refused:
        said = str(refused)
    assert len(said) < 3000
    assert len(Validators().check_result(tool, value) or "") < 3000
