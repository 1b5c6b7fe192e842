"""A zygote's clone as a cell: the same supervision as one bwrap's, with another way to end it and to wait for it."""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Callable

from toolfold.config.settings import SandboxSettings
from toolfold.sandbox.bubblewrap.cell import BubblewrapCell
from toolfold.sandbox.zygote.process import Clone, Zygote

_STATUS = struct.Struct("=i")


class ClonedProcess:
    """Process 1 of a sandbox. It is not our child: it is known by its handle, and tells itself how the guest ended."""

    def __init__(self, clone: Clone) -> None:
        self.pid = clone.pid
        self.returncode: int | None = None
        self.was_killed = False
        """By something else than `kill`, so that it reported no status."""
        self._handle = clone.handle
        self._status = clone.status
        self._kill_sent = False

    def kill(self) -> None:
        self._kill_sent = True
        signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def wait(self) -> int:
        """How the guest ended; called once, after the process has."""
        told = os.read(self._status, _STATUS.size)
        code: int = _STATUS.unpack(told)[0] if len(told) == _STATUS.size else -signal.SIGKILL
        self.was_killed = not told and not self._kill_sent
        self.returncode = code
        return code


class ZygoteCell(BubblewrapCell):
    """`on_end` is called once, when nothing of it is left."""

    def __init__(self, clone: Clone, settings: SandboxSettings, zygote: Zygote, on_end: Callable[[], None]) -> None:
        self._clone = ClonedProcess(clone)
        super().__init__(self._clone, os.dup(clone.handle), clone.channel, clone.output, clone.status, settings)
        self._first = (clone.pid, clone.handle)
        self._zygote = zygote
        self._on_end = on_end

    async def _wait(self) -> str:
        try:
            ending = await super()._wait()
            if self._clone.was_killed and self._zygote.is_ending:
                return "its zygote ended"
        finally:
            self._on_end()
        return ending
