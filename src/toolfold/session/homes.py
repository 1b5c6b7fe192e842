"""Folders of sessions on disk. A pooled sandbox is born with an empty one, which a new session adopts.

    sessions/<id>/       a session's; lives until it is removed or expires (`retention.py`)
        session.json     whose it is, and which variables its last run left
        shared.json      which other callers may use it
        reset            somebody wants its variables to be forgotten
        kept/            values that programs keep (`kept.py`)
        transcript.jsonl what was run (`transcript.py`)
        workspace/       the two that the program sees
        skills/
    connections/<id>     which variables a session without a name left, for the next connection of the same client
    homes/<process>/     those without a name; they end with the process that made them, however it ends

An `<id>` follows from caller and name but tells neither, since a program could read it in its mount table.

Several processes may use one data folder. A session that is in use is held by a shared lock on its folder, which no
program can reach, and is removed only under an exclusive one. The folder's modification time is its last use.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import time
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import msgspec

from toolfold.sandbox.protocol import SessionHome
from toolfold.session.removal import remove_tree

_STATE, _SHARED, _RESET = "session.json", "shared.json", "reset"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OF_A_RUN = re.compile(r"run-[0-9a-f]{8}")
_TRIES = 50
_PAUSE = 0.001
"""A home that expires is locked for microseconds. Nothing waits for it for longer than this many tries."""
_CONNECTION_SECONDS = 86_400.0
_UNLOCKED_FOR = 60.0
"""Seconds after which a folder of a process without its lock was left by one that was killed as it began."""


class SessionState(msgspec.Struct, frozen=True):
    """What is known of a session across processes."""

    caller: str
    name: str
    variables: list[str] = []
    is_running: bool = False
    """Whether its first run has begun and not ended: what that left is not known."""
    has_files: bool = False
    """Of a session without a name, whose files end with its connection: whether there are any."""

    @property
    def is_nameless(self) -> bool:
        """Whether it only keeps the output of a run without a session."""
        return _OF_A_RUN.fullmatch(self.name) is not None


class SessionHomes:
    """Homes of sessions stay until they are removed; the others end with this process, even if it is killed."""

    def __init__(self, data_dir: Path) -> None:
        self._named = data_dir / "sessions"
        self._nameless = data_dir / "homes"
        self._connections = data_dir / "connections"
        self._named.mkdir(parents=True, exist_ok=True)
        self._nameless.mkdir(parents=True, exist_ok=True)
        self.remove_left()
        self._own, self._lock = _own_folder(self._nameless)
        self._held: dict[Path, int] = {}

    def new(self) -> SessionHome:
        path = self._own / uuid.uuid4().hex[:12]
        try:
            return _furnish(path)
        except OSError:
            # Where there is no space, half a home would take up what becomes free.
            remove_tree(path)
            raise

    def named(self, caller: str, session: str) -> SessionHome | None:
        """The home of a session that exists already, held until `release`."""
        path = self._path(caller, session)
        return _furnish(path) if self._hold(path) else None

    def adopt(self, home: SessionHome, caller: str, session: str) -> SessionHome | None:
        """Give a nameless home a name and hold it; None when another process has just taken that name.

        What is mounted stays mounted: a rename moves the name, not the folder.
        """
        self.remember(home, SessionState(caller, session, is_running=True))
        try:
            return self._settle(home, caller, session)
        except OSError:
            if self._path(caller, session).is_dir():
                return None
            raise

    def for_output(self, caller: str, session: str) -> SessionHome:
        """A new home that keeps the output of a run without a session, held until `release`."""
        home = self.new()
        try:
            # Its name says that it expires, so there is none without the note.
            self._note(home, SessionState(caller, session))
            return self._settle(home, caller, session)
        except OSError:
            remove_tree(home.path)
            raise

    def release(self, home: SessionHome) -> None:
        """The session is not in use any more; its last use was now."""
        held = self._held.pop(home.path, None)
        if held is not None:
            with contextlib.suppress(OSError):
                os.utime(held)
            os.close(held)

    def drop(self, home: SessionHome) -> None:
        """Remove a held home that turned out to be of no use."""
        self.release(home)
        remove_tree(home.path)

    def remember(self, home: SessionHome, state: SessionState) -> bool:
        """Keep what the next process should know; whether it was. A disk that is full costs the note, not the run."""
        try:
            self._note(home, state)
        except OSError:
            return False
        return True

    def is_current(self, home: SessionHome) -> bool:
        """Whether a held home is still its session's: somebody may have ended the session meanwhile."""
        held = self._held.get(home.path)
        return held is None or _is_same(home.path, held)

    def end(self, home: SessionHome) -> bool:
        """Remove a session's home, whether or not it is in use. Whether nothing is left of it."""
        target = self._own / uuid.uuid4().hex[:12]
        home.path.rename(target)
        return remove_tree(target)

    # What a session without a name leaves, which has no folder of its own that would outlive this process

    def remember_connection(self, state: SessionState) -> bool:
        path = self._connections / self._path(state.caller, state.name).name
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self._connections.mkdir(exist_ok=True)
            temporary.write_bytes(msgspec.json.encode(state))
            temporary.replace(path)
        except OSError:
            return False
        return True

    def recall_connection(self, caller: str, session: str) -> SessionState | None:
        """What the last connection of the same client left. It is told once."""
        path = self._connections / self._path(caller, session).name
        try:
            state = msgspec.json.decode(path.read_bytes(), type=SessionState)
            path.unlink()
        except (OSError, msgspec.MsgspecError):
            return None
        return state

    def remove(self, home: SessionHome) -> None:
        """Remove a nameless home; that of a session stays."""
        if home.path.parent == self._own:
            remove_tree(home.path)

    def expire(self, home: SessionHome, used: int) -> bool:
        """Remove a session's home, unless it is in use or its last use was after `used` (in ns). Whether it is gone."""
        target = self._own / uuid.uuid4().hex[:12]
        try:
            with self.unused(home, used):
                home.path.rename(target)
        except OSError:
            return False
        return remove_tree(target)

    @contextlib.contextmanager
    def unused(self, home: SessionHome, used: int) -> Generator[None]:
        """Keep a session from being used for a moment. Raises OSError when it is in use, or was since `used`."""
        folder = os.open(home.path, _FOLDER)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(folder).st_mtime_ns != used or not _is_same(home.path, folder):
                raise BlockingIOError
            yield
        finally:
            os.close(folder)

    def remove_left(self) -> None:
        """Remove what killed processes left."""
        with contextlib.suppress(OSError):
            for path in self._connections.iterdir():
                if time.time() - path.stat().st_mtime > _CONNECTION_SECONDS:
                    path.unlink()
        for path in self._nameless.iterdir():
            try:
                lock = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > _UNLOCKED_FOR:
                        path.rmdir()
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            else:
                remove_tree(path)
            finally:
                os.close(lock)

    def close(self) -> None:
        for held in self._held.values():
            os.close(held)
        self._held.clear()
        remove_tree(self._own)
        os.close(self._lock)

    def _settle(self, home: SessionHome, caller: str, session: str) -> SessionHome:
        path = self._path(caller, session)
        # Held before it has the name: from then on another gateway may take it for one that expires.
        folder = os.open(home.path, _FOLDER)
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
            home.path.rename(path)
        except BaseException:
            os.close(folder)
            raise
        if (gone := self._held.pop(path, None)) is not None:
            os.close(gone)
        self._held[path] = folder
        return SessionHome(path)

    def _hold(self, path: Path) -> bool:
        """Whether the folder exists; it does not expire before `release`."""
        if path in self._held:
            return path.is_dir()
        for _ in range(_TRIES):
            try:
                folder = os.open(path, _FOLDER)
            except FileNotFoundError:
                return False
            try:
                fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
                os.utime(folder)
            except BlockingIOError:
                os.close(folder)
                time.sleep(_PAUSE)
                continue
            except OSError:
                # Some network file systems cannot lock folders, so nothing expires there either.
                os.close(folder)
                return True
            if _is_same(path, folder):
                self._held[path] = folder
                return True
            os.close(folder)
        return path.is_dir()

    def _note(self, home: SessionHome, state: SessionState) -> None:
        temporary = home.path / f"{_STATE}.{os.getpid()}"
        temporary.write_bytes(msgspec.json.encode(state))
        temporary.replace(home.path / _STATE)

    def _path(self, caller: str, session: str) -> Path:
        return home_path(self._named, caller, session)


def home_path(folder: Path, caller: str, session: str) -> Path:
    """Two sessions never share a folder, and no name leads out of it."""
    return folder / hashlib.sha256(f"{caller}\0{session}".encode("utf-8", "replace")).hexdigest()[:24]


def is_shared(data_dir: Path, owner: str, session: str, caller: str) -> bool:
    """Whether the owner of a session lets another caller use it."""
    return caller in shares_of(SessionHome(home_path(data_dir / "sessions", owner, session)))


def shares_of(home: SessionHome) -> list[str]:
    """The other callers that may use a session."""
    try:
        return msgspec.json.decode((home.path / _SHARED).read_bytes(), type=list[str])
    except (OSError, msgspec.MsgspecError):
        return []


def set_shares(home: SessionHome, callers: list[str]) -> None:
    temporary = home.path / f"{_SHARED}.{os.getpid()}"
    temporary.write_bytes(msgspec.json.encode(callers))
    temporary.replace(home.path / _SHARED)


def ask_for_reset(home: SessionHome) -> None:
    """The process that runs the session, if one does, ends its sandbox before its next run."""
    (home.path / _RESET).touch()


def take_reset(home: SessionHome) -> bool:
    """Whether a reset was asked for; it is not any more."""
    try:
        (home.path / _RESET).unlink()
    except OSError:
        return False
    return True


def is_in_use(home: SessionHome) -> bool:
    """Whether some process holds it, which is so while it has a sandbox."""
    try:
        folder = os.open(home.path, _FOLDER)
    except OSError:
        return False
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(folder)
    return False


def homes_in(data_dir: Path) -> Iterator[tuple[SessionHome, os.stat_result]]:
    """Every session's home, with the status of its folder."""
    with contextlib.suppress(OSError), os.scandir(data_dir / "sessions") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    yield SessionHome(Path(entry.path)), entry.stat(follow_symlinks=False)


def state_of(home: SessionHome) -> SessionState | None:
    try:
        return msgspec.json.decode((home.path / _STATE).read_bytes(), type=SessionState)
    except (OSError, msgspec.MsgspecError):
        return None


def has_files(home: SessionHome) -> bool:
    try:
        with os.scandir(home.workspace) as entries:
            return any(True for _ in entries)
    except OSError:
        return False


def _furnish(path: Path) -> SessionHome:
    home = SessionHome(path)
    home.workspace.mkdir(parents=True, exist_ok=True)
    home.skills.mkdir(exist_ok=True)
    return home


def _own_folder(nameless: Path) -> tuple[Path, int]:
    """A new folder for this process, and the lock that says "in use": the kernel drops it when the process ends."""
    while True:
        path = nameless / uuid.uuid4().hex[:12]
        path.mkdir()
        lock = os.open(path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        # Another process may have found the lock free before we took it, and removes the folder.
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same(path / "lock", lock):
                return path, lock
        os.close(lock)


def _is_same(path: Path, descriptor: int) -> bool:
    """Whether `path` still is what was opened."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False
