"""Locks on files that several processes share: gateways on one data folder, and commands beside them.

The kernel drops a lock when its process ends, however it ends. But a process may also be stopped while it has one, by
Ctrl-Z or a debugger, or hang on a disk that is gone: no wait for a lock is without a limit.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Generator
from pathlib import Path

SECONDS = 10.0
"""How long to wait where a caller says nothing else. Who has a lock writes a few small files."""
_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05


@contextlib.contextmanager
def locked(
    path: Path,
    flags: int = os.O_RDWR | os.O_CREAT,
    *,
    mode: int = 0o600,
    shared: bool = False,
    seconds: float | None = None,
) -> Generator[int]:
    """An open file or folder, alone among all who ask like this. Raises OSError, and TimeoutError, which is one."""
    file = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        lock(file, shared=shared, seconds=seconds)
        yield file
    finally:
        os.close(file)


def lock(file: int, *, shared: bool = False, seconds: float | None = None) -> None:
    """Lock an open file or folder until it is closed. Raises OSError, and TimeoutError, which is one."""
    limit = SECONDS if seconds is None else seconds
    deadline, pause = time.monotonic() + limit, _FIRST_PAUSE
    while not lock_now(file, shared=shared):
        if time.monotonic() > deadline:
            raise TimeoutError(
                errno.ETIMEDOUT, f"another process has held the lock for {limit:g} s; end it, or let it go on"
            )
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def lock_now(file: int, *, shared: bool = False) -> bool:
    """Whether the lock could be had at once. Raises OSError where a file system has no locks."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
