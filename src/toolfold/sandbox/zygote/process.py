"""One zygote, seen from the host: bwrap around a warm interpreter that clones sandboxes when it is asked to.

A zygote's view holds more than its clones may see: the folders in which homes are. It runs no program and is trusted
with that; a clone leaves this view for its own before anything else happens (`guest/toolfold_guest/zygote.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from toolfold.errors import SandboxUnavailable
from toolfold.sandbox.bubblewrap.launcher import Launcher
from toolfold.sandbox.exits import readable
from toolfold.sandbox.processes import read_small
from toolfold.sandbox.protocol import SessionHome
from toolfold.sandbox.zygote.launch import SHELVES, Launched, launch
from toolfold.sandbox.zygote.shelf import Shelf

_START_SECONDS = 20.0
CLONE_SECONDS = 10.0
_END_SECONDS = 10.0
_ERROR_BYTES = 2000
"""As much of what a zygote writes to standard error is kept."""
_PF_EXITING = 0x4
"""In the flags of a process that is ending, while it waits for everything in its namespace to end before it."""
# What both sides of the control socket know; the other side is the guest's `zygote.py`.
_REQUEST = struct.Struct("=I")
_REPLY = struct.Struct("=i")
_PATH_BYTES = 4096
_ADMITTED = b"g"
_MAPPED_USER = 1000
"""Who a zygote is inside, where there is one user only."""


class ZygoteEnded(Exception):
    """The zygote ended before it answered. Another one may be asked."""


@dataclass(frozen=True)
class Clone:
    """A process that was cloned and waits: first for its order, then to be admitted."""

    pid: int
    handle: int
    channel: socket.socket
    output: int
    status: int

    def send(self, order: bytes) -> None:
        """It goes on by itself, and writes to `output` when it cannot."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended; its cell tells how
            self.channel.send(order)

    def admit(self) -> None:
        """It is in its control group now."""
        self.send(_ADMITTED)

    def close(self) -> None:
        """For a clone that gets no cell."""
        self.channel.close()
        for descriptor in (self.handle, self.output, self.status):
            os.close(descriptor)


class Zygote:
    """Made by `start`. `clones` counts all that were ever made.

    A task of its own waits for its end, whatever ends it: `end`, the loop that closes, something outside. Then it ends
    what is left and closes all descriptors.
    """

    def __init__(self, launched: Launched, control: socket.socket, errors: int, shelves: list[Shelf]) -> None:
        self._bwrap = launched.process
        self.pid = launched.pid
        self._handle = launched.handle
        self._control = control
        self._errors = errors
        self._shelves = shelves
        self.error_output = ""
        """What it wrote to standard error, once it has ended."""
        self._is_closed = False
        self._ended = asyncio.create_task(self._until_ended())
        self.clones = 0

    @classmethod
    async def start(cls, launcher: Launcher, api: Path, folders: Iterable[Path]) -> Zygote:
        """`folders` are those in which homes are. Raises SandboxUnavailable."""
        if launcher.filter is None:
            raise SandboxUnavailable("a zygote needs the system-call filter, which is not written for this machine.")
        zygote = await cls._launch(launcher, api, folders)
        try:
            async with asyncio.timeout(_START_SECONDS):
                await zygote._warm(launcher.filter)
        except BaseException as error:
            await zygote.end()
            if isinstance(error, OSError | TimeoutError):
                raise SandboxUnavailable(f"the zygote did not start: {zygote.error_output or error}.") from error
            raise
        return zygote

    @classmethod
    async def _launch(cls, launcher: Launcher, api: Path, folders: Iterable[Path]) -> Zygote:
        with contextlib.ExitStack() as opened:
            errors, output = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(errors, False)
            opened.callback(os.close, errors)
            try:
                shelves: list[Shelf] = []
                for folder in folders:
                    shelves.append(Shelf.open(folder))
                    opened.callback(shelves[-1].close)
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                opened.callback(ours.close)
                with theirs:
                    launched = await launch(launcher, api, [shelf.path for shelf in shelves], theirs.fileno(), output)
            except OSError as error:
                raise SandboxUnavailable(f"the zygote could not be started: {_read(errors) or error}.") from error
            finally:
                os.close(output)
            opened.pop_all()
            return cls(launched, ours, errors, shelves)

    async def _warm(self, rules: bytes) -> None:
        self._control.send(rules)
        await readable(self._control.fileno())
        if self._control.recv(16) != b"ready":
            raise OSError("it ended")

    @property
    def alive(self) -> bool:
        """False as soon as it is known to be gone."""
        if self.is_ending:
            return False
        try:
            return self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    @property
    def is_ending(self) -> bool:
        """Whether it has ended, or its end has begun. When the end of a zygote has ended a clone, this is true."""
        if self._is_closed:
            return True
        try:
            # The number is not used again while the handle says that the process is still there.
            flags = int(read_small(f"/proc/{self.pid}/stat").rpartition(b")")[2].split()[6])
            ended = select.poll()
            ended.register(self._handle, select.POLLIN)
            return bool(flags & _PF_EXITING or ended.poll(0))
        except OSError:
            return True

    def holds(self, folder: Path) -> bool:
        """Whether homes in this folder are in its view."""
        return any(shelf.path == folder and shelf.is_current() for shelf in self._shelves)

    def order(self, home: SessionHome) -> bytes:
        """What a clone is told: where in the zygote's view its home is."""
        number = next(number for number, shelf in enumerate(self._shelves) if shelf.path == home.path.parent)
        paths = [os.fsencode(f"{SHELVES}/{number}/{home.path.name}/{part}") for part in ("workspace", "skills")]
        return b"".join(path.ljust(_PATH_BYTES, b"\0") for path in paths)

    async def clone(self, user: int | None) -> Clone:
        """A clone that will be `user` on the host (None: the zygote's own, which is ours).

        Raises ZygoteEnded, or SandboxUnavailable when the kernel refuses.
        """
        with contextlib.ExitStack() as opened:
            ours, theirs = socket.socketpair()
            opened.callback(ours.close)
            output, output_end = os.pipe2(os.O_CLOEXEC)
            opened.callback(os.close, output)
            status, status_end = os.pipe2(os.O_CLOEXEC)
            opened.callback(os.close, status)
            request = _REQUEST.pack(_MAPPED_USER if user is None else user)
            try:
                socket.send_fds(self._control, [request], [theirs.fileno(), output_end, status_end])
            except OSError as error:
                raise ZygoteEnded from error
            finally:
                theirs.close()
                os.close(output_end)
                os.close(status_end)
            handle = await self._answer(ours)
            try:
                clone = Clone(_number(handle), handle, ours, output, status)
            except OSError as error:
                os.close(handle)
                raise ZygoteEnded from error
            opened.pop_all()
        self.clones += 1
        return clone

    async def _answer(self, channel: socket.socket) -> int:
        """The clone's handle, which the zygote sends on the clone's own channel."""
        try:
            async with asyncio.timeout(CLONE_SECONDS):
                await readable(channel.fileno())
        except TimeoutError:
            # One that is stuck helps as little as one that is gone.
            self._kill()
            raise ZygoteEnded from None
        reply, handles, _, _ = socket.recv_fds(channel, _REPLY.size, 1)
        if len(reply) < _REPLY.size:
            raise ZygoteEnded
        (problem,) = _REPLY.unpack(reply)
        if problem or not handles:
            raise SandboxUnavailable(f"the zygote could not make a sandbox: {os.strerror(problem)}.")
        return handles[0]

    async def end(self) -> None:
        """End it, and with it every clone that is left."""
        self._kill()
        await asyncio.wait([self._ended])

    async def _until_ended(self) -> None:
        handle = os.pidfd_open(self._bwrap.pid)
        try:
            await readable(handle)
            self._kill()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await readable(self._handle)
        finally:
            os.close(handle)
            self.abandon()

    def abandon(self) -> None:
        """`end` for when there is no loop any more."""
        if not self._is_closed:
            self._kill()
            self._bwrap.wait()
            self._close()

    def _kill(self) -> None:
        if not self._is_closed:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            self._bwrap.kill()

    def _close(self) -> None:
        self._is_closed = True
        self.error_output = _read(self._errors)
        self._control.close()
        os.close(self._handle)
        os.close(self._errors)
        for shelf in self._shelves:
            shelf.close()


def _read(descriptor: int) -> str:
    """What is there to read, at most so much."""
    with contextlib.suppress(BlockingIOError):
        return os.read(descriptor, _ERROR_BYTES).decode(errors="replace").strip()
    return ""


def _number(handle: int) -> int:
    """The process's number as it is called here; a handle knows it in every process namespace that can see it."""
    for line in Path(f"/proc/self/fdinfo/{handle}").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "Pid" and int(value) > 0:
            return int(value)
    raise ProcessLookupError
