"""`toolfold serve --http`: who may speak to it, and that both eras work over it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from starlette.types import Receive, Scope, Send

from tests import warm
from tests.lab import LAB, lab_fold
from tests.test_gateway_stdio import serve_command
from toolfold.errors import ConfigError, UpstreamIsToolfold
from toolfold.gateway.callers import Callers
from toolfold.gateway.connections import Connections
from toolfold.gateway.http import is_loopback, listen, parse_address
from toolfold.gateway.routes import Authenticated
from toolfold.gateway.streamable import McpEndpoint
from toolfold.gateway.token import own_token

pytestmark = pytest.mark.anyio

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@dataclass
class Gateway:
    """`toolfold serve --http`, and what it printed until it listened."""

    process: asyncio.subprocess.Process
    url: str
    printed: list[str]

    @property
    def port(self) -> int:
        return int(self.url.split(":")[2].split("/")[0])

    async def says(self, word: str) -> str:
        """Wait for a line with this word."""
        assert self.process.stderr is not None
        async with asyncio.timeout(60):
            while True:
                for line in self.printed:
                    if word in line:
                        return line
                line = (await self.process.stderr.readline()).decode()
                assert line, f"the gateway ended: {self.printed}"
                self.printed.append(line)


@asynccontextmanager
async def serving(
    runtime_dir: Path, *more: str, env: dict[str, str] | None = None, python: str = ""
) -> AsyncGenerator[Gateway]:
    async with started(serve_command(runtime_dir, "--http", "127.0.0.1:0", *more), env, python) as gateway:
        yield gateway


@asynccontextmanager
async def started(
    command: Sequence[str], env: dict[str, str] | None = None, python: str = ""
) -> AsyncGenerator[Gateway]:
    process = await asyncio.create_subprocess_exec(
        python or warm.python(), *command, stderr=subprocess.PIPE, env={**os.environ, **(env or {})}
    )
    try:
        gateway = Gateway(process, "", [])
        gateway.url = (await gateway.says("http://")).split()[-1]
        yield gateway
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(90):
            await process.wait()


@asynccontextmanager
async def endpoint(server: Server[Any], token: str | None = None) -> AsyncGenerator[str]:
    """Any MCP server on our HTTP side."""
    sock = listen("127.0.0.1", 0)
    async with Connections(Authenticated(McpEndpoint(server, None, {}), Callers(None, token)), sock):
        yield f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_both_eras_work_over_http(runtime_dir: Path, mode: str) -> None:
    async with serving(runtime_dir, "--no-token") as gateway, Client(gateway.url, mode=mode) as client:
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
    async with serving(runtime_dir, "--no-token") as gateway, Client(gateway.url, mode=mode) as client:
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
        # Before that it is told that the cancelled run has cost the session its variables.
        assert result.content[0].text.splitlines()[-1] == "free"


async def test_callers_with_tokens_of_their_own_share_nothing(runtime_dir: Path, tmp_path: Path) -> None:
    tokens = {"ada": "ada's secret", "bob": "bob's secret"}
    callers = {name: {"token_sha256": hashlib.sha256(token.encode()).hexdigest()} for name, token in tokens.items()}
    config = tmp_path / "callers.json"
    config.write_text(json.dumps({"servers": {"lab": LAB}, "callers": callers}))
    command = ["-m", "toolfold", "serve", "--config", str(config), "--data", str(runtime_dir), "--http", "127.0.0.1:0"]
    async with started(command) as gateway:

        async def run(caller: str, code: str) -> str:
            headers = {"Authorization": f"Bearer {tokens[caller]}"}
            async with (
                httpx2.AsyncClient(headers=headers, timeout=60) as http,
                Client(streamable_http_client(gateway.url, http_client=http)) as client,
            ):
                result: Any = await client.call_tool("run_code", {"code": code, "session": "same"})
                return result.content[0].text

        look = "import os\nprint('x' in globals(), os.listdir('workspace'))"
        await run("ada", "x = 1\nopen('workspace/hers', 'w').close()")
        assert await run("bob", look) == "False []"
        assert await run("ada", look) == "True ['hers']"


async def test_a_gateway_is_never_folded_whatever_its_address_is_called(runtime_dir: Path, tmp_path: Path) -> None:
    """Clients keep our address beside those of servers, in files that we read."""
    async with (
        serving(runtime_dir, "--no-token") as gateway,
        lab_fold(tmp_path / "other", servers={"innocent": {"url": gateway.url}}) as fold,
    ):
        assert "add" in (await fold.search("add two numbers")).text
        assert isinstance(fold.unlisted["innocent"], UpstreamIsToolfold)
        assert "run_code" not in (await fold.search("run code", detail="name_only")).text


async def test_a_foreign_host_or_origin_is_refused(runtime_dir: Path) -> None:
    async with serving(runtime_dir, "--no-token") as gateway, httpx2.AsyncClient(timeout=60) as http:
        for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
            answer = await http.post(gateway.url, json=INITIALIZE, headers={**ACCEPT, **headers})
            assert answer.status_code in (403, 421)
        assert (await http.post(gateway.url, json=INITIALIZE, headers=ACCEPT)).status_code == 200


async def status(http: httpx2.AsyncClient, gateway: Gateway, token: str | None) -> int:
    headers = ACCEPT | ({} if token is None else {"authorization": f"Bearer {token}"})
    return (await http.post(gateway.url, json=INITIALIZE, headers=headers)).status_code


@pytest.mark.parametrize(("more", "env"), [(["--token", "s3cret"], {}), ([], {"TOOLFOLD_TOKEN": "s3cret"})])
async def test_a_token_that_was_given_is_the_only_one(runtime_dir: Path, more: list[str], env: dict[str, str]) -> None:
    async with serving(runtime_dir, *more, env=env) as gateway, httpx2.AsyncClient(timeout=60) as http:
        assert await status(http, gateway, None) == 401
        assert await status(http, gateway, "other") == 401
        assert await status(http, gateway, "s3cret") == 200
        await gateway.says("sandbox:")
        assert "s3cret" not in "".join(gateway.printed)
    assert not (runtime_dir / "http-token").exists()


async def test_a_token_is_made_once_and_kept_for_its_owner_only(runtime_dir: Path) -> None:
    tokens: list[str] = []
    for _ in range(2):
        async with serving(runtime_dir) as gateway, httpx2.AsyncClient(timeout=60) as http:
            line = await gateway.says("claude mcp add")
            found = re.search(r'--transport http toolfold (\S+) --header "Authorization: Bearer (\S+)"', line)
            assert found is not None
            assert found[1] == gateway.url
            assert await status(http, gateway, None) == 401
            assert await status(http, gateway, found[2]) == 200
            tokens.append(found[2])
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) > 40
    kept = runtime_dir / "http-token"
    assert kept.read_text().strip() == tokens[0]
    assert kept.stat().st_mode & 0o777 == 0o600


def test_gateways_that_start_at_once_share_one_token(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        tokens = list(threads.map(own_token, [tmp_path / "data"] * 32))
    assert len(set(tokens)) == 1
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["http-token"]


def test_a_token_file_that_others_could_read_or_that_is_empty_is_corrected(tmp_path: Path) -> None:
    kept = tmp_path / "http-token"
    kept.touch(0o644)
    assert len(own_token(tmp_path)) > 40
    kept.chmod(0o644)
    assert own_token(tmp_path) == kept.read_text().strip()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_token_that_cannot_be_kept_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "http-token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="Cannot keep a token"):
        own_token(tmp_path)


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--http", "0.0.0.0:0", "--no-token"], b"TOOLFOLD_TOKEN"),
        (["--http", "127.0.0.1:0", "--no-token", "--token", "x"], b"together"),
    ],
)
async def test_without_a_token_it_serves_on_loopback_only(runtime_dir: Path, more: list[str], word: bytes) -> None:
    process = await asyncio.create_subprocess_exec(
        warm.python(), *serve_command(runtime_dir, *more), stderr=subprocess.PIPE
    )
    async with asyncio.timeout(90):
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert word in errors
    assert b"Traceback" not in errors


async def test_a_port_in_use_is_one_clear_error(runtime_dir: Path) -> None:
    async with serving(runtime_dir, "--no-token") as gateway:
        command = serve_command(runtime_dir, "--http", f"127.0.0.1:{gateway.port}")
        process = await asyncio.create_subprocess_exec(warm.python(), *command, stderr=subprocess.PIPE)
        async with asyncio.timeout(90):
            _, errors = await process.communicate()
        assert process.returncode == 1
        assert b"Traceback" not in errors
        assert b"another address or port" in errors


MODERN_META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def asking() -> Server[Any]:
    """A server whose tools tell who calls, ask the person, and wait for ever."""

    async def call(ctx: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        match params.name:
            case "who":
                assert ctx.request is not None
                text = ctx.request.state.caller
            case "ask":
                schema = {"type": "object", "properties": {"name": {"type": "string"}}}
                given = await ctx.session.elicit_form("Who are you?", schema, related_request_id=ctx.request_id)
                text = f"{given.action} {given.content}"
            case _:
                await ctx.session.report_progress(1, message="waiting")
                await asyncio.Event().wait()
                text = "never"
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    async def tools(ctx: ServerRequestContext[Any], params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[])

    return Server("asking", version="1", on_call_tool=call, on_list_tools=tools)


def tool_call(name: str, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": name, "arguments": {}, **more}}


async def begin_session(http: httpx2.AsyncClient, url: str, **more: str) -> dict[str, str]:
    """The headers of a session in the older era."""
    answer = await http.post(url, json=INITIALIZE, headers={**ACCEPT, **more})
    headers = {**ACCEPT, **more, "mcp-session-id": answer.headers["mcp-session-id"]}
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await http.post(url, json=note, headers=headers)).status_code == 202
    return headers


def modern_headers(name: str) -> dict[str, str]:
    return {**ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name}


@pytest.mark.parametrize(("token", "expected"), [(None, "local"), ("s3cret", "token:1ec1c26b")])
async def test_a_handler_learns_who_calls_in_both_eras(token: str | None, expected: str) -> None:
    more = {} if token is None else {"authorization": f"bearer {token}"}
    async with asyncio.timeout(90), endpoint(asking(), token) as url, httpx2.AsyncClient(timeout=60) as http:
        older = await http.post(url, json=tool_call("who"), headers=await begin_session(http, url, **more))
        headers = {**modern_headers("who"), **more}
        newer = await http.post(url, json=tool_call("who", _meta=MODERN_META), headers=headers)
        for answer in (older, newer):
            # Nothing was sent on the way, so that no stream is needed.
            assert answer.headers["content-type"] == "application/json"
            assert answer.json()["result"]["content"][0]["text"] == expected


async def test_a_person_is_asked_on_the_stream_of_the_request() -> None:
    async def answer(context: Any, params: Any) -> types.ElicitResult:
        assert params.message == "Who are you?"
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with (
        asyncio.timeout(90),
        endpoint(asking()) as url,
        Client(url, mode="legacy", elicitation_callback=answer) as client,
    ):
        result: Any = await client.call_tool("ask", {})
        assert result.content[0].text == "accept {'name': 'Ada'}"


@pytest.mark.parametrize("how", ["notification", "delete"])
async def test_a_request_of_the_older_era_is_cancelled_by_its_session_only(how: str) -> None:
    async with asyncio.timeout(90), endpoint(asking()) as url, httpx2.AsyncClient(timeout=60) as http:
        headers, strange = [await begin_session(http, url) for _ in range(2)]
        waiting = tool_call("wait", _meta={"progressToken": 1})
        async with http.stream("POST", url, json=waiting, headers=headers) as answer:
            lines = answer.aiter_lines()
            assert "notifications/progress" in await next_data(lines)
            note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
            await http.post(url, json=note, headers=strange)
            if how == "delete":
                assert (await http.delete(url, headers=headers)).status_code == 200
            else:
                await http.post(url, json=note, headers=headers)
            assert json.loads(await next_data(lines))["error"]["code"] == -32800
        later = await http.post(url, json=tool_call("who"), headers=headers)
        assert later.status_code == (404 if how == "delete" else 200)


async def next_data(lines: AsyncIterator[str]) -> str:
    async for line in lines:
        if line.startswith("data: "):
            return line.removeprefix("data: ")
    raise AssertionError("the stream ended")


async def test_a_session_belongs_to_the_caller_who_began_it() -> None:
    endpoint_app = McpEndpoint(asking(), None, {})

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["caller"] = dict(scope["headers"])[b"x-caller"].decode()
        await endpoint_app(scope, receive, send)

    sock = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
    async with asyncio.timeout(90), Connections(app, sock), httpx2.AsyncClient(timeout=60) as http:
        headers = await begin_session(http, url, **{"x-caller": "ada"})
        assert (await http.post(url, json=tool_call("who"), headers=headers)).status_code == 200
        stolen = {**headers, "x-caller": "bob"}
        assert (await http.post(url, json=tool_call("who"), headers=stolen)).status_code == 404
        assert (await http.delete(url, headers=stolen)).status_code == 404
        assert (await http.post(url, json=tool_call("who"), headers=headers)).status_code == 200


async def test_requests_that_are_none_are_refused() -> None:
    async with asyncio.timeout(90), endpoint(asking()) as url, httpx2.AsyncClient(timeout=60) as http:
        older, newer = await begin_session(http, url), modern_headers("who")
        for headers in (older, newer):
            for body, code in ((b"{", -32700), (b"[]", -32600), (b'{"id": {}}', -32600), (b"1", -32600)):
                answer = await http.post(url, content=body, headers=headers)
                assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
            answer = await http.post(url, content=b" " * 5_000_000, headers=headers)
            assert answer.status_code == 413
            assert (await http.get(url, headers=headers)).status_code == 405
            assert (await http.post(url, json={}, headers=headers | {"accept": "text/html"})).status_code == 406
        assert (await http.post(url, json=tool_call("who"), headers=ACCEPT)).status_code == 400
        unknown = ACCEPT | {"mcp-session-id": "unknown"}
        assert (await http.post(url, json=tool_call("who"), headers=unknown)).status_code == 404


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
