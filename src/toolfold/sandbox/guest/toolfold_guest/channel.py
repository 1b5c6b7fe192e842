"""The one way out of the sandbox: length-prefixed JSON frames on one socket.

Loop-agnostic on purpose. Agents write `await x`, `asyncio.run(main())`, `loop.run_until_complete(...)` and threads;
whichever loop makes a request reads the replies, and a reply finds its own loop.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

_HEADER = struct.Struct(">I")


class ToolError(Exception):
    """A tool, or the way to it, failed. `server` and `tool` say which one; `code` says what kind of failure."""

    def __init__(self, message: str, *, server: str = "", tool: str = "", code: str = "tool") -> None:
        super().__init__(message)
        self.server = server
        self.tool = tool
        self.code = code


_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Channel:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._send_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._ids = itertools.count(1)
        self._buffer = bytearray()
        self._waiting: dict[int, _Waiter] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self._attached: list[asyncio.AbstractEventLoop] = []
        self.before_send: Callable[[], None] = lambda: None
        self.longest = 1 << 62
        """Bytes of one frame that the host takes."""
        self.listening = True
        """Whether the host expects anything now. Between runs a frame would end the sandbox."""

    # Sending

    def send(self, frame: dict[str, Any]) -> None:
        self.before_send()
        body = json.dumps(frame, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        # JSON has no way to write half of a character pair, which is what names of odd files are made of.
        data = body.encode("utf-8", "replace")
        if len(data) > self.longest:
            raise ValueError(f"{len(data):,} bytes in one message; the limit is `sandbox.message` ({self.longest:,})")
        if not self.listening:
            raise ToolError("the run that this belongs to has ended", code="ended")
        with self._send_lock:
            self._sock.sendall(_HEADER.pack(len(data)) + data)

    async def request(self, frame: dict[str, Any]) -> Any:
        """Send a request and wait for its reply without blocking the loop."""
        loop = asyncio.get_running_loop()
        self._attach(loop)
        number = next(self._ids)
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting[number] = (loop, future)
        frame["id"] = number
        try:
            self.send(frame)
            reply = await future
        finally:
            self._waiting.pop(number, None)
        return _unpack(reply)

    def request_now(self, frame: dict[str, Any]) -> Any:
        """Send a request and block until its reply: for plain synchronous code."""
        number = next(self._ids)
        frame["id"] = number
        self._answers[number] = {}
        try:
            self.send(frame)
            while not self._answers[number]:
                self._deliver(self.receive())
            return _unpack(self._answers[number])
        finally:
            self._answers.pop(number, None)

    # Receiving

    def receive(self) -> dict[str, Any]:
        """Block for the next frame. The host going away ends the process: nobody is left to work for."""
        with self._read_lock:
            while True:
                frame = self._next_frame()
                if frame is not None:
                    return frame
                data = self._sock.recv(1 << 18)
                if not data:
                    raise SystemExit(0)
                self._buffer += data

    def _next_frame(self) -> dict[str, Any] | None:
        if len(self._buffer) < 4:
            return None
        (size,) = _HEADER.unpack_from(self._buffer)
        if len(self._buffer) < 4 + size:
            return None
        body = bytes(memoryview(self._buffer)[4 : 4 + size])
        del self._buffer[: 4 + size]
        return json.loads(body)

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop in self._attached:
            return
        self._attached = [known for known in self._attached if not known.is_closed()]
        loop.add_reader(self._sock.fileno(), self._on_readable)
        self._attached.append(loop)

    def _on_readable(self) -> None:
        if not self._read_lock.acquire(blocking=False):
            return
        frames: list[dict[str, Any]] = []
        try:
            data = self._sock.recv(1 << 18, socket.MSG_DONTWAIT)
            if not data:
                raise SystemExit(0)
            self._buffer += data
            while (frame := self._next_frame()) is not None:
                frames.append(frame)
        except BlockingIOError:
            pass
        finally:
            self._read_lock.release()
        for frame in frames:
            self._deliver(frame)

    def _deliver(self, frame: dict[str, Any]) -> None:
        number = frame.get("id", 0)
        if number in self._answers:
            self._answers[number] = frame
            return
        waiter = self._waiting.get(number)
        if waiter is None:
            return
        loop, future = waiter
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if loop is running:
            _resolve(future, frame)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, future, frame)


def _resolve(future: asyncio.Future[Any], frame: dict[str, Any]) -> None:
    if not future.done():
        future.set_result(frame)


def _unpack(reply: dict[str, Any]) -> Any:
    error = reply.get("error")
    if error is not None:
        raise ToolError(
            error.get("message", "failed"),
            server=error.get("server", ""),
            tool=error.get("tool", ""),
            code=error.get("code", "tool"),
        )
    return reply.get("ok")


_channel: Channel | None = None


def open_channel(descriptor: int) -> Channel:
    """Take the inherited descriptor; called once, by boot."""
    global _channel  # noqa: PLW0603 - one process, one channel
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(True)
    sock.set_inheritable(False)
    _channel = Channel(sock)
    return _channel


def channel() -> Channel:
    if _channel is None:
        raise RuntimeError("this program is not running inside a Toolfold sandbox")
    return _channel


async def call_tool(server: str, tool: str, arguments: dict[str, Any]) -> Any:
    """Call one upstream tool by its original names; what generated functions do."""
    from .results import to_value

    try:
        reply = await channel().request({"t": "call", "server": server, "tool": tool, "arguments": arguments})
    except (TypeError, ValueError) as error:
        if isinstance(error, RecursionError):
            raise
        raise TypeError(f"{server}.{tool}: arguments must be plain JSON data ({error})") from None
    return to_value(reply, server, tool)


def warn(text: str) -> None:
    """A note for the reader of the output."""
    sys.stdout.write(f"note: {text}\n")
