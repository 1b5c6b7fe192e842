"""An MCP server written with the plain SDK, as most are: functions with return types, whatever those are.

Started by path, by tests. `RETURNS` says what each tool returns, so that a test can compare.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import mcp_types as types
from mcp.server.mcpserver import Image, MCPServer
from pydantic import BaseModel
from typing_extensions import TypedDict

PIXEL = b"\x89PNG not really a picture"


class Author(BaseModel):
    name: str
    email: str | None = None


class Book(BaseModel):
    title: str
    authors: list[Author]
    tags: dict[str, int] = {}


class Point(TypedDict):
    x: float
    y: float


BOOK = Book(title="Looms", authors=[Author(name="Ada"), Author(name="Alan", email="a@example.org")], tags={"old": 2})

RETURNS: dict[str, Any] = {
    "words": ["one", "two"],
    "no_words": [],
    "matrix": [[1, 2], [3, 4]],
    "books": [BOOK.model_dump(), BOOK.model_dump()],
    "text": "plain",
    "json_text": '{"rows": [1, 2]}',
    "number": 42,
    "fraction": 0.5,
    "flag": False,
    "nothing": None,
    "missing": None,
    "book": BOOK.model_dump(),
    "point": {"x": 1.0, "y": 2.0},
    "counts": {"a": 1, "b": 2},
    "choice": "open",
    "own_result": {"result": "mine", "code": 7},
}

server = MCPServer("wrapped")


@server.tool()
def words() -> list[str]:
    return ["one", "two"]


@server.tool()
def no_words() -> list[str]:
    return []


@server.tool()
def matrix() -> list[list[int]]:
    return [[1, 2], [3, 4]]


@server.tool()
def books() -> list[Book]:
    return [BOOK, BOOK]


@server.tool()
def text() -> str:
    return "plain"


@server.tool()
def json_text() -> str:
    """Returns a JSON string."""
    return json.dumps({"rows": [1, 2]})


@server.tool()
def number() -> int:
    return 42


@server.tool()
def fraction() -> float:
    return 0.5


@server.tool()
def flag() -> bool:
    return False


@server.tool()
def nothing() -> None:
    return None


@server.tool()
def missing() -> Book | None:
    return None


@server.tool()
def book() -> Book:
    return BOOK


@server.tool()
def point() -> Point:
    return {"x": 1.0, "y": 2.0}


@server.tool()
def counts() -> dict[str, int]:
    return {"a": 1, "b": 2}


@server.tool()
def choice() -> Literal["open", "closed"]:
    return "open"


class OwnResult(BaseModel):
    result: str
    code: int


@server.tool()
def own_result() -> OwnResult:
    return OwnResult(result="mine", code=7)


@server.tool(structured_output=False)
def untyped_json() -> str:
    """Returns a JSON string."""
    return json.dumps([{"id": 1}])


@server.tool(structured_output=False)
def untyped_repr() -> str:
    return repr([{"id": 1, "name": None, "tags": ("a",)}])


@server.tool()
def picture() -> Image:
    return Image(data=PIXEL, format="png")


@server.tool()
def album(count: int) -> list[Image]:
    return [Image(data=PIXEL + bytes([number]), format="png") for number in range(count)]


@server.tool(structured_output=True)
def typed_picture() -> types.ImageContent:
    import base64

    return types.ImageContent(type="image", data=base64.b64encode(PIXEL).decode(), mime_type="image/png")


@server.tool()
def order(item: str, count: int, gift: bool = False) -> dict[str, Any]:
    """Echoes its arguments."""
    return {"item": item, "count": count, "gift": gift}


if __name__ == "__main__":
    server.run("stdio")
