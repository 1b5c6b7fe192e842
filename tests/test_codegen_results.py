"""The type of what a call returns: unwrapped, shown where it fits, named once and in English."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from tests.typed_api import simple
from toolfold.codegen import render
from toolfold.codegen.from_schema import read
from toolfold.codegen.names import ApiNames
from toolfold.codegen.singular import singular
from toolfold.definitions import ToolDefinition

STRING = {"type": "string"}
INTEGER = {"type": "integer"}


def returning(output: dict[str, Any] | None, description: str = "", **properties: Any) -> ToolDefinition:
    tool = simple("get_it", "s", **properties)
    return ToolDefinition(
        server="s", name="get_it", description=description, input_schema=tool.input_schema, output_schema=output
    )


def returned(output: dict[str, Any] | None) -> str:
    """The return annotation in the one-line signature."""
    tool = returning(output)
    return render.signature(ApiNames.of([tool]), tool).partition(" -> ")[2].removesuffix(": ...")


def module(tool: ToolDefinition) -> str:
    return render.module(ApiNames.of([tool]), tool)


def full(tool: ToolDefinition) -> str:
    return render.full(ApiNames.of([tool]), tool)


def obj(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def wrapped(inner: Any, **more: Any) -> dict[str, Any]:
    return {**obj("result", result=inner), **more}


ROW = obj("id", id=INTEGER, name=STRING)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (wrapped(STRING), "str"),
        (wrapped(INTEGER, title="countOutput"), "int"),
        (wrapped({"type": "array", "items": STRING}), "list[str]"),
        (wrapped({"anyOf": [STRING, {"type": "null"}]}), "str | None"),
        (wrapped({"type": "object", "additionalProperties": INTEGER}), "dict[str, int]"),
        (wrapped({"type": "null"}), "None"),
        (wrapped(True), "Any"),
        (wrapped({"type": "array", "items": {"$ref": "#/$defs/Row"}}, **{"$defs": {"Row": ROW}}), None),
        (wrapped(STRING, additionalProperties=False), "str"),
        (wrapped(STRING, **{"x-fastmcp-wrap-result": True}), "str"),
        ({"type": "object", "additionalProperties": True, "x-fastmcp-wrap-result": True}, "Any"),
        # A wrapper inside the wrapper is the tool's own.
        (wrapped(wrapped(STRING)), '{"result": str}'),
        # These are objects with a key called `result`, and no wrappers.
        (obj(result=STRING), '{"result": NotRequired[str]}'),
        (obj("result", result=STRING, error=STRING), '{"result": str, "error": NotRequired[str]}'),
        (wrapped(STRING, additionalProperties=True), '{"result": str}'),
        (obj("content", content=STRING), '{"content": str}'),
        ({"type": "array", "items": INTEGER}, "list[int]"),
        (None, "Any"),
    ],
)
def test_a_wrapper_of_a_library_is_no_part_of_the_type(schema: dict[str, Any] | None, expected: str | None) -> None:
    assert returned(schema) == (expected or 'list[{"id": int, "name": NotRequired[str]}]')


def test_the_module_names_what_the_wrapper_held() -> None:
    rows = {"type": "array", "items": {"$ref": "#/$defs/Row"}}
    source = module(returning(wrapped(rows, **{"$defs": {"Row": ROW}})))
    assert "async def get_it() -> list[Row]:" in source
    assert "class Row(TypedDict):" in source
    assert "Result" not in source


def test_an_object_is_shown_where_it_is_used_if_it_is_short_and_says_all() -> None:
    assert full(returning(obj("sum", sum={"type": "number"}))).startswith('async def get_it() -> {"sum": float}:')
    documented = full(returning(obj("sum", sum={"type": "number", "description": "Without the tax of 2019"})))
    assert documented.startswith("class Result(TypedDict):\n    sum: float  # Without the tax of 2019\n")
    long = returned(obj(**{f"some_long_key_{n}": STRING for n in range(20)}))
    assert long == "Result"


def test_a_type_that_holds_itself_keeps_its_name() -> None:
    node = obj("children", children={"type": "array", "items": {"$ref": "#/$defs/Node"}})
    schema = {**wrapped({"$ref": "#/$defs/Node"}), "$defs": {"Node": node}}
    assert returned(schema) == "Node"
    ast.parse(full(returning(schema)))


# --- one shape, one type


def test_what_goes_in_and_comes_out_is_one_type_with_the_docs_of_both() -> None:
    given = obj("name", name={**STRING, "description": "As in the passport"}, tags={"type": "array", "items": STRING})
    found = obj("name", name=STRING, tags={"type": "array", "items": STRING, "description": "Most recent first"})
    output = obj("entities", entities={"type": "array", "items": found})
    tool = returning(output, entities_={"type": "array", "items": given})
    source = module(tool)
    assert "Entity2" not in source
    assert source.count("class Entity(TypedDict") == 1
    assert "# As in the passport" in source
    assert "# Most recent first" in source


def test_records_that_differ_in_a_key_a_type_or_a_need_stay_apart() -> None:
    shapes = [obj("a", a=STRING), obj("a", a=INTEGER), obj(a=STRING), obj("a", a=STRING, b=STRING)]
    tool = returning(None, "", **{f"p{n}_": {"type": "array", "items": shape} for n, shape in enumerate(shapes)})
    assert len(read(tool).records) == 4


def test_literals_of_one_and_true_make_two_types() -> None:
    tool = returning(None, a_=obj("x", x={"const": 1}), b_=obj("x", x={"const": True}))
    assert len(read(tool).records) == 2


def test_types_that_hold_each_other_are_compared_as_a_whole() -> None:
    def pair(prefix: str) -> dict[str, Any]:
        return {
            f"{prefix}Owner": obj("pets", pets={"type": "array", "items": {"$ref": f"#/$defs/{prefix}Pet"}}),
            f"{prefix}Pet": obj("owner", owner={"$ref": f"#/$defs/{prefix}Owner"}),
        }

    tool = returning(None, a_={"$ref": "#/$defs/Owner"}, b_={"$ref": "#/$defs/OtherOwner"})
    tool.input_schema["$defs"] = {**pair(""), **pair("Other")}
    assert sorted(record.name for record in read(tool).records) == ["Owner", "Pet"]


def test_two_places_with_other_words_about_the_same_keys_keep_their_words() -> None:
    start = obj("x", x={"type": "number", "description": "Where it starts"})
    end = obj("x", x={"type": "number", "description": "Where it ends"})
    source = module(returning(None, start_=start, end_=end))
    assert "# Where it starts" in source
    assert "# Where it ends" in source


def test_the_outer_of_two_that_want_a_name_gets_it() -> None:
    inner = {"type": "array", "items": obj("a", "b", a=STRING, b=STRING)}
    tool = returning(obj("results", "total", results=inner, total=INTEGER))
    assert [record.name for record in read(tool).records] == ["Result2", "Result"]


# --- media


IMAGE = obj("type", "data", "mimeType", type={"enum": ["image", "audio"]}, data=STRING, mimeType=STRING)
BLOB = obj("uri", "blob", uri=STRING, blob=STRING, mimeType=STRING)
RESOURCE = obj("type", "resource", type={"const": "resource"}, resource=BLOB)
TEXT = obj("uri", "text", uri=STRING, text=STRING)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (wrapped(IMAGE), "File"),
        (obj("content", content={"type": "array", "items": {"anyOf": [IMAGE, RESOURCE]}}), '{"content": list[File]}'),
        (wrapped(BLOB), "File"),
        (wrapped({"anyOf": [TEXT, BLOB]}), '{"uri": str, "text": str} | File'),
        # Nothing of these is certain to be bytes.
        (wrapped(obj("data", "mimeType", data=STRING, mimeType=STRING)), '{"data": str, "mimeType": str}'),
        (wrapped(obj("blob", blob=STRING)), '{"blob": str}'),
        (
            wrapped(obj("type", "data", type={"const": "text"}, data=STRING)),
            '{"type": Literal["text"], "data": str}',
        ),
    ],
)
def test_media_in_a_result_are_files(schema: dict[str, Any], expected: str) -> None:
    assert returned(schema) == expected


def test_a_module_that_names_files_imports_them_and_others_may_have_a_file_of_their_own() -> None:
    source = module(returning(wrapped(IMAGE)))
    assert "from servers._call import File, tool\n" in source
    own = module(returning(wrapped({"type": "array", "items": {"$ref": "#/$defs/File"}}, **{"$defs": {"File": ROW}})))
    assert "class File(TypedDict" in own
    assert "from servers._call import tool\n" in own


def test_media_in_an_argument_are_what_the_schema_says() -> None:
    tool = returning(wrapped(IMAGE), image_=IMAGE)
    assert "class Image(TypedDict):" in module(tool)
    assert "image: Image) -> File" in module(tool)


# --- words


@pytest.mark.parametrize(
    ("description", "output", "said"),
    [
        ("Returns a JSON string with the rows.", None, True),
        ("Finds rows.\n\nReturns:\n    JSON-formatted string of rows", None, True),
        ("Query. Returns: a str containing JSON", wrapped({"type": "array"}), True),
        ("Returns a JSON string with the rows.", wrapped(STRING), False),
        ("Takes a filter as JSON and returns rows.", None, False),
        ("Returns the JSON schema of a table.", None, False),
    ],
)
def test_a_promise_of_json_text_is_put_right(description: str, output: dict[str, Any] | None, said: bool) -> None:
    tool = returning(output, description)
    assert ("(the result arrives parsed)" in full(tool)) is said
    assert ("(the result arrives parsed)" in module(tool)) is said


@pytest.mark.parametrize(
    ("many", "one"),
    [
        ("entities", "entity"),
        ("userEntities", "userEntity"),
        ("search_queries", "search_query"),
        ("statuses", "status"),
        ("status", "status"),
        ("addresses", "address"),
        ("address", "address"),
        ("series", "series"),
        ("timeSeries", "timeSeries"),
        ("analyses", "analysis"),
        ("analysis", "analysis"),
        ("branches", "branch"),
        ("caches", "cache"),
        ("boxes", "box"),
        ("databases", "database"),
        ("responses", "response"),
        ("sizes", "size"),
        ("indices", "index"),
        ("children", "child"),
        ("People", "Person"),
        ("aliases", "alias"),
        ("movies", "movie"),
        ("apis", "api"),
        ("URLs", "URL"),
        ("IDs", "ID"),
        ("CPUS", "CPU"),
        ("news", "news"),
        ("data", "data"),
        ("result", "result"),
        ("", ""),
        ("s", "s"),
        ("items2", "items2"),
    ],
)
def test_singulars_are_english(many: str, one: str) -> None:
    assert singular(many) == one
