"""The audit log: an append-only, hash-chained SQLite file that several gateways can write at once.

One thread writes. Whatever waits when it is ready is one transaction, so concurrent calls share its cost. In WAL mode a
committed record survives the end of the process, however it ends; with `fsync` it survives a power cut as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from toolfold.config.audit import AuditSettings
from toolfold.config.retention import RetentionSettings
from toolfold.errors import AuditUnavailable
from toolfold.telemetry.audit_records import GENESIS, Checkpoint, Cut, Head, Record, chained, encode, now

FILE = "audit.db"
"""Its name in the data folder."""
_BUSY_TIMEOUT = 10.0
"""Seconds that a transaction waits for another gateway's."""
_MOST_AT_ONCE = 1000
_SOON = 0.02
"""Seconds until a record is stored that is not waited for."""
_RETENTION_INTERVAL = 600.0
_DROPPED_AT_ONCE = 10_000
"""Records that one transaction drops; other gateways write between two of them."""
_CLOSING_TIMEOUT = 30.0
_SCHEMA = "CREATE TABLE IF NOT EXISTS records (seq INTEGER PRIMARY KEY, body BLOB NOT NULL, hash BLOB NOT NULL)"
_log = logging.getLogger("toolfold")


@dataclass(frozen=True, slots=True)
class _Pending:
    """A record to write, or None to wait for those before it."""

    body: bytes | None
    written: asyncio.Future[None] | None = None
    """Resolved when everything up to here is stored. Without one, the record is kept until it can be stored."""


class AuditLog:
    """One per gateway. The file is made, and the thread started, at the first record."""

    def __init__(self, data_dir: Path, settings: AuditSettings, retention: RetentionSettings) -> None:
        self.path = data_dir / FILE
        self._writer = _Writer(self.path, settings, retention)
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        """Held while the thread is started or given up: the timer may fire while another thread closes this."""

    async def append(self, record: Record) -> None:
        """Return when `record`, and every one added before it, is stored. Raises `AuditUnavailable`: it is not."""
        await self._put(encode(record))

    def add(self, record: Record) -> None:
        """Store `record` soon, after all that were added before it, and mostly together with the next one. From any
        thread."""
        self._writer.pending.append(_Pending(encode(record)))
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._wake()
            return
        if self._timer is None:
            self._timer = loop.call_later(_SOON, self._wake_now)

    async def flush(self) -> None:
        """Return when everything added so far is stored; raises `AuditUnavailable`."""
        await self._put(None)

    async def prove(self) -> None:
        """Return when records can be stored, as far as the last attempt tells; raises `AuditUnavailable`."""
        if not self._writer.is_proven:
            await self._put(None)

    async def _put(self, body: bytes | None) -> None:
        written = asyncio.get_running_loop().create_future()
        self._writer.pending.append(_Pending(body, written))
        self._wake_now()
        await written

    def _wake_now(self) -> None:
        """On the loop, whose timer has done its work with this."""
        with self._lock:
            self._stop_timer()
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            if self._is_closed:
                # What comes this late is stored as well, by a thread that ends then.
                self._start_thread()
                self._writer.wake.put(False)
                return
            self._thread = self._thread or self._start_thread()
            self._writer.wake.put(True)

    def close(self) -> None:
        """Store what was added, and end. Bounded."""
        with self._lock:
            self._is_closed = True
            self._stop_timer()
            thread, self._thread = self._thread, None
            if thread is None and self._writer.pending:
                thread = self._start_thread()
            if thread is not None:
                self._writer.wake.put(False)
        if thread is not None:
            thread.join(_CLOSING_TIMEOUT)

    def _start_thread(self) -> threading.Thread:
        thread = threading.Thread(target=self._writer.run, name="audit", daemon=True)
        thread.start()
        return thread

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Writer:
    """Everything that the writing thread does."""

    def __init__(self, path: Path, settings: AuditSettings, retention: RetentionSettings) -> None:
        self.pending: deque[_Pending] = deque()
        """What is to be written, in this order."""
        self.wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Says that something waits, or with False that nothing more will come."""
        self._path = path
        self._settings = settings
        self._retention = retention
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._last = Head(0, GENESIS)
        """The newest record that this gateway has written."""
        self._told = Head(0, GENESIS)
        self._tell_at = time.monotonic() + settings.head_interval
        self._retain_at = 0.0
        self._one_at_a_time = threading.Lock()
        self.is_proven = False
        """Whether the last attempt to store something succeeded."""

    def run(self) -> None:
        with self._one_at_a_time:
            self._run()

    def _run(self) -> None:
        going_on = True
        while going_on:
            going_on = self.wake.get()
            while self.pending:
                batch = [self.pending.popleft() for _ in range(min(len(self.pending), _MOST_AT_ONCE))]
                error = self._attempt(lambda batch=batch: self._write(batch))
                _resolve(batch, error)
                if error is not None:
                    # A record without a future is about something that has happened: it waits for a better moment.
                    self.pending.extendleft(each for each in reversed(batch) if each.written is None)
                    break
                problem = self._attempt(self._maintain)
                if problem is not None:
                    _log.warning("audit: %s", problem)
        if self.pending:
            _log.error("audit: %d records could not be stored in %s", len(self.pending), self._path)
        self._attempt(self._tell_head)
        self._disconnect()

    def _attempt(self, work: Callable[[], None]) -> Exception | None:
        try:
            work()
        except Exception as error:
            # Whatever it is, the thread goes on, and begins with a new connection.
            self.is_proven = False
            self._disconnect()
            return error
        return None

    def _write(self, pending: list[_Pending]) -> None:
        bodies = [each.body for each in pending if each.body is not None]
        if not bodies:
            if not self.is_proven:
                self._prove()
            return
        with self._transaction() as connection:
            head = newest(connection)
            if self._is_cut(connection, head):
                _log.error("audit: records up to %d are missing or changed in %s", self._last.seq, self._path)
                bodies.insert(0, encode(Cut(expected=self._last.seq, hash=self._last.hash.hex())))
            head = _insert(connection, head, bodies)
        self._last = head
        self.is_proven = True

    def _prove(self) -> None:
        """Write a page that says what it said before: that takes as much space as a record."""
        with self._transaction() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            connection.execute(f"PRAGMA user_version = {version}")
        self.is_proven = True

    def _is_cut(self, connection: sqlite3.Connection, head: Head) -> bool:
        """Whether what this gateway wrote last is gone, other than by retention, or is not what it wrote."""
        if head.seq <= self._last.seq:
            return head != self._last
        found = connection.execute("SELECT hash FROM records WHERE seq = ?", (self._last.seq,)).fetchone()
        return found is not None and found[0] != self._last.hash

    @contextlib.contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        """The one writer of all gateways, until the block ends."""
        connection = self._opened()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.rollback()
            raise
        connection.execute("COMMIT")

    def _opened(self) -> sqlite3.Connection:
        if self._connection is not None and self._inode_there() != self._inode:
            # Deleted or replaced while it was open: what is written to it now would be lost with it.
            self._disconnect()
        if self._connection is None:
            connection = sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT, isolation_level=None)
            self._connection = connection
            self._path.chmod(0o600)
            self._inode = self._inode_there()
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._settings.fsync else 'NORMAL'}")
            connection.execute(_SCHEMA)
        return self._connection

    def _inode_there(self) -> int:
        try:
            return os.stat(self._path).st_ino  # noqa: PTH116 - for each transaction, and twice as fast
        except FileNotFoundError:
            return 0

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    # Now and then

    def _maintain(self) -> None:
        moment = time.monotonic()
        if moment >= self._tell_at:
            self._tell_at = moment + self._settings.head_interval
            if self._settings.head_file is None and self._last != self._told:
                _log.info("audit head %s", self._last)
                self._told = self._last
            self._tell_head()
        if moment >= self._retain_at:
            self._retain_at = moment + _RETENTION_INTERVAL
            if self._retention.audit is not None:
                self._drop(f"older than {self._retention.audit:g} s", self._older)
            self._drop(f"over {self._retention.audit_size:,} bytes", self._over)

    def _tell_head(self) -> None:
        """Append the head to the file that is kept elsewhere, if it is new."""
        file = self._settings.head_file
        if file is not None and self._last != self._told:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a", encoding="ascii") as heads:
                heads.write(f"{self._last} {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n")
            self._told = self._last

    def _drop(self, reason: str, last_of: Callable[[sqlite3.Connection], int]) -> None:
        """Drop records up to `last_of`, leaving a record of it in the same transaction."""
        through = last_of(self._opened())
        while through:
            with self._transaction() as connection:
                (first,) = connection.execute("SELECT min(seq) FROM records").fetchone()
                upto = min(through, (first or through) + _DROPPED_AT_ONCE - 1)
                found = connection.execute("SELECT hash FROM records WHERE seq = ?", (upto,)).fetchone()
                if first is None or first > through or found is None:
                    # Another gateway was quicker.
                    break
                head = newest(connection)
                connection.execute("DELETE FROM records WHERE seq <= ?", (upto,))
                head = _insert(connection, head, [encode(Checkpoint(through=upto, hash=found[0].hex(), reason=reason))])
            self._last = head
            # As a script, since it takes one step for each page that it gives back, and `execute` takes only one.
            self._opened().executescript("PRAGMA incremental_vacuum")
            if upto == through:
                break

    def _older(self, connection: sqlite3.Connection) -> int:
        """The last record that is older than records are kept; 0 where there is none."""
        found = connection.execute(
            "SELECT coalesce((SELECT seq - 1 FROM records WHERE json_extract(CAST(body AS TEXT), '$.time') >= ?"
            " ORDER BY seq LIMIT 1), (SELECT max(seq) FROM records))"
            " WHERE (SELECT min(seq) FROM records) IS NOT NULL",
            (now() - (self._retention.audit or 0.0),),
        ).fetchone()
        return found[0] if found else 0

    def _over(self, connection: sqlite3.Connection) -> int:
        """The last record of the oldest part that must go for the file to be small enough again; 0 when it is."""
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        used = (pages - free) * size
        if used <= self._retention.audit_size:
            return 0
        first, last = connection.execute("SELECT min(seq), max(seq) FROM records").fetchone()
        # A tenth more than needed, so that it is not needed again at once.
        excess = 1 - 0.9 * self._retention.audit_size / used
        return first + int((last - first) * excess)


def newest(connection: sqlite3.Connection) -> Head:
    found = connection.execute("SELECT seq, hash FROM records ORDER BY seq DESC LIMIT 1").fetchone()
    return Head(*found) if found is not None else Head(0, GENESIS)


def _insert(connection: sqlite3.Connection, head: Head, bodies: list[bytes]) -> Head:
    """Chain `bodies` to `head`; the new head."""
    seq, value = head.seq, head.hash
    rows: list[tuple[int, bytes, bytes]] = []
    for body in bodies:
        seq += 1
        value = chained(value, seq, body)
        rows.append((seq, body, value))
    connection.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
    return Head(seq, value)


def _resolve(pending: list[_Pending], error: Exception | None) -> None:
    """Wake up those who wait, each loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for each in pending:
        if each.written is not None:
            loops.setdefault(each.written.get_loop(), []).append(each.written)
    for loop, futures in loops.items():
        # A loop that is closed has nothing left that waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, futures, error)


def _settle(futures: list[asyncio.Future[None]], error: Exception | None) -> None:
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(
                AuditUnavailable(
                    f"The audit log cannot be written ({error}), so nothing is done unrecorded.",
                    hint="There must be space in Toolfold's data folder; otherwise only `audit = false` helps.",
                )
            )
