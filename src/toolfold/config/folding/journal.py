"""Writing several files so that either all of them change or none, and remembering what was there.

Before anything is written, a record of the change and a copy of every file are on disk. A fold that was cut off in the
middle is known by its record, and is undone by the next command.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from toolfold.config import documents
from toolfold.config.edge import Host
from toolfold.config.folding.drafts import Op
from toolfold.errors import ConfigError

PRIVATE = 0o600
LIMIT = 64_000_000
"""Bytes of a file that can be changed; `~/.claude.json` also holds the client's history."""


@dataclass(frozen=True, slots=True)
class Change:
    """One file: what it holds, and what it shall hold; None where it is absent."""

    path: Path
    before: bytes | None
    after: bytes | None
    ops: Sequence[Op] = ()
    mode: int | None = None
    """The permissions to give it; those that it has when None."""
    made_folders: Sequence[str] = ()
    """Folders that were made for it once, to be removed with it."""


class Edit(msgspec.Struct, omit_defaults=True):
    """What one fold did to one file."""

    path: str
    existed: bool
    backup: str
    """The name of the copy, beside the record; empty when there is none."""
    mode: int
    after: str
    """The SHA-256 of what was written; empty when the copy is no longer what has to be put back."""
    ops: list[Op]
    folders: list[str] = []
    """Folders that were made for it, the innermost last."""


class Record(msgspec.Struct, omit_defaults=True):
    """One fold of one client."""

    client: str
    number: int
    edits: list[Edit] = []
    uses: dict[str, list[str]] = {}
    """By file of ours: servers that another fold had put there already."""
    finished: bool = False

    @property
    def file_name(self) -> str:
        return f"{self.number:04d}-{self.client}.json"


@dataclass(slots=True)
class Journal:
    """All folds that have not been undone, in a folder that only the person can read."""

    folder: Path
    records: list[Record] = field(default_factory=list[Record])

    @classmethod
    def of(cls, host: Host) -> Journal:
        """The person's journal. It is not in the data folder, since a project can say where that is."""
        journal = cls(host.config_dir / "toolfold" / "folds")
        with contextlib.suppress(OSError):
            for path in sorted(journal.folder.glob("[0-9]*.json")):
                try:
                    journal.records.append(msgspec.json.decode(path.read_bytes(), type=Record))
                except (msgspec.MsgspecError, ValueError):
                    raise ConfigError(
                        f"{path}: not a record of Toolfold.", hint="Move it away; the copies beside it are yours."
                    ) from None
        return journal

    def begin(self, client: str, changes: Sequence[Change], uses: dict[str, list[str]]) -> Record:
        """Keep a copy of every file, and a record of what is about to be done."""
        number = max((record.number for record in self.records), default=0) + 1
        record = Record(client, number, uses=uses)
        with _explained(self.folder):
            _make_folder(self.folder)
            for at, change in enumerate(changes):
                backup = f"{number:04d}-{client}.{at}.backup" if change.before is not None else ""
                if change.before is not None:
                    _write(self.folder / backup, change.before, PRIVATE)
                written = hashlib.sha256(change.after or b"").hexdigest()
                folders = [str(folder) for folder in _missing_folders(change.path)]
                there = change.before is not None
                edit = Edit(str(change.path), there, backup, _mode(change.path), written, [*change.ops], folders)
                record.edits.append(edit)
            self.records.append(record)
            self.save(record)
        return record

    def save(self, record: Record) -> None:
        _write(self.folder / record.file_name, msgspec.json.format(msgspec.json.encode(record), indent=1), PRIVATE)

    def copy_of(self, edit: Edit) -> bytes | None:
        """What a file held before; None when there was none."""
        if not edit.backup:
            return None
        path = self.folder / edit.backup
        try:
            return path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{path}: {(error.strerror or 'unreadable').lower()}.") from None

    def forget(self, record: Record) -> None:
        """Remove a record and its copies."""
        self.records = [each for each in self.records if each is not record]
        with contextlib.suppress(OSError):
            (self.folder / record.file_name).unlink()
            for edit in record.edits:
                if edit.backup:
                    (self.folder / edit.backup).unlink()
        with contextlib.suppress(OSError):
            self.folder.rmdir()
            self.folder.parent.rmdir()


def current(path: Path) -> bytes | None:
    """What a file holds; None when there is none."""
    try:
        return documents.read_bytes(path, limit=LIMIT)
    except FileNotFoundError:
        if path.is_symlink():
            raise ConfigError(f"{path}: a link to a file that does not exist.", hint="Remove the link.") from None
        return None
    except documents.UnreadableError as error:
        raise ConfigError(f"{path}: {error}.") from None


def real(path: Path, inside: Path | None) -> Path:
    """The file behind `path`, links followed: a link stays one, and what it leads to is changed.

    A file of the project `inside` must be in it.
    """
    found = Path(os.path.realpath(path))
    if inside is not None and not found.is_relative_to(os.path.realpath(inside)):
        raise ConfigError(
            f"{path}: a link that leaves the project, so it is not changed.",
            hint="Fold your own files with --user, or replace the link by a file.",
        )
    return found


def write_all(changes: Iterable[Change]) -> None:
    """Change all files, or none when one of them cannot be changed or is not what it was."""
    wanted = [change for change in changes if change.before != change.after or change.mode is not None]
    staged: list[Path] = []
    done: list[tuple[Change, int]] = []
    try:
        for change in wanted:
            _check(change)
        for change in wanted:
            if change.after is not None:
                with _explained(change.path):
                    _make_folder(change.path.parent)
                    mode = change.mode if change.mode is not None else _mode(change.path)
                    staged.append(_stage(change.path, change.after, mode))
        ready = iter(list(staged))
        for change in wanted:
            with _explained(change.path):
                mode = _mode(change.path)
                if change.after is None:
                    change.path.unlink(missing_ok=True)
                else:
                    next(ready).replace(change.path)
                done.append((change, mode))
    except BaseException:
        for change, mode in reversed(done):
            _put_back(change, mode)
        raise
    finally:
        for path in staged:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    for change in wanted:
        _sync(change.path.parent)
        for folder in reversed(change.made_folders) if change.after is None else ():
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


def _check(change: Change) -> None:
    if current(change.path) != change.before:
        raise ConfigError(f"{change.path}: changed by another program in the meantime.", hint="Try again.")
    with contextlib.suppress(FileNotFoundError):
        if not change.path.stat().st_mode & 0o222:
            raise ConfigError(f"{change.path}: read-only. Nothing was changed.", hint=f"chmod u+w {change.path}")


def _put_back(change: Change, mode: int) -> None:
    with contextlib.suppress(OSError):
        if change.before is None:
            change.path.unlink(missing_ok=True)
        else:
            _write(change.path, change.before, mode)


def _write(path: Path, data: bytes, mode: int) -> None:
    staged = _stage(path, data, mode)
    try:
        staged.replace(path)
    except OSError:
        staged.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _stage(path: Path, data: bytes, mode: int) -> Path:
    """A file beside `path` with the new content, on disk, with the same owner."""
    staged = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}")
    fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), PRIVATE)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        staged.chmod(mode)
        with contextlib.suppress(OSError):
            owner = path.stat()
            if hasattr(os, "chown") and (owner.st_uid, owner.st_gid) != (os.getuid(), os.getgid()):
                os.chown(staged, owner.st_uid, owner.st_gid)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    return staged


def _sync(folder: Path) -> None:
    """See that renames in a folder are on disk, where the system knows how."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _mode(path: Path) -> int:
    """The permissions of a file; those of a private one when it is not there."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return PRIVATE


def _missing_folders(path: Path) -> list[Path]:
    return [folder for folder in reversed(path.parents) if not folder.exists()]


def _make_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextlib.contextmanager
def _explained(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"{path}: {reason}. Nothing was changed.", hint="Make the file and its folder writable, and try again."
        ) from None
