"""What a program asks of the host through its bridge, where several servers could be meant and results are large."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolfold import Call, Proceed, Toolfold, ToolResult
from toolfold.definitions import BlobPart, TextPart

pytestmark = pytest.mark.anyio

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Answers:
    """A guard in the place of the servers."""

    def __init__(self) -> None:
        self.result = ToolResult()
        self.called: list[str] = []

    async def __call__(self, call: Call, proceed: Proceed) -> ToolResult:
        self.called.append(call.target)
        return self.result


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers()


@pytest.fixture(scope="module")
async def fold(
    answers: Answers, tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path
) -> AsyncIterator[Toolfold]:
    folder = tmp_path_factory.mktemp("bridge")
    for server in ("one", "two"):
        tools = [
            {"name": name, "description": "Create a thing.", "inputSchema": {}, "outputSchema": NUMBER}
            for name in ("create", "make")
        ]
        tools.append({"name": "plain", "description": "Say something.", "inputSchema": {}})
        (folder / f"{server}.json").write_text(json.dumps({"server": server, "tools": tools}))
    (folder / "data").mkdir()
    (folder / "data" / "runtime").symlink_to(shared_runtime)
    config = {"catalog_dirs": [str(folder)], "sandbox": {"pool": 1}}
    async with Toolfold.open(config, data_dir=folder / "data", guards=[answers]) as fold:
        yield fold


async def _value(fold: Toolfold, code: str) -> Any:
    result = await fold.run(code, session="s")
    assert result.success, result.error
    return result.value


async def test_a_search_can_be_held_to_one_server(fold: Toolfold) -> None:
    code = "from toolfold import search_tools\nsorted({{hit.server for hit in search_tools({query!r}{more})}})"
    assert await _value(fold, code.format(query="create", more="")) == ["one", "two"]
    assert await _value(fold, code.format(query="create", more=", server='two'")) == ["two"]
    assert await _value(fold, code.format(query="", more="")) == ["one", "two"]
    assert await _value(fold, code.format(query=" ", more=", server='one'")) == ["one"]
    everything = "from toolfold import search_tools\nlen(search_tools('', limit=4))"
    assert await _value(fold, everything) == 4


async def test_a_call_by_name_says_whose_it_was(fold: Toolfold, answers: Answers) -> None:
    answers.result = ToolResult(structured={"n": 1}, has_structured=True)
    answers.called.clear()
    code = "from toolfold import call_mcp_tool\nawait call_mcp_tool({name!r}, {{}})"
    for name in ("mcp__two__make", "two.make"):
        assert (await _value(fold, code.format(name=name)))["n"] == 1
    assert answers.called == ["two.make", "two.make"]
    unknown = await fold.run(code.format(name="make"), session="s")
    assert "several servers" in str(unknown.error)


async def test_what_breaks_its_promise_is_warned_about_up_to_a_size(fold: Toolfold, answers: Answers) -> None:
    code = "from servers.one import create\nlen(str(await create()))"
    answers.result = ToolResult(structured={"n": 1}, has_structured=True)
    assert "declares" not in (await fold.run(code, session="s")).text
    answers.result = ToolResult(structured={"n": "x"}, has_structured=True)
    assert "the result is not what create declares" in (await fold.run(code, session="s")).text


async def test_long_texts_and_errors_arrive_whole(fold: Toolfold, answers: Answers) -> None:
    code = "from servers.one import plain\ntext = await plain()\n[len(text), text[:3], text[-3:]]"
    for size in (4096, 4097, 100_000):
        answers.result = ToolResult(parts=[TextPart("abc" + "x" * (size - 6) + 'y"z')])
        assert await _value(fold, code) == [size, "abc", 'y"z']
    answers.result = ToolResult(parts=[TextPart("no " * 3000)], is_error=True)
    failed = await fold.run(code, session="s")
    assert failed.error is not None
    assert failed.error.code == "tool"
    assert "no no" in str(failed.error)


async def test_bytes_beside_structured_content_are_kept_and_its_text_is_not(fold: Toolfold, answers: Answers) -> None:
    answers.result = ToolResult(
        parts=[TextPart('{"n": 1}'), BlobPart("AAAA", "image/png")], structured={"n": 1}, has_structured=True
    )
    result = await fold.run("from servers.one import create\nprint(await create())", session="s")
    assert "image/png" in result.output or ".png" in result.output
    assert result.output.count("'n': 1") == 1
    assert [call.ok for call in result.tool_calls] == [True]
