"""`toolfold serve --http`: who may speak to it, and that both eras work over it."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client

from tests.lab import lab_fold
from tests.test_gateway_stdio import serve_command
from toolfold.errors import ConfigError, UpstreamIsToolfold
from toolfold.gateway.http import is_loopback, parse_address

pytestmark = pytest.mark.anyio

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@asynccontextmanager
async def serving(runtime_dir: Path, *more: str) -> AsyncGenerator[str]:
    command = serve_command(runtime_dir, *more)
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(30):
            while True:
                line = (await process.stderr.readline()).decode()
                assert line, "the gateway ended"
                if found := re.search(r"http://\S+", line):
                    break
        yield found[0]
    finally:
        process.terminate()
        async with asyncio.timeout(20):
            await process.wait()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_both_eras_work_over_http(runtime_dir: Path, mode: str) -> None:
    async with serving(runtime_dir, "--http", "127.0.0.1:0") as url, Client(url, mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["search_tools", "run_code"]
        code = "from servers.lab import add\nprint((await add(a=1, b=2))['sum'])"
        result: Any = await client.call_tool("run_code", {"code": code})
        assert result.content[0].text == "3"
        # Over HTTP nothing hides in the connection: without a name a run is fresh.
        await client.call_tool("run_code", {"code": "x = 1"})
        result = await client.call_tool("run_code", {"code": "print('x' in globals())"})
        assert result.content[0].text == "False"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_output_is_streamed_over_http_and_a_cancelled_request_ends_the_program(
    runtime_dir: Path, mode: str
) -> None:
    heard = asyncio.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        assert message == "one\n"
        heard.set()

    code = "import time\nprint('one')\nwhile True: time.sleep(0.01)"
    async with serving(runtime_dir, "--http", "127.0.0.1:0") as url, Client(url, mode=mode) as client:
        arguments = {"code": code, "session": "cut"}
        call = asyncio.create_task(client.call_tool("run_code", arguments, progress_callback=hear))
        async with asyncio.timeout(25):
            await heard.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        # The session answers well before the endless program would have met its time limit of 30 s.
        async with asyncio.timeout(15):
            result: Any = await client.call_tool("run_code", {"code": "print('free')", "session": "cut"})
        assert result.content[0].text == "free"


async def test_a_gateway_is_never_folded_whatever_its_address_is_called(runtime_dir: Path, tmp_path: Path) -> None:
    """Clients keep our address beside those of servers, in files that we read."""
    async with (
        serving(runtime_dir, "--http", "127.0.0.1:0") as url,
        lab_fold(tmp_path / "other", servers={"innocent": {"url": url}}) as fold,
    ):
        assert "add" in (await fold.search("add two numbers")).text
        assert isinstance(fold.unlisted["innocent"], UpstreamIsToolfold)
        assert "run_code" not in (await fold.search("run code", detail="name_only")).text


async def test_a_foreign_host_or_origin_is_refused(runtime_dir: Path) -> None:
    async with serving(runtime_dir, "--http", "127.0.0.1:0") as url, httpx2.AsyncClient() as http:
        for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
            answer = await http.post(url, json=INITIALIZE, headers={**ACCEPT, **headers})
            assert answer.status_code in (403, 421)
        assert (await http.post(url, json=INITIALIZE, headers=ACCEPT)).status_code == 200


async def test_a_token_is_required_when_one_is_set(runtime_dir: Path) -> None:
    async with serving(runtime_dir, "--http", "127.0.0.1:0", "--token", "s3cret") as url, httpx2.AsyncClient() as http:
        assert (await http.post(url, json=INITIALIZE, headers=ACCEPT)).status_code == 401
        wrong = {**ACCEPT, "authorization": "Bearer other"}
        assert (await http.post(url, json=INITIALIZE, headers=wrong)).status_code == 401
        right = {**ACCEPT, "authorization": "Bearer s3cret"}
        assert (await http.post(url, json=INITIALIZE, headers=right)).status_code == 200


async def test_off_loopback_without_a_token_it_does_not_start(runtime_dir: Path) -> None:
    command = serve_command(runtime_dir, "--http", "0.0.0.0:0")
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=subprocess.PIPE)
    async with asyncio.timeout(30):
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"TOOLFOLD_TOKEN" in errors


async def test_a_port_in_use_is_one_clear_error(runtime_dir: Path) -> None:
    async with serving(runtime_dir, "--http", "127.0.0.1:0") as url:
        port = url.split(":")[2].split("/")[0]
        command = serve_command(runtime_dir, "--http", f"127.0.0.1:{port}")
        process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=subprocess.PIPE)
        async with asyncio.timeout(30):
            _, errors = await process.communicate()
        assert process.returncode == 1
        assert b"Traceback" not in errors
        assert b"another port" in errors


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8080", ("127.0.0.1", 8080)), (":0", ("127.0.0.1", 0)), ("[::1]:80", ("::1", 80)), ("a.b:1", ("a.b", 1))],
)
async def test_addresses_are_read(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "host:70000"])
async def test_bad_addresses_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_address(text)


async def test_what_counts_as_loopback() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "::1", "localhost", "127.9.9.9"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "example.org"]))
