"""What other people's servers answer arrives as the data: FastMCP's, the TypeScript SDK's, mcp-server-sqlite's."""

from __future__ import annotations

import struct
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.third_party import data_dir, npm_program, python_program, server
from toolfold import Toolfold

pytestmark = pytest.mark.anyio

FASTMCP = '''
from dataclasses import dataclass
from typing import Any
from fastmcp import FastMCP
from fastmcp.utilities.types import Image
from pydantic import BaseModel

server = FastMCP("fast")

class Author(BaseModel):
    name: str

class Book(BaseModel):
    title: str
    authors: list[Author]

@dataclass
class Point:
    x: int
    y: int

@server.tool
def words() -> list[str]: return ["one", "two"]

@server.tool
def no_words() -> list[str]: return []

@server.tool
def books() -> list[Book]: return [Book(title="Looms", authors=[Author(name="Ada")])]

@server.tool
def book() -> Book: return Book(title="Looms", authors=[Author(name="Ada")])

@server.tool
def point() -> Point: return Point(1, 2)

@server.tool
def text() -> str: return "plain"

@server.tool
def json_text() -> str:
    """Returns a JSON string."""
    return '{"rows": [1, 2]}'

@server.tool
def number() -> int: return 42

@server.tool
def fraction() -> float: return 0.5

@server.tool
def flag() -> bool: return False

@server.tool
def nothing() -> None: return None

@server.tool
def missing() -> Book | None: return None

@server.tool
def counts() -> dict[str, int]: return {"a": 1}

@server.tool
def untyped_rows(): return [{"id": 1}, {"id": 2}]

@server.tool
def untyped_dict(): return {"id": 1}

@server.tool
def anything() -> Any: return [1, {"two": None}]

@server.tool
def picture() -> Image: return Image(data=b"not really a picture", format="png")

server.run("stdio", show_banner=False)
'''
BOOK = {"title": "Looms", "authors": [{"name": "Ada"}]}
FAST: dict[str, Any] = {
    "words": ["one", "two"],
    "no_words": [],
    "books": [BOOK],
    "book": BOOK,
    "point": {"x": 1, "y": 2},
    "text": "plain",
    "json_text": '{"rows": [1, 2]}',
    "number": 42,
    "fraction": 0.5,
    "flag": False,
    "nothing": None,
    "missing": None,
    "counts": {"a": 1},
    "untyped_rows": [{"id": 1}, {"id": 2}],
    "untyped_dict": {"id": 1},
    "anything": [1, {"two": None}],
}


@pytest.fixture(scope="module")
async def fold(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> AsyncIterator[Toolfold]:
    home = tmp_path_factory.mktemp("others").resolve()
    files, script = home / "files", home / "fast.py"
    files.mkdir()
    script.write_text(FASTMCP)
    (files / "pixel.png").write_bytes(PNG)
    (files / "tone.wav").write_bytes(b"RIFF not really a sound")
    (files / "report.pdf").write_bytes(b"%PDF not really a report")
    (files / "notes.txt").write_text("first\nsecond\n")
    servers = {
        "fast": server(python_program("python", "fastmcp"), str(script)),
        "sqlite": server(python_program("mcp-server-sqlite", "sqlite"), "--db-path", str(home / "test.db")),
        "filesystem": server(npm_program("mcp-server-filesystem"), str(files)),
        "memory": server(npm_program("mcp-server-memory"), env={"MEMORY_FILE_PATH": str(home / "memory.jsonl")}),
        "everything": server(npm_program("mcp-server-everything")),
    }
    # Nobody is asked here, and these servers mark what overwrites a file as destructive.
    config = {"mcpServers": servers, "sandbox": {"pool": 1}, "policy": {"profile": "open"}}
    async with Toolfold.open(config, data_dir=data_dir(home, shared_runtime)) as fold:
        await fold.listed()
        yield fold


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    + _chunk(b"IEND", b"")
)


async def printed(fold: Toolfold, code: str) -> list[str]:
    result = await fold.run(code)
    assert result.success, result.text
    return result.output.splitlines()


async def returned(fold: Toolfold, server: str) -> dict[str, str]:
    """Tool → the return type in its signature."""
    found = await fold.search(f"server:{server}", detail="full", limit=50)
    return {hit.name: hit.signature.partition(" -> ")[2].removesuffix(": ...") for hit in found if hit.kind == "tool"}


@pytest.mark.parametrize("tool", FAST)
async def test_what_a_fastmcp_function_returns_is_what_the_program_gets(fold: Toolfold, tool: str) -> None:
    result = await fold.run(f"from servers.fast import {tool}\nawait {tool}()")
    assert result.success, result.text
    assert result.value == FAST[tool]
    assert type(result.value) is type(FAST[tool])


async def test_the_signatures_of_fastmcp_functions_are_those_of_the_functions(fold: Toolfold) -> None:
    types = await returned(fold, "fast")
    book = '{"title": str, "authors": list[{"name": str}]}'
    assert types == {
        "words": "list[str]",
        "no_words": "list[str]",
        "books": f"list[{book}]",
        "book": book,
        "point": '{"x": int, "y": int}',
        "text": "str",
        "json_text": "str",
        "number": "int",
        "fraction": "float",
        "flag": "bool",
        "nothing": types["nothing"],
        "missing": f"{book} | None",
        "counts": "dict[str, int]",
        "untyped_rows": "Any",
        "untyped_dict": "Any",
        "anything": types["anything"],
        "picture": "Any",
    }
    assert types["nothing"] in ("None", "Any")


async def test_a_fastmcp_picture_is_a_file(fold: Toolfold) -> None:
    code = "from servers.fast import picture\nfile = await picture()\nprint(file.mime_type, file.read_bytes())"
    assert await printed(fold, code) == ["image/png b'not really a picture'"]


async def test_rows_that_sqlite_answers_as_python_are_rows(fold: Toolfold) -> None:
    code = """
import json
from servers.sqlite import create_table, list_tables, read_query, write_query
print(await create_table("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, height REAL)"))
print(await write_query(query="INSERT INTO people (name, height) VALUES ('O''Hara', 1.8), ('say \\"hi\\"', NULL)"))
rows = await read_query("SELECT * FROM people ORDER BY id")
for row in rows:
    print(row["id"], row["name"], row["height"])
print(json.loads(await read_query("SELECT count(*) AS n FROM people"))[0]["n"], await list_tables())
print(await read_query("SELECT * FROM people WHERE id > 99"))
"""
    lines = await printed(fold, code)
    assert lines[0] == "Table created successfully"
    assert lines[1:] == [
        "[{'affected_rows': 2}]",
        "1 O'Hara 1.8",
        '2 say "hi" None',
        "2 [{'name': 'people'}]",
        "[]",
    ]


async def test_media_of_the_filesystem_server_are_files(fold: Toolfold) -> None:
    files = Path(fold.settings.servers["filesystem"].args[-1])
    code = f"""
from servers.filesystem import read_media_file
for name in ("pixel.png", "tone.wav", "report.pdf"):
    file, = (await read_media_file({str(files)!r} + "/" + name))["content"]
    print(file.path, file.mime_type, file.read_bytes() == open(file, "rb").read(), file.size)
"""
    assert await printed(fold, code) == [
        f"workspace/files/read_media_file.png image/png True {len(PNG)}",
        "workspace/files/read_media_file.wav audio/wav True 23",
        "workspace/files/report.pdf application/octet-stream True 24",
    ]
    assert (await returned(fold, "filesystem"))["read_media_file"] == '{"content": list[File]}'


async def test_typescript_servers_keep_the_shape_that_they_declare(fold: Toolfold) -> None:
    notes = Path(fold.settings.servers["filesystem"].args[-1]) / "notes.txt"
    code = f"""
from servers.everything import get_structured_content, echo
from servers.filesystem import read_text_file
from servers.memory import create_entities, search_nodes
made = await create_entities([{{"name": "Ada", "entityType": "person", "observations": ["looms"]}}])
found = await search_nodes("looms")
print(made["entities"] == found["entities"], found["entities"][0]["observations"])
print(sorted(await get_structured_content("Chicago")))
print((await read_text_file({str(notes)!r}, head=1))["content"])
print(await echo("hello"))
"""
    assert await printed(fold, code) == [
        "True ['looms']",
        "['conditions', 'humidity', 'temperature']",
        "first",
        "Echo: hello",
    ]
    types = await returned(fold, "memory")
    entity = '{"name": str, "entityType": str, "observations": list[str]}'
    assert types["create_entities"] == f'{{"entities": list[{entity}]}}'
    full = (await fold.search("server:memory create entities", detail="full", limit=1)).text
    assert "Entity2" not in full
    assert "Entitie" not in full
