"""`toolfold serve` over stdio, spoken to by a real MCP client, in both protocol eras."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mcp import Client, MCPError, StdioServerParameters

from tests import warm
from tests.lab import LAB
from toolfold.config.settings import Settings
from toolfold.gateway.texts import INSTRUCTIONS, TOOLS, offered_tools, only_reads
from toolfold.telemetry.savings import definition_tokens
from toolfold.telemetry.tokens import count

pytestmark = pytest.mark.anyio


def serve_command(runtime_dir: Path, *more: str) -> list[str]:
    config = runtime_dir / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"lab": LAB}}))
    return ["-m", "toolfold", "serve", "--config", str(config), "--data", str(runtime_dir), *more]


@asynccontextmanager
async def connected(runtime_dir: Path, mode: str = "auto", python: str = "") -> AsyncGenerator[Client]:
    parameters = StdioServerParameters(command=python or warm.python(), args=serve_command(runtime_dir))
    async with Client(parameters, mode=mode) as client:
        yield client


async def text(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert len(result.content) == 1
    assert result.structured_content is None
    content: Any = result.content[0]
    return content.text


READ_BY_MODELS = {"name", "description", "inputSchema"}
READ_BY_CLIENTS = {"title", "annotations", "_meta"}


@pytest.mark.parametrize("read_only", [False, True])
def test_both_tools_and_the_instructions_cost_at_most_200_tokens(read_only: bool) -> None:
    offered = offered_tools(read_only=read_only)
    # Everything that is sent is either counted or never reaches a model.
    assert {key for tool in offered for key in tool} == READ_BY_MODELS | READ_BY_CLIENTS
    read = [{key: tool[key] for key in READ_BY_MODELS} for tool in offered]
    assert read == TOOLS
    assert count(json.dumps(TOOLS)) + count(INSTRUCTIONS) <= 200
    # The figure of the demo and the README counts the same three.
    counted = [(tool["name"], tool["description"], tool["inputSchema"]) for tool in offered]
    assert definition_tokens(counted, INSTRUCTIONS) <= 200


async def test_clients_are_told_what_the_tools_may_do(runtime_dir: Path) -> None:
    async with connected(runtime_dir) as client:
        search, run = (await client.list_tools()).tools
    assert (search.title, run.title) == ("Search tools", "Run code")
    assert search.annotations is not None
    assert run.annotations is not None
    assert (search.annotations.read_only_hint, search.annotations.open_world_hint) == (True, False)
    assert (run.annotations.read_only_hint, run.annotations.destructive_hint) == (False, True)
    assert run.annotations.open_world_hint is True
    assert search.meta == run.meta == {"anthropic/alwaysLoad": True}


def test_under_a_profile_that_only_reads_run_code_is_read_only_too() -> None:
    profiles = {name: SimpleNamespace(policy=SimpleNamespace(profile=name)) for name in ("read_only", "careful")}
    assert only_reads(cast("Any", profiles["read_only"]))
    assert not only_reads(cast("Any", profiles["careful"]))
    assert not only_reads(Settings())
    _, run = offered_tools(read_only=True)
    assert (run["annotations"]["readOnlyHint"], run["annotations"]["destructiveHint"]) == (True, False)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28", "auto"])
async def test_a_client_of_either_era_sees_two_tools_and_can_use_them(runtime_dir: Path, mode: str) -> None:
    async with connected(runtime_dir, mode, sys.executable) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["search_tools", "run_code"]
        assert "lab" in await text(client, "search_tools", query="add two numbers")
        code = "from servers.lab import add\nprint((await add(a=1, b=2))['sum'])"
        assert await text(client, "run_code", code=code) == "3"


async def test_the_connection_is_a_session_and_new_is_a_fresh_one(runtime_dir: Path) -> None:
    async with connected(runtime_dir) as client:
        await text(client, "run_code", code="x = 5")
        assert await text(client, "run_code", code="print(x)") == "5"
        assert await text(client, "run_code", code="print('x' in globals())", session="new") == "False"
        assert await text(client, "run_code", code="print('x' in globals())", session="other") == "False"


async def test_a_failed_program_is_an_error_result(runtime_dir: Path) -> None:
    async with connected(runtime_dir) as client:
        result = await client.call_tool("run_code", {"code": "1 / 0"})
        assert result.is_error
        assert "ZeroDivisionError" in str(result.content)


async def test_wrong_arguments_are_explained_and_unknown_tools_refused(runtime_dir: Path) -> None:
    async with connected(runtime_dir) as client:
        result = await client.call_tool("run_code", {"code": 5})
        assert result.is_error
        assert "`code` must be a string" in str(result.content)
        with pytest.raises(MCPError, match="run_code"):
            await client.call_tool("no_such_tool", {})


async def test_printed_output_is_streamed_as_progress(runtime_dir: Path) -> None:
    heard: list[str] = []
    first = asyncio.Event()

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")
        first.set()

    async with connected(runtime_dir) as client:
        await text(client, "run_code", code="1")
        # The program waits for a file that nobody writes until its first line was heard: no timing involved.
        code = "import os, time\nprint('one')\nwhile not os.path.exists('workspace/go'): time.sleep(0.01)\nprint('two')"
        call = asyncio.create_task(client.call_tool("run_code", {"code": code, "session": "s"}, progress_callback=tell))
        async with asyncio.timeout(90):
            await first.wait()
        assert heard == ["one\n"]
        go = next((runtime_dir / "sessions").iterdir()) / "workspace" / "go"
        go.touch()
        result = await call
    assert "".join(heard) == "one\ntwo\n"
    assert not result.is_error


async def test_a_cancelled_request_ends_the_program(runtime_dir: Path) -> None:
    async with connected(runtime_dir) as client:
        await text(client, "run_code", code="1")
        code = "import time\nwhile True: time.sleep(0.05); open('workspace/beat', 'a').write('x')"
        call = asyncio.create_task(client.call_tool("run_code", {"code": code, "session": "cut"}))
        workspace = await _appears(runtime_dir / "sessions", "*/workspace/beat")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        # The same session answers again, which it could not while the endless program ran.
        async with asyncio.timeout(90):
            answer = await text(client, "run_code", code="print('free')", session="cut")
        *told, last = answer.splitlines()
        assert last == "free"
        assert all("its last run was cancelled" in line for line in told)
        size = workspace.stat().st_size
        await text(client, "run_code", code="import time; time.sleep(0.3)", session="cut")
        assert workspace.stat().st_size == size


async def test_concurrent_calls_in_different_sessions_run_side_by_side(runtime_dir: Path) -> None:
    async with connected(runtime_dir) as client:
        await text(client, "run_code", code="1")

        # Each waits for the other's file: only side by side can both end.
        async def meet(me: str) -> str:
            code = (
                f"import time\nfrom servers.lab import sleep\nimport os\nopen('workspace/{me}', 'w').close()\n"
                "while not os.path.exists('workspace/met'): time.sleep(0.01)\nprint('met')"
            )
            return await text(client, "run_code", code=code, session=me)

        async def introduce() -> None:
            await _appears(runtime_dir / "sessions", "*/workspace/ada")
            await _appears(runtime_dir / "sessions", "*/workspace/bob")
            for home in (runtime_dir / "sessions").iterdir():
                (home / "workspace" / "met").touch()

        async with asyncio.timeout(90):
            results = await asyncio.gather(meet("ada"), meet("bob"), introduce())
        assert results[:2] == ["met", "met"]


async def test_a_line_of_many_megabytes_passes(runtime_dir: Path) -> None:
    async with connected(runtime_dir) as client:
        code = "from servers.lab import big\nx = await big(size=3_000_000)\nprint(len(x))"
        assert await text(client, "run_code", code=code) == "3000000"


async def test_print_never_reaches_the_protocol_stream(runtime_dir: Path) -> None:
    """Raw lines on the server's stdout: each is JSON-RPC, whatever programs print."""
    process = await asyncio.create_subprocess_exec(
        warm.python(), *serve_command(runtime_dir), stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=1 << 24
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def send(number: int | None, method: str, params: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if number is None else {"id": number})
        assert process.stdin is not None
        process.stdin.write(json.dumps(message).encode() + b"\n")

    info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    send(1, "initialize", info)
    send(None, "notifications/initialized", {})
    code = """
import os, sys
print('{"jsonrpc": "2.0"}')
os.write(1, b'raw\n'); os.write(2, b'err\n'); sys.stderr.write('e')
"""
    send(2, "tools/call", {"name": "run_code", "arguments": {"code": code}})
    answers: dict[int, Any] = {}
    async with asyncio.timeout(90):
        while 2 not in answers:
            message = json.loads(await process.stdout.readline())
            assert message["jsonrpc"] == "2.0"
            assert "id" in message or "method" in message
            answers[message.get("id", 0)] = message
    assert "raw" in answers[2]["result"]["content"][0]["text"]
    process.stdin.close()
    async with asyncio.timeout(90):
        assert await process.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_nothing_is_left_running_however_the_gateway_ends(runtime_dir: Path, number: signal.Signals) -> None:
    marker = f"left-{runtime_dir.parent.name}-{number.name}"
    command = [sys.executable, *serve_command(runtime_dir)]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "TOOLFOLD_TEST_MARK": marker}
    )
    assert process.stdin is not None
    info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    code = "from servers.lab import add\nawait add(a=1, b=1)\nopen('workspace/begun', 'w').close()\nwhile True: pass"
    for message in (
        {"id": 1, "method": "initialize", "params": info},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "run_code", "arguments": {"code": code, "session": "m"}}},
    ):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    await _appears(runtime_dir / "sessions", "*/workspace/begun")
    family = descendants(process.pid)
    assert len(family) > 3
    process.send_signal(number)
    async with asyncio.timeout(90):
        await process.wait()
        while alive := [pid for pid in family if running(pid)]:
            await asyncio.sleep(0.05)
    assert alive == []


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    pending = [pid]
    while pending:
        parent = pending.pop()
        for task in Path(f"/proc/{parent}/task").iterdir():
            children = [int(child) for child in (task / "children").read_text().split()]
            found += children
            pending += children
    return found


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


async def _appears(folder: Path, pattern: str) -> Path:
    async with asyncio.timeout(90):
        while True:
            found = list(folder.glob(pattern)) if folder.is_dir() else []
            if found:
                return found[0]
            await asyncio.sleep(0.02)
