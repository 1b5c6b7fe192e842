"""What a schema turns into, as an agent reads it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.random_schemas import NAMES, SCHEMAS
from tests.typed_api import catalog_tools, simple
from toolfold.codegen import render
from toolfold.codegen.from_schema import arguments, read
from toolfold.codegen.names import ApiNames
from toolfold.definitions import ToolDefinition


def full(tool: ToolDefinition) -> str:
    return render.full(ApiNames.of([tool]), tool)


def signature(tool: ToolDefinition) -> str:
    return render.signature(ApiNames.of([tool]), tool)


def annotation(schema: Any) -> str:
    """The annotation that a required parameter of this schema gets."""
    found = ast.parse(signature(simple(x_=schema))).body[0]
    assert isinstance(found, ast.AsyncFunctionDef)
    (parameter,) = found.args.args
    assert parameter.annotation is not None
    return ast.unparse(parameter.annotation)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"type": "null"}, "None"),
        ({}, "Any"),
        (True, "Any"),
        ({"type": "unheard-of"}, "Any"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"type": ["null", "integer", "string"]}, "int | str | None"),
        ({"type": ["integer", "number"]}, "float"),
        ({"enum": ["a", "b"]}, "Literal['a', 'b']"),
        ({"enum": ["a", None]}, "Literal['a'] | None"),
        ({"enum": [1, True]}, "Literal[1, True]"),
        ({"enum": [0.5, 1.5]}, "float"),
        ({"enum": [["a"], "b"]}, "Any"),
        ({"const": "a"}, "Literal['a']"),
        ({"const": None}, "None"),
        ({"type": "array"}, "list[Any]"),
        ({"type": "array", "items": {"type": "string"}}, "list[str]"),
        ({"items": {"type": "string"}}, "list[str]"),
        (
            {"type": "array", "items": [{"type": "number"}, {"type": "string"}], "additionalItems": False},
            "list[float | str]",
        ),
        ({"type": "array", "prefixItems": [{"type": "number"}] * 2, "items": False}, "list[float]"),
        ({"type": "array", "prefixItems": [{"type": "number"}]}, "list[Any]"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "dict[str, int]"),
        (
            {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
            "dict[str, int]",
        ),
        ({"type": "object", "properties": {"a": {}}}, "{'a': NotRequired[Any]}"),
        ({"type": "object", "properties": {f"key_number_{n}": True for n in range(20)}}, "X"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "str | None"),
        ({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, "str | list[str]"),
        ({"anyOf": [{"enum": ["a"]}, {"const": "b"}]}, "Literal['a', 'b']"),
        ({"oneOf": [{"const": n, "title": "T"} for n in range(3)]}, "Literal[0, 1, 2]"),
        ({"oneOf": [{"const": f"v{n}"} for n in range(900)]}, "str"),
        ({"anyOf": [{"type": "string"}, {}]}, "Any"),
        ({"anyOf": []}, "Any"),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, "str"),
        ({"type": "string", "anyOf": [{"minLength": 3}, {"pattern": "x"}]}, "str"),
        ({"$ref": "#/$defs/missing"}, "Any"),
        ({"$ref": "https://example.com/schema.json"}, "Any"),
    ],
)
def test_a_schema_becomes_this_annotation(schema: Any, expected: str) -> None:
    assert annotation(schema) == expected


def test_required_parameters_come_first_and_the_servers_default_is_shown() -> None:
    tool = simple(
        page={"type": "integer", "default": 1},
        query_={"type": "string"},
        sort={"type": "string"},
        cursor={"type": ["string", "null"], "default": None},
        wrong={"type": "integer", "default": "many"},
        tags={"type": "array", "items": {"type": "string"}, "default": []},
    )
    assert signature(tool) == (
        "async def do_it(query: str, page: int = 1, sort: str = ..., cursor: str | None = None, "
        "wrong: int = ..., tags: list[str] = []) -> Any: ..."
    )
    assert 'wrong: default "many"' in full(tool)


def test_the_docs_hold_descriptions_constraints_and_behaviour() -> None:
    tool = ToolDefinition(
        server="s",
        name="find",
        description="Finds things.",
        annotations={"readOnlyHint": True},
        input_schema={
            "type": "object",
            "properties": {
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "How many"},
                "since": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}], "default": None},
                "at": {"type": "array", "prefixItems": [{"type": "number"}] * 2, "items": False},
            },
        },
    )
    assert full(tool) == (
        "async def find(limit: int = ..., since: str | None = None, at: list[float] = ...) -> Any:\n"
        '    """Read-only. Finds things.\n'
        "\n"
        "    limit: How many (1..100)\n"
        "    since: date-time\n"
        '    at: [float, float]"""'
    )


def test_a_listing_leaves_out_what_the_signature_says_and_the_module_keeps_it() -> None:
    tool = simple(
        "rename_file",
        file_path_={"type": "string", "description": "The path of the file", "minLength": 1},
        name={"type": "string", "description": "(optional) The new name; it must not exist yet"},
    )
    module = render.module(ApiNames.of([tool]), tool)
    assert "file_path: The path of the file (not empty)" in module
    assert "name: (optional) The new name; it must not exist yet" in module
    assert "The path of the file" not in full(tool)
    assert "name: The new name; it must not exist yet" in full(tool)


def test_a_long_doc_is_cut_in_a_listing_at_a_sentence_and_says_so() -> None:
    tool = simple(x={"type": "string", "description": "First comes this. " + "Then something longer follows. " * 5})
    assert "x: First comes this. Then something longer follows. …" in full(tool)
    assert "follows. Then something longer follows." in render.module(ApiNames.of([tool]), tool)


def test_an_object_becomes_a_typed_dict_with_its_fields_beside_their_docs() -> None:
    point = {
        "type": "object",
        "properties": {
            "x": {"type": "number", "description": "Metres east"},
            "y": {"type": "number"},
            "label": {"type": "string", "default": "here"},
        },
        "required": ["x", "y"],
        "additionalProperties": True,
    }
    assert full(simple(start_=point, end=point)) == (
        "class Start(TypedDict):  # and other keys\n"
        "    x: float  # Metres east\n"
        "    y: float\n"
        '    label: NotRequired[str]  # default "here"\n'
        "async def do_it(start: Start, end: Start = ...) -> Any:\n"
        '    """Does it."""'
    )


def test_keys_that_no_class_can_declare_are_written_as_strings() -> None:
    keys: dict[str, Any] = {"@odata.type": {"type": "string"}, "__x": {}, "list": {}, "class": {}}
    keys["items"] = {"type": "array", "items": {"type": "string"}}
    text = full(simple(body_={"type": "object", "properties": keys}))
    assert 'Body = TypedDict(\n    "Body",\n    {\n        "@odata.type": str,\n        "__x": Any,' in text
    ast.parse(text)


def test_a_recursive_type_names_itself() -> None:
    tree = {
        "type": "object",
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {
                    "value": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                },
                "required": ["value"],
            }
        },
        "properties": {"root": {"$ref": "#/$defs/Node"}},
        "required": ["root"],
    }
    text = full(ToolDefinition(server="s", name="walk", input_schema=tree))
    assert 'children: NotRequired["list[Node]"]' in text
    assert "root: Node" in text


def test_a_long_enum_gets_a_name_of_its_own_and_a_huge_one_a_note() -> None:
    long = {"type": "string", "enum": [f"value-number-{i}" for i in range(20)]}
    text = full(simple(kind_=long, other=long))
    assert text.count("value-number-7") == 1
    assert "kind: Kind, other: Kind" in text
    huge = full(simple(kind_={"type": "string", "enum": [f"v{i}" for i in range(5000)]}))
    assert "kind: str" in huge
    assert "one of 5,000 values" in huge


def test_alternatives_at_the_root_are_laid_over_each_other() -> None:
    tool = ToolDefinition(
        server="s",
        name="move",
        input_schema={
            "type": "object",
            "properties": {"id": {"type": "string"}},
            "required": ["id"],
            "oneOf": [
                {"properties": {"up": {"type": "integer"}}, "required": ["up"]},
                {"properties": {"down": {"type": "integer"}}, "required": ["down"]},
            ],
        },
    )
    assert signature(tool) == "async def move(id: str, up: int = ..., down: int = ...) -> Any: ..."


def test_either_of_several_parameters_is_said_in_words() -> None:
    tool = simple(a={"type": "string"}, b={"type": "string"})
    tool.input_schema["anyOf"] = [{"required": ["a"]}, {"required": ["b"]}]
    assert "(needs a or b)" in full(tool)


def test_open_arguments_are_taken_as_further_keywords() -> None:
    tool = simple(others_={"type": "string"})
    tool.input_schema["additionalProperties"] = {"type": "integer"}
    assert signature(tool) == "async def do_it(others: str, **others_: int) -> Any: ..."


def test_the_quick_look_at_arguments_agrees_with_the_whole_reading(shared: Path) -> None:
    for tool in catalog_tools(shared):
        quick, whole = arguments(tool), read(tool)
        assert set(quick.keywords.values()) == {field.name for field in whole.parameters}
        assert quick.required == {field.name for field in whole.parameters if field.required}
        assert quick.open == (whole.others is not None)


def undecorated(*_: object) -> Callable[[Any], Any]:
    return lambda function: function


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(NAMES, SCHEMAS, max_size=4), st.dictionaries(NAMES, SCHEMAS, max_size=2), SCHEMAS)
def test_any_schema_becomes_valid_python_that_runs(fields: dict[str, Any], defs: dict[str, Any], result: Any) -> None:
    tool = ToolDefinition(
        server="s",
        name="Any",
        input_schema={"type": "object", "properties": fields, "required": [*fields][:2], "$defs": defs},
        output_schema={"anyOf": [result]},
    )
    names = ApiNames.of([tool])
    ast.parse(render.full(names, tool))
    ast.parse(render.signature(names, tool))
    source = render.module(names, tool).replace("from servers._call import tool\n", "")
    namespace: dict[str, Any] = {"tool": undecorated}
    exec(compile(source, "module", "exec"), namespace)
    function = namespace[names.function("s", "Any")]
    assert len(function.__annotations__) >= 1
