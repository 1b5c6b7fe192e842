"""The first answers, given before the SDK is there: they are those of the SDK, and each is given once."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.responses import PlainTextResponse

from tests import warm
from tests.lab import lab_fold
from tests.test_gateway_http import ACCEPT, MODERN_META, endpoint
from tests.test_gateway_stdio import serve_command
from toolfold import Toolfold
from toolfold.gateway.callers import Callers
from toolfold.gateway.connections import Connections
from toolfold.gateway.early import EarlyEndpoint
from toolfold.gateway.greeting import Greeting
from toolfold.gateway.http import listen
from toolfold.gateway.routes import Authenticated
from toolfold.gateway.server import make_server
from toolfold.gateway.streamable import McpEndpoint

pytestmark = pytest.mark.anyio


def request(number: int | str, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def hello(version: str, **more: Any) -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    return request(1, "initialize", **params | more)


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
DISCOVER = request(1, "server/discover", _meta=MODERN_META)
LIST = request("two", "tools/list", _meta=MODERN_META)


async def greeted(*messages: Any) -> tuple[list[dict[str, Any]], Greeting]:
    """What is answered without the SDK."""
    (wire_in, client_out), (client_in, wire_out) = os.pipe(), os.pipe()
    try:
        text = "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in messages)
        os.write(client_out, text.encode())
        greeting = Greeting(wire_in, wire_out)
        await greeting.while_importing("json")
        assert bytes(greeting.received) == text.encode()
        os.close(wire_out)
        with os.fdopen(client_in, "rb", closefd=False) as answers:
            return [json.loads(line) for line in answers], greeting
    finally:
        for descriptor in (wire_in, client_out, client_in):
            os.close(descriptor)


def test_every_version_of_the_protocol_is_known() -> None:
    from toolfold.gateway import greeting

    source = Path(greeting.__file__).read_text()
    for version in (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS):
        assert f'"{version}"' in source


@pytest.mark.parametrize("version", HANDSHAKE_PROTOCOL_VERSIONS)
async def test_the_older_era_gets_the_answers_of_the_sdk(tmp_path: Path, version: str) -> None:
    listing = request("two", "tools/list")
    answers, greeting = await greeted(hello(version), INITIALIZED, listing)
    async with lab_fold(tmp_path) as fold, endpoint(make_server(fold)) as url, httpx2.AsyncClient(timeout=60) as http:
        first = await http.post(url, json=hello(version), headers=ACCEPT)
        headers = ACCEPT | {"mcp-session-id": first.headers["mcp-session-id"]}
        second = await http.post(url, json=listing, headers=headers)
        assert answers == [first.json(), second.json()]
    assert greeting.answered == {1, "two"}


async def test_the_stateless_era_gets_the_answers_of_the_sdk(tmp_path: Path) -> None:
    answers, greeting = await greeted(DISCOVER, LIST)
    async with lab_fold(tmp_path) as fold, endpoint(make_server(fold)) as url, httpx2.AsyncClient(timeout=60) as http:
        for message, answer in zip((DISCOVER, LIST), answers, strict=True):
            headers = ACCEPT | {"mcp-protocol-version": "2026-07-28", "mcp-method": message["method"]}
            assert answer == (await http.post(url, json=message, headers=headers)).json()
    assert greeting.answered == {1, "two"}


@pytest.mark.parametrize(
    "message",
    [
        "nonsense",
        "[]",
        "{}",
        "[" * 50_000,
        hello("1999-01-01"),
        hello("2025-11-25", capabilities=None),
        hello("2025-11-25", clientInfo={"name": "t"}),
        hello("2025-11-25") | {"id": None},
        hello("2025-11-25") | {"id": True},
        hello("2025-11-25") | {"jsonrpc": "1.0"},
        request(1, "tools/list"),
        request(1, "tools/list", _meta=MODERN_META, cursor="x"),
        request(1, "tools/list", _meta=MODERN_META | {"io.modelcontextprotocol/protocolVersion": "2030-01-01"}),
        request(1, "tools/call", _meta=MODERN_META, name="run_code", arguments={"code": "1"}),
        request(1, "ping", _meta=MODERN_META),
    ],
)
async def test_everything_else_is_left_to_the_sdk(message: Any) -> None:
    answers, greeting = await greeted(message, DISCOVER)
    assert answers == []
    assert greeting.answered == set()


async def test_a_second_hello_is_left_to_the_sdk() -> None:
    answers, _ = await greeted(hello("2025-11-25"), hello("2025-11-25") | {"id": 2}, request(3, "tools/list"))
    assert [answer["id"] for answer in answers] == [1]


@pytest.mark.parametrize("at_once", [True, False])
async def test_every_request_is_answered_once(runtime_dir: Path, at_once: bool) -> None:
    process = await asyncio.create_subprocess_exec(
        warm.python(), *serve_command(runtime_dir), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    messages: list[dict[str, Any]] = [hello("2025-11-25"), INITIALIZED]
    messages += [request(number, "tools/list") for number in range(2, 6)]
    messages.append(request(6, "tools/call", name="run_code", arguments={"code": "print('done')"}))
    messages += [request(7, "tools/list"), request(8, "ping")]
    received: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        for message in messages:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            if not at_once and "id" in message:
                received.append(json.loads(await process.stdout.readline()))
        while {answer["id"] for answer in received} != set(range(1, 9)):
            received.append(json.loads(await process.stdout.readline()))
        process.stdin.close()
        rest = await process.stdout.read()
        assert await process.wait() == 0
    assert rest == b""
    assert sorted(answer["id"] for answer in received) == list(range(1, 9))
    assert next(answer for answer in received if answer["id"] == 6)["result"]["content"][0]["text"] == "done"
    assert all("result" in answer for answer in received)


@asynccontextmanager
async def early_endpoint() -> AsyncGenerator[tuple[EarlyEndpoint, str]]:
    """What answers over HTTP before the SDK is there."""
    sock = listen("127.0.0.1", 0)
    host = f"127.0.0.1:{sock.getsockname()[1]}"
    early = EarlyEndpoint([host], lambda caller: Greeting())
    async with Connections(Authenticated(early, Callers(None, None)), sock):
        yield early, f"http://{host}/mcp"


def as_headers(message: dict[str, Any]) -> dict[str, str]:
    return ACCEPT | {"mcp-protocol-version": "2026-07-28", "mcp-method": message["method"]}


async def test_over_http_the_first_answers_are_those_of_the_sdk_and_their_sessions_go_on(lab: Toolfold) -> None:
    listing = request("two", "tools/list")
    server = make_server(lab)
    async with early_endpoint() as (early, url), httpx2.AsyncClient(timeout=60) as http:

        async def answers() -> list[Any]:
            found = [(await http.post(url, json=each, headers=as_headers(each))).json() for each in (DISCOVER, LIST)]
            hello_answer = await http.post(url, json=hello("2025-11-25"), headers=ACCEPT)
            sessions.append(ACCEPT | {"mcp-session-id": hello_answer.headers["mcp-session-id"]})
            noted = await http.post(url, json=INITIALIZED, headers=sessions[-1])
            listed = await http.post(url, json=listing, headers=sessions[-1])
            return [*found, hello_answer.json(), noted.status_code, noted.content, listed.json()]

        sessions: list[dict[str, str]] = []
        first = await answers()
        run = request(3, "tools/call", name="run_code", arguments={"code": "print('done')"})
        waiting = asyncio.create_task(http.post(url, json=run, headers=sessions[0], timeout=60))
        await early.become(McpEndpoint(server, None, {}))
        assert (await waiting).json()["result"]["content"][0]["text"] == "done"
        assert (await http.post(url, json=listing, headers=sessions[0])).json() == first[-1]
        assert await answers() == first


@pytest.mark.parametrize(
    ("message", "headers"),
    [
        (LIST, as_headers(LIST) | {"host": "attacker.example"}),
        (LIST, as_headers(LIST) | {"origin": "http://attacker.example"}),
        (LIST, as_headers(DISCOVER)),
        (LIST, ACCEPT),
        (LIST, as_headers(LIST) | {"accept": "application/json"}),
        (INITIALIZED, ACCEPT),
        (request(1, "tools/list"), ACCEPT | {"mcp-session-id": "guessed"}),
        (hello("2025-11-25"), as_headers(hello("2025-11-25"))),
        (request(1, "tools/call", name="run_code", arguments={"code": "1"}), ACCEPT),
    ],
)
async def test_over_http_everything_else_waits_for_the_sdk(message: dict[str, Any], headers: dict[str, str]) -> None:
    async def sdk(scope: Any, receive: Any, send: Any) -> None:
        received = await receive()
        await PlainTextResponse(received["body"])(scope, receive, send)

    async with early_endpoint() as (early, url), httpx2.AsyncClient(timeout=60) as http:
        asked = asyncio.create_task(http.post(url, json=message, headers=headers))
        listed = await http.post(url, json=LIST, headers=as_headers(LIST))
        assert listed.json()["result"]["tools"]
        await early.become(sdk)
        assert json.loads((await asked).content) == message
