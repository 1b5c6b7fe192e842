"""The audit log, read: record by record, or as the runs and calls that the records tell of. Never writes."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from toolfold.errors import AuditUnavailable
from toolfold.telemetry.audit import FILE, newest
from toolfold.telemetry.audit_records import (
    CallEnded,
    CallStarted,
    Head,
    Record,
    RunEnded,
    RunStarted,
    ToolNoted,
    decode,
)

_HIGHEST = 2**63 - 1
_LOOKED_AT = 50_000
"""Records that one page looks at."""
_ENDS_WITHIN = 10_000
"""Records within which the end of a run or call is looked for, where a page goes on in the middle of the log."""


class Run(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One run, from its one or two records. `ok` is None while it is under way, or when it was cut off."""

    run: str
    time: float
    caller: str
    session: str | None = None
    language: str = "python"
    ok: bool | None = None
    ms: float = 0.0
    calls: int = 0
    tokens: int = 0
    review: str = ""
    error: str = ""
    limits: dict[str, float] = {}
    code_sha256: str = ""
    code: str = ""


class Call(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One call, from its one or two records."""

    call: str
    run: str
    time: float
    caller: str
    target: str
    session: str | None = None
    ok: bool | None = None
    ms: float = 0.0
    decision: str = ""
    rule: str = ""
    approved_by: str = ""
    asked: str = ""
    result_size: int = 0
    error: str = ""
    arguments: Any = None


@dataclass(frozen=True)
class Filter:
    """What is asked for; a field that is empty does not narrow it. `target` is a pattern such as `github.*`."""

    caller: str = ""
    session: str = ""
    run: str = ""
    target: str = ""
    decision: str = ""
    failed: bool = False
    since: float = 0.0
    until: float = float("inf")

    def takes(self, item: Run | Call | ToolNoted) -> bool:
        if isinstance(item, ToolNoted):
            return (
                self.since <= item.time <= self.until
                and not (self.caller or self.session or self.run or self.decision or self.failed)
                and (not self.target or self._named(item.target))
            )
        return (
            self.since <= item.time <= self.until
            and (not self.caller or item.caller == self.caller)
            and (not self.session or item.session == self.session)
            and (not self.run or item.run == self.run)
            and (not self.failed or item.ok is False)
            and (not self.target or (isinstance(item, Call) and self._named(item.target)))
            and (not self.decision or (isinstance(item, Call) and item.decision == self.decision))
        )

    def _named(self, target: str) -> bool:
        return self._pattern.match(target) is not None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        # `fnmatch` itself keeps 32,768 patterns: hundreds of megabytes of what callers may ask for.
        return re.compile(translate(self.target))


class Stored(NamedTuple):
    """One row as it is stored."""

    seq: int
    body: bytes
    hash: bytes


class Page(NamedTuple):
    """Some of the history, each with the number of its first record, the newest first. `next` goes on where it ends."""

    items: list[tuple[int, Run | Call | ToolNoted]]
    next: int | None


@dataclass
class Statistics:
    runs: int = 0
    failed_runs: int = 0
    calls: int = 0
    failed_calls: int = 0
    tokens: int = 0
    targets: Counter[str] = field(default_factory=Counter[str])
    callers: Counter[str] = field(default_factory=Counter[str])
    decisions: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])


class AuditReader:
    """Sees the log as it was when it was opened, also while gateways write to it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    @contextlib.contextmanager
    def open(cls, data_dir: Path) -> Generator[AuditReader]:
        path = data_dir / FILE
        if not path.exists():
            hint = "`audit = true` in the settings records every run and call from then on."
            raise AuditUnavailable(f"There is no audit log in {data_dir}.", hint=hint)
        try:
            connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
            try:
                connection.execute("BEGIN")
                yield cls(connection)
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise AuditUnavailable(f"{path} cannot be read: {error}.") from None

    @property
    def head(self) -> Head:
        return newest(self._connection)

    def rows(self, *, newest_first: bool = False, below: int | None = None) -> Iterator[Stored]:
        order = "DESC" if newest_first else "ASC"
        query = f"SELECT seq, body, hash FROM records WHERE seq < ? ORDER BY seq {order}"  # noqa: S608 - one of two words
        rows: Iterable[Any] = self._connection.execute(query, [_HIGHEST if below is None else min(below, _HIGHEST)])
        return (Stored(seq, _blob(body), _blob(value)) for seq, body, value in rows)

    def records(self, *, newest_first: bool = False, below: int | None = None) -> Iterator[tuple[int, Record]]:
        """Every record that can be read, with its number; `verify` finds the others. `below`: of smaller numbers."""
        for row in self.rows(newest_first=newest_first, below=below):
            with contextlib.suppress(msgspec.MsgspecError, TypeError):
                yield row.seq, decode(row.body)

    def history(self, wanted: Filter) -> Iterator[Run | Call | ToolNoted]:
        """The runs, calls and changes of tools that are asked for, the newest first."""
        return (item for _, item in self._history(wanted, None) if item is not None)

    def page(
        self,
        wanted: Filter,
        limit: int,
        before: int | None = None,
        kinds: tuple[type[Run | Call | ToolNoted], ...] = (Run, Call, ToolNoted),
    ) -> Page:
        """The same of some `kinds`, page by page: `before` is the `next` of the page before.

        It looks at a bounded number of records, so a page may be short. What ended very many records after it began may
        look as if it had not.
        """
        start = before
        if wanted.until != float("inf"):
            latest = self._after(wanted.until)
            start = latest if start is None else min(start, latest)
        items: list[tuple[int, Run | Call | ToolNoted]] = []
        for looked, (seq, item) in enumerate(self._history(wanted, start)):
            if item is not None and isinstance(item, kinds):
                items.append((seq, item))
            if len(items) == limit or looked == _LOOKED_AT:
                return Page(items, seq)
        return Page(items, None)

    def _after(self, time: float) -> int:
        """The number of the first record that is later, by bisection: times grow with numbers."""
        span = "SELECT coalesce(min(seq), 0), coalesce(max(seq), 0) + 1 FROM records"
        low, high = self._connection.execute(span).fetchone()
        while low < high:
            middle = (low + high) // 2
            found = next(self._from(middle), None)
            if found is None or found[1].time > time:
                high = middle
            else:
                low = found[0] + 1
        return low

    def _from(self, seq: int) -> Iterator[tuple[int, Record]]:
        return _decoded(self._connection.execute("SELECT seq, body FROM records WHERE seq >= ? ORDER BY seq", [seq]))

    def run(self, run: str) -> tuple[Run, list[Call]] | None:
        """One run with its calls, the first one first; of very many, some."""
        query = "SELECT seq, body FROM records WHERE instr(body, ?) > 0 ORDER BY seq DESC LIMIT ?"
        rows = self._connection.execute(query, [run.encode("utf-8", "replace"), _LOOKED_AT])
        found = [item for _, item in _assembled(_decoded(rows)) if isinstance(item, Run | Call) and item.run == run]
        calls = [item for item in reversed(found) if isinstance(item, Call)]
        return next(((item, calls) for item in found if isinstance(item, Run)), None)

    def _history(self, wanted: Filter, start: int | None) -> Iterator[tuple[int, Run | Call | ToolNoted | None]]:
        """What began with a record below `start`, with its number, the newest first; None for what is not wanted."""
        records = self.records(newest_first=True, below=None if start is None else start + _ENDS_WITHIN)
        for seq, item in _assembled(records):
            if start is None or seq < start:
                yield seq, item if item is not None and wanted.takes(item) else None

    def statistics(self, wanted: Filter) -> Statistics:
        found = Statistics()
        for item in self.history(wanted):
            if isinstance(item, ToolNoted):
                continue
            if isinstance(item, Run):
                found.runs += 1
                found.failed_runs += item.ok is False
                found.tokens += item.tokens
                found.callers[item.caller] += 1
            else:
                found.calls += 1
                found.failed_calls += item.ok is False
                found.targets[item.target] += 1
                if item.decision:
                    found.decisions[item.decision] += 1
            if item.error:
                found.errors[item.error.partition(":")[0]] += 1
        return found


def _blob(value: Any) -> bytes:
    """A cell as bytes, whatever was put there."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


def _decoded(rows: Iterable[Any]) -> Iterator[tuple[int, Record]]:
    for seq, body in rows:
        with contextlib.suppress(msgspec.MsgspecError, TypeError):
            yield seq, decode(_blob(body))


def _assembled(records: Iterator[tuple[int, Record]]) -> Iterator[tuple[int, Run | Call | ToolNoted | None]]:
    """What records tell of, which come the newest first: an item with its first record, None with the others."""
    ends: dict[str, RunEnded | CallEnded] = {}
    for seq, record in records:
        match record:
            case RunEnded():
                ends[record.run] = record
                yield seq, None
            case CallEnded():
                ends[record.call] = record
                yield seq, None
            case RunStarted():
                yield seq, _run(record, ends.pop(record.run, None))
            case CallStarted():
                yield seq, _call(record, ends.pop(record.call, None))
            case ToolNoted():
                yield seq, record
            case _:
                yield seq, None


def _run(begun: RunStarted, ended: RunEnded | CallEnded | None) -> Run:
    run = Run(
        run=begun.run,
        time=begun.time,
        caller=begun.caller,
        session=begun.session,
        language=begun.language,
        limits=begun.limits,
        code_sha256=begun.code_sha256,
        code=begun.code,
    )
    if isinstance(ended, RunEnded):
        run.ok, run.ms, run.calls = ended.ok, ended.ms, ended.calls
        run.tokens, run.review, run.error = ended.tokens, ended.review, ended.error
    return run


def _call(begun: CallStarted, ended: RunEnded | CallEnded | None) -> Call:
    call = Call(
        call=begun.call,
        run=begun.run,
        time=begun.time,
        caller=begun.caller,
        session=begun.session,
        target=begun.target,
        arguments=begun.arguments,
    )
    if isinstance(ended, CallEnded):
        call.ok, call.ms, call.error, call.result_size = ended.ok, ended.ms, ended.error, ended.result_size
        call.decision, call.rule, call.approved_by = ended.decision, ended.rule, ended.approved_by
        call.asked = ended.asked
    return call
