"""Both directions of a server's pipes, without a server: what is read, kept, held back and given up."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import sys
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from httpx2 import ServerSentEvent
from mcp.shared.message import SessionMessage
from mcp_types import HEADER_MISMATCH, JSONRPCNotification

from tests.upstream_lab import awkward, eventually
from toolfold.config.settings import ServerConfig
from toolfold.errors import UpstreamError, UpstreamTimeout, UpstreamUnavailable
from toolfold.upstream import connection, stdio
from toolfold.upstream.fleet import Fleet
from toolfold.upstream.messages import Parser
from toolfold.upstream.processes.supervisor import Exit, ServerProcess, Supervisor
from toolfold.upstream.remote import WatchedStream
from toolfold.upstream.sse import EventReader, NoEndpointError
from toolfold.upstream.stdio import MessageReader, MessageWriter

pytestmark = pytest.mark.anyio

LAB = ServerConfig(command=sys.executable, args=(str(Path(__file__).parent / "servers" / "lab.py"),))

TABLE = """
import json, sys
replies = json.loads(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        reply = replies.get(message["method"], {"error": {"code": -32601, "message": "no " + message["method"]}})
        if isinstance(reply, list):
            reply = reply.pop(0) if len(reply) > 1 else reply[0]
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)
"""


def table(replies: dict[str, Any]) -> ServerConfig:
    """A server that answers each method in one way, or in one after the other."""
    return ServerConfig(command=sys.executable, args=("-c", TABLE, json.dumps(replies)))


def newer(**capabilities: Any) -> dict[str, Any]:
    """How a server of the newer era introduces itself."""
    about = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
    return {"server/discover": {"result": {**about, "resultType": "complete", "cacheScope": "private", "ttlMs": 0}}}


def pipe() -> tuple[int, int]:
    ends = os.pipe()
    for fd in ends:
        os.set_blocking(fd, False)
    return ends


def process(tmp_path: Path) -> ServerProcess:
    """A server that nobody started, which ends when a test says so."""
    return ServerProcess(Supervisor(tmp_path), 1, 1)


def notification(text: str) -> SessionMessage:
    return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=text))


def line(number: int, size: int = 0) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": {"pad": "x" * size}}).encode() + b"\n"


class TestReading:
    async def test_no_more_is_read_than_is_handled(self, tmp_path: Path) -> None:
        """A server that sends faster than we read is held back by its pipe, at 8 MB."""
        ours, theirs = pipe()
        reader = MessageReader(ours, process(tmp_path), Parser(lambda _: None), 1024**3)
        data = memoryview(line(1, 60_000) * 300)
        sent = idle = 0
        while idle < 20 and sent < len(data):
            try:
                sent, idle = sent + os.write(theirs, data[sent:]), 0
            except BlockingIOError:
                idle += 1
            await asyncio.sleep(0)
        assert 8 * 1024**2 < sent < 9 * 1024**2
        found = 0
        async with asyncio.timeout(30):
            while found < 300:
                with contextlib.suppress(BlockingIOError):
                    sent += os.write(theirs, data[sent:])
                await anext(reader)
                found += 1
        assert sent == len(data)
        await reader.aclose()
        os.close(theirs)

    async def test_what_a_dead_server_sent_is_read_but_not_what_others_go_on_sending(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stdio, "CHUNK", 512)
        ours, theirs = pipe()
        server = process(tmp_path)
        reader = MessageReader(ours, server, Parser(lambda _: None), 1024**2)
        message = line(1, 512 - len(line(1)))
        # As a descendant that holds the server's stdout would go on doing.
        assert os.write(theirs, message * 100) == 51_200
        server.exited.set_result(Exit(3))
        found = [each async for each in reader]
        assert len(found) == 64
        assert reader.reason == "ended with exit status 3"
        await reader.aclose()
        os.close(theirs)

    async def test_a_stream_that_ends_says_why(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stdio, "EXIT_WAIT", 0.01)
        ours, theirs = pipe()
        ended: list[bool] = []
        reader = MessageReader(ours, process(tmp_path), Parser(lambda _: None), 1024**2)
        reader.on_end = lambda: ended.append(True)
        os.write(theirs, line(1) + line(2).rstrip())
        os.close(theirs)
        assert len([each async for each in reader]) == 2, "the last line needs no end"
        assert (reader.reason, ended) == ("closed its stdout", [True])
        await reader.aclose()
        await reader.aclose()

    async def test_a_closed_reader_is_forgotten_by_its_process(self, tmp_path: Path) -> None:
        ours, theirs = pipe()
        server = process(tmp_path)
        reader = MessageReader(ours, server, Parser(lambda _: None), 1024**2)
        await reader.aclose()
        seen = weakref.ref(reader)
        del reader
        gc.collect()
        assert seen() is None
        os.close(theirs)


@pytest.fixture
def lowest() -> Iterator[tuple[int, int]]:
    """A pipe whose writing end is descriptor 0, which is what a program without a standard input gets."""
    before = os.dup(0)
    ours, theirs = pipe()
    os.dup2(theirs, 0)
    os.set_blocking(0, False)
    os.close(theirs)
    yield ours, 0
    os.dup2(before, 0)
    os.close(before)
    os.close(ours)


def drained(fd: int) -> bytes:
    found = b""
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(fd, 1 << 20):
            found += chunk
    return found


class TestWriting:
    async def test_what_the_pipe_does_not_take_is_sent_later_and_in_order(self, lowest: tuple[int, int]) -> None:
        theirs, ours = lowest
        writer = MessageWriter(ours)
        assert (writer.closed, writer.unread()) == (False, 0)
        texts = ["a" * 100_000, "b" * 100_000, "c"]
        for text in texts:
            await writer.send(notification(text))
        sent = sum(len(text) for text in texts)
        assert writer.unread() > sent
        found = b""
        async with asyncio.timeout(60):
            while found.count(b"\n") < 3:
                found += drained(theirs)
                await asyncio.sleep(0)
        assert [json.loads(each)["method"] for each in found.splitlines()] == texts
        assert writer.unread() == 0
        await writer.send(notification("d"))
        assert b'"d"' in drained(theirs)
        await writer.send(notification("e" * 200_000))
        writer.close()
        assert writer.closed
        assert writer.unread() > 200_000, "as it was at the end"
        with pytest.raises(anyio.ClosedResourceError):
            await writer.send(notification("f"))
        writer.close()

    async def test_a_server_that_does_not_read_gets_no_more_than_is_kept_for_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stdio, "OUTBOX_LIMIT", 300_000)
        theirs, ours = pipe()
        writer = MessageWriter(ours)
        for _ in range(4):
            await writer.send(notification("x" * 100_000))
        with pytest.raises(anyio.BrokenResourceError):
            await writer.send(notification("x"))
        assert 300_000 < writer.unread() < 600_000
        os.close(theirs)
        await eventually(lambda: writer.closed)

    async def test_a_server_that_has_closed_its_stdin_breaks_the_pipe(self) -> None:
        theirs, ours = pipe()
        writer = MessageWriter(ours)
        os.close(theirs)
        with pytest.raises(anyio.BrokenResourceError):
            await writer.send(notification("x"))
        assert writer.closed
        assert writer.unread() > 0


async def test_a_watched_stream_is_the_one_inside_and_tells_of_its_end() -> None:
    ended: list[bool] = []
    send, receive = anyio.create_memory_object_stream[str](5)
    watched = WatchedStream(receive, lambda: ended.append(True))
    await send.send("one")
    await send.send("two")
    await send.send("three")
    assert [await watched.receive(), await anext(watched)] == ["one", "two"]
    assert (watched.last_context, watched.reason) == (None, "")
    send.close()
    assert [each async for each in watched] == ["three"]
    assert ended == [True]
    send, receive = anyio.create_memory_object_stream[str](5)
    await WatchedStream(receive, lambda: None).aclose()
    with pytest.raises(anyio.BrokenResourceError):
        await send.send("nobody reads it")
    send.close()
    send, receive = anyio.create_memory_object_stream[str](5)
    async with WatchedStream(receive, lambda: None):
        await send.send("read")
    with pytest.raises(anyio.BrokenResourceError):
        await send.send("nobody reads it")
    send.close()


@pytest.mark.parametrize(
    ("told", "address"),
    [
        ("/messages?session=1", "https://site.example/messages?session=1"),
        ("https://site.example/x", "https://site.example/x"),
        ("https://other.example/x", ""),
        ("//other.example/x", ""),
        ("http://site.example/x", ""),
        ("https://site.example:444/x", ""),
    ],
)
async def test_messages_go_to_the_origin_of_the_stream_only(told: str, address: str) -> None:
    async def events() -> AsyncIterator[ServerSentEvent]:
        yield ServerSentEvent("comment", "https://other.example/y")
        yield ServerSentEvent("endpoint", told)

    reader = EventReader(events(), Parser(lambda junk: None))
    if address:
        assert await reader.endpoint("https://site.example/sse") == address
    else:
        with pytest.raises(NoEndpointError, match="another origin"):
            await reader.endpoint("https://site.example/sse")


async def test_requests_to_the_supervisor_leave_nothing_behind(tmp_path: Path) -> None:
    def finished() -> int:
        gc.collect()
        return sum(isinstance(each, asyncio.Task) and each.done() for each in gc.get_objects())

    supervisor = Supervisor(tmp_path)
    await supervisor.request_stop(1, 0.0)  # nothing was started, so there is nobody to ask
    stdin, stdout = os.pipe()
    ends = {"stdin": stdin, "stdout": stdout}
    server = await supervisor.start([sys.executable, "-c", ""], env={}, cwd="", log=tmp_path / "a.log", **ends)
    os.close(stdin)
    os.close(stdout)
    await asyncio.wait_for(server.gone, 30)
    assert server.exited.result() == Exit(0)
    before = finished()
    for _ in range(20):
        await supervisor.request_stop(99, 0.0)
    assert finished() < before + 10
    await supervisor.close()


class TestErrors:
    """Of requests that are no calls, and of the handshake."""

    async def test_a_request_that_the_server_refuses_fails_in_its_words(self, tmp_path: Path) -> None:
        async with Fleet({"a": awkward()}, log_dir=tmp_path) as fleet:
            with pytest.raises(UpstreamError) as failed:
                await fleet.get_prompt("a", "greet", {})
            assert str(failed.value) == "a: prompt `greet` failed: Method not found: 'who' (code -32601)"
            assert await fleet.get_prompt("a", "greet", {"who": "Ada"})

    async def test_an_older_server_that_refuses_the_handshake_is_quoted(self, tmp_path: Path) -> None:
        refusal = {"error": {"code": -32603, "message": "the licence has expired"}}
        async with Fleet({"a": table({"initialize": refusal})}, log_dir=tmp_path) as fleet:
            with pytest.raises(UpstreamUnavailable, match="the licence has expired"):
                await fleet.call("a", "echo", {})

    async def test_a_newer_server_is_spoken_to_as_such_and_may_not_ask_nonsense(self, tmp_path: Path) -> None:
        replies: dict[str, Any] = {
            **newer(prompts={}, resources={}),
            "prompts/get": {"result": {"resultType": "input_required", "inputRequests": {"key": {"method": 5}}}},
            "resources/read": {"result": {"resultType": "complete", "contents": 5}},
        }
        async with Fleet({"a": table(replies)}, log_dir=tmp_path) as fleet:
            with pytest.raises(UpstreamError, match="a: sent an invalid response for prompt `greet`: "):
                await fleet.get_prompt("a", "greet", {})
            with pytest.raises(UpstreamError, match="a: sent an invalid response for resource `x://y`: "):
                await fleet.read_resource("a", "x://y")
            assert fleet.health()[0].protocol_version == "2026-07-28"

    async def test_a_call_that_was_refused_for_its_headers_is_sent_once_more(self, tmp_path: Path) -> None:
        refused = {"error": {"code": HEADER_MISMATCH, "message": "other headers, please"}}
        broken = {"error": {"code": -32603, "message": "broken"}}
        done: dict[str, Any] = {"result": {"resultType": "complete", "content": []}}
        replies: dict[str, Any] = {
            **newer(tools={}),
            "tools/list": {"result": {"tools": [{"name": "x", "inputSchema": {}}]}},
        }
        answers = {"once": [refused, done], "twice": [refused, refused, done], "no": [broken, done]}
        servers = {name: table({**replies, "tools/call": each}) for name, each in answers.items()}
        async with Fleet(servers, log_dir=tmp_path) as fleet:
            assert not (await fleet.call("once", "x", {})).is_error
            for server, words in (("twice", "other headers, please"), ("no", "broken")):
                with pytest.raises(UpstreamError, match=words):
                    await fleet.call(server, "x", {})

    async def test_a_server_that_goes_on_asking_to_be_asked_again_is_given_up(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connection, "INPUT_ROUNDS", 3)
        again = {"result": {"resultType": "input_required", "requestState": "later"}}
        read: dict[str, Any] = {"result": {"resultType": "complete", "contents": []}}
        replies: dict[str, Any] = {
            **newer(resources={}),
            "resources/read": [again, again, read, again, again, again, read],
        }
        async with Fleet({"a": table(replies)}, log_dir=tmp_path) as fleet, asyncio.timeout(60):
            assert await fleet.read_resource("a", "x://y") == []
            with pytest.raises(UpstreamError, match="it asked for input again and again"):
                await fleet.read_resource("a", "x://y")

    async def test_a_whole_list_has_a_limit_of_its_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "LISTING_TIMES", 0.001)
        async with Fleet({"a": awkward("endless")}, log_dir=tmp_path) as fleet:
            with pytest.raises(UpstreamTimeout, match=r"its list of tools did not end within 0\.06 s"):
                await fleet.listing("a")

    async def test_the_newer_protocol_is_tried_first_but_not_over_sse(self, tmp_path: Path) -> None:
        nowhere = "http://127.0.0.1:9/mcp"
        servers = {
            "stdio": LAB,
            "http": ServerConfig(transport="http", url=nowhere),
            "sse": ServerConfig(transport="sse", url=nowhere),
        }
        async with Fleet(servers, log_dir=tmp_path) as fleet:
            assert (await fleet.call("stdio", "add", {"a": 1, "b": 2})).structured == {"sum": 3}
            for name in ("http", "sse"):
                with pytest.raises(UpstreamUnavailable, match="cannot be reached"):
                    await fleet.call(name, "add", {})
            health = fleet.health()
            assert health[0].protocol_version == "2026-07-28"
            eras = [each.log_file.read_text().split("starting (")[1].split(")")[0] for each in health]
            assert eras == ["auto", "auto", "legacy"]
