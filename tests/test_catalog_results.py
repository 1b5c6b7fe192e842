"""Over every real tool that declares what it returns: a random valid result arrives as its declared type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from tests import warm
from tests.lab import lab_fold
from tests.typed_api import Values, catalog_tools
from toolfold.definitions import ToolDefinition
from toolfold.schema.validation import Validators

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

ROUNDS = 3

# Runs in the sandbox. `fits` knows the types that the generator writes.
PROGRAM = """
import types, typing
from servers import replay
from toolfold import File

def fits(value, kind):
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is typing.Any:
        return True
    if kind is None or kind is types.NoneType:
        return value is None
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is typing.Literal:
        return any(value == part and type(value) is type(part) for part in parts)
    if origin in (typing.Required, typing.NotRequired):
        return fits(value, parts[0])
    if origin is list:
        return isinstance(value, list) and all(fits(item, parts[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(item, parts[1]) for item in value.values())
    if typing.is_typeddict(kind):
        keys = typing.get_type_hints(kind)
        return isinstance(value, dict) and kind.__required_keys__ <= value.keys() and all(
            fits(value[key], keys[key]) for key in value if key in keys
        )
    if kind.__name__ == "File":
        return isinstance(value, File)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is kind

wrong, counted = [], 0
for name in dir(replay):
    tool = getattr(replay, name)
    declared = typing.get_type_hints(tool.__wrapped__)["return"]
    for number in range(ROUNDS):
        value = await tool(number)
        counted += 1
        if not fits(value, declared):
            wrong.append((name, str(declared)[:300], repr(value)[:300]))
print(counted)
wrong[:5]
"""


def with_bytes(value: Any) -> Any:
    """No schema says that a string is base64, but a server's media are."""
    if isinstance(value, list):
        return [with_bytes(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    pairs = {key: with_bytes(item) for key, item in cast("dict[str, Any]", value).items()}
    for key in ("blob", "data"):
        if isinstance(pairs.get(key), str) and ("uri" in pairs or "mimeType" in pairs):
            pairs[key] = "QUJD"
    return pairs


def valid_results(tool: ToolDefinition, number: int, validators: Validators) -> list[Any]:
    """Random structured content that the tool's own schema allows; the last one again where there are too few."""
    assert tool.output_schema is not None
    found: list[Any] = []
    for attempt in range(30):
        candidate = with_bytes(Values(tool.output_schema, seed=number * 1000 + attempt).arguments())
        if validators.check_result(tool, candidate) is None:
            found.append(candidate)
        if len(found) == ROUNDS:
            break
    return [*found, *[found[-1]] * (ROUNDS - len(found))] if found else []


async def test_a_random_valid_result_arrives_as_its_declared_type(
    shared: Path, tmp_path: Path, runtime_dir: Path
) -> None:
    validators = Validators(limit=10_000)
    declared = [tool for tool in catalog_tools(shared) if tool.output_schema]
    names = [f"{number}_{tool.server}_{tool.name}" for number, tool in enumerate(declared)]
    results = {
        name: valid_results(tool, number, validators)
        for number, (name, tool) in enumerate(zip(names, declared, strict=True))
    }
    usable = [(name, tool) for name, tool in zip(names, declared, strict=True) if results[name]]
    assert len(usable) >= 0.99 * len(declared) > 700, "the generator no longer finds valid results"
    tools = [{"name": name, "outputSchema": tool.output_schema} for name, tool in usable]
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"tools": tools, "results": results}), encoding="utf-8")
    server = {"command": warm.python(), "args": [str(Path(__file__).parent / "servers" / "replay.py"), str(file)]}
    limits = {"tool_calls": 10_000, "timeout": 200}
    async with lab_fold(runtime_dir, servers={"replay": server}, sandbox=limits, policy={"profile": "open"}) as fold:
        result = await fold.run(PROGRAM.replace("ROUNDS", str(ROUNDS)), timeout=200)
    assert result.success, result.text
    assert result.value == []
    assert result.output.splitlines() == [str(ROUNDS * len(usable)), "[]"]
