"""Folders of sessions on disk. A pooled sandbox is born with an empty one, which a new session adopts.

    sessions/<id>/       a named session's; lives until it is removed
        session.json     whose it is, and which variables its last run left
        workspace/       the two that the program sees
        skills/
    homes/<process>/     those without a name; they end with the process that made them, however it ends

An `<id>` follows from caller and name but tells neither, since a program could read it in its mount table.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import uuid
from pathlib import Path

import msgspec

from toolfold.sandbox.protocol import SessionHome
from toolfold.session.removal import remove_tree

_STATE = "session.json"


class SessionState(msgspec.Struct, frozen=True):
    """What is known of a named session across processes."""

    caller: str
    name: str
    variables: list[str] = []


class SessionHomes:
    """Named homes live until they are removed; nameless ones end with this process, even if it is killed."""

    def __init__(self, data_dir: Path) -> None:
        self._named = data_dir / "sessions"
        nameless = data_dir / "homes"
        self._named.mkdir(parents=True, exist_ok=True)
        nameless.mkdir(exist_ok=True)
        _sweep(nameless)
        self._own = nameless / uuid.uuid4().hex[:12]
        self._own.mkdir()
        # The lock is what says "in use"; the kernel drops it when this process ends, however it ends.
        self._lock = os.open(self._own / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def new(self) -> SessionHome:
        return _furnish(self._own / uuid.uuid4().hex[:12])

    def named(self, caller: str, session: str) -> SessionHome | None:
        """The home of a session that exists already."""
        path = self._path(caller, session)
        return _furnish(path) if path.is_dir() else None

    def adopt(self, home: SessionHome, caller: str, session: str) -> SessionHome | None:
        """Give a nameless home a name; None when another process has just taken that name.

        What is mounted stays mounted: a rename moves the name, not the folder.
        """
        path = self._path(caller, session)
        self.remember(home, SessionState(caller, session))
        try:
            home.path.rename(path)
        except OSError:
            if path.is_dir():
                return None
            raise
        return SessionHome(path)

    def remember(self, home: SessionHome, state: SessionState) -> None:
        """Keep what the next process should know. A disk that is full costs the note, not the run."""
        with contextlib.suppress(OSError):
            temporary = home.path / f"{_STATE}.{os.getpid()}"
            temporary.write_bytes(msgspec.json.encode(state))
            temporary.replace(home.path / _STATE)

    def state(self, home: SessionHome) -> SessionState | None:
        try:
            return msgspec.json.decode((home.path / _STATE).read_bytes(), type=SessionState)
        except (OSError, msgspec.MsgspecError):
            return None

    def remove(self, home: SessionHome) -> None:
        """Remove a nameless home; a named one stays."""
        if home.path.parent == self._own:
            remove_tree(home.path)

    def close(self) -> None:
        remove_tree(self._own)
        os.close(self._lock)

    def _path(self, caller: str, session: str) -> Path:
        """Two sessions never share a folder, and no name leads out of it."""
        return self._named / hashlib.sha256(f"{caller}\0{session}".encode("utf-8", "replace")).hexdigest()[:24]


def _furnish(path: Path) -> SessionHome:
    home = SessionHome(path)
    home.workspace.mkdir(parents=True, exist_ok=True)
    home.skills.mkdir(exist_ok=True)
    return home


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
