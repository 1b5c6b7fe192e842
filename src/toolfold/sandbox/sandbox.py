"""One live sandbox: start it, give it programs, answer its requests, end it.

This file and `frames.py` are where the hostile side is read. What the guest may do is written here: answer `ready`
once, then, during a run, send requests and exactly one `done`. Anything else ends the sandbox, and so does a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from time import thread_time
from typing import Any

from toolfold.config.settings import SandboxSettings
from toolfold.errors import LimitExceeded, SandboxDied, ToolfoldError
from toolfold.guards.context import Deadline
from toolfold.sandbox.costs import Costs
from toolfold.sandbox.frames import Done, FrameError, FrameReader, Message, ProgressReport, Ready, Request, encode
from toolfold.sandbox.protocol import Cell, SessionHome
from toolfold.sandbox.quota import Quota
from toolfold.sandbox.replies import ReplyBudget, give_back_memory
from toolfold.sandbox.run import Host, Run
from toolfold.sandbox.watch import Watch
from toolfold.schema.large import LARGE

_START_TIMEOUT = 20.0
_EXIT_SECONDS = 0.25
"""A guest that has closed its channel has so long to end by itself."""
_UNREAD_REPLIES = 1024 * 1024
"""Bytes of replies that wait in the channel before no more are put there."""
_ERROR_BYTES = 2000
"""As much is kept of what a sandbox prints before it is ready."""
_CHUNK = 1 << 16
_SMALL_CHUNK = 1 << 13
_MUCH = 32 * 1024 * 1024
"""Bytes of replies in one run after which memory is given back to the system."""
_SHORTEST_PAUSE = 0.0005
# A request that is answered without waiting is answered in the same breath, where Python can do that.
_EAGER: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}


class Sandbox(asyncio.BufferedProtocol):
    """Wraps a backend's cell. Not reusable after `close`; `alive` tells."""

    def __init__(self, cell: Cell, home: SessionHome, settings: SandboxSettings, *, empty: bool = False) -> None:
        self._home = home
        self._cell = cell
        self._settings = settings
        quota = Quota(home, settings.disk, empty=empty, shared=settings.shared)
        self._watch = Watch(cell, quota, settings.processes, self._fail)
        self._reader = FrameReader(settings.message)
        self._incoming = memoryview(bytearray(_CHUNK))
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._run: Run | None = None
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self._writable = asyncio.Event()
        self._writable.set()
        self._second = 0.0
        self._messages = 0
        self._early_output = b""
        self._failure: ToolfoldError | None = None
        self._explaining: asyncio.Task[None] | None = None
        self.alive = True
        self.on_end: Callable[[], None] | None = None
        """Called once, when it is no longer alive."""

    @classmethod
    async def start(
        cls, starting: Awaitable[Cell], home: SessionHome, settings: SandboxSettings, *, empty: bool = False
    ) -> Sandbox:
        """Wait until the guest says that it is ready. `empty` promises that the home is, which saves measuring it."""
        sandbox = cls(await starting, home, settings, empty=empty)
        try:
            await sandbox._connect()
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
        transport.set_write_buffer_limits(high=_UNREAD_REPLIES)
        self._transport = transport

    async def wake(self) -> bool:
        """Before a run: whether it can take one. False when it has ended by itself; what it broke is told by `run`."""
        await self._watch.wake()
        if self.alive and self._run is None and _has_ended(self._cell.channel):
            self._fail(None)
        return self.alive or self._failure is not None

    async def run(
        self,
        code: str,
        host: Host,
        limit: Deadline | float,
        replies: ReplyBudget | None = None,
        costs: Costs | None = None,
        context: Mapping[str, str] | None = None,
    ) -> Done:
        """Run one program to its end. What goes wrong ends the sandbox and raises; the program's own error does not.

        `limit` is the run's own clock, or seconds from now; `replies` is what the host fetches within; `context` is
        what the program reads as `toolfold.context`.
        """
        deadline = limit if isinstance(limit, Deadline) else Deadline(limit)
        assert self._transport is not None
        await self.wake()
        if not self.alive:
            if self._explaining is not None:
                await self._explaining
            raise self._failure or SandboxDied("the sandbox has ended.")
        run = self._run = Run(host, self._loop.create_future(), replies or ReplyBudget(), costs or Costs())
        # Half of a character pair cannot be sent, and is no program anyway. Sent before it wakes: it wakes only once.
        order: dict[str, Any] = {"t": "run", "code": _sendable(code)}
        if context:
            order["context"] = {_sendable(name): _sendable(value) for name, value in context.items()}
        self._transport.write(encode(order))
        self._watch.begin(deadline.remaining)
        try:
            async with deadline.enforced(f"The program was stopped after {deadline.seconds:g} s."):
                done = await run.done
            self._drain_output()
            await self._settle()
        except BaseException:
            self._drain_output()
            await self.close()
            raise
        finally:
            self._run = None
            await _cancel(run.requests.values())
            if run.replies.total > _MUCH:
                self._loop.run_in_executor(None, give_back_memory)
        self._watch.rest(failed=bool(done.error))
        return done

    async def _settle(self) -> None:
        """A run that ended well may have broken a limit since the last look."""
        await self._watch.settle()
        if not self.alive:
            raise self._failure or SandboxDied("the sandbox ended with the run.")

    @property
    def cell(self) -> Cell:
        return self._cell

    @property
    def home(self) -> SessionHome:
        """Where its files are. A session that gives the folder another name says so here."""
        return self._home

    @home.setter
    def home(self, home: SessionHome) -> None:
        self._home = self._watch.home = home

    def abort(self, error: ToolfoldError) -> None:
        """End it, and fail the run that is under way with this error."""
        self._fail(error)

    async def close(self) -> None:
        """End every process of it and wait until they are gone."""
        self._stop()
        with contextlib.suppress(SandboxDied):
            await self._cell.wait()

    def _stop(self) -> None:
        self._detach()
        self._cell.kill()

    def _detach(self) -> None:
        """Stop reading from it."""
        if self.alive:
            self.alive = False
            self._watch.stop()
            self._writable.set()
            self._loop.remove_reader(self._cell.output)
            if self._transport is not None:
                self._transport.abort()
            if self.on_end is not None:
                self.on_end()

    # What the guest sends

    def get_buffer(self, sizehint: int) -> memoryview:
        # A chunk full of small messages keeps the loop busy; a large message is best read in large chunks.
        return self._incoming if self._reader.missing > _SMALL_CHUNK else self._incoming[:_SMALL_CHUNK]

    def buffer_updated(self, nbytes: int) -> None:
        try:
            if self._run is None and self._ready.done():
                raise FrameError("a message outside of a run")
            begun = thread_time()
            messages = self._reader.feed(self._incoming[:nbytes])
            if self._run is not None and messages and messages[0][1] > LARGE:
                self._wait(self._run, self._run.costs.stalled(thread_time() - begun))
            self._count(len(messages))
            for message, size in messages:
                self._on_message(message, size)
            if self._run is not None and self._run.done.done() and self._reader.partial:
                raise FrameError("a message outside of a run")
        except FrameError as error:
            self._fail(SandboxDied(f"the program broke the sandbox's protocol: {error}."))
        except LimitExceeded as error:
            self._fail(error)

    def _wait(self, run: Run, seconds: float) -> None:
        """What a guest costs everybody, that guest waits for: nothing is read from it meanwhile, and nothing begun."""
        if seconds:
            run.wait_until = max(run.wait_until, self._loop.time() + seconds)
            if not run.waits:
                run.waits = True
                self._hold_back(run)
                self._loop.call_at(run.wait_until, self._waited, run)

    def _waited(self, run: Run) -> None:
        if not self.alive or self._run is not run:
            return
        if self._loop.time() < run.wait_until:
            self._loop.call_at(run.wait_until, self._waited, run)
            return
        run.waits = False
        self._hold_back(run)
        if run.is_serving:
            self._serve(run)

    def _count(self, messages: int) -> None:
        now = self._loop.time()
        if now - self._second > 1:
            self._second, self._messages = now, 0
        self._messages += messages
        if self._messages > self._settings.messages:
            message = f"The program sent more than {self._settings.messages:,} messages in a second."
            raise LimitExceeded(message, limit="sandbox.messages")

    def _on_message(self, message: Message, size: int) -> None:
        run = self._run
        if isinstance(message, Ready):
            if self._ready.done():
                raise FrameError("a second ready message")
            self._ready.set_result(None)
        elif run is None or run.done.done():
            raise FrameError("a message outside of a run")
        elif isinstance(message, Done):
            run.done.set_result(message)
        elif isinstance(message, ProgressReport):
            run.host.progress(message.text, message.fraction)
        else:
            self._on_request(run, message, size)

    def _on_request(self, run: Run, request: Request, size: int) -> None:
        if request.id in run.requests:
            raise FrameError(f"request {request.id} is open already")
        run.open_bytes += size
        run.requests[request.id] = None
        run.line.append((request, size))
        self._hold_back(run)
        if not run.is_serving:
            run.is_serving = True
            if not run.waits:
                self._serve(run)

    def _serve(self, run: Run) -> None:
        """Begin the requests that are first in line: so many that others have their turn in between."""
        if not self.alive or self._run is not run:
            return
        measured = self._loop.call_soon if not _EAGER else _now
        measured(self._begin_slice, run)
        for _ in range(min(run.slice_length, len(run.line))):
            request, size = run.line.popleft()
            task = asyncio.Task(self._answer(run, request, size), loop=self._loop, **_EAGER)
            if not task.done():
                run.requests[request.id] = task
            run.slice_is_large = size > LARGE
            if run.slice_is_large:
                break
        measured(self._end_slice, run)

    def _begin_slice(self, run: Run) -> None:
        run.slice_begun = thread_time()

    def _end_slice(self, run: Run) -> None:
        if not self.alive or self._run is not run:
            return
        took = run.end_slice(thread_time())
        pause = run.costs.worked(took) if run.line else 0.0
        stall = run.costs.stalled(took) if run.slice_is_large else 0.0
        self._wait(run, stall or (pause if pause > _SHORTEST_PAUSE else 0.0))
        if not run.line:
            run.is_serving = False
        elif not run.waits:
            self._loop.call_soon(self._serve, run)

    def _hold_back(self, run: Run) -> None:
        """Read no further while too much is open, so that what a guest can make the host hold is bounded."""
        if self._transport is None:
            return
        if self._reading and (run.has_too_much_open or run.waits):
            self._reading = False
            self._transport.pause_reading()
        elif not self._reading and run.has_little_open and not run.waits:
            self._reading = True
            self._transport.resume_reading()

    async def _answer(self, run: Run, request: Request, size: int) -> None:
        try:
            reply = await self._reply(run, request)
            begun = thread_time()
            data = encode(reply)
            if len(data) > LARGE:
                self._wait(run, run.costs.answered(len(data), thread_time() - begun))
            async with run.replies.writing(len(data)):
                await self._writable.wait()
                if self.alive and self._transport is not None and self._run is run:
                    self._transport.write(data)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if not run.done.done():
                run.done.set_exception(error)
        finally:
            run.requests.pop(request.id, None)
            run.open_bytes -= size
            if self.alive:
                self._hold_back(run)

    async def _reply(self, run: Run, request: Request) -> dict[str, Any]:
        try:
            return {"id": request.id, "ok": await run.host.answer(request)}
        except ToolfoldError as error:
            about = {name: getattr(request, name, "") for name in ("server", "tool")}
            return {"id": request.id, "error": {"message": str(error), "code": error.code, **about}}

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.alive:
            self._drain_output()
            self._fail(None)

    def _fail(self, error: ToolfoldError | None) -> None:
        """The guest is gone or must go: end it, and fail what waits for it once it is known how it ended."""
        if not self.alive:
            return
        self._detach()
        self._failure = error
        waiting = self._run.done if self._run is not None else self._ready
        self._explaining = asyncio.create_task(self._explain(waiting, error))

    async def _explain(self, waiting: asyncio.Future[Any], error: ToolfoldError | None) -> None:
        try:
            if error is None:
                # It closed the channel by itself: most likely it is ending, and how it ends is worth knowing.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_EXIT_SECONDS):
                        await self._cell.wait()
            self._cell.kill()
            ending = await self._cell.wait()
        except SandboxDied as failure:
            ending = str(failure)
        broken = self._watch.exceeded()
        if not waiting.done():
            waiting.set_exception(error or broken or _died(ending, self._early_output.decode(errors="replace")))

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
            if not self._ready.done():
                self._early_output = (self._early_output + data)[-_ERROR_BYTES:]
            return
        run.printed += len(data)
        if run.printed > self._settings.output:
            message = f"The program printed more than {self._settings.output:,} bytes."
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


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _has_ended(channel: socket.socket) -> bool:
    """Whether the other end is closed, which the loop may not have seen yet."""
    try:
        return not channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError as error:
        return not isinstance(error, BlockingIOError)


def _died(ending: str, early_output: str) -> SandboxDied:
    if early_output:
        return SandboxDied(f"The sandbox did not start ({ending}): {early_output.strip()}")
    hint = "Perhaps it recursed too deeply." if "SIGSEGV" in ending else ""
    return SandboxDied(f"The program ended its interpreter ({ending}).", hint=hint)


def _now(work: Callable[[Run], None], run: Run) -> None:
    work(run)


async def _cancel(tasks: Iterable[asyncio.Task[None] | None]) -> None:
    """Requests end with the program: nothing is called on its behalf afterwards."""
    pending = [task for task in tasks if task is not None and not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending, timeout=5)
