"""Folders of sessions on disk. A pooled sandbox is born with an empty one, which a new session adopts."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import uuid
from pathlib import Path

from toolfold.sandbox.protocol import SessionHome
from toolfold.session.removal import remove_tree


class SessionHomes:
    """Named homes live until they are removed; nameless ones die with this process, even if it was killed."""

    def __init__(self, data_dir: Path) -> None:
        self._named = data_dir / "sessions"
        nameless = data_dir / "homes"
        self._named.mkdir(parents=True, exist_ok=True)
        nameless.mkdir(parents=True, exist_ok=True)
        _sweep(nameless)
        self._own = nameless / uuid.uuid4().hex[:12]
        self._own.mkdir()
        # The lock is what says "in use"; the kernel drops it when this process ends, however it ends.
        self._lock = os.open(self._own / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def new(self) -> SessionHome:
        return _furnish(self._own / uuid.uuid4().hex[:12])

    def named(self, session: str) -> SessionHome | None:
        """The home of a session that exists already."""
        path = self._named / _folder(session)
        return _furnish(path) if path.is_dir() else None

    def adopt(self, home: SessionHome, session: str) -> SessionHome:
        """Give a nameless home a name. What is mounted stays mounted: a rename moves the name, not the folder."""
        path = self._named / _folder(session)
        home.path.rename(path)
        return SessionHome(path)

    def remove(self, home: SessionHome) -> None:
        if home.path.parent == self._own:
            remove_tree(home.path)

    def close(self) -> None:
        remove_tree(self._own)
        os.close(self._lock)


def _furnish(path: Path) -> SessionHome:
    home = SessionHome(path)
    home.workspace.mkdir(parents=True, exist_ok=True)
    home.skills.mkdir(exist_ok=True)
    return home


def _folder(session: str) -> str:
    """Readable, and never a way out of the folder: two names never share one."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", session)[:40]
    return f"{readable}-{hashlib.sha256(session.encode()).hexdigest()[:12]}"


def _sweep(nameless: Path) -> None:
    """Remove what killed processes left."""
    for path in nameless.iterdir():
        try:
            lock = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            remove_tree(path)
        finally:
            os.close(lock)
