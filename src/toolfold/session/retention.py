"""Old files go by themselves: outputs, logs, and, only where a setting says so, sessions.

    sessions/<id>/                      `retention.sessions`, or `runs` and `runs_size` where it is a run's output
    sessions/<id>/workspace/outputs/    `retention.outputs` and `outputs_size`
    sessions/<id>/transcript.jsonl      `retention.outputs`
    logs/                               `retention.logs` and `logs_size`
    ledger/                             `retention.ledger`

One of all gateways on a data folder looks through it about once an hour, in a thread of its own. What is in use stays:
sessions are held by a lock on their folder, logs by one on the file, and programs can reach neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import stat
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from toolfold.config.retention import RetentionSettings
from toolfold.sandbox.protocol import SessionHome
from toolfold.sandbox.quota import measured
from toolfold.session.homes import SessionHomes, SessionState, homes_in, state_of
from toolfold.session.output import OUTPUT_NAME, OUTPUTS
from toolfold.session.transcript import entries, forget
from toolfold.telemetry.ledger_files import LedgerFiles

_PERIOD = 3600.0
_MOST_OUTPUTS = 100_000
"""Entries of an outputs folder that are looked at: a program may have made any number of them."""
_AT_ONCE = 100
"""Outputs that are unlinked while their session cannot be used."""
_LIMITED = frozenset({"toolfold.log", "supervisor.log"})
"""Logs that are kept open without a lock, and whose size is limited otherwise."""
_CLOSING_SECONDS = 5.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class File(NamedTuple):
    used: float
    size: int
    name: str


@dataclass(frozen=True)
class Kept:
    """How much there is of one kind."""

    count: int
    size: int


class Retention:
    """Removes what has expired while the context is open."""

    def __init__(self, data_dir: Path, settings: RetentionSettings, homes: SessionHomes) -> None:
        self._data_dir = data_dir
        self._stamp = data_dir / "retention.lock"
        self._logs = data_dir / "logs"
        self._settings = settings
        self._homes = homes
        self._stopped = threading.Event()
        self._thread = ThreadPoolExecutor(1, "retention")
        self._sweeping: asyncio.Future[bool] | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Retention:
        self._task = asyncio.create_task(self._repeat())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._stopped.set()
        if self._task is not None:
            self._task.cancel()
        if self._sweeping is not None:
            await asyncio.wait([self._sweeping], timeout=_CLOSING_SECONDS)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _repeat(self) -> None:
        while True:
            self._sweeping = asyncio.get_running_loop().run_in_executor(self._thread, self.sweep_if_due)
            await asyncio.shield(self._sweeping)
            await asyncio.sleep(_PERIOD)

    def sweep_if_due(self) -> bool:
        """Sweep, unless a gateway on this folder does so now or has done so within the last hour."""
        try:
            stamp, is_due = _open_stamp(self._stamp)
        except OSError:
            return False
        try:
            fcntl.flock(stamp, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_due:
                os.utime(stamp)
                self.sweep()
            return is_due
        except OSError:
            return False
        finally:
            os.close(stamp)

    def sweep(self) -> None:
        """Remove what has expired."""
        self._homes.remove_left()
        if self._settings.ledger is not None:
            oldest = time.gmtime(time.time() - self._settings.ledger)
            LedgerFiles(self._data_dir).drop_before(time.strftime("%Y-%m-%d", oldest))
        self._sweep_logs()
        self._sweep_sessions()

    def _sweep_sessions(self) -> None:
        runs: defaultdict[str, dict[str, tuple[SessionHome, int]]] = defaultdict(dict)
        for home, status in homes_in(self._data_dir):
            if self._stopped.is_set():
                return
            state = state_of(home)
            if state is not None and state.is_nameless:
                runs[state.caller][home.path.name] = (home, status.st_mtime_ns)
            elif _is_older(status.st_mtime, self._settings.sessions):
                if self._homes.expire(home, status.st_mtime_ns) and state is not None:
                    self._forget_values(state)
            else:
                self._sweep_outputs(home, status.st_mtime_ns)
                self._sweep_transcript(home, status.st_mtime_ns)
        for homes in runs.values():
            found = [File(used / 1e9, measured(home).bytes, name) for name, (home, used) in homes.items()]
            for file in expired(found, self._settings.runs, self._settings.runs_size):
                if self._stopped.is_set():
                    return
                self._homes.expire(*homes[file.name])

    def _forget_values(self, state: SessionState) -> None:
        """Private values go with their session."""
        from toolfold.privacy.store import VaultStore  # seldom needed, so it is not imported before

        VaultStore(self._data_dir, with_values=True).forget(state.caller, state.name)

    def _sweep_outputs(self, home: SessionHome, used: int) -> None:
        names = [file.name for file in expired(outputs_of(home), self._settings.outputs, self._settings.outputs_size)]
        for start in range(0, len(names), _AT_ONCE):
            with contextlib.suppress(OSError), self._homes.unused(home, used), _outputs_folder(home) as folder:
                for name in names[start : start + _AT_ONCE]:
                    os.unlink(name, dir_fd=folder)

    def _sweep_transcript(self, home: SessionHome, used: int) -> None:
        """It holds what runs printed, so it is kept for as long as long outputs are."""
        age = self._settings.outputs
        first = next(entries(home), None) if age is not None else None
        if age is not None and first is not None and _is_older(first.time, age):
            with contextlib.suppress(OSError), self._homes.unused(home, used):
                forget(home, time.time() - age)
                os.utime(home.path, ns=(used, used))

    def _sweep_logs(self) -> None:
        for file in expired(logs_in(self._logs), self._settings.logs, self._settings.logs_size):
            with contextlib.suppress(OSError):
                _unlink_unused(self._logs / file.name)


def expired(files: Iterable[File], age: float | None, size: int) -> list[File]:
    """Those that are too old, and the oldest of the others while all of them together are too large."""
    gone: list[File] = []
    total = 0
    for file in sorted(files, reverse=True):
        total += file.size
        if total > size or _is_older(file.used, age):
            gone.append(file)
    return gone


def outputs_of(home: SessionHome) -> list[File]:
    """The long outputs in a session's workspace, by when they were written: a program cannot set back their ctime."""
    found: list[File] = []
    with contextlib.suppress(OSError), _outputs_folder(home) as folder, os.scandir(folder) as entries:
        for entry in itertools.islice(entries, _MOST_OUTPUTS):
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if OUTPUT_NAME.fullmatch(entry.name) and stat.S_ISREG(status.st_mode):
                    found.append(File(status.st_ctime, status.st_blocks * 512, entry.name))
    return found


def logs_in(folder: Path) -> list[File]:
    found: list[File] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and entry.name not in _LIMITED:
                    found.append(File(status.st_mtime, status.st_blocks * 512, entry.name))
    return found


def survey(data_dir: Path) -> dict[str, Kept]:
    """How much is kept in the data folder: `sessions`, `outputs` in them, `runs` and `logs`."""
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    for home, _ in homes_in(data_dir):
        state = state_of(home)
        kind = "runs" if state is not None and state.is_nameless else "sessions"
        sizes[kind].append(measured(home).bytes)
        if kind == "sessions":
            sizes["outputs"] += [file.size for file in outputs_of(home)]
    sizes["logs"] = [file.size for file in logs_in(data_dir / "logs")]
    return {kind: Kept(len(sizes[kind]), sum(sizes[kind])) for kind in ("sessions", "outputs", "runs", "logs")}


def _is_older(used: float, age: float | None) -> bool:
    return age is not None and time.time() - used > age


def _open_stamp(path: Path) -> tuple[int, bool]:
    """The file whose modification time says when the folder was swept, and whether that is long ago."""
    try:
        stamp = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600), True
    return stamp, _is_older(os.fstat(stamp).st_mtime, _PERIOD)


@contextlib.contextmanager
def _outputs_folder(home: SessionHome) -> Generator[int]:
    """A descriptor of `workspace/outputs`, without following any link that a program may have laid there."""
    workspace = os.open(home.workspace, _FOLDER)
    try:
        folder = os.open(OUTPUTS, _FOLDER, dir_fd=workspace)
    finally:
        os.close(workspace)
    try:
        yield folder
    finally:
        os.close(folder)


def _unlink_unused(path: Path) -> None:
    """Unlink a log unless the supervisor of a server that runs keeps it open."""
    log = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(log)
