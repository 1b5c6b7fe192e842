"""The ledger on disk: one file a day in `ledger/`, to which several gateways add, and the sizes of catalogs.

    ledger/2026-11-16.jsonl     every line adds to the counts of one caller and session, or of one tool
    ledger/definitions.jsonl    what the definitions of a catalog cost, by its version

A line is written whole or ignored, so a process may end at any moment. When a file has grown it is replaced by one with
the sums. Days are those of UTC.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from toolfold.locks import locked

FOLDER = "ledger"
"""Its name in the data folder."""
_LARGE = 512 * 1024
_MOST_BYTES = 64 * 1024 * 1024
_MOST_CATALOGS = 1_000
_MOST_KEPT = 100
"""Days that are kept in memory once they were read."""
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_DEFINITIONS = "definitions.jsonl"


class Key(NamedTuple):
    """Whose counts these are: a session's, or with `tool` those of one tool over all sessions of a caller."""

    caller: str
    session: str = ""
    """Empty for what belongs to no named session."""
    catalog: str = ""
    """The version of the definitions that the direct way would have sent."""
    tool: str = ""


class Counts(msgspec.Struct, omit_defaults=True):
    """Tokens whose names end in `_est` are estimates, to which the others do not belong."""

    runs: int = 0
    failed: int = 0
    searches: int = 0
    calls: int = 0
    call_errors: int = 0
    rounds: int = 0
    """Requests in which a model would have made these calls itself: calls that overlap share one."""
    conversations: int = 0
    own: int = 0
    """Tokens of our definitions over all requests."""
    own_est: int = 0
    own_once: int = 0
    """The same, in the first request of each conversation only."""
    passed: int = 0
    """Requests that sent all definitions of the servers in place of ours: those of the mode `direct`."""
    passed_once: int = 0
    code: int = 0
    code_est: int = 0
    output: int = 0
    output_est: int = 0
    search: int = 0
    search_est: int = 0
    result: int = 0
    result_est: int = 0

    def add(self, other: Counts) -> None:
        for name in _FIELDS:
            if number := getattr(other, name):
                setattr(self, name, getattr(self, name) + number)


_FIELDS = Counts.__struct_fields__


class _Line(msgspec.Struct, omit_defaults=True):
    key: Key
    counts: Counts


class Catalogued(msgspec.Struct, omit_defaults=True):
    """What all definitions of one catalog cost in a request."""

    version: str
    tools: int
    tokens: int
    exact: bool = False
    tokenizer: str = ""
    """Empty for o200k."""


_lines = msgspec.json.Decoder(_Line)
_catalogs = msgspec.json.Decoder(Catalogued)


class LedgerFiles:
    """Any number of them, in any number of processes, may use one folder at once."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / FOLDER
        self._read: dict[str, tuple[tuple[int, int, int], dict[Key, Counts]]] = {}
        """What the files said when they were last read, by the state of the file."""

    def add(self, day: str, counts: Mapping[Key, Counts]) -> None:
        """Add to the counts of a day; raises OSError."""
        lines = b"\n".join(msgspec.json.encode(_Line(key, each)) for key, each in counts.items())
        path = self._folder / f"{day}.jsonl"
        with self._locked():
            is_new = not path.exists()
            _append(path, lines)
            if path.stat().st_size > _LARGE:
                self._sum_up(path)
            if is_new:
                # The last day is over, and mostly read from now on.
                for other in self.days()[-2:-1]:
                    self._sum_up(self._folder / f"{other}.jsonl")

    def days(self, since: str = "") -> list[str]:
        """The days that there are counts of, the first one first."""
        try:
            names = [path.stem for path in self._folder.iterdir() if path.suffix == ".jsonl"]
        except OSError:
            return []
        return sorted(name for name in names if _DAY.fullmatch(name) and name >= since)

    def of_day(self, day: str) -> Mapping[Key, Counts]:
        """What was counted on a day; nothing where the file cannot be read."""
        path = self._folder / f"{day}.jsonl"
        try:
            status = path.stat()
            state = (status.st_ino, status.st_size, status.st_mtime_ns)
            kept = self._read.get(day)
            if kept is None or kept[0] != state:
                if len(self._read) >= _MOST_KEPT:
                    self._read.clear()
                kept = self._read[day] = (state, _summed(path))
        except OSError:
            return {}
        return kept[1]

    def drop_before(self, day: str) -> None:
        """Remove the days before `day`."""
        for name in self.days():
            if name < day:
                with contextlib.suppress(OSError):
                    (self._folder / f"{name}.jsonl").unlink()

    # What catalogs cost

    def catalogs(self) -> dict[str, Catalogued]:
        """By version; the newest line of each counts, and an exact one more than an estimate."""
        found: dict[str, Catalogued] = {}
        with contextlib.suppress(OSError):
            for line in _content(self._folder / _DEFINITIONS):
                with contextlib.suppress(msgspec.MsgspecError):
                    one = _catalogs.decode(line)
                    before = found.get(one.version)
                    if before is None or one.exact or not before.exact:
                        found[one.version] = one
        return found

    def add_catalog(self, catalog: Catalogued) -> None:
        """Keep what a catalog costs; raises OSError."""
        path = self._folder / _DEFINITIONS
        with self._locked():
            _append(path, msgspec.json.encode(catalog))
            if path.stat().st_size > _LARGE:
                newest = list(self.catalogs().values())[-_MOST_CATALOGS:]
                _replace(path, b"".join(msgspec.json.encode(each) + b"\n" for each in newest))

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(self._folder / "lock"):
            yield

    def _sum_up(self, path: Path) -> None:
        """Replace a file by one with a line for each key, where that makes it much smaller."""
        lines = [msgspec.json.encode(_Line(key, each)) for key, each in _summed(path).items()]
        whole = b"".join(line + b"\n" for line in lines)
        if len(whole) < path.stat().st_size // 2:
            _replace(path, whole)


def _append(path: Path, lines: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    size = os.fstat(file).st_size
    try:
        # The first line break ends a line that another process did not live to finish.
        left = memoryview(b"\n" + lines + b"\n")
        while left:
            left = left[os.write(file, left) :]
    except OSError:
        # All of it or nothing: it will be added again.
        os.ftruncate(file, size)
        raise
    finally:
        os.close(file)


def _replace(path: Path, content: bytes) -> None:
    """By the one that holds the lock; what one that was killed has left is written over."""
    new = path.with_name(f"{path.name}.new")
    try:
        new.touch(0o600)
        new.write_bytes(content)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _content(path: Path) -> Iterable[bytes]:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES).splitlines()


def _summed(path: Path) -> dict[Key, Counts]:
    found: dict[Key, Counts] = {}
    for line in _content(path):
        with contextlib.suppress(msgspec.MsgspecError):  # empty, or cut off
            one = _lines.decode(line)
            if one.key in found:
                found[one.key].add(one.counts)
            else:
                found[one.key] = one.counts
    return found
