"""Whose containers are whose: each process that makes some holds a lock, and what belongs to no lock is left over."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import secrets
import weakref
from collections.abc import Iterable
from pathlib import Path

from toolfold.locks import lock_now

_PREFIX = "toolfold"


class Lease:
    """This process's right to its containers. The kernel takes it back when the process ends, however it ends."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._home = home
        self._numbers = itertools.count(1)
        while True:
            self._instance = secrets.token_hex(6)
            path = self._path(self._instance)
            file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            # Another process may have found the lock free before it was taken, and removes the file.
            if lock_now(file) and path.exists():
                break
            os.close(file)
        weakref.finalize(self, _end, file, path)

    @property
    def label(self) -> str:
        """On every container whose lock would be in the same folder."""
        return f"toolfold.home={hashlib.sha256(str(self._home.resolve()).encode()).hexdigest()[:16]}"

    def name(self) -> str:
        """For a new container; says which lease it is under."""
        return f"{_PREFIX}-{self._instance}-{next(self._numbers)}"

    def abandoned(self, containers: Iterable[str]) -> list[str]:
        """Those whose process is gone. Locks that are not held are removed."""
        alive = {path.stem for path in self._home.glob("*.lock") if self._is_held(path)}
        return [name for name in containers if name.removeprefix(f"{_PREFIX}-").rpartition("-")[0] not in alive]

    def _path(self, instance: str) -> Path:
        return self._home / f"{instance}.lock"

    def _is_held(self, path: Path) -> bool:
        if path.stem == self._instance:
            return True
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if not lock_now(file):
                return True
            path.unlink(missing_ok=True)
            return False
        finally:
            os.close(file)


def mark(name: str) -> str:
    """By which a container's processes are known among all others. Unlike the name it tells programs nothing."""
    return hashlib.sha256(name.encode()).hexdigest()[:24]


def _end(lock: int, path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
    os.close(lock)
