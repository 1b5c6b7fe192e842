"""Waiting: for a process to end, and for work that must not be given up half way."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def exit_code(process: subprocess.Popen[bytes]) -> int:
    """The code with which it ended. The process is reaped here, unless the waiting is cancelled before it ends."""
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

    def on_readable() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, on_readable)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


async def uninterrupted(work: asyncio.Future[T], on_cancel: Callable[[T], object]) -> T:
    """The result of work in a thread (`run_in_executor`), which goes on there when this task is cancelled.

    A cancellation is raised once the work is done; its result, if it has one, goes to `on_cancel` then.
    """
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return work.result()
    if not work.cancelled() and work.exception() is None:
        on_cancel(work.result())
    raise cancelled


def in_words(code: int) -> str:
    """ "exit code 3", or "killed by SIGSEGV" for -11 and for 139, which is how containers tell it."""
    number = -code if code < 0 else code - 128
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"exit code {code}"
