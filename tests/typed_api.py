"""What the tests of the typed API share: real catalogs, values made from a schema, a Python that has the tree."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

from toolfold.definitions import ToolDefinition
from toolfold.schema.pointer import lookup

# Strings that between them match the patterns people write.
_WORDS = [
    "abc",
    "a1",
    "A1",
    "1",
    "2024-05-01",
    "2024-05-01T10:00:00Z",
    "2024-05-01T10:00:00.000Z",
    "10:00",
    "100",
    "a-b",
    "123e4567-e89b-12d3-a456-426614174000",
    "https://example.com/a",
    "me@example.com",
    "1.2.3.4",
    "#ffffff",
    "us-east-1",
    "arn:aws:iam::123456789012:role/x",
    "123456789012",
    "0123456789abcdef01234567",
    "USD",
    "AAPL",
    "a.b.c",
    "/a/b",
    "x" * 40,
    "10.0.0.0/8",
    "PT1H",
    "1d",
    "1m",
    "q1",
    "en-US",
    "+12025550123",
    "ab:cd",
    "v1.0.0",
    "0x1f",
    "A",
    "",
]


def definition(server: str, tool: dict[str, Any]) -> ToolDefinition:
    return ToolDefinition(
        server=server,
        name=tool["name"],
        title=tool.get("title") or "",
        description=tool.get("description") or "",
        input_schema=tool["inputSchema"],
        output_schema=tool.get("outputSchema"),
        annotations=tool.get("annotations") or {},
    )


def catalog_tools(shared: Path) -> list[ToolDefinition]:
    found: list[ToolDefinition] = []
    for path in sorted((shared / "catalogs").glob("*.json")):
        listing = json.loads(path.read_text(encoding="utf-8"))
        found += [definition(listing["server"], tool) for tool in listing["tools"]]
    assert found, f"no catalogs in {shared}"
    return found


def simple(name: str = "do_it", server: str = "demo", /, **properties: Any) -> ToolDefinition:
    """A tool whose parameters are given as their schemas; a name that ends in `_` is required, without the `_`."""
    required = [key.removesuffix("_") for key in properties if key.endswith("_")]
    schema = {
        "type": "object",
        "properties": {key.removesuffix("_"): value for key, value in properties.items()},
        "required": required,
    }
    return ToolDefinition(server=server, name=name, description="Does it.", input_schema=schema)


_PLACE: dict[str, Any] = {"type": "object", "properties": {"city": {}, "zip": {}}, "required": ["city"]}
_HEADERS: dict[str, Any] = {"type": "object", "properties": {"If-Match": {}}, "required": ["If-Match"]}
# Tools whose first parameter is a text, a record (one has a key that is no name), any object, anything; for the ways
# to give arguments.
FORMS = [
    simple("create_issue", "s", labels={"type": "array"}, owner_={"type": "string"}, repo_={"type": "string"}),
    simple("visit", "s", place_=_PLACE, when={"type": "string"}),
    simple("move", "s", place_=_PLACE, id_={"type": "string"}),
    simple("send", "s", headers_=_HEADERS, when={"type": "string"}),
    simple("store", "s", data_={"type": "object"}),
    simple("find", "s", filter={"type": ["object", "null"]}, limit={"type": "integer"}),
    simple("anything", "s", value_={}),
    simple("odd", "s", **{"If-Match_": {"type": "string"}, "from": {"type": "string"}}),
]

# What a program writes, and the arguments that are sent or what is wrong.
CALLS: list[tuple[str, Any]] = [
    # Positional, in the printed signature's order: required first.
    ("create_issue('o', 'r', ['bug'])", {"owner": "o", "repo": "r", "labels": ["bug"]}),
    ("create_issue('o', repo='r')", {"owner": "o", "repo": "r"}),
    ("create_issue('o', 'r', ...)", {"owner": "o", "repo": "r"}),
    ("create_issue(*['o', 'r'])", {"owner": "o", "repo": "r"}),
    ("odd('e', 'f')", {"If-Match": "e", "from": "f"}),
    ("move({'city': 'x'}, '7')", {"place": {"city": "x"}, "id": "7"}),
    # Keywords from a dict, and bound in advance.
    ("create_issue(**{'owner': 'o', 'repo': 'r'})", {"owner": "o", "repo": "r"}),
    ("partial(create_issue, 'o')(repo='r')", {"owner": "o", "repo": "r"}),
    ("partial(create_issue, repo='r')('o')", {"owner": "o", "repo": "r"}),
    ("{'make': create_issue}['make'](owner='o', repo='r')", {"owner": "o", "repo": "r"}),
    # One dict holds all arguments …
    ("create_issue({'owner': 'o', 'repo': 'r'})", {"owner": "o", "repo": "r"}),
    ("create_issue({'owner': 'o'}, repo='r')", {"owner": "o", "repo": "r"}),
    ("odd({'If-Match': 'e', 'from_': 'f'})", {"If-Match": "e", "from": "f"}),
    ("visit({'place': {'city': 'x'}})", {"place": {"city": "x"}}),
    ("store({'data': {'a': 1}})", {"data": {"a": 1}}),
    ("find({'limit': 3})", {"limit": 3}),
    ("find({})", {}),
    ("anything({'value': 1})", {"value": 1}),
    # … unless its keys fit only the first parameter.
    ("visit({'city': 'x'})", {"place": {"city": "x"}}),
    ("visit({'city': 'x'}, when='now')", {"place": {"city": "x"}, "when": "now"}),
    ("move({'city': 'x'}, id='7')", {"place": {"city": "x"}, "id": "7"}),
    ("send({'If-Match': 'e'})", {"headers": {"If-Match": "e"}}),
    ("store({'a': 1})", {"data": {"a": 1}}),
    ("find({'state': 'open'})", {"filter": {"state": "open"}}),
    ("find({'state': 'open'}, limit=3)", {"filter": {"state": "open"}, "limit": 3}),
    ("anything({'a': 1})", {"value": {"a": 1}}),
    # It fits neither, or it is not clear which: that is said, and nothing is sent.
    (
        "find({'state': 'open', 'limit': 3})",
        "find() cannot tell whether the dict is 'filter' or all arguments: write filter=...",
    ),
    ("visit({'town': 'x'})", "visit() missing required argument 'place'"),
    ("move({'city': 'x'})", "move() missing required arguments 'place', 'id'"),
]


class Values:
    """Random values that a schema allows, bounded in size; None of them is certain, so callers validate."""

    def __init__(self, document: dict[str, Any], seed: int) -> None:
        self._document = document
        self._random = random.Random(seed)

    def arguments(self) -> dict[str, Any]:
        value = self.value({"type": "object", **self._document}, 0)
        return cast(dict[str, Any], value) if isinstance(value, dict) else {}

    def value(self, node: Any, depth: int) -> Any:
        if not isinstance(node, dict):
            return "anything"
        node = cast(dict[str, Any], node)
        if isinstance(node.get("$ref"), str):
            found = lookup(node["$ref"], self._document)
            return self.value(found, depth + 1) if found is not None and depth < 12 else {}
        if "const" in node:
            return node["const"]
        if node.get("enum"):
            return self._random.choice(node["enum"])
        for word in ("anyOf", "oneOf"):
            if node.get(word):
                options = (
                    node[word] if depth < 8 else sorted(node[word], key=lambda option: len(json.dumps(option)))[:1]
                )
                return self.value({**self._random.choice(options), **_beside(node, word)}, depth + 1)
        if node.get("allOf"):
            merged: dict[str, Any] = _beside(node, "allOf")
            for part in node["allOf"]:
                merged = {**part, **merged}
            return self.value(merged, depth + 1)
        kind = node.get("type")
        if isinstance(kind, list):
            kind = self._random.choice(cast(list[Any], kind))
        return self._typed(node, kind, depth)

    def _typed(self, node: dict[str, Any], kind: Any, depth: int) -> Any:
        match kind:
            case "string":
                return self._string(node)
            case "integer" | "number":
                return self._number(node, whole=kind == "integer")
            case "boolean":
                return self._random.random() < 0.5
            case "null":
                return None
            case "array":
                least = int(node.get("minItems") or 0)
                most = min(int(node.get("maxItems", least + 2)), least + 2)
                count = self._random.randint(least, max(least, most)) if depth < 8 else least
                return [self.value(node.get("items", {}), depth + 1) for _ in range(count)]
            case _ if kind == "object" or "properties" in node:
                return self._object(node, depth)
            case _:
                return self._random.choice([None, 1, "text", [1, "two"], {"a": None}, True])

    def _object(self, node: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = cast(dict[str, Any], node.get("properties") or {})
        required = set(node.get("required") or [])
        chosen = {name: sub for name, sub in properties.items() if name in required or self._wanted(depth)}
        value = {name: self.value(sub, depth + 1) for name, sub in chosen.items()}
        value |= {name: "anything" for name in required if name not in value}
        extra = node.get("additionalProperties")
        if isinstance(extra, dict) and not properties and depth < 8:
            value["some key"] = self.value(extra, depth + 1)
        return value

    def _wanted(self, depth: int) -> bool:
        return depth < 6 and self._random.random() < 0.5

    def _number(self, node: dict[str, Any], *, whole: bool) -> float:
        low = node.get("minimum", node.get("exclusiveMinimum", -1000))
        high = node.get("maximum", node.get("exclusiveMaximum", low + 1000))
        low = low if isinstance(low, int | float) else -1000
        high = min(high, low + 10_000) if isinstance(high, int | float) else low + 1000
        if whole:
            return self._random.randint(
                int(low) + ("exclusiveMinimum" in node), int(high) - ("exclusiveMaximum" in node)
            )
        return low + (high - low) * 0.5

    def _string(self, node: dict[str, Any]) -> str:
        pattern, least, most = node.get("pattern"), int(node.get("minLength") or 0), int(node.get("maxLength") or 10**6)
        words = [str(node.get("default") or ""), *_WORDS] if pattern else [self._random.choice(_WORDS)]
        for word in words:
            padded = word.ljust(least, "x")[:most]
            if pattern is None or re.search(pattern, padded):
                return padded
        return words[0]


def _beside(node: dict[str, Any], word: str) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key not in (word, "default", "description", "title")}


GUEST = """
async def call_tool(server, tool, arguments):
    return [server, tool, arguments]
"""


def run_with_tree(dest: Path, program: str, given: Any = None) -> Any:
    """Runs `program` in a fresh Python that finds the tree and a guest which answers every call with itself.

    The program reads `given` and leaves its answer in `answer`.
    """
    guest = dest / "guest" / "toolfold_guest"
    guest.mkdir(parents=True, exist_ok=True)
    (guest / "__init__.py").touch()
    (guest / "channel.py").write_text(GUEST)
    (dest / "given.json").write_text(json.dumps(given))
    script = dest / "script.py"
    script.write_text(
        f"import sys, json, asyncio\nsys.path[:0] = [{str(dest)!r}, {str(guest.parent)!r}]\n"
        f"given = json.load(open({str(dest / 'given.json')!r}))\n{program}\n"
        f"json.dump(answer, open({str(dest / 'answer.json')!r}, 'w'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-B", str(script)], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "", "something was printed"
    return json.loads((dest / "answer.json").read_text())
