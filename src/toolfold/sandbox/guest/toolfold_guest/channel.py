"""The one way out of the sandbox: length-prefixed JSON frames on one socket. What comes in may have texts behind it.

It belongs to no event loop. Programs write `await x`, `asyncio.run(main())`, `loop.run_until_complete(...)` and start
threads: any loop or thread that waits for a reply reads for all of them, and each reply is handed to the one it is for.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import queue
import socket
import struct
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, cast

_HEADER = struct.Struct(">I")
MAX_VALUES = 200_000
"""Values in one message that the host takes; `sandbox/frames.py` counts them the same way."""
_CALLER_FRAMES = 20


class ToolError(Exception):
    """A tool, or the way to it, failed. `server` and `tool` say which one; `code` says what kind of failure."""

    def __init__(self, message: str, *, server: str = "", tool: str = "", code: str = "tool") -> None:
        super().__init__(message)
        self.server = server
        self.tool = tool
        self.code = code


class PolicyDenied(ToolError):
    """The call is not allowed here, and would be refused again."""


class ApprovalDenied(PolicyDenied):
    """A person was asked about the call and said no, or could not be asked."""


_ERRORS: dict[str, type[ToolError]] = {"policy_denied": PolicyDenied, "approval_denied": ApprovalDenied}
"""Codes of the host's errors that a program may want to tell from others."""

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_decode = json.JSONDecoder().decode
_ENDED: dict[str, Any] = {"error": {"message": "the run that this belongs to has ended", "code": "ended"}}


class _Waiter:
    """One open request.

    `put` stores the reply before it looks for a future to resolve; `Channel.request` sets the future before it looks
    for a reply. So a reply that arrives in between is missed by neither.
    """

    __slots__ = ("future", "loop", "reply")

    def __init__(self) -> None:
        self.reply: dict[str, Any] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Any] | None = None

    def put(self, reply: dict[str, Any]) -> None:
        self.reply = reply
        loop, future = self.loop, self.future
        if loop is None or future is None or loop.is_closed():
            return
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if loop is running:
            _resolve(future, reply)
        else:
            loop.call_soon_threadsafe(_resolve, future, reply)


class Channel:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._number = sock.fileno()
        self._process = os.getpid()
        self._send_lock = threading.Lock()
        # The holder reads for all that wait, and delivers what it read before it releases the lock.
        self._read_lock = threading.Lock()
        self._ids = itertools.count(1)
        self._buffer = bytearray()
        self._incomplete: dict[str, Any] | None = None
        """A frame that has arrived without all of the texts that follow it."""
        self._incoming = memoryview(bytearray(1 << 16))
        self._waiting: dict[int, _Waiter] = {}
        self._orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._attached: list[asyncio.AbstractEventLoop] = []
        self.before_send: Callable[[], None] = lambda: None
        self.longest = 1 << 62
        """Bytes of one frame that the host takes."""
        self._listening = True

    # Between runs

    def next_order(self) -> dict[str, Any]:
        """Block until the host sends an order. Ends the process when the host closes the channel."""
        self._give_up()
        while True:
            if self._read_lock.acquire(blocking=False):
                try:
                    while self._orders.empty():
                        self._read()
                finally:
                    self._read_lock.release()
            try:
                # A thread that the last run left behind may be the one that reads.
                order = self._orders.get(timeout=0.05)
            except queue.Empty:
                continue
            self._listening = True
            return order

    def _give_up(self) -> None:
        """Resolve what an ended run still waits for: the host will not answer it."""
        for waiter in [*self._waiting.values()]:
            if waiter.reply is None:
                waiter.put(_ENDED)

    # Sending

    def send(self, frame: dict[str, Any], *, last: bool = False) -> None:
        """Send one frame. After the `last` one of a run nothing may follow, so what a thread sends then is refused."""
        if os.getpid() != self._process:
            raise RuntimeError("only the program itself can call tools, not a process it forked: use `asyncio.gather`")
        self.before_send()
        # JSON has no way to write half of a character pair, which is what names of odd files are made of.
        data = _encode(frame).encode("utf-8", "replace")
        if len(data) > self.longest:
            raise ValueError(f"{len(data):,} bytes in one message; the limit is `sandbox.message` ({self.longest:,})")
        if len(data) > MAX_VALUES and _values(data) > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES:,} values in one message; send them in several calls")
        with self._send_lock:
            if not self._listening:
                raise ToolError(_ENDED["error"]["message"], code="ended")
            self._listening = not last
            self._sock.sendall(_HEADER.pack(len(data)) + data)

    async def request(self, frame: dict[str, Any]) -> Any:
        """Send a request and wait for its reply without holding up anything else in the loop."""
        loop = asyncio.get_running_loop()
        self._attach(loop)
        number = next(self._ids)
        frame["id"] = number
        waiter = self._waiting[number] = _Waiter()
        try:
            self.send(frame)
            self._read_while_idle(loop, waiter)
            if waiter.reply is None:
                waiter.loop, waiter.future = loop, loop.create_future()
                if waiter.reply is None:
                    return _unpack(await waiter.future)
            return _unpack(waiter.reply)
        finally:
            del self._waiting[number]

    def request_now(self, frame: dict[str, Any]) -> Any:
        """Send a request and block until its reply: for plain synchronous code."""
        number = next(self._ids)
        frame["id"] = number
        waiter = self._waiting[number] = _Waiter()
        try:
            self.send(frame)
            while waiter.reply is None:
                with self._read_lock:
                    if waiter.reply is None:
                        self._read()
            return _unpack(waiter.reply)
        finally:
            del self._waiting[number]

    # Receiving

    def _read(self, flags: int = 0) -> None:
        """Read what there is and hand it out. The reading lock is held."""
        size = self._sock.recv_into(self._incoming, 0, flags)
        if not size:
            raise SystemExit(0)
        self._buffer += self._incoming[:size]
        while (frame := self._next_frame()) is not None:
            self._deliver(frame)

    def _next_frame(self) -> dict[str, Any] | None:
        """The next frame that is here with all that follows it."""
        frame = self._incomplete or self._take_frame()
        if frame is None:
            return None
        more = frame.get("follows", 0)
        if len(self._buffer) < more:
            self._incomplete = frame
            return None
        self._incomplete = None
        if more:
            with memoryview(self._buffer) as texts:
                _put_in(frame, texts)
            del self._buffer[:more]
        return frame

    def _take_frame(self) -> dict[str, Any] | None:
        if len(self._buffer) < 4:
            return None
        (size,) = _HEADER.unpack_from(self._buffer)
        if len(self._buffer) < 4 + size:
            return None
        body = self._buffer[4 : 4 + size].decode()
        del self._buffer[: 4 + size]
        frame = parse(body)
        if "t" not in frame:
            frame["size"] = size + frame.get("follows", 0)
        return frame

    def _read_while_idle(self, loop: Any, waiter: _Waiter) -> None:
        """While the loop has nothing else to do, wait here for the reply: that saves it two rounds.

        The loop's own selector is asked, so that whatever else happens meanwhile is noticed and left to the loop.
        """
        try:
            selector, ready, scheduled = loop._selector, loop._ready, loop._scheduled
        except AttributeError:
            return
        while not ready and waiter.reply is None and self._read_lock.acquire(blocking=False):
            try:
                left = scheduled[0].when() - loop.time() if scheduled else None
                if left is not None and left <= 0:
                    return
                events = selector.select(left)
                if len(events) == 1 and events[0][0].fd == self._number:
                    self._read(socket.MSG_DONTWAIT)
                else:
                    loop._process_events(events)
                    return
            except BlockingIOError:
                pass
            finally:
                self._read_lock.release()

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop in self._attached:
            return
        self._attached = [known for known in self._attached if not known.is_closed()]
        loop.add_reader(self._number, self._on_readable)
        self._attached.append(loop)

    def _on_readable(self) -> None:
        if not self._read_lock.acquire(blocking=False):
            return
        try:
            self._read(socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        finally:
            self._read_lock.release()

    def _deliver(self, frame: dict[str, Any]) -> None:
        if "t" in frame:
            self._orders.put(frame)
            return
        waiter = self._waiting.get(frame["id"])
        if waiter is not None:
            waiter.put(frame)


def _values(data: bytes) -> int:
    """What stands between strings counts: commas, and what opens a list or an object."""
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    return sum(part.count(b",") + part.count(b"[") + part.count(b"{") for part in bare)


def parse(text: str) -> Any:
    """JSON. Large data is many objects and no garbage: looking for garbage meanwhile only costs time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _decode(text)
    finally:
        if collecting:
            gc.enable()


def _put_in(reply: dict[str, Any], texts: memoryview) -> None:
    """Long texts came behind the frame; it says where each one begins and ends."""
    for part in reply["ok"]["parts"]:
        if isinstance(part.get("text"), list):
            begin, end = part["text"]
            part["text"] = str(texts[begin:end], "utf-8")


def _resolve(future: asyncio.Future[Any], frame: dict[str, Any]) -> None:
    if not future.done():
        future.set_result(frame)


def _unpack(reply: dict[str, Any]) -> Any:
    error = reply.get("error")
    if error is not None:
        raise _ERRORS.get(error.get("code"), ToolError)(
            error.get("message", "failed"),
            server=error.get("server", ""),
            tool=error.get("tool", ""),
            code=error.get("code", "tool"),
        )
    answer: Any = reply.get("ok")
    if isinstance(answer, dict):
        answer["size"] = reply["size"]
    return cast("Any", answer)


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
        reply = await channel().request(
            {"t": "call", "server": server, "tool": tool, "arguments": arguments, "line": program_line()}
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, RecursionError):
            raise
        raise TypeError(f"{server}.{tool}: arguments must be plain JSON data ({error})") from None
    return to_value(reply, server, tool)


def program_line() -> int:
    """The line of the running program that makes the call, for the person who may be asked about it; 0 if unknown."""
    filename = getattr(sys.modules["__main__"], "__file__", None)
    frame: types.FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    for _ in range(_CALLER_FRAMES):
        if frame is None:
            break
        if frame.f_code.co_filename == filename:
            return frame.f_lineno
        frame = frame.f_back
    # In `gather` the loop is what called; the call itself remembers where it was made.
    try:
        origin: Any = getattr(asyncio.current_task().get_coro(), "cr_origin", None)  # pyright: ignore[reportOptionalMemberAccess]
    except (RuntimeError, AttributeError):
        return 0
    return next((line for file, line, _ in origin or () if file == filename), 0)


def warn(text: str) -> None:
    """A note for the reader of the output."""
    sys.stdout.write(f"note: {text}\n")
