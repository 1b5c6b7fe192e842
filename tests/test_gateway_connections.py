"""Connections over HTTP: nobody who shows no token keeps those out who do."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.test_gateway_http import serving
from toolfold.gateway.callers import Callers
from toolfold.gateway.connections import ConnectionLimits, Connections
from toolfold.gateway.http import listen
from toolfold.gateway.routes import Authenticated

pytestmark = pytest.mark.anyio

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
TOKEN = "s3cret"
PATIENCE = 20


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    body = json.dumps(scope["state"]["caller"]).encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def listening(app: ASGIApp = hello, **limits: Any) -> AsyncGenerator[tuple[Connections, int]]:
    sock = listen("127.0.0.1", 0)
    guarded = Authenticated(app, Callers(None, TOKEN))
    async with asyncio.timeout(60), Connections(guarded, sock, ConnectionLimits(**limits)) as connections:
        yield connections, sock.getsockname()[1]


async def connect(port: int, source: str = "127.0.0.1") -> Streams:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))


async def ask(streams: Streams, token: str = TOKEN, more: str = "", body: bytes = b"") -> bytes:
    """Send a request and read its response."""
    reader, writer = streams
    head = f"POST /mcp HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{more}\r\n"
    writer.write(head.encode() + body)
    async with asyncio.timeout(PATIENCE):
        head_received = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head_received)
        return head_received + (await reader.readexactly(int(length[1])) if length else b"")


async def ended(streams: Streams) -> bool:
    """Wait for the other side to close the connection."""
    async with asyncio.timeout(PATIENCE):
        try:
            while await streams[0].read(1 << 16):
                pass
        except ConnectionError:
            pass
    return True


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


async def test_small_answers_are_sent_at_once() -> None:
    async with listening() as (connections, port):
        streams = await connect(port)
        await ask(streams)
        (connection,) = connections.open
        accepted: socket.socket = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


async def test_a_request_says_whose_token_it_showed() -> None:
    async with listening() as (_, port):
        caller = (await ask(await connect(port))).rsplit(b"\r\n", 1)[1]
        assert re.fullmatch(rb'"token:[0-9a-f]{8}"', caller)
        assert (await ask(await connect(port))).endswith(caller)


async def test_silent_connections_make_room_for_new_ones() -> None:
    async with listening(unproven=8) as (connections, port):
        silent = [await connect(port) for _ in range(8)]
        await until(lambda: len(connections.unproven) == 8)
        assert b" 200 " in await ask(await connect(port))
        assert await ended(silent[0])
        assert len(connections.unproven) == 7


async def test_proven_connections_are_kept_whatever_strangers_do() -> None:
    async with listening(unproven=4, total=8) as (connections, port):
        proven: list[Streams] = []
        for _ in range(6):
            proven.append(await connect(port))
            assert b" 200 " in await ask(proven[-1])
        assert not connections.unproven
        strangers = [await connect(port) for _ in range(50)]
        assert all([await ended(streams) for streams in strangers[:46]])
        assert len(connections.open) <= 8
        for streams in proven:
            assert b" 200 " in await ask(streams)


async def test_the_peer_with_most_silent_connections_loses_one() -> None:
    async with listening(unproven=4) as (connections, port):
        modest = await connect(port, "127.0.0.2")
        await until(lambda: len(connections.unproven) == 1)
        greedy = [await connect(port, "127.0.0.3") for _ in range(10)]
        assert all([await ended(streams) for streams in greedy[:7]])
        # It has waited for longest, and is served all the same.
        assert b" 200 " in await ask(modest)


async def test_clients_are_served_in_a_flood_of_connections() -> None:
    async def flood(port: int) -> None:
        kept: list[socket.socket] = []
        while True:
            try:
                kept = [*kept[-200:], socket.create_connection(("127.0.0.1", port))]
            except OSError:
                kept.clear()
            await asyncio.sleep(0)

    async with listening() as (_, port):
        flooding = [asyncio.create_task(flood(port)) for _ in range(8)]
        try:
            for _ in range(50):
                assert b" 200 " in await ask(await connect(port))
        finally:
            for task in flooding:
                task.cancel()


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HTTP/1.1\r\nhost: x\r\n"])
async def test_a_head_must_arrive_in_time(sent: bytes) -> None:
    async with listening(header_time=0.2) as (connections, port):
        streams = await connect(port)
        streams[1].write(sent)
        assert await ended(streams)
        assert not connections.open


async def test_the_head_of_a_later_request_must_arrive_in_time() -> None:
    async with listening(header_time=0.2) as (connections, port):
        streams = await connect(port)
        assert b" 200 " in await ask(streams)
        streams[1].write(b"\r\n")
        assert await ended(streams)
        assert not connections.open


async def test_an_endless_head_is_cut_off() -> None:
    async with listening(header_size=10_000, header_time=600) as (connections, port):
        reader, writer = await connect(port)
        writer.write(b"POST /mcp HTTP/1.1\r\n")
        try:
            async with asyncio.timeout(PATIENCE):
                while not reader.at_eof():
                    writer.write(b"x-more: " + b"a" * 1000 + b"\r\n")
                    await writer.drain()
                    await asyncio.sleep(0)
        except ConnectionError:
            pass
        await until(lambda: not connections.open)


async def test_a_large_body_is_no_large_head_even_after_its_answer() -> None:
    async with listening(header_size=10_000) as (_, port):
        streams = await connect(port)
        assert b" 200 " in await ask(streams, more="content-length: 400000\r\n", body=b"x" * 200_000)
        streams[1].write(b"x" * 200_000)
        assert b" 200 " in await ask(streams)


async def test_without_a_token_no_more_than_a_little_body_is_read() -> None:
    async with listening() as (connections, port):
        streams = await connect(port)
        reader, writer = streams
        writer.write(b"POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n")
        answer = asyncio.create_task(reader.readuntil(b"is required"))
        sent = 0
        while not answer.done() and sent < 100_000_000:
            writer.write(b"x" * 100_000)
            sent += 100_000
            try:
                await writer.drain()
            except ConnectionError:
                break
            await asyncio.sleep(0)
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)
        assert sent < 100_000_000
        assert not connections.unproven


async def test_a_refusal_can_be_read() -> None:
    async with listening() as (connections, port):
        streams = await connect(port)
        refusal = await ask(streams, "wrong", more="content-length: 50000\r\n", body=b"x" * 50_000)
        assert b" 401 " in refusal
        assert b"a valid bearer token is required" in refusal
        assert await ended(streams)
        assert not connections.open


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_word_bearer_is_read_in_any_letter_case(scheme: str) -> None:
    async with listening() as (_, port):
        streams = await connect(port)
        streams[1].write(f"GET / HTTP/1.1\r\nhost: x\r\nauthorization: {scheme} {TOKEN}\r\n\r\n".encode())
        assert b" 200 " in await streams[0].readline()


async def test_requests_under_way_end_with_the_server() -> None:
    begun = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await asyncio.Event().wait()

    sock = listen("127.0.0.1", 0)
    async with asyncio.timeout(60):
        async with Connections(Authenticated(endless, Callers(None, None)), sock) as connections:
            streams = await connect(sock.getsockname()[1])
            streams[1].write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await begun.wait()
        assert not connections.state.tasks
        assert await ended(streams)


async def long(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"20000000")]})
    for left in range(199, -1, -1):
        await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": left > 0})


async def test_an_answer_that_is_left_unread_ends_its_connection() -> None:
    async with listening(long, unread_time=0.2) as (connections, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
        writer.write(f"GET / HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\r\n".encode())
        assert b" 200 " in await reader.readline()
        await until(lambda: not connections.open and not connections.state.tasks)


async def test_an_answer_that_is_read_ends_nothing() -> None:
    async with listening(long, unread_time=2) as (connections, port):
        streams = await connect(port)
        assert len(await ask(streams)) > 20_000_000
        await asyncio.sleep(2.5)
        assert connections.open
        assert b" 200 " in await ask(streams)


async def test_without_descriptors_it_waits_says_so_once_and_recovers(runtime_dir: Path) -> None:
    log = runtime_dir / "logs" / "toolfold.log"
    async with serving(runtime_dir, "--token", TOKEN, python=sys.executable) as gateway:
        assert b" 400 " in await ask(await connect(gateway.port))
        await gateway.says("sandbox:")
        used = max(int(entry.name) for entry in Path(f"/proc/{gateway.process.pid}/fd").iterdir())
        before = resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, (used + 3, before[1]))
        strangers = [await connect(gateway.port) for _ in range(30)]
        await until(lambda: log.exists() and "Cannot accept connections" in log.read_text())
        # Each pause gives up one of the silent ones: those who wait are served in the end.
        async with asyncio.timeout(60):
            assert await ended(strangers[0])
        resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, before)
        assert b" 400 " in await ask(await connect(gateway.port))
        assert log.read_text().count("Cannot accept connections") == 1
        assert log.stat().st_size < 10_000


async def test_a_hundred_half_open_connections_do_not_keep_a_client_out(runtime_dir: Path) -> None:
    async with serving(runtime_dir, "--token", TOKEN, python=sys.executable) as gateway:
        strangers = [await connect(gateway.port) for _ in range(300)]
        for _, writer in strangers:
            writer.write(b"POST /mcp HTTP/1.1\r\n")
        assert b" 400 " in await ask(await connect(gateway.port))
        assert len(list(Path(f"/proc/{gateway.process.pid}/fd").iterdir())) < 250
