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
            handle = os.pidfd_open(process.pid)
            try:
                await readable(handle)
            finally:
                os.close(handle)
        else:
            await asyncio.to_thread(process.wait)
    return process.wait()


async def readable(descriptor: int) -> None:
    """Wait until there is something to read; of a handle on a process, until the process has ended."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, tell)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


def in_words(code: int) -> str:
    """ "exit code 3", or "killed by SIGSEGV" for -11 and for 139, which is how containers tell it."""
    number = -code if code < 0 else code - 128
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"exit code {code}"
