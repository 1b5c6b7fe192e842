"""The stdio transport: a server process whose stdin and stdout carry one JSON message per line.

The SDK's own transport is not used: its cost grows with the square of a line's length, it mixes the server's stderr
with ours, and a gateway that is killed would leave its servers behind (see `supervisor_process.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import shutil
import sys
import termios
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from toolfold.config.settings import ServerConfig
from toolfold.upstream.messages import Lines, MessageTooLongError, Parser, encoded
from toolfold.upstream.processes.supervisor import Exit, ServerProcess, StartRefusedError, Supervisor
from toolfold.upstream.serverlog import DOCTOR, ServerLog

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

MESSAGE_LIMIT = 256 * 1024**2
CHUNK = 256 * 1024
BACKLOG = 8 * 1024**2
"""Bytes of unread messages at which no more is read from a server until some are handled."""
OUTBOX_LIMIT = 64 * 1024**2
"""Bytes that are kept for a server that does not read its stdin."""
EXIT_WAIT = 1.0
"""Seconds to wait for the exit status after stdout has ended."""
LINES_PER_TURN = 32
JUNK_LINES = 10_000
"""Lines before the first message after which the command is taken for something other than an MCP server."""


class CannotStartError(Exception):
    """The command cannot be run; the text says why, `hint` what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Stream:
    """What the SDK expects of a stream besides sending or receiving."""

    async def aclose(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class MessageReader(Stream):
    """The server's stdout as messages. Ends when the stream or the process does; `reason` then says why."""

    def __init__(self, fd: int, process: ServerProcess, parser: Parser, limit: int) -> None:
        self._fd = fd
        self._process = process
        self._parser = parser
        self._limit = limit
        self._lines = Lines(limit)
        self._messages: deque[SessionMessage] = deque()
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._listening = False
        self.over = False
        self._lines_read = 0
        self._understood = False
        self._no_more_requests: asyncio.TimerHandle | None = None
        self.reason = ""
        self.on_end: Callable[[], None] = lambda: None
        self._listen()
        process.exited.add_done_callback(self._process_ended)

    def _listen(self) -> None:
        if not self._listening and not self.over:
            self._loop.add_reader(self._fd, self._readable)
            self._listening = True

    def _pause(self) -> None:
        if self._listening:
            self._loop.remove_reader(self._fd)
            self._listening = False

    def _readable(self) -> None:
        self._read_once()
        if self._lines.ready_bytes > BACKLOG:
            self._pause()
        if (self._lines.ready or self.over) and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _read_once(self) -> bool:
        """Read what is there; False when there is nothing, or the stream has ended."""
        try:
            chunk = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        try:
            if chunk:
                self._lines.feed(chunk)
                return True
            self._lines.end()
        except MessageTooLongError:
            self.reason = f"sent a message of more than {self._limit // 1024**2} MB"
        self._finish()
        return False

    def stdin_closed(self) -> None:
        """The server reads no more, so it is of no use: what it still writes and its exit are waited for a moment."""
        self._no_more_requests = self._loop.call_later(EXIT_WAIT, self._reads_no_more)

    def _reads_no_more(self) -> None:
        if not self.over:
            self.reason = "closed its stdin"
            self._end_early()

    def _process_ended(self, _: asyncio.Future[Exit]) -> None:
        self._end_early()

    def _end_early(self) -> None:
        # A surviving descendant may hold stdout open for ever: read what is left, then treat the stream as ended.
        for _ in range(64):
            if self.over or not self._read_once():
                break
        self._finish()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _finish(self) -> None:
        self._pause()
        self.over = True

    async def receive(self) -> SessionMessage:
        return await self.__anext__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        while True:
            if self._messages:
                return self._messages.popleft()
            if self._lines.ready:
                self._messages.extend(self._parser.parse(self._lines.pop()))
                self._understood = self._understood or bool(self._messages)
                self._lines_read += 1
                if self._lines_read % LINES_PER_TURN == 0:
                    # A flood of messages, or of what is none, must not keep the loop from everything else.
                    await asyncio.sleep(0)
                if self._lines_read >= JUNK_LINES and not self._understood:
                    self.reason = f"sent {JUNK_LINES:,} lines and no MCP message"
                    self._lines.ready.clear()
                    self._finish()
                continue
            if self.over:
                await self._find_reason()
                self.on_end()
                raise StopAsyncIteration
            self._listen()
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def _find_reason(self) -> None:
        if not self.reason:
            await asyncio.wait({self._process.exited}, timeout=EXIT_WAIT)
            self.reason = str(self._process.exited.result()) if self._process.exited.done() else "closed its stdout"

    async def aclose(self) -> None:
        self._process.exited.remove_done_callback(self._process_ended)
        if self._no_more_requests is not None:
            self._no_more_requests.cancel()
        self._finish()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class MessageWriter(Stream):
    """The server's stdin. Sending never waits, so that a server that does not read cannot hold a caller beyond its
    timeout; what the pipe does not take is kept and written later."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._outbox: deque[memoryview] = deque()
        self._waiting = 0
        self._unread = 0
        self.on_broken: Callable[[], None] = lambda: None

    async def send(self, item: SessionMessage) -> None:
        import anyio

        if self._fd < 0:
            raise anyio.ClosedResourceError
        line = encoded(item.message) + b"\n"
        if self._outbox:
            if self._waiting > OUTBOX_LIMIT:
                raise anyio.BrokenResourceError
            self._outbox.append(memoryview(line))
            self._waiting += len(line)
            return
        rest = self._write(memoryview(line))
        if self._fd < 0:
            raise anyio.BrokenResourceError
        if rest:
            self._outbox.append(rest)
            self._waiting = len(rest)
            self._loop.add_writer(self._fd, self._writable)

    def _write(self, data: memoryview) -> memoryview:
        """Write what the pipe takes and return the rest. A broken pipe is closed."""
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except BlockingIOError:
            pass
        except OSError:
            self._waiting += len(data)
            self.close()
            self.on_broken()
        return data

    def _writable(self) -> None:
        while self._outbox:
            before = self._outbox[0]
            rest = self._write(before)
            if self._fd < 0:
                return
            self._waiting -= len(before) - len(rest)
            if rest:
                self._outbox[0] = rest
                return
            self._outbox.popleft()
        self._loop.remove_writer(self._fd)

    @property
    def closed(self) -> bool:
        return self._fd < 0

    def unread(self) -> int:
        """Bytes that were sent and that the server has not read yet."""
        if self._fd >= 0:
            answer = bytearray(4)
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._fd, termios.FIONREAD, answer)
            self._unread = int.from_bytes(answer, sys.byteorder) + self._waiting
        return self._unread

    def close(self) -> None:
        if self._fd >= 0:
            self.unread()
            if self._outbox:
                self._loop.remove_writer(self._fd)
                self._outbox.clear()
            os.close(self._fd)
            self._fd = -1

    async def aclose(self) -> None:
        # Called by the SDK when the session ends; stdin itself is closed when the process is stopped.
        pass


class StdioTransport:
    """A running server and both directions of its pipes."""

    def __init__(self, reader: MessageReader, writer: MessageWriter, process: ServerProcess) -> None:
        self.reader = reader
        self.writer = writer
        self.process = process

    @property
    def pid(self) -> int | None:
        return self.process.pid

    def on_end(self, callback: Callable[[], None]) -> None:
        self.reader.on_end = callback

    async def wait_for_exit(self) -> None:
        """If a pipe has ended, wait a moment for the exit status, which may come later."""
        if self.writer.closed or self.reader.over:
            await asyncio.wait({self.process.exited}, timeout=EXIT_WAIT)

    def reason(self) -> str:
        return self.reader.reason or (str(self.process.exited.result()) if self.process.exited.done() else "")

    def stderr_tail(self) -> str:
        return self.process.exited.result().stderr_tail if self.process.exited.done() else ""

    def probe_was_read(self) -> bool:
        return self.writer.unread() == 0


@asynccontextmanager
async def open_stdio(
    config: ServerConfig, supervisor: Supervisor, log: ServerLog, *, limit: int
) -> AsyncGenerator[StdioTransport]:
    """Start the server; on exit, end it and everything that it started."""
    from mcp.client.stdio import get_default_environment

    env = get_default_environment() | config.env
    argv = [_executable(config, env), *config.args]
    # Created before the process, so that nothing can fail between its start and its end.
    parser = Parser(log.junk)
    (their_stdin, our_stdin), (our_stdout, their_stdout) = _two_pipes()
    for fd in (our_stdin, our_stdout):
        os.set_blocking(fd, False)
    _enlarge_pipe(our_stdout)
    try:
        process = await supervisor.start(
            argv, env=env, cwd=config.cwd, log=log.path, stdin=their_stdin, stdout=their_stdout
        )
    except BaseException as error:
        os.close(our_stdin)
        os.close(our_stdout)
        if isinstance(error, StartRefusedError):
            raise _start_error(error, config) from None
        raise
    finally:
        os.close(their_stdin)
        os.close(their_stdout)
    writer = MessageWriter(our_stdin)
    reader = MessageReader(our_stdout, process, parser, limit)
    writer.on_broken = reader.stdin_closed
    try:
        yield StdioTransport(reader, writer, process)
    finally:
        await reader.aclose()
        writer.close()
        # Shielded: the supervisor is asked to end the server even if we are cancelled here.
        await asyncio.shield(asyncio.ensure_future(process.stop()))


def _two_pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Both or none: where descriptors are lacking, a failed start must not take more of them."""
    first = os.pipe()
    try:
        return first, os.pipe()
    except OSError:
        for fd in first:
            os.close(fd)
        raise


def _enlarge_pipe(fd: int) -> None:
    """Allow fewer and larger reads, where the system can do that."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, CHUNK)


def _executable(config: ServerConfig, env: dict[str, str]) -> str:
    if os.sep in config.command:
        return config.command
    found = shutil.which(config.command, path=env.get("PATH", os.defpath))
    if found is None:
        raise CannotStartError(
            f"the command `{config.command}` was not found on PATH.",
            "Install it, or give its full path as `command`.",
        )
    return found


def _start_error(error: StartRefusedError, config: ServerConfig) -> CannotStartError:
    if error.step == "cwd":
        return CannotStartError(f"its folder (`cwd`) cannot be entered: {error}.", f"Correct `cwd`. {DOCTOR}")
    hint = f"Correct `command`. {DOCTOR}"
    if error.errno == errno.ENOEXEC:
        hint = "A script needs a first line such as `#!/usr/bin/env python3`, or name its interpreter as `command`."
    return CannotStartError(f"the command `{Path(config.command).name}` cannot be run: {error}.", hint)
