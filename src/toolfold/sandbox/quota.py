"""How much a home's files take, watched while a program runs.

Plain folders have no quota of their own. So that watching is cheap, two questions that cost microseconds are asked
first: how much the file system has free, and how much the program's processes have written. Only when one of them says
that half of what was left may be used is the home measured, file by file. Files that were deleted and are still open
count as well.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from toolfold.errors import LimitExceeded
from toolfold.sandbox.processes import read_small
from toolfold.sandbox.protocol import SessionHome

_BYTES_PER_FILE = 10_000
_FEWEST_FILES = 1000
_DEEPEST = 100
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK = 512
_WITHOUT_HINT = 1.0
"""Seconds after which a home is measured although nothing gives reason to."""
_BYTES_A_SECOND = 4e9 * max(2, os.cpu_count() or 2)
_FILES_A_SECOND = 100_000 * max(2, os.cpu_count() or 2)
"""What programs cannot do faster: runs too short to matter are not even asked about."""
_TIME_TO_FILL = 0.2
"""Seconds too short to make as many files as a home may hold."""
_FULLEST = 2
"""A home can get over its limit by what is written before that is noticed. Over so many times it, nothing runs."""

Processes = Callable[[], list[int]]
"""The numbers of the program's processes; an empty list where they cannot be seen."""


@dataclass(frozen=True)
class Held:
    bytes: int
    files: int
    deepest: int = 0


def measured(home: SessionHome) -> Held:
    """What a home holds now, up to a million files."""
    counted = _Count(Held(1 << 62, 1_000_000))
    for folder in (home.workspace, home.skills):
        counted.folder(folder)
    return Held(counted.bytes, counted.files, counted.deepest)


class Quota:
    """One home's. Only growth is refused: a home that is too large already can still be emptied.

    What is allowed never grows: neither by what a run wrote before it was stopped, nor by what was written after it.
    """

    def __init__(self, home: SessionHome, limit: int, *, empty: bool, shared: Path | None = None) -> None:
        """`shared` is a folder that counts as well, whoever wrote there."""
        self.home = home
        self._shared = shared
        self._limit = limit
        self._files = max(_FEWEST_FILES, limit // _BYTES_PER_FILE)
        self._held = Held(0, 0) if empty else None
        # What a home from before holds is allowed, or it could never be emptied. Within reason: it may hold what was
        # written in the moment before a program was stopped, again and again.
        most = 1 if empty else _FULLEST
        self._allowed = Held(most * limit, most * self._files)
        self._free = self._ask()
        self._written = 0
        self._begun = self._measured = self._looked = time.monotonic()
        self._unseen = 0.0
        self._took = 0.0
        self._asleep = True

    @property
    def unknown(self) -> bool:
        """Whether the home must be measured before anything runs in it."""
        return self._held is None

    def begin(self) -> None:
        """A run begins."""
        now = time.monotonic()
        if not self._asleep:
            self._unseen += now - self._looked
        self._asleep = False
        self._begun = self._measured = self._looked = now
        if self._held is not None:
            self._allowed = Held(
                max(self._limit, min(self._allowed.bytes, self._held.bytes)),
                max(self._files, min(self._allowed.files, self._held.files)),
            )

    def sleep(self) -> None:
        """Nothing can be written until the next run begins."""
        self._asleep = True

    def suspicious(self, processes: Processes) -> bool:
        """Whether the home must be measured now."""
        now = time.monotonic()
        self._unseen, self._looked = 0.0, now
        if self._held is None or now - self._measured > max(_WITHOUT_HINT, 20 * self._took):
            return True
        free = self._ask()
        size = max(self._free[0] - free[0], _written(processes()) - self._written)
        return self._too_much(self._held, size, self._free[1] - free[1])

    def unsure(self, processes: Processes) -> bool:
        """The same at a run's end. What others free meanwhile hides what this run took, if it had the time to."""
        now = time.monotonic()
        self._unseen += now - self._looked
        self._looked = now
        if self._held is not None and not self._too_much(
            self._held, int(self._unseen * _BYTES_A_SECOND), int(self._unseen * _FILES_A_SECOND)
        ):
            return False
        return now - self._begun > max(_TIME_TO_FILL, 20 * self._took) or self.suspicious(processes)

    def _too_much(self, held: Held, size: int, files: int) -> bool:
        """Whether half of what was left may be used by now."""
        return any(
            grown > max((allowed - had) // 2, allowed // 64)
            for grown, had, allowed in (
                (size, held.bytes, self._allowed.bytes),
                (files, held.files, self._allowed.files),
            )
        )

    def measure(self, processes: Processes) -> LimitExceeded | None:
        """Count everything; the error when it is too much. `processes` may hold deleted files open."""
        begun = time.monotonic()
        held = self._count(processes)
        self._held = held
        self._free = self._ask()
        self._written = _written(processes())
        self._measured = self._looked = time.monotonic()
        self._unseen = 0.0
        self._took = self._measured - begun
        if held.bytes > self._allowed.bytes:
            message = f"The files in workspace/ and skills/ take more than the {self._limit:,} bytes that are allowed."
        elif held.files > self._allowed.files:
            message = f"There are more than {self._allowed.files:,} files in workspace/ and skills/."
        elif held.deepest > _DEEPEST:
            message = f"Folders in workspace/ or skills/ are nested deeper than {_DEEPEST}."
        else:
            return None
        return LimitExceeded(message, limit="sandbox.disk")

    def _ask(self) -> tuple[int, int]:
        try:
            told = os.statvfs(self.home.workspace)
        except OSError:
            return (0, 0)
        return told.f_bfree * told.f_frsize, told.f_ffree

    def _count(self, processes: Processes) -> Held:
        counted = _Count(self._allowed)
        for folder in (self.home.workspace, self.home.skills, *([self._shared] if self._shared is not None else [])):
            counted.folder(folder)
        with contextlib.suppress(OSError):
            device = self.home.workspace.stat().st_dev
            for pid in processes():
                counted.deleted(pid, device)
        return Held(counted.bytes, counted.files, counted.deepest)


class _Count:
    """Counts what is below folders, hard links once, links never followed. Gives up once it is too much anyway."""

    def __init__(self, allowed: Held) -> None:
        self._allowed = allowed
        self._seen: set[tuple[int, int]] = set()
        self.bytes = self.files = self.deepest = 0

    def folder(self, path: str | Path, depth: int = 1, parent: int | None = None) -> None:
        self.deepest = max(self.deepest, depth)
        if self._enough():
            return
        try:
            here = _open_folder(path, parent)
        except OSError:
            return
        try:
            for name in self._entries(here):
                self.folder(name, depth + 1, here)
        finally:
            os.close(here)

    def _entries(self, here: int) -> list[str]:
        """Count a folder's entries; answers the folders among them."""
        folders: list[str] = []
        with os.scandir(here) as entries:
            for entry in entries:
                try:
                    self.file(entry.stat(follow_symlinks=False))
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                except OSError:
                    continue
                if self._enough():
                    return []
        return folders

    def file(self, status: os.stat_result) -> None:
        self.files += 1
        if status.st_nlink != 1 and not stat.S_ISDIR(status.st_mode):
            key = (status.st_dev, status.st_ino)
            if key in self._seen:
                return
            self._seen.add(key)
        self.bytes += status.st_blocks * _BLOCK

    def deleted(self, pid: int, device: int) -> None:
        """Files of a process that have no name any more."""
        try:
            with os.scandir(f"/proc/{pid}/fd") as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        status = entry.stat()
                        if status.st_nlink == 0 and status.st_dev == device and stat.S_ISREG(status.st_mode):
                            self.file(status)
            mapped = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        except OSError:
            return
        for line in mapped:
            if line.endswith(" (deleted)"):
                self._mapped(line.split(maxsplit=5), device)

    def _mapped(self, fields: list[str], device: int) -> None:
        """A deleted file that is only mapped: its size is not to be had, but the mapping's is."""
        major, minor = (int(part, 16) for part in fields[3].split(":"))
        key = (os.makedev(major, minor), int(fields[4]))
        if key[0] == device and key not in self._seen:
            self._seen.add(key)
            begin, end = (int(part, 16) for part in fields[0].split("-"))
            self.bytes += end - begin

    def _enough(self) -> bool:
        return self.bytes > self._allowed.bytes or self.files > self._allowed.files or self.deepest > _DEEPEST


def _written(pids: list[int]) -> int:
    """Bytes that the processes, and those of their children that have ended, have written to disks."""
    total = 0
    # The sandbox's process 1 inherits the counts of orphans.
    for pid in {*pids, *(_parent(pid) for pid in pids[:1])}:
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(read_small(f"/proc/{pid}/io").partition(b"\nwrite_bytes: ")[2].split()[0])
    return total


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(read_small(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
    return 0


def _open_folder(path: str | Path, parent: int | None) -> int:
    try:
        return os.open(path, _FOLDER, dir_fd=parent)
    except PermissionError:
        # A program may lock its own folder; the owner may always unlock it.
        handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
        try:
            Path(f"/proc/self/fd/{handle}").chmod(0o700)
        finally:
            os.close(handle)
        return os.open(path, _FOLDER, dir_fd=parent)
