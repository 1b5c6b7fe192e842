"""`toolfold serve` used by a client that is not ours: the MCP Inspector's command line, both eras, both transports."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab import LAB
from tests.third_party import data_dir, npm_program, run, serve_command, serving_http

pytestmark = pytest.mark.anyio

ADD = "from servers.lab import add\nprint((await add(a=1, b=2))['sum'])"
Ask = Callable[..., Awaitable[tuple[int, Any]]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> Path:
    return data_dir(tmp_path_factory.mktemp("inspector"), shared_runtime)


@pytest.fixture(scope="module")
async def url(data: Path) -> AsyncIterator[str]:
    async with serving_http(data, {"lab": LAB}) as address:
        yield address


@pytest.fixture(params=["stdio", "http"])
def ask(request: pytest.FixtureRequest, data: Path, url: str, tmp_path: Path) -> Ask:
    """Run the Inspector once, with an entry for us in a config file as a person would write it."""
    command = serve_command(data, {"lab": LAB})
    entries: dict[str, Any] = {
        "stdio": {"command": command[0], "args": command[1:]},
        "http": {"type": "streamable-http", "url": url},
    }
    config = tmp_path / "client.json"
    config.write_text(json.dumps({"mcpServers": {"toolfold": entries[request.param]}}))
    return asker("--config", str(config), "--server", "toolfold", home=tmp_path)


def asker(*target: str, home: Path) -> Ask:
    async def ask(*options: str, era: str = "auto") -> tuple[int, Any]:
        command = [*npm_program("mcp-inspector"), "--cli", *target, "--protocol-era", era, "--format", "json", *options]
        code, out, err = await run(command, env={**os.environ, "HOME": str(home)})
        assert out or err, command
        return code, json.loads(out) if out else err

    return ask


def tool_call(name: str, **arguments: Any) -> list[str]:
    return ["--method", "tools/call", "--tool-name", name, "--tool-args-json", json.dumps(arguments)]


def text(answer: Any) -> str:
    content = answer["result"]["content"]
    assert len(content) == 1
    return content[0]["text"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_inspector_lists_searches_and_runs_in_either_era(ask: Ask, era: str) -> None:
    # --strict ends with an error when a schema would not be understood by some client.
    code, answer = await ask("--method", "tools/list", "--strict", era=era)
    assert code == 0, answer
    assert [tool["name"] for tool in answer["result"]["tools"]] == ["search_tools", "run_code"]

    code, answer = await ask(*tool_call("search_tools", query="add two numbers"), era=era)
    assert code == 0, answer
    assert "lab" in text(answer)
    assert "add" in text(answer)

    code, answer = await ask(*tool_call("run_code", code=ADD), era=era)
    assert code == 0, answer
    assert text(answer) == "3"
    # Only the newer protocol names the server in each result: the era asked for is the era spoken.
    assert ("io.modelcontextprotocol/serverInfo" in answer["result"].get("_meta", {})) == (era == "modern")


async def test_the_inspector_sees_a_failed_program_as_an_error(ask: Ask) -> None:
    code, answer = await ask(*tool_call("run_code", code="1 / 0"))
    assert code != 0
    assert answer["result"]["isError"] is True
    assert "ZeroDivisionError" in text(answer)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_many_programs_at_once_from_the_inspectors_load_test(url: str, tmp_path: Path, era: str) -> None:
    ask = asker("--server-url", url, "--transport", "http", home=tmp_path)
    load = ["--load", "--load-requests", "40", "--load-concurrency", "8"]
    code, answer = await ask(*tool_call("run_code", code=ADD), *load, era=era)
    assert code == 0, answer
    assert (answer["result"]["ok"], answer["result"]["errorMessages"]) == (40, [])
