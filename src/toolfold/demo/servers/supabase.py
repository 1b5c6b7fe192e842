"""`supabase`: a real SQLite database with a table of expenses."""

from __future__ import annotations

import sqlite3
from typing import Any

from toolfold.demo.servers.database import Database
from toolfold.demo.servers.draw import Draw
from toolfold.demo.servers.hosting import Arguments, DemoServer, DemoTool, Refusal
from toolfold.demo.servers.schema import record, text

SERVICES = ("payments", "search", "ledger", "notify", "catalog", "identity")
_COLUMNS = "id INTEGER PRIMARY KEY, day TEXT, team TEXT, service TEXT, category TEXT, vendor TEXT, amount REAL"
_TEAMS = ("platform", "commerce", "growth", "data")
_CATEGORIES = {
    "cloud": ("Northcloud", "Stackhaus"),
    "software": ("Papertrail & Co", "Gridworks"),
    "travel": ("Rail", "Air"),
    "hardware": ("Bolt Supplies",),
}


class _Project:
    def __init__(self) -> None:
        self._db = Database()
        self._db.execute(f"CREATE TABLE expenses ({_COLUMNS})")
        for row in _expenses():
            self._db.execute("INSERT INTO expenses VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def execute(self, arguments: Arguments) -> Any:
        try:
            cursor = self._db.execute(arguments["query"])
            rows = cursor.fetchall()
        except (sqlite3.Error, sqlite3.Warning) as problem:
            raise Refusal(f"SQL error: {problem}. Table: expenses ({_COLUMNS})") from problem
        if cursor.description is None:  # pyright: ignore[reportUnnecessaryComparison] - None for a write
            return {"rows_affected": max(cursor.rowcount, 0)}
        return [dict(row) for row in rows]


def _expenses() -> list[tuple[Any, ...]]:
    draw = Draw("expenses")
    rows: list[tuple[Any, ...]] = []
    for at in range(3000):
        category = draw.pick(("cloud", "cloud", "software", "travel", "hardware"))
        month, day = draw.whole(1, 10), draw.whole(1, 28)
        rows.append(
            (
                at + 1,
                f"2026-{month:02d}-{day:02d}",
                draw.pick(_TEAMS),
                draw.pick(SERVICES),
                category,
                draw.pick(_CATEGORIES[category]),
                draw.money(80, 3600) if category == "cloud" else draw.money(20, 900),
            )
        )
    return rows


def server() -> DemoServer:
    project = _Project()
    return DemoServer(
        "supabase",
        (
            DemoTool(
                name="execute_sql",
                title="Execute SQL",
                description=(
                    "Execute one SQL statement on the project's database. Returns rows as JSON objects. "
                    f"Table: expenses ({_COLUMNS})."
                ),
                arguments=record({"query": text("One SQL statement (SQLite's dialect)", minLength=1)}),
                writes=True,
                destructive=True,
                run=project.execute,
            ),
        ),
    )
