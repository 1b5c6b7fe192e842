"""`toolfold serve`: one client on standard input and output.

The SDK's own stdio transport reads in a thread, which no signal can wake: a gateway told to stop would wait for its
client. This one reads when the loop says that there is something, and costs two thread switches less per message.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import select
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from toolfold.gateway.changes import Changes
from toolfold.gateway.greeting import Greeting
from toolfold.gateway.roots import ClientRoots
from toolfold.gateway.server import make_server
from toolfold.upstream.messages import Lines, MessageTooLongError

if TYPE_CHECKING:
    from toolfold.config.callers import Mode
    from toolfold.fold import Toolfold
    from toolfold.gateway.runs import AskLocally

_MESSAGE_LIMIT = 64 * 1024**2
_PIPE_BUF = 4096
"""A pipe that is writable takes this much without blocking."""

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


async def serve_stdio(
    fold: Toolfold,
    greeting: Greeting | None = None,
    *,
    mode: Mode | None = None,
    ask_locally: AskLocally | None = None,
) -> None:
    """Serve until the client closes its end. The connection is a session: variables stay from run to run.

    `greeting` holds what was read, and answered, before this began. `ask_locally` is for clients that show no forms.
    """
    fold.fleet.roots = roots = ClientRoots()
    server = make_server(
        fold, mode=mode, default_session=_own_session(), ask_locally=ask_locally, changes=Changes(fold), roots=roots
    )
    async with standard_streams(greeting or Greeting()) as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


def _own_session() -> str:
    """The session of runs that name none. Names that begin with @ leave no files behind when we end.

    It is called after the process that started us: a client that opens a connection for each call is told by the next
    one that the variables of the last one are gone.
    """
    parent = os.getppid()
    try:
        begun = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        begun = ""
    identity = hashlib.sha256(f"{parent} {begun} {Path.cwd()}".encode("utf-8", "replace"))
    return f"@connection-{identity.hexdigest()[:12]}"


@asynccontextmanager
async def standard_streams(greeting: Greeting) -> AsyncGenerator[tuple[Incoming, Outgoing]]:
    """Standard input and output as streams of messages.

    Meanwhile descriptor 0 reads nothing and 1 goes to stderr, so that no child and no stray print meets the protocol.
    """
    wire_in, wire_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.flush()
    to_server, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](16)
    write_stream, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, wire_in, to_server, bytes(greeting.received))
            tasks.start_soon(_write, wire_out, from_server, greeting.answered)
            yield read_stream, write_stream
            tasks.cancel_scope.cancel()
    finally:
        for stream in (to_server, read_stream, write_stream, from_server):
            stream.close()
        os.dup2(wire_in, 0)
        os.dup2(wire_out, 1)
        os.close(wire_in)
        os.close(wire_out)


async def _read(wire: int, to_server: MemoryObjectSendStream[SessionMessage | Exception], received: bytes) -> None:
    lines = Lines(_MESSAGE_LIMIT)
    chunk = received
    async with to_server:
        while True:
            try:
                lines.feed(chunk)
            except MessageTooLongError:
                return
            while lines.ready:
                await to_server.send(_parsed(lines.pop()))
            await _until(wire, select.POLLIN)
            # Ready means that this read does not block; the descriptor itself is shared, so its mode stays as it is.
            chunk = os.read(wire, 1 << 18)
            if not chunk:
                break
        lines.end()
        while lines.ready:
            await to_server.send(_parsed(lines.pop()))


def _parsed(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _write(
    wire: int, from_server: MemoryObjectReceiveStream[SessionMessage], answered: set[types.RequestId]
) -> None:
    async with from_server:
        async for message in from_server:
            if (
                isinstance(message.message, types.JSONRPCResponse | types.JSONRPCError)
                and message.message.id in answered
            ):
                answered.discard(message.message.id)
                continue
            data = memoryview(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            while data:
                await _until(wire, select.POLLOUT)
                try:
                    data = data[os.write(wire, data[:_PIPE_BUF]) :]
                except (BrokenPipeError, ConnectionError):
                    return


async def _until(wire: int, wanted: int) -> None:
    """Wait until the descriptor is ready. What cannot be watched (a plain file) always is."""
    poll = select.poll()
    poll.register(wire, wanted)
    if poll.poll(0):
        return
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    add, remove = (
        (loop.add_reader, loop.remove_reader) if wanted == select.POLLIN else (loop.add_writer, loop.remove_writer)
    )
    add(wire, wake)
    try:
        await ready
    finally:
        remove(wire)
