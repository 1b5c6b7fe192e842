"""One scope's skills on disk: saved once, versioned, with a history; several processes may use one folder.

    <root>/
        sales-report/               the skill as it is now (`folder.py`)
        .history/sales-report/1/    what it was before
        .pending/sales-report/      what waits for a person's yes
        .index.db                   what is known of them (`index.py`)
        .lock                       held by the one that writes

Readers need no lock: a skill is replaced at once.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from toolfold.errors import SkillError
from toolfold.locks import locked
from toolfold.skills.folder import (
    MAX_TEXT,
    TEMPORARY,
    Skill,
    read_skill,
    restore_folders,
    sync_folder,
    write_skill,
)
from toolfold.skills.index import Index, Record, Use, record_of
from toolfold.skills.names import check_folder_name

MAX_SKILLS = 10_000
MAX_VERSIONS = 50
"""Old versions of one skill that are kept."""
_LOOK_AGAIN = 5.0
"""Seconds after which files that were edited in place are noticed."""


@dataclass(frozen=True)
class Saved:
    """What became of a skill that was saved. `is_new` is false where the same skill was there already."""

    skill: Skill
    is_new: bool = True
    is_pending: bool = False


class SkillStore:
    """`root` is made when the first skill is saved. Safe to use from several threads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._index: Index | None = None
        self._known: dict[str, tuple[str, Record]] = {}
        self._uses: dict[str, Use] = {}
        self._seen: tuple[int, int] | None = None
        self._looked = 0.0
        self._lock = threading.RLock()
        self._restored = False
        self.version = 0
        """Changes whenever a record does, in this process."""
        self.uses_version = 0

    def close(self) -> None:
        if self._index is not None:
            self._index.close()

    # Reading

    def records(self) -> Mapping[str, Record]:
        """Every skill by its name, also those with a problem."""
        self.refresh()
        return {name: record for name, (_, record) in self._known.items()}

    def find(self, name: str) -> Record | None:
        self.refresh()
        found = self._known.get(name)
        return found[1] if found is not None else None

    def read(self, name: str) -> Skill:
        """The whole skill. SkillError where there is none."""
        check_folder_name(name)
        return read_skill(self.root / name)

    def source(self, name: str) -> str:
        """Its skill.py, as it is now."""
        check_folder_name(name)
        try:
            descriptor = os.open(self.root / name / "skill.py", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                data = file.read(MAX_TEXT + 1)
            if len(data) > MAX_TEXT:
                raise SkillError(f"skill.py of {name!r} is larger than the {MAX_TEXT:,} bytes that are allowed")
            return data.decode()
        except (OSError, UnicodeDecodeError):
            return self.read(name).source

    def uses(self) -> Mapping[str, Use]:
        self.refresh()
        return self._uses

    def pending(self) -> list[Skill]:
        """What waits for a person's yes."""
        return _readable(self.root / ".pending")

    def history(self, name: str) -> list[Skill]:
        """Earlier versions, the newest first."""
        check_folder_name(name)
        found = [self.earlier(name, version) for version in sorted(self._versions(name), reverse=True)]
        return [skill for skill in found if skill is not None]

    def earlier(self, name: str, version: int) -> Skill | None:
        folder = self.root / ".history" / check_folder_name(name) / str(version) / name
        with contextlib.suppress(SkillError):
            return read_skill(folder)
        return None

    # Writing

    def save(self, skill: Skill, *, pending: bool = False) -> Saved:
        """Keep a skill; it is on disk when this returns. The same content again changes nothing.

        `pending`: it waits for `approve`, and what is there meanwhile stays in use.
        """
        record = record_of(skill)
        with self._writing():
            current = self._current(skill.name)
            if current is not None and current.digest == skill.digest:
                return Saved(current, is_new=False)
            if pending:
                write_skill(skill, self.root / ".pending" / skill.name)
                return Saved(skill, is_pending=True)
            return self._publish(skill, record, current)

    def approve(self, name: str) -> Saved:
        """Let what waits be used. SkillError where nothing of this name does."""
        check_folder_name(name)
        with self._writing():
            folder = self.root / ".pending" / name
            if not folder.is_dir():
                raise SkillError(f"no skill {name!r} waits for approval", hint="`toolfold skills list` shows them.")
            skill = read_skill(folder)
            return self._publish(skill, record_of(skill), self._current(name))

    def remove(self, name: str) -> None:
        """Remove a skill; its history stays. SkillError where there is none."""
        check_folder_name(name)
        with self._writing():
            folder, waiting = self.root / name, self.root / ".pending" / name
            if not folder.is_dir() and not waiting.is_dir():
                raise SkillError(f"there is no skill {name!r}", hint="`toolfold skills list` shows them.")
            if folder.is_dir():
                with contextlib.suppress(SkillError):
                    self._archive(read_skill(folder))
                self._drop(folder)
                self._known.pop(name, None)
                self.version += 1
                self._open_index().keep([], gone=[name])
                self._open_index().forget_uses(name)
            self._drop(waiting)

    def used(self, names: set[str], *, ok: bool) -> None:
        """Count one use of each of these skills, in a run that succeeded or not."""
        index = self._open_index()
        index.used(names, ok=ok)
        with self._lock:
            self._uses = index.uses()
            self.uses_version += 1

    # How

    def _publish(self, skill: Skill, record: Record, current: Skill | None) -> Saved:
        """Put a skill in the place of the current one. The lock is held."""
        if current is None and len(self.records()) >= MAX_SKILLS:
            raise SkillError(f"there are {MAX_SKILLS:,} skills already; remove some with `toolfold skills rm`")
        last = max([0, *self._versions(skill.name)])
        if current is not None:
            last = max(last, self._archive(current))
        skill = replace(skill, version=last + 1)
        write_skill(skill, self.root / skill.name)
        self._drop(self.root / ".pending" / skill.name)
        self._note(structs.replace(record, version=skill.version))
        return Saved(skill)

    def _current(self, name: str) -> Skill | None:
        try:
            return read_skill(self.root / name)
        except SkillError:
            return None

    def _versions(self, name: str) -> list[int]:
        try:
            found = os.listdir(self.root / ".history" / name)  # noqa: PTH208 - names are all we need
        except OSError:
            return []
        return [int(version) for version in found if version.isdecimal()]

    def _archive(self, skill: Skill) -> int:
        """Keep what is there now in the history; the number that it has there.

        Its files are linked, not copied: what replaces it are other files.
        """
        version, taken = skill.version, self._versions(skill.name)
        earlier = self.earlier(skill.name, version) if version in taken else None
        if earlier is not None and earlier.digest == skill.digest:
            return max(taken)
        if version in taken:
            version = max(taken) + 1  # edited by hand since
        parent = self.root / ".history" / skill.name
        parent.mkdir(parents=True, exist_ok=True)
        aside = parent / f"{TEMPORARY}{secrets.token_hex(8)}"
        try:
            shutil.copytree(self.root / skill.name, aside / skill.name, copy_function=_link)
            aside.rename(parent / str(version))
        except OSError as error:
            raise SkillError(f"cannot keep the old version of {skill.name!r}: {error.strerror or error}") from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        for old in sorted(taken)[: max(0, len(taken) + 1 - MAX_VERSIONS)]:
            shutil.rmtree(parent / str(old), ignore_errors=True)
        return max([version, *taken])

    def _drop(self, folder: Path) -> None:
        """Remove a folder so that none of it is left half."""
        if not folder.is_dir():
            return
        aside = folder.parent / f"{TEMPORARY}{secrets.token_hex(8)}"
        folder.rename(aside)
        sync_folder(folder.parent)
        shutil.rmtree(aside, ignore_errors=True)

    @contextlib.contextmanager
    def _writing(self) -> Generator[None]:
        """One writer at a time, in all processes."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Threads of this process wait here as well, where who only reads does not wait for them.
            with locked(self.root / ".lock"), self._lock:
                yield
        except OSError as error:
            raise SkillError(f"skills cannot be written: {error.strerror or error}") from None

    def _open_index(self) -> Index:
        with self._lock:
            if self._index is None:
                self._index = Index(self.root / ".index.db")
            return self._index

    def _note(self, record: Record) -> None:
        """Take over a record that has just been written, without looking at all others."""
        stamp = _stamp(self.root / record.name)
        self._known[record.name] = stamp, record
        self.version += 1
        self._open_index().keep([(stamp, record)])

    def refresh(self) -> None:
        """Look whether the folders are as they were, as far as that is cheap."""
        try:
            status = self.root.stat()
        except OSError:
            if self._known:
                self._known, self._uses, self._seen = {}, {}, None
                self.version += 1
            return
        seen, now = (status.st_mtime_ns, status.st_ino), time.monotonic()
        if seen == self._seen and now - self._looked < _LOOK_AGAIN:
            return
        with self._lock:
            self._look(first=self._seen is None)
            self._seen, self._looked = seen, now

    def _look(self, *, first: bool) -> None:
        index = self._open_index()
        known = dict(index.records()) if first else dict(self._known)
        if first:
            self._uses = index.uses()
        with os.scandir(self.root) as entries:
            names = [entry.name for entry in entries]
        if any(name.startswith((TEMPORARY, ".old-")) for name in names) and not self._restored:
            self._restored = True
            with contextlib.suppress(SkillError, OSError):
                self._restore()
                names = os.listdir(self.root)  # noqa: PTH208 - names are all we need
        found: dict[str, tuple[str, Record]] = {}
        changed: list[tuple[str, Record]] = []
        for name in sorted(name for name in names if not name.startswith(".")):
            stamp = _stamp(self.root / name)
            old = known.get(name)
            if old is not None and old[0] == stamp:
                found[name] = old
            elif stamp:
                found[name] = stamp, _record(self.root / name)
                changed.append(found[name])
        gone = known.keys() - found.keys()
        if changed or gone or found.keys() != self._known.keys():
            self.version += 1
        self._known = found
        if changed or gone:
            index.keep(changed, gone)
        latest = index.uses()
        if latest != self._uses:
            self._uses = latest
            self.uses_version += 1

    def _restore(self) -> None:
        """After a crash. Where another process writes just now, what looks left over is its work."""
        with locked(self.root / ".lock", seconds=0):
            restore_folders(self.root)


def _record(folder: Path) -> Record:
    try:
        return record_of(read_skill(folder))
    except SkillError as error:
        return Record(name=folder.name, problem=str(error))


def _stamp(folder: Path) -> str:
    """Changes when one of the two files does; empty where there is no SKILL.md."""
    try:
        first = (folder / "SKILL.md").lstat()
    except OSError:
        return ""
    try:
        second = (folder / "skill.py").lstat()
        both = (first, second)
    except OSError:
        both = (first,)
    return " ".join(f"{one.st_mtime_ns} {one.st_size} {one.st_ino}" for one in both)


def _readable(folder: Path) -> list[Skill]:
    found: list[Skill] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if not path.name.startswith("."):
            with contextlib.suppress(SkillError):
                found.append(read_skill(path))
    return found


def _link(source: str, target: str) -> None:
    """A second name for a file, or a copy where the file system has no such names."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
