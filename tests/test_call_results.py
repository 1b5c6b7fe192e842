"""What a program gets for each kind of answer: the table in docs/writing-programs.md, row by row, and real servers."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import lab_fold
from tests.servers import wrapped
from toolfold import Toolfold

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "writing-programs.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("| The tool answers with |")[2].partition("\n\n")[0].splitlines()[2:]

IMAGE = "File(path='workspace/files/{name}', mime_type='image/png', size=25)"
PDF = "File(path='workspace/files/report.pdf', mime_type='application/pdf', size=25)"

# The row's first cell → the tool that answers so, and what the program prints of it.
ROWS: dict[str, tuple[str, str]] = {
    "structured content": ("structured", "{'rows': [1, 2]}"),
    'structured content that the tool declares as `{"result": …}`, the wrapper of the Python SDK and FastMCP': (
        "wrapped",
        "[{'id': 1}]",
    ),
    "null in such a wrapper": ("wrapped_null", "None"),
    "a wrapper that is declared and not sent": (
        "wrongly_unwrapped",
        "note: the result is not what wrongly_unwrapped declares: missing required key 'result'\n{'rows': 1}",
    ),
    "an object of its own with the key `result`": ("own_result", "{'result': 'mine'}"),
    "structured content that is not what the tool declares": (
        "mismatch",
        "note: the result is not what mismatch declares: ok: must be boolean, not string\n{'ok': 'yes'}",
    ),
    "structured content and an image beside it": (
        "image_beside",
        f"note: image_beside also returned {IMAGE.format(name='image_beside.png')}\n{{'width': 3}}",
    ),
    "structured content that repeats the image beside it": (
        "image_twice",
        f"{{'content': [{IMAGE.format(name='image_twice.png')}]}}",
    ),
    "an image, sound or resource in MCP's own shape, inside structured content": (
        "image_inside",
        f"{{'page': {{'shots': [{IMAGE.format(name='image_inside.png')}, {PDF}]}}}}",
    ),
    "the same inside JSON text": ("image_in_text", f"[{IMAGE.format(name='image_in_text-0.png')}]"),
    "an object of that shape that holds no base64": (
        "not_an_image",
        "[{'type': 'image', 'data': 'see the next page', 'mimeType': 'x/y'}]",
    ),
    "one text that is a JSON object or array": ("json", "[{'id': 1}]"),
    "the text `null`": ("null", "None"),
    "text that is Python's `repr` of a list or dict of plain data": (
        "python",
        """[{'id': 1, 'name': None, 'tags': ['a', "it's"]}]""",
    ),
    "any other text": ("plain", "'hello'"),
    "a bare number or word such as `007` or `true`": ("number", "'007'"),
    "text that only begins like JSON": ("broken_json", """'{"id": 1'"""),
    "an empty text": ("empty_text", "''"),
    "text, where the tool declares a string": ("declared_text", """'{"id": 1}'"""),
    "several texts, where the tool declares a string": ("declared_texts", "'one\\ntwo'"),
    "texts, where the tool declares an array": ("declared_list", "[{'id': 1}]"),
    "one text that is the whole array, where the tool declares one": (
        "declared_list_whole",
        "[{'id': 1}, {'id': 2}]",
    ),
    "nothing, where the tool declares an array": ("declared_list_empty", "[]"),
    "several blocks": ("several", f"['one', [2], {IMAGE.format(name='several-2.png')}]"),
    "an image or a sound": ("image", IMAGE.format(name="image-0.png")),
    "an embedded resource with bytes": ("blob", PDF),
    "an embedded resource with text": ("text_resource", "{'id': 1}"),
    "a link to a resource": ("link", "{'uri': 'file:///a.txt', 'name': 'a'}"),
    "nothing": ("nothing", "None"),
    "an error": ("fails", "ToolError: answers.fails: no such row\ntry another"),
    "an error without a text": ("fails_silently", 'ToolError: answers.fails_silently: {"code": 404}'),
}


@pytest.fixture(scope="module")
async def fold(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> AsyncIterator[Toolfold]:
    data = tmp_path_factory.mktemp("results")
    (data / "runtime").symlink_to(shared_runtime)
    servers = {
        name: {"command": sys.executable, "args": [str(ROOT / "tests" / "servers" / f"{name}.py")]}
        for name in ("answers", "wrapped")
    }
    async with lab_fold(data, servers=servers) as fold:
        yield fold


async def printed(fold: Toolfold, code: str) -> str:
    result = await fold.run(code)
    assert result.success, result.text
    return result.output.strip()


def test_every_row_of_the_table_is_tested() -> None:
    assert [row.split(" | ")[0].removeprefix("| ") for row in TABLE] == list(ROWS)


@pytest.mark.parametrize(("tool", "shown"), ROWS.values(), ids=ROWS)
async def test_an_answer_becomes_what_the_table_says(fold: Toolfold, tool: str, shown: str) -> None:
    result = await fold.run(f"from servers.answers import {tool}\nprint(repr(await {tool}()))")
    text = result.output.strip() or re.sub(r"^ .*\n", "", str(result.error))
    assert text == shown


async def test_a_file_holds_the_bytes_and_opens_like_a_path(fold: Toolfold) -> None:
    code = """
from pathlib import Path
from servers.answers import image
from toolfold import get_prompt, read_resource
files = [await image(), await read_resource("answers", "file:///docs/report.pdf")]
files.append((await get_prompt("answers", "look"))[0]["content"])
for file in files:
    print(file.path, open(file, "rb").read() == file.read_bytes() == Path(file).read_bytes(), len(file.read_bytes()))
"""
    assert (await printed(fold, code)).splitlines() == [
        "workspace/files/image-0.png True 25",
        "workspace/files/report.pdf True 25",
        "workspace/files/look.png True 25",
    ]


async def test_a_file_is_found_in_a_large_result(fold: Toolfold) -> None:
    code = """
from servers.answers import image_in_many_rows
found = await image_in_many_rows()
print(len(found["rows"]), found["shot"].mime_type)
"""
    assert await printed(fold, code) == "10000 image/png"


# --- servers that are written with the plain SDK


@pytest.mark.parametrize(("tool", "value"), wrapped.RETURNS.items(), ids=wrapped.RETURNS)
async def test_what_an_sdk_function_returns_is_what_the_program_gets(fold: Toolfold, tool: str, value: Any) -> None:
    result = await fold.run(f"from servers.wrapped import {tool}\nawait {tool}()")
    assert result.success, result.text
    assert result.value == value
    assert type(result.value) is type(value)


async def test_the_signatures_of_sdk_functions_are_those_of_the_functions(fold: Toolfold) -> None:
    found = await fold.search("server:wrapped", detail="full", limit=50)
    returned = {hit.name: hit.signature.partition(" -> ")[2].removesuffix(": ...") for hit in found}
    author = '{"name": str, "email": NotRequired[str | None]}'
    book = f'{{"title": str, "authors": list[{author}], "tags": NotRequired[dict[str, int]]}}'
    assert {name: returned[name] for name in wrapped.RETURNS} == {
        "words": "list[str]",
        "no_words": "list[str]",
        "matrix": "list[list[int]]",
        "books": f"list[{book}]",
        "text": "str",
        "json_text": "str",
        "number": "int",
        "fraction": "float",
        "flag": "bool",
        "nothing": "None",
        "missing": f"{book} | None",
        "book": book,
        "point": '{"x": float, "y": float}',
        "counts": "dict[str, int]",
        "choice": 'Literal["open", "closed"]',
        "own_result": '{"result": str, "code": int}',
    }
    assert returned["typed_picture"] == "File"


async def test_json_loads_gives_the_data_whatever_the_tool_answered_with(fold: Toolfold) -> None:
    code = """
import ast, json
from json import loads
from servers.wrapped import books, flag, json_text, nothing, number, untyped_json, untyped_repr, words
print(json.loads(await json_text()), json.loads(await untyped_json()), loads(await words()))
print(json.loads(await untyped_repr()), ast.literal_eval(await untyped_repr()))
print(json.loads(await number()), json.loads(await flag()), json.loads(await nothing()))
rows = await books()
print(json.loads(rows) is rows, json.loads(json.dumps(rows)) == rows)
"""
    assert (await printed(fold, code)).splitlines() == [
        "{'rows': [1, 2]} [{'id': 1}] ['one', 'two']",
        "[{'id': 1, 'name': None, 'tags': ['a']}] [{'id': 1, 'name': None, 'tags': ['a']}]",
        "42 False None",
        "True True",
    ]


async def test_json_loads_is_otherwise_what_it_was(fold: Toolfold) -> None:
    code = """
import inspect, io, json
print(json.loads('[1.5]', parse_float=str), json.loads(b'{"a": 1}'), json.load(io.StringIO('[1]')))
print(json.loads({"a": {"b": 1}}, object_hook=lambda pairs: sorted(pairs)))
for wrong in ("", "{", "\\ufeff[]", {1, 2}, (1,), object):
    try:
        json.loads(wrong)
    except (TypeError, ValueError) as error:
        print(type(error).__name__, str(error).split(":")[0].split(",")[0])
print("object_hook" in inspect.signature(json.loads).parameters)
"""
    assert (await printed(fold, code)).splitlines() == [
        "['1.5'] {'a': 1} [1]",
        "['a']",
        "JSONDecodeError Expecting value",
        "JSONDecodeError Expecting property name enclosed in double quotes",
        "JSONDecodeError Unexpected UTF-8 BOM (decode using utf-8-sig)",
        "TypeError the JSON object must be str",
        "TypeError the JSON object must be str",
        "TypeError the JSON object must be str",
        "True",
    ]


async def test_a_client_counts_calls_by_every_way(fold: Toolfold) -> None:
    code = """
import asyncio, json
from client import call_mcp_tool, get_client
from servers.wrapped import number, order, words
client = get_client()
print(client.call_count, client.total_tokens == 0, client.tools_called)
await asyncio.gather(number(), words(), words())
await call_mcp_tool("mcp__wrapped__order", {"item": "x" * 4000, "count": 1})
try:
    await order("x", "many")
except Exception as error:
    print(type(error).__name__)
print(client.call_count, sorted(client.tools_called), get_client() is client)
print(950 < client.total_tokens < 1300, isinstance(client.total_tokens, int), "(estimated)" in f"{client.total_tokens}")
print(json.dumps(client.total_tokens).isdigit(), client.total_tokens + 0 < 1300)
"""
    assert (await printed(fold, code)).splitlines() == [
        "0 True []",
        "ToolError",
        "4 ['wrapped.number', 'wrapped.order', 'wrapped.words'] True",
        "True True True",
        "True True",
    ]


async def test_a_result_of_another_type_than_asked_for_is_an_error(fold: Toolfold) -> None:
    code = """
from dataclasses import dataclass
from typing import Any, Literal, Optional, TypedDict
from toolfold import call_mcp_tool

class Book(TypedDict):
    title: str
    authors: list

class Priced(Book):
    price: float

@dataclass
class Point:
    x: float
    y: float
    label: str = "here"

async def asked(tool, kind):
    try:
        value = await call_mcp_tool(f"mcp__wrapped__{tool}", {}, type=kind)
        print(tool, "ok", value if isinstance(value, Point) else "")
    except TypeError as error:
        print(tool, str(error).removeprefix("call_mcp_tool: "))

for tool, kind in [
    ("number", int), ("number", float), ("flag", bool), ("words", list), ("words", list[str]),
    ("counts", dict[str, int]), ("book", Book), ("books", list[Book]), ("nothing", type(None)),
    ("missing", Optional[Book]), ("point", Point),
    ("choice", Literal["open"]), ("choice", Any), ("words", list | None),
]:
    await asked(tool, kind)
print("---")
for tool, kind in [
    ("flag", int), ("number", str), ("words", list[int]), ("counts", dict[str, str]), ("book", Priced), ("text", Book),
    ("choice", Literal["shut"]), ("number", Point), ("number", "int"),
]:
    await asked(tool, kind)
"""
    right, _, wrong = (await printed(fold, code)).partition("\n---\n")
    lines = right.splitlines()
    assert [line.split()[1] for line in lines] == ["ok"] * 14
    assert "Point(x=1.0, y=2.0, label='here')" in right
    assert wrong.splitlines() == [
        "flag the result is not int: got bool False",
        "number the result is not str: got int 42",
        "words the result is not list[int]: [0]: got str 'one'",
        "counts the result is not dict[str, str]: ['a']: got int 1",
        "book the result is not Priced: missing 'price'",
        "text the result is not Book: got str 'plain'",
        "choice the result is not typing.Literal['shut']: got str 'open'",
        "number the result is not Point: got int 42",
        "number type must be a type, not 'int'; an argument of the tool that is called `type` goes into the dict",
    ]


async def test_what_is_no_type_is_refused_before_the_call(fold: Toolfold) -> None:
    code = """
from client import call_mcp_tool, get_client
for arguments in [
    {"name": "mcp__wrapped__number", "type": "int"}, {"server": "wrapped"}, {},
    {"name": "mcp__wrapped__number", "arguments": {}, "input_data": {}},
    {"name": "mcp__wrapped__number", "arguments": [1]},
]:
    try:
        await call_mcp_tool(**arguments)
    except TypeError as error:
        print(str(error).removeprefix("call_mcp_tool: "))
print(get_client().call_count)
"""
    assert (await printed(fold, code)).splitlines() == [
        "type must be a type, not 'int'; an argument of the tool that is called `type` goes into the dict",
        "give a name, or server and tool",
        "give a name, or server and tool",
        "arguments and input_data are two names of one argument",
        "arguments must be a dict, not list",
        "0",
    ]


async def test_a_tool_is_called_by_server_and_name_in_every_spelling(fold: Toolfold) -> None:
    code = """
from client import call_mcp_tool
print(await call_mcp_tool(server="wrapped", tool="order", input_data={"item": "pen", "count": 2}))
print(await call_mcp_tool(server="wrapped", tool="order", arguments={"item": "pen"}, count=3))
print(await call_mcp_tool("wrapped.order", item="pen", count=4))
print(await call_mcp_tool(name="mcp__wrapped__order", arguments={"item": "pen", "count": 5}))
print(await call_mcp_tool(server="lab", tool="json_text"))
"""
    assert (await printed(fold, code)).splitlines() == [
        *(f"{{'item': 'pen', 'count': {count}, 'gift': False}}" for count in (2, 3, 4, 5)),
        "{'rows': [1, 2, 3]}",
    ]


async def test_hits_are_mappings_and_objects_at_once(fold: Toolfold) -> None:
    code = """
import json
from tool_discovery import search_tools
hit = search_tools("order an item", "full", 1, "wrapped")[0]
print(hit["name"] == hit.name, hit.server, hit["import"] == hit.import_, "description" in hit, hit)
print(sorted(dict(hit)), json.loads(json.dumps(hit)) == hit, hit.kind)
print(hit.signature)
print({hit.name: hit.output_schema["type"] for hit in search_tools(server="wrapped", detail="full")
       if hit.name in ("words", "number", "book")})
for level in ("name_only", "with_description"):
    print(list(search_tools("order an item", detail=level, limit=1, server="wrapped")[0]))
everything = search_tools(detail_level="name_only")
print(len(everything) > 40, {hit.server for hit in everything} == {"answers", "lab", "wrapped"})
print(len(search_tools(server="wrapped")) == len([hit for hit in everything if hit.server == "wrapped"]))
print(len(search_tools("", limit=3)), search_tools(server="nowhere"), (await search_tools("order"))[0].server)
for wrong in ({"detail": "everything"}, {"detail": "full", "detail_level": "name_only"}, {"limit": "3"}, {"server": 3}):
    try:
        search_tools("x", **wrong)
    except (TypeError, ValueError) as error:
        print(error)
try:
    search_tools("order", detail="name_only")[0].description
except AttributeError as error:
    print(error)
"""
    assert (await printed(fold, code)).splitlines() == [
        "True wrapped True True <wrapped.order>",
        "['description', 'import', 'input_schema', 'name', 'output_schema', 'server', 'signature'] True tool",
        "async def order(item: str, count: int, gift: bool = False) -> dict[str, Any]: ...",
        "{'book': 'object', 'number': 'integer', 'words': 'array'}",
        "['name', 'server']",
        "['name', 'server', 'description', 'import']",
        "True True",
        "True",
        '3 There is no server "nowhere". Nearest: answers, lab, wrapped. "" lists all 3. wrapped',
        "search_tools: detail must be one of name_only, with_description, full, not 'everything'",
        "search_tools: detail_level and detail are two names of one argument",
        "search_tools: limit must be a whole number, not '3'",
        "search_tools: server must be text, not int",
        "a hit at this detail has name, server, not 'description'; detail='full' has all",
    ]
