"""What is known of a folder of skills without reading them all: records by name, and how often each was used.

One SQLite file beside the skills. It can be deleted: records are read again from the folders, only the counts are gone.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from toolfold.skills.folder import Skill
from toolfold.skills.function import Function, read_function

if TYPE_CHECKING:
    import sqlite3

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (name TEXT PRIMARY KEY, stamp TEXT NOT NULL, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS uses (name TEXT PRIMARY KEY, count INTEGER NOT NULL, ok INTEGER NOT NULL, last REAL NOT NULL)
"""
_ANALYSIS = "1"
"""Change it when the same folder would give another record."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One skill as lists and search know it. `problem` says why it cannot be used; then the rest may be empty."""

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    digest: str = ""
    version: int = 1
    provenance: dict[str, str] = {}
    function: Function | None = None
    """None for a skill of instructions only."""
    problem: str = ""

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")


class Use(msgspec.Struct, frozen=True):
    """How often a skill was used, in how many runs that succeeded, and when last (seconds since 1970)."""

    count: int = 0
    ok: int = 0
    last: float = 0.0

    @property
    def rate(self) -> float:
        """The share of runs that succeeded, from 0 to 1; one half where nothing is known."""
        return (self.ok + 1) / (self.count + 2)


def record_of(skill: Skill) -> Record:
    """SkillError where its skill.py is broken."""
    return Record(
        name=skill.name,
        description=skill.description,
        tags=skill.tags,
        digest=skill.digest,
        version=skill.version,
        provenance=dict(skill.provenance),
        function=read_function(skill.source, skill.module) if skill.source else None,
    )


class Index:
    """Safe to use from several threads and processes. What it cannot store is only known to this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def records(self) -> dict[str, tuple[str, Record]]:
        """Name → the stamp of the folder that was read, and what it said."""
        rows: list[tuple[str, str, bytes]] = []
        with self._open() as connection:
            rows = connection.execute("SELECT name, stamp, record FROM records").fetchall()
        found: dict[str, tuple[str, Record]] = {}
        for name, stamp, body in rows:
            with contextlib.suppress(msgspec.MsgspecError):
                found[name] = stamp, msgspec.msgpack.decode(body, type=Record)
        return found

    def keep(self, records: Iterable[tuple[str, Record]], gone: Iterable[str] = ()) -> None:
        """Store records with the stamps of their folders, and forget those that are `gone`."""
        with self._open() as connection, connection:
            connection.executemany("DELETE FROM records WHERE name = ?", [(name,) for name in gone])
            connection.executemany(
                "INSERT OR REPLACE INTO records VALUES (?, ?, ?)",
                [(one.name, stamp, msgspec.msgpack.encode(one)) for stamp, one in records],
            )

    def uses(self) -> dict[str, Use]:
        rows: list[tuple[str, int, int, float]] = []
        with self._open() as connection:
            rows = connection.execute("SELECT name, count, ok, last FROM uses").fetchall()
        return {name: Use(count, ok, last) for name, count, ok, last in rows}

    def used(self, names: Iterable[str], *, ok: bool) -> None:
        """Count one use of each."""
        with self._open() as connection, connection:
            connection.executemany(
                "INSERT INTO uses VALUES (?, 1, ?, ?) ON CONFLICT (name) DO UPDATE SET"
                " count = count + 1, ok = ok + excluded.ok, last = excluded.last",
                [(name, int(ok), time.time()) for name in names],
            )

    def forget_uses(self, name: str) -> None:
        with self._open() as connection, connection:
            connection.execute("DELETE FROM uses WHERE name = ?", (name,))

    @contextlib.contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        """The database, or, where it cannot be used, one that is empty and gone with the block."""
        import sqlite3  # only where there are skills

        with self._lock:
            if self._connection is None:
                try:
                    self._connection = _connected(self._path)
                except sqlite3.Error:
                    self._connection = sqlite3.connect(":memory:", check_same_thread=False)
                    self._connection.executescript(_SCHEMA)
            try:
                yield self._connection
            except sqlite3.Error:
                self._connection.close()
                self._connection = None


def _connected(path: Path) -> sqlite3.Connection:
    import sqlite3

    for _ in range(2):
        connection = sqlite3.connect(path, timeout=5, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if str(version) != _ANALYSIS:
                connection.execute("DROP TABLE IF EXISTS records")
                connection.execute(f"PRAGMA user_version = {_ANALYSIS}")
            connection.executescript(_SCHEMA)
        except sqlite3.OperationalError:
            connection.close()
            raise
        except sqlite3.DatabaseError:
            connection.close()
            path.unlink(missing_ok=True)  # damaged: it is made again
        else:
            return connection
    raise sqlite3.DatabaseError("the index of skills cannot be opened")
