"""bwrap as a child process of ours."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

from toolfold.sandbox.processes import no_core


class BwrapProcess(subprocess.Popen[bytes]):
    """bwrap, in a process group of its own. `wait` ends what is left in that group.

    bwrap makes the first process inside and then tells it to go on. When bwrap is killed between the two, that process
    waits for ever, still in bwrap's process group.
    """

    def __init__(self, command: Sequence[str], output: int, given: Sequence[int], **options: Any) -> None:
        with no_core():
            super().__init__(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=given,
                process_group=0,
                env={},
                **options,
            )

    def kill(self) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and timeout is None:
            # The group's number may be used again as soon as bwrap has been reaped.
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self.kill()
        return super().wait(timeout)
