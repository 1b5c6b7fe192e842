"""Waiting for a process to end, without a thread where the kernel has a handle for it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys


async def exit_code(process: subprocess.Popen[bytes]) -> int:
    """The code with which it ended. Waiting may be given up; the process is reaped by whoever waits to the end."""
    if process.poll() is None:
        if sys.platform == "linux":
            await _handle_is_readable(os.pidfd_open(process.pid))
        else:
            await asyncio.to_thread(process.wait)
    return process.wait()


async def _handle_is_readable(handle: int) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not ended.done():
            ended.set_result(None)

    loop.add_reader(handle, tell)
    try:
        await ended
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def in_words(code: int) -> str:
    """ "exit code 3", or "killed by SIGSEGV" for -11 and for 139, which is how containers tell it."""
    number = -code if code < 0 else code - 128
    if number in signal.valid_signals():
        return f"killed by {signal.Signals(number).name}"
    return f"exit code {code}"
