"""One container's life, through the engine's client that is attached to it.

Closing our end of its input ends the container from inside: its first process goes, and with it all others. The engine
is told to remove it when that was not enough, and the cell has ended only when the engine says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import struct
import subprocess
from pathlib import Path
from typing import IO

from toolfold.config.settings import SandboxSettings
from toolfold.errors import LimitExceeded, SandboxDied, SandboxUnavailable
from toolfold.sandbox.container.engine import ContainerEngine
from toolfold.sandbox.container.leftovers import mark
from toolfold.sandbox.exits import exit_code, in_words
from toolfold.sandbox.processes import PIPES_PER_PROCESS, Hoards, Processes, Sleep
from toolfold.sandbox.walls.cgroup import freezer_within

_RECORD = struct.Struct(">cI")
_OUTPUT, _CHANNEL, _OUT_OF_MEMORY = b"o", b"c", b"m"
_MAX_RECORD = 1 << 20
_ENGINE_FAILED = (125, 126, 127)
"""Exit codes with which an engine says that the container did not start."""
_ERROR_BYTES = 4096
_GOES_BY_ITSELF = 1.0
_MUST_BE_GONE = 30.0
_KILLED = 128 + signal.SIGKILL


class ContainerCell:
    """`inner` is the end of the channel that the engine's client reads; what the container sends is written to it."""

    def __init__(
        self,
        engine: ContainerEngine,
        name: str,
        settings: SandboxSettings,
        process: subprocess.Popen[bytes],
        channel: socket.socket,
        inner: socket.socket,
    ) -> None:
        self.channel = channel
        self._engine = engine
        self._name = name
        self._settings = settings
        self._process = process
        self._inner = inner
        self._output, self._printed = socket.socketpair()
        self.output = self._output.fileno()
        self._error_output = b""
        self._started = False
        self._killed = asyncio.Event()
        self._ended: asyncio.Task[str] | None = None
        self._broken: LimitExceeded | None = None
        self._budget = float("inf")
        self._processes: Processes | None = None
        self._sleep: Sleep | None = None
        self._hoards: Hoards | None = None
        self._tasks = [asyncio.create_task(work) for work in (self._deliver(), self._listen())]

    def kill(self) -> None:
        if not self._killed.is_set():
            self._killed.set()
            # This ends every wait for one of them.
            for end in (self._inner, self._printed):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    async def wait(self) -> str:
        if self._ended is None:
            self._ended = asyncio.create_task(self._wait())
        return await asyncio.shield(self._ended)

    async def _wait(self) -> str:
        try:
            await self._gone()
            if not self._killed.is_set():
                # Its last output may still be on its way to us.
                await asyncio.wait(self._tasks, timeout=1)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
            self._processes = self._sleep = self._hoards = None
            for end in (self.channel, self._inner, self._output, self._printed):
                end.close()
        return self._ending(self._process.returncode or 0)

    def _ending(self, code: int) -> str:
        output = self._error_output.decode(errors="replace").strip()
        if output and (code in _ENGINE_FAILED or not self._started):
            return f"{self._engine.name} failed: {output[-400:]}"
        if code == _KILLED and not self._killed.is_set():
            # The kernel took our first process when it looked for memory: nothing else kills it.
            self._broken = self._broken or self._too_much_memory()
        return in_words(code)

    async def _gone(self) -> None:
        """The engine's client ends once the container is gone. One that must go and stays is removed by force."""
        either = [asyncio.create_task(exit_code(self._process)), asyncio.create_task(self._killed.wait())]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        for task in either:
            task.cancel()
        await asyncio.wait(either)
        if await self._exited(_GOES_BY_ITSELF):
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _MUST_BE_GONE
        problem = ""
        while loop.time() < deadline:
            try:
                await self._engine.do("rm", "--force", self._name, seconds=10)
            except SandboxUnavailable as error:
                problem = error.message  # perhaps it does not exist yet: the client is still creating it
            if await self._exited(0.5):
                return
        self._process.kill()
        await exit_code(self._process)
        raise SandboxDied(f"the container {self._name} did not end within {_MUST_BE_GONE:.0f} s. {problem}")

    async def _exited(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await exit_code(self._process)
        return self._process.returncode is not None

    # What comes out

    async def _deliver(self) -> None:
        """Sort the container's records into what it sent and what it printed, in the order they came."""
        stream, pipe = await _reading(self._process.stdout)
        try:
            while True:
                kind, size = _RECORD.unpack(await stream.readexactly(_RECORD.size))
                if size > _MAX_RECORD:
                    break
                data = await stream.readexactly(size)
                try:
                    await self._record(kind, data)
                except OSError:
                    # The client ends only when all that it has was read, wanted or not.
                    if not self._killed.is_set():
                        raise
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            pipe.close()
        # Whatever it was, nothing more will come: the reader of the channel learns it here.
        self._printed.close()
        with contextlib.suppress(OSError):
            self._inner.shutdown(socket.SHUT_RDWR)

    async def _record(self, kind: bytes, data: bytes) -> None:
        if kind == _CHANNEL:
            if not self._started:
                self._started = True
                await asyncio.to_thread(self._find_processes)
            await _send(self._inner, data)
        elif kind == _OUTPUT:
            if not self._started:
                self._error_output = (self._error_output + data)[-_ERROR_BYTES:]
            await _send(self._printed, data)
        elif kind == _OUT_OF_MEMORY:
            self._broken = self._broken or self._too_much_memory()
        else:
            raise OSError("not a record of ours")

    async def _listen(self) -> None:
        """The engine's own words, for when the container did not start."""
        stream, pipe = await _reading(self._process.stderr)
        try:
            while data := await stream.read(_ERROR_BYTES):
                self._error_output = (self._error_output + data)[-_ERROR_BYTES:]
        finally:
            pipe.close()

    # Supervision: where the container's processes are processes of this machine

    def _find_processes(self) -> None:
        """Called when the first bytes of the guest have arrived, and no program has run yet."""
        first = _first_process(self._name)
        if first is not None:
            self._processes = Processes(first, ())
            self._sleep = Sleep(self._processes, freezer_within(first, self._processes.pids()))
            self._hoards = Hoards(self._processes, self._sleep, PIPES_PER_PROCESS * self._settings.processes)

    def begin(self, seconds: float) -> None:
        self.resume()
        if self._hoards is not None:
            self._hoards.begin()
        if self._processes is not None and not self._engine.holds_limits:
            used = self._processes.use(self._settings.memory).cpu
            self._budget = used + seconds * self._settings.cpu

    def pause(self) -> None:
        if self._sleep is not None:
            self._sleep.pause()

    def resume(self) -> None:
        if self._sleep is not None:
            self._sleep.resume()

    def still(self) -> bool:
        return self._sleep is None or self._sleep.still()

    def pids(self) -> list[int]:
        return self._processes.pids() if self._processes is not None else []

    def exceeded(self) -> LimitExceeded | None:
        if self._broken is None and not self._engine.holds_limits and self._processes is not None:
            self._broken = self._measured(self._processes)
        if self._broken is None and self._hoards is not None:
            self._broken = self._hoards.exceeded()
        return self._broken

    def _measured(self, processes: Processes) -> LimitExceeded | None:
        """What the engine does not hold is measured."""
        use = processes.use(self._settings.memory)
        if use.memory > self._settings.memory:
            return self._too_much_memory()
        if use.cpu > self._budget:
            cores = f"{self._settings.cpu:g} core(s)"
            message = f"The program used more processor time than {cores} give within its time."
            return LimitExceeded(message, limit="sandbox.cpu")
        return None

    def _too_much_memory(self) -> LimitExceeded:
        message = f"The program and everything it started used more than {self._settings.memory:,} bytes of memory."
        return LimitExceeded(message, limit="sandbox.memory")


async def _reading(file: IO[bytes] | None) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    assert file is not None
    loop = asyncio.get_running_loop()
    stream = asyncio.StreamReader(limit=_MAX_RECORD)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), file)
    return stream, transport


async def _send(target: socket.socket, data: bytes) -> None:
    """Send all of it without ever making the socket non-blocking: the engine's client reads from the same one."""
    loop = asyncio.get_running_loop()
    view = memoryview(data)
    while view:
        try:
            view = view[target.send(view, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            free: asyncio.Future[None] = loop.create_future()
            loop.add_writer(target, _resolve, free)
            try:
                await free
            finally:
                loop.remove_writer(target)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _first_process(name: str) -> int | None:
    """The container's first process, where it is on this machine and not in an engine's virtual one.

    It has the container's mark among its arguments and is number 1 in a namespace of its own, which no program can
    make itself.
    """
    marked = f'"mark": "{mark(name)}"'.encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if marked not in (path / "cmdline").read_bytes():
                continue
            numbers = next(line for line in (path / "status").read_text().splitlines() if line.startswith("NSpid:"))
        except (OSError, StopIteration):
            continue
        if len(numbers.split()) > 2 and numbers.split()[-1] == "1":
            return int(path.name)
    return None
