"""One live sandbox: start it, give it programs, answer its requests, end it.

This file and `frames.py` are where the hostile side is read. What the guest may do is written here: answer `ready`
once, then, during a run, send requests and exactly one `done`. Anything else ends the sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from toolfold.errors import LimitExceeded, SandboxDied, ToolfoldError
from toolfold.sandbox.frames import Done, FrameError, FrameReader, Message, Progress, Ready, Request, encode
from toolfold.sandbox.protocol import Cell, Room

_START_TIMEOUT = 20.0
_LAST_BREATH = 0.25
_OPEN_REQUESTS = 2000
"""Requests the guest may have open at once before the host stops reading from it."""


class Host(Protocol):
    """What a run may ask of the world outside, and who hears what it prints."""

    async def answer(self, request: Request) -> Any:
        """The reply's data. A ToolfoldError becomes a ToolError in the program; anything else is our fault."""
        ...

    def printed(self, data: bytes) -> None: ...

    def progress(self, text: str, fraction: float | None) -> None: ...


@dataclass
class _Run:
    host: Host
    done: asyncio.Future[Done]
    requests: dict[int, asyncio.Task[None]] = field(default_factory=dict[int, "asyncio.Task[None]"])
    printed: int = 0


class Sandbox(asyncio.Protocol):
    """Wraps a backend's cell. Not reusable after `close`; `alive` tells."""

    def __init__(self, cell: Cell, room: Room, *, output_limit: int) -> None:
        self.room = room
        self._cell = cell
        self._output_limit = output_limit
        self._reader = FrameReader()
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._run: _Run | None = None
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._explaining: asyncio.Task[None] | None = None
        self.alive = True

    @classmethod
    async def start(cls, starting: Awaitable[Cell], room: Room, *, output_limit: int) -> Sandbox:
        """Wait until the guest says that it is ready."""
        cell = await starting
        sandbox = cls(cell, room, output_limit=output_limit)
        await sandbox._connect()
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                await sandbox._ready
        except TimeoutError:
            await sandbox.close()
            raise SandboxDied(f"the sandbox was not ready within {_START_TIMEOUT:.0f} s.") from None
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def _connect(self) -> None:
        os.set_blocking(self._cell.output, False)
        self._loop.add_reader(self._cell.output, self._on_output)
        transport, _ = await self._loop.create_connection(lambda: self, sock=self._cell.channel)
        self._transport = transport

    async def run(self, code: str, host: Host, timeout: float) -> Done:
        """Run one program to its end. Whatever goes wrong ends the sandbox and raises; the program's own error does not."""
        assert self.alive
        assert self._transport is not None
        run = self._run = _Run(host, self._loop.create_future())
        self._transport.write(encode({"t": "run", "code": code}))
        try:
            async with asyncio.timeout(timeout):
                done = await run.done
            self._drain_output()
        except TimeoutError:
            self._drain_output()
            await self.close()
            message = f"The program was stopped after {timeout:g} s."
            raise LimitExceeded(message, limit="sandbox.timeout") from None
        except BaseException:
            await self.close()
            raise
        finally:
            self._run = None
            await _cancel(run.requests.values())
        return done

    async def close(self) -> None:
        """End every process of it and wait until they are gone."""
        self._stop()
        with contextlib.suppress(SandboxDied):
            await self._cell.wait()

    def _stop(self) -> None:
        self._detach()
        self._cell.kill()

    def _detach(self) -> None:
        """Hear nothing more from it."""
        if self.alive:
            self.alive = False
            self._loop.remove_reader(self._cell.output)
            if self._transport is not None:
                self._transport.abort()

    # What the guest sends

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._reader.feed(data):
                self._on_message(message)
        except FrameError as error:
            self._fail(SandboxDied(f"the program broke the sandbox's protocol: {error}."))

    def _on_message(self, message: Message) -> None:
        run = self._run
        if isinstance(message, Ready):
            if self._ready.done():
                raise FrameError("ready was said twice")
            self._ready.set_result(None)
        elif run is None or run.done.done():
            raise FrameError("a message outside of a run")
        elif isinstance(message, Done):
            run.done.set_result(message)
        elif isinstance(message, Progress):
            run.host.progress(message.text, message.fraction)
        else:
            self._on_request(run, message)

    def _on_request(self, run: _Run, request: Request) -> None:
        if request.id in run.requests:
            raise FrameError(f"request {request.id} is open already")
        task = asyncio.create_task(self._answer(run, request))
        run.requests[request.id] = task
        if len(run.requests) >= _OPEN_REQUESTS and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    async def _answer(self, run: _Run, request: Request) -> None:
        reply: dict[str, Any] = {"id": request.id}
        try:
            reply["ok"] = await run.host.answer(request)
        except ToolfoldError as error:
            reply["error"] = {"message": str(error), "code": error.code}
            reply["error"] |= {name: getattr(request, name, "") for name in ("server", "tool")}
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if not run.done.done():
                run.done.set_exception(error)
            return
        finally:
            run.requests.pop(request.id, None)
            if self._paused and self._transport is not None and len(run.requests) < _OPEN_REQUESTS // 2:
                self._paused = False
                self._transport.resume_reading()
        if self.alive and self._transport is not None and self._run is run:
            self._transport.write(encode(reply))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.alive:
            self._drain_output()
            self._fail(None)

    def _fail(self, error: ToolfoldError | None) -> None:
        """The guest is gone or must go: end it, and tell whoever waits, once it is known how it ended."""
        if not self.alive:
            return
        self._detach()
        waiting = self._run.done if self._run is not None else self._ready
        self._explaining = asyncio.create_task(self._explain(waiting, error))

    async def _explain(self, waiting: asyncio.Future[Any], error: ToolfoldError | None) -> None:
        try:
            if error is None:
                # It closed the channel by itself: most likely it is ending, and how it ends is worth knowing.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_BREATH):
                        await self._cell.wait()
            self._cell.kill()
            ending = await self._cell.wait()
        except SandboxDied as failure:
            ending = str(failure)
        if not waiting.done():
            waiting.set_exception(error or _died(ending))

    # What the program prints

    def _on_output(self) -> None:
        try:
            data = os.read(self._cell.output, 1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._cell.output)
            return
        self._take_output(data)

    def _take_output(self, data: bytes) -> None:
        run = self._run
        if run is None:
            return
        run.printed += len(data)
        if run.printed > self._output_limit:
            message = f"The program printed more than {self._output_limit:,} bytes."
            hint = "Print less, or write to a file in workspace/. The limit is `sandbox.output` in the settings."
            self._fail(LimitExceeded(message, limit="sandbox.output", hint=hint))
            return
        run.host.printed(data)

    def _drain_output(self) -> None:
        """Take what was printed before the last frame: the pipe and the channel are two ways."""
        while self.alive:
            try:
                data = os.read(self._cell.output, 1 << 18)
            except OSError:
                return
            if not data:
                return
            self._take_output(data)


def _died(ending: str) -> SandboxDied:
    hint = ""
    if "SIGKILL" in ending or "137" in ending:
        hint = "Perhaps it used too much memory; the limit is `sandbox.memory` in the settings."
    elif "SIGSEGV" in ending:
        hint = "Perhaps it recursed too deeply."
    return SandboxDied(f"The program ended its interpreter ({ending}).", hint=hint)


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Requests end with the program: nothing is called on its behalf afterwards."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending, timeout=5)
