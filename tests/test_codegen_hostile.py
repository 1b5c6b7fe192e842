"""Definitions that try to become code, to hide, or to exhaust whoever reads them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import unicodedata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.random_schemas import NAMES, SCHEMAS, Awkward
from tests.typed_api import run_with_tree
from toolfold.codegen import render
from toolfold.codegen.from_schema import arguments
from toolfold.codegen.names import ApiNames, parameters
from toolfold.codegen.tree import write_tree
from toolfold.definitions import ToolDefinition

TOUCH = "open('PWNED', 'w').close()"
PAYLOADS = [
    f'"""\n{TOUCH}\n"""',
    f"'''\n{TOUCH}\n'''",
    f'"; {TOUCH} #',
    f"'; {TOUCH} #",
    f'"""; import os; {TOUCH}',
    f"\\\n{TOUCH}",
    f"\\\"\\\"\\\"\n{TOUCH}\n",
    f"x\n{TOUCH}\nx",
    f"x\r{TOUCH}\rx",
    f"x\u2028{TOUCH}\u2029x",
    f"x\x0c{TOUCH}\x0bx\x85{TOUCH}",
    f"\u202e{TOUCH}\u202c\u2066\u200b\ufeff",
    "".join(chr(0xE0000 + ord(c)) for c in TOUCH),
    "\x00\x01\x1b[31m\x7f",
    "\ud800x\udfff",
    f"{{{TOUCH}}}",
    f"%({TOUCH})s",
    f"]: {TOUCH}  # type: ignore",
    "fmt: off",
    "\\",
    '"',
    '""""""',
    "x" * 300,
    "async def other(*, secret: str) -> Any:",
]  # fmt: skip


def hostile(payload: str, number: int) -> ToolDefinition:
    """A tool that says `payload` wherever a definition can say something."""
    scalar: dict[str, Any] = {
        "type": "string",
        "description": payload,
        "title": payload,
        "default": payload,
        "pattern": payload,
        "format": payload,
        "examples": [payload],
    }
    shape: dict[str, Any] = {
        "type": "object",
        "title": payload,
        "description": payload,
        "properties": {payload: scalar, "plain": {"enum": [payload, "b"], "default": payload}, "c": {"const": payload}},
        "required": [payload],
        "default": {payload: payload},
    }
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            payload: scalar,
            "choice": {"enum": [payload, f"{payload}2"], "default": payload},
            "nested": shape,
            "many": {"type": "array", "items": {"anyOf": [shape, {"const": payload}]}, "default": [payload]},
            "away": {"$ref": payload},
            "map": {"type": "object", "additionalProperties": shape, "patternProperties": {payload: {}}},
            "typed": {"type": payload},
        },
        "required": [payload],
        "$defs": {payload: shape},
        "anyOf": [{"required": [payload]}],
    }
    return ToolDefinition(
        server=f"s{number}{payload}",
        name=payload,
        title=payload,
        description=payload,
        input_schema=schema,
        output_schema=shape,
        annotations={"title": payload, "readOnlyHint": payload},
    )


TOOLS = [hostile(payload, number) for number, payload in enumerate(PAYLOADS)]


def assert_declares_only(source: str) -> None:
    """The module has imports from two places, types, one decorated stub, and not one expression that does anything."""
    tree = ast.parse(source)
    functions = 0
    for node in tree.body:
        match node:
            case ast.ImportFrom(module="typing" | "servers._call"):
                pass
            case ast.ClassDef(body=body):
                assert all(isinstance(item, ast.AnnAssign) and item.value is None for item in body)
            case ast.Assign(value=ast.Subscript(value=ast.Name(id="Literal" | "Union" | "list" | "dict"))):
                pass
            case ast.Assign(value=ast.Call(func=ast.Name(id="TypedDict"))):
                pass
            case ast.Assign(value=ast.Name() | ast.BinOp()) | ast.AnnAssign(value=ast.Constant()):
                pass
            case ast.AsyncFunctionDef(body=[ast.Expr(ast.Constant()), ast.Expr(ast.Constant(value=end))]):
                assert end is ...
                functions += 1
            case _:
                pytest.fail(f"{type(node).__name__} in a generated module:\n{ast.unparse(node)[:500]}")
    assert functions == 1
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert {ast.unparse(call.func) for call in calls} <= {"tool", "TypedDict"}


@pytest.mark.parametrize("tool", TOOLS, ids=range(len(TOOLS)))
def test_no_text_becomes_code_or_an_invisible_character(tool: ToolDefinition) -> None:
    names = ApiNames.of([tool])
    source = render.module(names, tool)
    source.encode()
    assert_declares_only(source)
    for text in (source, render.full(names, tool), render.signature(names, tool), render.summary(tool)):
        hidden = [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")]
        assert hidden == []
    ast.parse(render.full(names, tool))
    ast.parse(render.signature(names, tool))
    assert "\n" not in render.summary(tool)


def test_a_tree_of_hostile_tools_imports_runs_nothing_and_keeps_the_wire_names(tmp_path: Path) -> None:
    write_tree(TOOLS, tmp_path)
    names = ApiNames.of(TOOLS)
    wanted = [[names.server(t.server), names.function(t.server, t.name)] for t in TOOLS]
    given: list[Any] = []
    for (module, function), tool in zip(wanted, TOOLS, strict=True):
        words = parameters(tool.input_schema["properties"])
        given.append([module, function, words[tool.name]])
    answer = run_with_tree(
        tmp_path,
        """
import os, importlib, pydoc
os.chdir(sys.path[0])
async def main():
    said = []
    for module, function, word in given:
        tool = getattr(importlib.import_module(f"servers.{module}"), function)
        str(tool), repr(tool), pydoc.render_doc(tool)
        said.append(await tool(**{word: "value"}))
    return said
answer = asyncio.run(main())
""",
        given,
    )
    assert answer == [[tool.server, tool.name, {tool.name: "value"}] for tool in TOOLS]
    assert not list(tmp_path.rglob("PWNED"))


def assert_formatted(tools: list[ToolDefinition], folder: Path) -> None:
    report = write_tree(tools, folder)
    ruff = [sys.executable, "-m", "ruff", "format", "--check", "--isolated", "--no-cache", str(report.path)]
    formatted = subprocess.run(ruff, capture_output=True, text=True, check=False, timeout=60)
    assert formatted.returncode == 0, formatted.stdout + formatted.stderr


AWKWARD = {f"awkward{seed}": Awkward(seed).tools(50) for seed in (1, 2)}


def test_trees_of_hostile_and_awkward_tools_are_formatted_and_typed(tmp_path: Path) -> None:
    trees = {"hostile": TOOLS, **AWKWARD}
    for name, tools in trees.items():
        assert_formatted(tools, tmp_path / name)
    # One run for all: most of its time goes into its start.
    environments = [{"root": name} for name in trees]
    config = {"typeCheckingMode": "strict", "include": [*trees], "executionEnvironments": environments}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    pyright = [sys.executable, "-m", "pyright", "--outputjson", "--project", str(tmp_path)]
    checked = subprocess.run(pyright, capture_output=True, text=True, check=False, timeout=280)
    found = json.loads(checked.stdout)
    assert found["generalDiagnostics"] == []
    assert found["summary"]["filesAnalyzed"] > sum(len(tools) for tools in trees.values())


ANYTHING = st.text(st.characters(exclude_categories=[]), max_size=60)


@st.composite
def random_tool(draw: st.DrawFn) -> ToolDefinition:
    properties = draw(st.dictionaries(st.one_of(NAMES, ANYTHING), SCHEMAS, max_size=4))
    return ToolDefinition(
        server="s",
        name=draw(st.one_of(NAMES, ANYTHING)),
        description=draw(ANYTHING),
        input_schema={"type": "object", "properties": properties, "required": [*properties][:1]},
        output_schema={"anyOf": [draw(SCHEMAS)]},
    )


RANDOM_TOOLS = st.lists(random_tool(), min_size=1, max_size=12)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
# Each example starts a process, so a failing one is not worth shrinking for minutes.
FEW = settings(deadline=None, suppress_health_check=SLOW, phases=[Phase.explicit, Phase.generate])


@settings(FEW, max_examples=25)
@given(RANDOM_TOOLS)
def test_random_tools_are_formatted(tools: list[ToolDefinition]) -> None:
    with TemporaryDirectory() as folder:
        assert_formatted(tools, Path(folder))


@pytest.mark.parametrize("tools", AWKWARD.values(), ids=AWKWARD.keys())
def test_awkward_tools_are_called_by_their_own_names(tools: list[ToolDefinition], tmp_path: Path) -> None:
    write_tree(tools, tmp_path)
    names = ApiNames.of(tools)
    given: list[Any] = []
    wanted: list[Any] = []
    for tool in tools:
        words = arguments(tool).keywords
        place = [names.server(tool.server), names.function(tool.server, tool.name)]
        given.append([*place, {word: number for number, word in enumerate(words)}])
        wanted.append([tool.server, tool.name, {wire: number for number, wire in enumerate(words.values())}])
    assert run_with_tree(tmp_path, CALL_ALL, given) == wanted


CALL_ALL = """
import importlib
async def main():
    return [
        await getattr(importlib.import_module(f"servers.{module}"), function)(**keywords)
        for module, function, keywords in given
    ]
answer = asyncio.run(main())
"""


def nested(depth: int) -> dict[str, Any]:
    node: dict[str, Any] = {"type": "string"}
    for level in range(depth):
        node = {"type": "object", "properties": {f"k{level}": node}} if level % 2 else {"type": "array", "items": node}
    return node


BOMB = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(60)}
UNION_BOMB = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(60)}
OBJECT_BOMB = {
    f"d{i}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}, "b": {"$ref": f"#/$defs/d{i + 1}"}}}
    for i in range(60)
}
HUGE: dict[str, dict[str, Any]] = {
    "ten thousand properties": {"properties": {f"p{i}": {"type": "string", "description": "x"} for i in range(10_000)}},
    "a thousand levels": {"properties": {"deep": nested(1000)}},
    "a cycle": {"properties": {"a": {"$ref": "#/properties/a"}}},
    "a cycle of two": {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "properties": {"x": {"$ref": "#/$defs/a"}},
    },
    "a cycle through allOf": {"allOf": [{"$ref": "#"}], "properties": {"x": {"allOf": [{"$ref": "#/properties/x"}]}}},
    "a schema inside itself": {"properties": {"x": {"$ref": "#"}}},
    "references that double": {"$defs": BOMB, "properties": {"x": {"$ref": "#/$defs/d0"}}},
    "unions that double": {"$defs": UNION_BOMB, "properties": {"x": {"$ref": "#/$defs/d0"}}},
    "objects that double": {"$defs": OBJECT_BOMB, "properties": {"x": {"$ref": "#/$defs/d0"}}},
    "a root that doubles": {"$defs": BOMB, "$ref": "#/$defs/d0"},
    "ten thousand alternatives": {"properties": {"x": {"anyOf": [{"const": f"v{i}"} for i in range(10_000)]}}},
    "ten thousand values": {"properties": {"x": {"enum": [f"v{i}" for i in range(10_000)]}}},
    "a remote file": {"properties": {"x": {"$ref": "file:///etc/passwd"}, "y": {"$ref": "http://127.0.0.1:9/x.json"}}},
    "numbers beyond reason": {"properties": {"x": {"type": "integer", "default": 10**4000, "minimum": 10**400}}},
    "no schema at all": {
        "properties": 7,
        "required": {"a": 1},
        "anyOf": "x",
        "$defs": [],
        "allOf": {},
        "type": [1, None],
    },
    "not a number": {"properties": {"x": {"type": "number", "default": float("nan"), "enum": [float("inf")]}}},
}


@pytest.mark.parametrize("schema", HUGE.values(), ids=HUGE.keys())
def test_a_schema_that_would_exhaust_its_reader_is_read_in_bounds(schema: dict[str, Any], tmp_path: Path) -> None:
    tool = ToolDefinition(server="s", name="t", description="d", input_schema=schema, output_schema=schema)
    write_tree([tool], tmp_path)
    source = (tmp_path / "servers" / "s" / "t.py").read_text()
    assert_declares_only(source)
    full = render.full(ApiNames.of([tool]), tool)
    assert len(full) <= 80_000
    ast.parse(full)
    answer = run_with_tree(
        tmp_path,
        "from servers.s import t\nanswer = asyncio.run(t({}))\nassert 't' in str(t)",
    )
    assert answer == ["s", "t", {}]


def test_a_description_of_a_megabyte_is_whole_in_the_module_and_cut_in_listings(tmp_path: Path) -> None:
    words = " ".join(f"word{i}" for i in range(150_000))
    tool = ToolDefinition(server="s", name="t", description=words)
    write_tree([tool], tmp_path)
    assert words in (tmp_path / "servers" / "s" / "t.py").read_text()
    assert len(render.full(ApiNames.of([tool]), tool)) < 1000
    assert len(render.summary(tool)) <= 100
    assert len((tmp_path / "servers" / "s" / "__init__.py").read_text()) < 500


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.one_of(NAMES, st.text(max_size=12)), SCHEMAS, max_size=4),
    st.text(st.characters(exclude_categories=[]), max_size=60),
    st.text(st.characters(exclude_categories=[]), max_size=30),
)
def test_any_definition_only_declares(properties: dict[str, Any], description: str, name: str) -> None:
    tool = ToolDefinition(
        server=name,
        name=description,
        description=description,
        input_schema={"type": "object", "properties": properties},
        output_schema={"properties": properties},
    )
    assert_declares_only(render.module(ApiNames.of([tool]), tool))
