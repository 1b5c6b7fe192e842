"""The gateway's side of the process supervisor: start a stdio server, be told when it exits, stop it.

The supervisor is a process of its own, in `supervisor_process.py`, which explains why.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STOP_TIMEOUT = 6.0
"""Longer than all grace periods of the supervisor together, so it is reached only when the machine is stuck."""


@dataclass(frozen=True)
class Exit:
    """How a server's process ended: exit status (negative for a signal, None if unknown) and the end of its stderr."""

    status: int | None
    stderr_tail: str = ""

    def __str__(self) -> str:
        if self.status is None:
            return "ended for an unknown reason"
        if self.status < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-self.status).name}"
            return f"was killed by signal {-self.status}"
        return f"ended with exit status {self.status}"


class StartRefusedError(Exception):
    """The operating system would not start the command. `step` is `cwd` or `command`."""

    def __init__(self, errno: int, step: str) -> None:
        super().__init__(os.strerror(errno))
        self.errno = errno
        self.step = step


class ServerProcess:
    """One started server process."""

    def __init__(self, supervisor: Supervisor, number: int, pid: int) -> None:
        self._supervisor = supervisor
        self.number = number
        self.pid = pid
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[Exit] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        """Done when the process and everything that it started are gone."""

    async def stop(self, *, patience: float = 2.0, grace: float = 1.0) -> None:
        """End a server whose stdin has been closed: wait, then SIGTERM, then SIGKILL, with all its descendants."""
        await asyncio.wait({self.exited}, timeout=patience)
        if not self.exited.done():
            await self._supervisor.request_stop(self.number, grace)
        await asyncio.wait({self.gone}, timeout=STOP_TIMEOUT)


class Supervisor:
    """Starts the supervisor process at the first `start`; `close` ends it and everything that it started."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._received = b""
        self._numbers = 0
        self._starting: dict[int, asyncio.Future[ServerProcess]] = {}
        self._servers: dict[int, ServerProcess] = {}
        self._sending = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()

    async def start(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, log: Path, stdin: int, stdout: int
    ) -> ServerProcess:
        """Start a program on the given ends of its pipes. The descriptors stay the caller's to close."""
        if self._control is None:
            self._launch()
        self._numbers += 1
        number = self._numbers
        started: asyncio.Future[ServerProcess] = asyncio.get_running_loop().create_future()
        self._starting[number] = started
        message = {"do": "start", "id": number, "argv": [*argv], "env": {**env}, "cwd": cwd, "log": str(log)}
        try:
            await self._send(message | {"mark": secrets.token_hex(16)}, (stdin, stdout))
            return await asyncio.shield(started)
        except asyncio.CancelledError:
            # What starts now has no owner, so it is stopped as soon as it has an id.
            started.add_done_callback(lambda done: done.exception() or self._abandon(number))
            raise

    def _abandon(self, number: int) -> None:
        """Stop a server whose start was cancelled."""
        if number in self._servers:
            self._in_background(self.request_stop(number, 0.0))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def request_stop(self, number: int, grace: float) -> None:
        with contextlib.suppress(OSError):
            await self._send({"do": "stop", "id": number, "grace": grace})

    def _launch(self) -> None:
        ours, theirs = socket.socketpair()
        script = Path(__file__).with_name("supervisor_process.py")
        log = os.open(self._log_dir / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # A session of its own: Ctrl-C in the terminal must reach us first, and it must survive us.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        finally:
            theirs.close()
            os.close(log)
        ours.setblocking(False)
        self._control = ours
        self._received = b""
        asyncio.get_running_loop().add_reader(ours.fileno(), self._readable)

    async def _send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        data = json.dumps(message).encode() + b"\n"
        await self._sending.acquire()
        try:
            if self._control is None:
                raise BrokenPipeError
            sent = 0
            if fds:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                while not sent:
                    try:
                        sent = self._control.sendmsg([data[:4096]], rights)
                    except BlockingIOError:
                        await asyncio.sleep(0.01)
        except BaseException:
            self._sending.release()
            raise
        # What was sent in part is completed even if the caller is cancelled, so that the next request is readable.
        rest = self._in_background(asyncio.get_running_loop().sock_sendall(self._control, data[sent:]))
        rest.add_done_callback(self._sent)
        await asyncio.shield(rest)

    def _sent(self, rest: asyncio.Future[None]) -> None:
        self._sending.release()
        if not rest.cancelled():
            rest.exception()

    def _readable(self) -> None:
        assert self._control is not None
        try:
            data = self._control.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._on_event(json.loads(line))

    def _on_event(self, event: dict[str, Any]) -> None:
        number: int = event["id"]
        match event["event"]:
            case "started":
                server = self._servers[number] = ServerProcess(self, number, event["pid"])
                _settle(self._starting.pop(number), server)
            case "refused":
                started = self._starting.pop(number)
                if not started.done():
                    started.set_exception(StartRefusedError(event["errno"], event["step"]))
            case "exited":
                _settle(self._servers[number].exited, Exit(event["status"], event["tail"]))
            case _:
                server = self._servers.pop(number)
                _settle(server.exited, Exit(None))
                _settle(server.gone, None)

    def _lost(self) -> None:
        """The supervisor has died: kill the servers from here, as far as that is possible."""
        self._disconnect()
        for started in self._starting.values():
            if not started.done():
                started.set_exception(ChildProcessError("the process that starts servers ended"))
        self._starting.clear()
        self._kill_servers()
        self._forget_servers()
        if self._process is not None:
            self._process.poll()

    def _kill_servers(self) -> None:
        for server in self._servers.values():
            if not server.exited.done():
                with contextlib.suppress(OSError):
                    os.killpg(server.pid, signal.SIGKILL)

    def _forget_servers(self) -> None:
        for server in self._servers.values():
            _settle(server.exited, Exit(None))
            _settle(server.gone, None)
        self._servers.clear()

    def _disconnect(self) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None

    async def close(self) -> None:
        """End everything that was started, with all descendants, and the supervisor itself."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._disconnect()
        process, self._process = self._process, None
        if process is None:
            return
        for _ in range(int(STOP_TIMEOUT / 0.01)):
            if process.poll() is not None:
                break
            await asyncio.sleep(0.01)
        else:
            self._kill_servers()
            process.kill()
            process.wait()
        self._forget_servers()


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)
