"""A zygote's clone as a cell: the same supervision as one bwrap's, with another way to end it and to wait for it."""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Callable

from toolfold.config.settings import SandboxSettings
from toolfold.sandbox.bubblewrap.cell import BubblewrapCell
from toolfold.sandbox.zygote.process import Clone

_STATUS = struct.Struct("=i")


class ClonedProcess:
    """Process 1 of a sandbox. It is not our child, so it is known by its handle, and tells itself how it ended."""

    def __init__(self, clone: Clone) -> None:
        self.pid = clone.pid
        self.returncode: int | None = None
        self._handle = clone.handle
        self._status = clone.status

    def kill(self) -> None:
        signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def wait(self) -> int:
        """How the guest ended; called once, after the process has. One that was killed could not tell."""
        told = os.read(self._status, _STATUS.size)
        code: int = _STATUS.unpack(told)[0] if len(told) == _STATUS.size else -signal.SIGKILL
        self.returncode = code
        return code


class ZygoteCell(BubblewrapCell):
    """`on_end` is called once, when nothing of it is left, and may know better how it ended than the cell does."""

    def __init__(self, clone: Clone, settings: SandboxSettings, on_end: Callable[[], str]) -> None:
        super().__init__(ClonedProcess(clone), clone.channel, clone.output, clone.status, settings)
        self._first = (clone.pid, clone.handle)
        self._on_end = on_end

    async def _wait(self) -> str:
        known = ""
        try:
            ending = await super()._wait()
        finally:
            known = self._on_end()
        return known or ending
