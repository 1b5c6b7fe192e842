"""An in-memory SQLite database that strangers may query: no files, no endless statements."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

_SECONDS = 5.0
_FILES = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA}
READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
"""The actions of a statement that only reads."""
_AGGREGATES = {"count", "sum", "avg", "min", "max"}


class Database:
    """A connection whose statements stand for themselves: there is no transaction that could be forgotten."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        self._deadline = 0.0
        self._connection.set_progress_handler(lambda: time.monotonic() > self._deadline, 100_000)

    def execute(
        self,
        statement: str,
        values: Sequence[Any] | Mapping[str, Any] = (),
        *,
        allowed: Collection[int] | None = None,
    ) -> sqlite3.Cursor:
        """Run one statement; with `allowed`, only these of SQLite's actions and aggregates.

        Raises `sqlite3.Error`.
        """

        def authorize(action: int, _: object, name: object, *__: object) -> int:
            if allowed is None:
                refused = action in _FILES
            else:
                aggregate = action == sqlite3.SQLITE_FUNCTION and name in _AGGREGATES
                refused = action not in allowed and not aggregate
            return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK

        self._connection.set_authorizer(authorize)
        self._deadline = time.monotonic() + _SECONDS
        return self._connection.execute(statement, values)
