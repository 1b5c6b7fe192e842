"""`serve` over HTTP: runs a second beside an older checkout, its latency beside stdio, and how soon it answers."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.report import Figure, side_by_side

OLDER, NEWER = "2025-11-25", "2026-07-28"
ERAS = {OLDER: "legacy", NEWER: NEWER}
"""Revisions of the protocol, and what the SDK's client calls them."""
CLIENTS = 8
TOKEN = "bench"
_TURN = 1.0
"""Seconds for which one side is kept busy before the other has its turn."""
_META = {f"io.modelcontextprotocol/{key}": value for key, value in (
    ("protocolVersion", NEWER), ("clientCapabilities", {}), ("clientInfo", {"name": "bench", "version": "1"}),
)}  # fmt: skip
_HELLO = {"protocolVersion": OLDER, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
_EMPTY_SERVER = """
import socket, sys, anyio, uvicorn, mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
async def tools(ctx, params): return types.ListToolsResult(tools=[])
async def call(ctx, params): return types.CallToolResult(content=[types.TextContent(type="text", text="1")])
server = Server("empty", version="1", on_list_tools=tools, on_call_tool=call)
async def stdio():
    async with stdio_server() as (r, w): await server.run(r, w, server.create_initialization_options())
if sys.argv[1:] == ["http"]:
    sock = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{sock.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run([sock])
else:
    anyio.run(stdio)
"""


async def measure(baseline: Path | None, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as folder:
        home = Path(folder)
        figures = await _runs_a_second(home, baseline, rounds, progress)
        figures += await _latency(home, rounds, progress)
        return figures + await _until_ready(home, rounds, progress)


async def _runs_a_second(
    home: Path, baseline: Path | None, rounds: int, progress: Callable[[str], None]
) -> list[Figure]:
    """All serve at once, and are kept busy by the same clients in turns; a plain SDK server runs nothing at all."""
    figures: list[Figure] = []
    async with AsyncExitStack() as stack:
        ours, _ = await stack.enter_async_context(serving(_serve(home / "ours")))
        theirs = None
        if baseline is not None:
            command = _serve(home / "theirs", str(baseline / ".venv" / "bin" / "python"))
            theirs, _ = await stack.enter_async_context(serving(command))
        bare, _ = await stack.enter_async_context(serving([sys.executable, "-c", _EMPTY_SERVER, "http"]))
        for revision in ERAS:
            progress(f"runs a second with {CLIENTS} clients, {revision}")
            taken: dict[str, list[float]] = {}
            clients = {
                url: [HttpClient(url, revision) for _ in range(CLIENTS)] for url in filter(None, (ours, theirs, bare))
            }
            for _ in range(rounds):
                for url, eight in clients.items():
                    taken.setdefault(url, []).append(await _busy(eight))
            what = f"live runs, {CLIENTS} clients, {revision}"
            median = {url: statistics.median(each) for url, each in taken.items()}
            if theirs:
                figures.append(Figure(what, median[ours], median[theirs], "the baseline", unit="/s", at_least=2.5))
            figures.append(Figure(what, median[ours], median[bare], "an SDK server that answers 1", unit="/s"))
    return figures


async def _busy(clients: list[HttpClient]) -> float:
    """Runs a second while every client runs one after the other, each in a session of its own."""
    for number, client in enumerate(clients):
        await client.run(f"s{number}")  # the connection may have been closed since its last turn
    begun = time.perf_counter()

    async def keep_running(number: int, client: HttpClient) -> int:
        count = 0
        while time.perf_counter() < begun + _TURN:
            await client.run(f"s{number}")
            count += 1
        return count

    counts = await asyncio.gather(*[keep_running(number, client) for number, client in enumerate(clients)])
    return sum(counts) / (time.perf_counter() - begun)


async def _latency(home: Path, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    """Clients that cost next to nothing show what serving costs; the SDK's client is what people have."""
    figures: list[Figure] = []
    for revision, mode in ERAS.items():
        progress(f"a run over HTTP and over stdio, {revision}")
        async with serving(_serve(home / "ours")) as (url, _), _on_stdio(_serve(home / "stdio", http=False)) as process:
            http, pipes = HttpClient(url, revision), PipeClient(process, revision)
            taken = await _in_turns(lambda: http.run("live"), lambda: pipes.run("live"), rounds)  # noqa: B023
        figures.append(Figure(f"live run over HTTP, {revision}, p50", *taken, "the same over stdio", budget=1.5))
        async with serving(_serve(home / "ours")) as (url, _), _sdk_clients(url, home, mode) as (http, pipes):
            taken = await _in_turns(lambda: _run(http), lambda: _run(pipes), rounds)  # noqa: B023
        figures.append(Figure("… by the SDK's client", *taken, "the same over stdio", budget=1.5))
    return figures


async def _in_turns(
    http: Callable[[], Awaitable[Any]], stdio: Callable[[], Awaitable[Any]], rounds: int
) -> tuple[float, float]:
    await http()
    await stdio()
    return await side_by_side(http, stdio, rounds * 2, in_a_row=20)


@asynccontextmanager
async def _sdk_clients(url: str, home: Path, mode: str) -> AsyncGenerator[tuple[Any, Any]]:
    import httpx2
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    command, *arguments = _serve(home / "stdio", http=False)
    with open(os.devnull, "w") as quiet:  # noqa: ASYNC230, PTH123 - a descriptor for the child
        pipes = stdio_client(StdioServerParameters(command=command, args=arguments), errlog=quiet)
        async with (
            httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}, timeout=60) as client,
            Client(streamable_http_client(url, http_client=client), mode=mode) as http,
            Client(pipes, mode=mode) as stdio,
        ):
            yield http, stdio


async def _run(client: Any) -> None:
    result = await client.call_tool("run_code", {"code": "1", "session": "live"})
    assert not result.is_error, result.content


async def _until_ready(home: Path, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    """From the start of the process to its answer to `tools/list`."""
    figures: list[Figure] = []
    empty = [sys.executable, "-c", _EMPTY_SERVER]
    for way, ready in (("stdio", _ready_on_stdio), ("http", _ready_on_http)):
        progress(f"serve → tools/list, {way}")
        commands = {"ours": _serve(home / "ours", http=way == "http"), "empty": [*empty, way]}
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(rounds + 1):
            for name, command in commands.items():
                spent = await ready(command)
                if turn:  # the first start writes byte code
                    taken[name].append(spent)
        ours, other = map(statistics.median, taken.values())
        figures.append(Figure(f"serve → tools/list, {way}", ours, other, "an empty SDK server", budget=1.0))
    return figures


async def _ready_on_stdio(command: list[str]) -> float:
    begun = time.perf_counter()
    async with _on_stdio(command) as process:
        await PipeClient(process, OLDER).ask("tools/list")
        return (time.perf_counter() - begun) * 1000


async def _ready_on_http(command: list[str]) -> float:
    begun = time.perf_counter()
    async with serving(command) as (url, _):
        await HttpClient(url, NEWER).ask("tools/list")
        return (time.perf_counter() - begun) * 1000


class LightClient:
    """A client that costs next to nothing, so that the server is what is measured."""

    def __init__(self, revision: str) -> None:
        self._revision = revision
        self._greeted = revision == NEWER

    async def run(self, session: str, code: str = "1") -> str:
        """Run a program; what it printed."""
        answer = await self.ask("tools/call", name="run_code", arguments={"code": code, "session": session})
        assert not answer["result"].get("isError"), answer
        return answer["result"]["content"][0]["text"]

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        if not self._greeted:
            self._greeted = True
            await self._post(_message("initialize", _HELLO))
            await self._post(_message("notifications/initialized"))
        if self._revision == NEWER:
            params["_meta"] = _META
        return json.loads(await self._post(_message(method, params)))

    async def _post(self, message: dict[str, Any]) -> bytes:
        raise NotImplementedError


class PipeClient(LightClient):
    def __init__(self, process: asyncio.subprocess.Process, revision: str) -> None:
        super().__init__(revision)
        self._process = process

    async def _post(self, message: dict[str, Any]) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        return await self._process.stdout.readline() if "id" in message else b""


class HttpClient(LightClient):
    def __init__(self, url: str, revision: str) -> None:
        super().__init__(revision)
        self._host = url.split("/")[2]
        self._session = ""
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            await self._streams[1].wait_closed()

    async def _post(self, message: dict[str, Any]) -> bytes:
        body = json.dumps(message).encode()
        headers = {
            "host": self._host,
            "authorization": f"Bearer {TOKEN}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "content-length": str(len(body)),
        }
        if self._session:
            headers |= {"mcp-session-id": self._session, "mcp-protocol-version": OLDER}
        if self._revision == NEWER:
            headers |= {"mcp-protocol-version": NEWER, "mcp-method": message["method"]}
            headers |= {"mcp-name": message["params"]["name"]} if "name" in message["params"] else {}
        text = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        request = f"POST /mcp HTTP/1.1\r\n{text}\r\n".encode() + body
        try:
            head, answer = await self._exchange(request)
        except (OSError, asyncio.IncompleteReadError):
            self._streams = None  # closed because it was idle
            head, answer = await self._exchange(request)
        assert re.match(rb"http/1.1 20[02] ", head), head + answer
        if begun := re.search(rb"mcp-session-id: (\S+)", head):
            self._session = begun[1].decode()
        events = re.findall(rb"^data: (.*?)\r?$", answer, re.MULTILINE)
        return events[-1] if events else answer

    async def _exchange(self, request: bytes) -> tuple[bytes, bytes]:
        if self._streams is None:
            host, port = self._host.split(":")
            self._streams = await asyncio.open_connection(host, int(port))
        reader, writer = self._streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if length := re.search(rb"content-length: (\d+)", head):
            return head, await reader.readexactly(int(length[1]))
        chunks: list[bytes] = []
        while b"transfer-encoding: chunked" in head and (size := int(await reader.readline(), 16)):
            chunks.append((await reader.readexactly(size + 2))[:-2])
        if chunks:
            await reader.readline()
        return head, b"".join(chunks)


_numbers = itertools.count(1)


def _message(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    if method.startswith("notifications/"):
        return {"jsonrpc": "2.0", "method": method}
    return {"jsonrpc": "2.0", "id": next(_numbers), "method": method, "params": params or {}}


def _serve(home: Path, python: str = sys.executable, *, http: bool = True) -> list[str]:
    home.mkdir(exist_ok=True)
    config = home / "mcp.json"
    config.write_text('{"mcpServers": {}}')
    command = [python, "-m", "toolfold", "serve", "--config", str(config), "--data", str(home / "data")]
    return [*command, "--http", "127.0.0.1:0", "--token", TOKEN] if http else command


@asynccontextmanager
async def serving(command: list[str]) -> AsyncGenerator[tuple[str, int]]:
    """Start a server that prints its address on stderr: the address, and the process. It has ended on exit."""
    process = await _start(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    stderr = process.stderr
    assert stderr is not None
    reading = None
    try:
        found = None
        while found is None:
            line = (await stderr.readline()).decode()
            assert line, f"{command[0]} ended"
            found = re.search(r"http://\S+", line)
        reading = asyncio.create_task(stderr.read())
        yield found[0], process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        if reading is not None:
            await reading


@asynccontextmanager
async def _on_stdio(command: list[str]) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await _start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


async def _start(command: list[str], **streams: Any) -> asyncio.subprocess.Process:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if "stderr" not in streams:
        streams["stderr"] = subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(*command, env=env, **streams)
