"""What programs keep by `keep(name, value)`: plain data on the host's side of a session's folder.

    sessions/<id>/kept/<hash of the name>     the name as JSON, a newline, the value as JSON

A value is on disk, whole, before the program goes on. The host never looks into it but to check that it is JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Generator, Iterator
from pathlib import Path

import msgspec

from toolfold.errors import ValueRefused
from toolfold.locks import locked
from toolfold.sandbox.protocol import SessionHome

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_VALUES = 1000
_LONGEST_NAME = 200
_UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_TEMPORARY = "."


class KeptValues:
    """One session's. Several processes may use it; every method blocks, and does what it does wholly or not at all."""

    def __init__(self, home: SessionHome, limit: int) -> None:
        """`limit` is in bytes of all values."""
        self._folder = home.path / "kept"
        self._limit = limit

    def put(self, name: str, value: object) -> None:
        """Keep a value, durably. Raises ValueRefused for what is not allowed, and when there is no space for it."""
        checked(name)
        data = b"%b\n%b" % (msgspec.json.encode(name), msgspec.json.encode(value))
        try:
            with self._locked() as folder:
                self._check(folder, _file(name), len(data))
                _write(folder, _file(name), data)
        except OSError as error:
            raise ValueRefused(f"{name!r} could not be kept: {error.strerror}.") from None

    def get(self, name: str) -> bytes | None:
        """The value as JSON; None where nothing is kept under the name."""
        try:
            return (self._folder / _file(checked(name))).read_bytes().partition(b"\n")[2]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ValueRefused(f"{name!r} could not be read: {error.strerror}.") from None

    def remove(self, name: str) -> bool:
        """Whether there was such a value."""
        try:
            (self._folder / _file(checked(name))).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ValueRefused(f"{name!r} could not be removed: {error.strerror}.") from None
        return True

    def names(self) -> list[str]:
        """In the order of the alphabet."""
        found: list[str] = []
        for entry in self._entries():
            with contextlib.suppress(OSError, msgspec.MsgspecError), Path(entry.path).open("rb") as file:
                found.append(msgspec.json.decode(file.readline(), type=str))
        return sorted(found)

    def clear(self) -> None:
        for entry in self._entries():
            with contextlib.suppress(OSError):
                Path(entry.path).unlink()

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            yield from (entry for entry in entries if not entry.name.startswith(_TEMPORARY))

    @contextlib.contextmanager
    def _locked(self) -> Generator[int]:
        """The folder, made when it is first needed. One writer at a time, so that what is allowed is counted once."""
        try:
            self._folder.mkdir()
        except FileExistsError:
            pass
        else:
            for above in (self._folder.parent, self._folder.parent.parent):
                _sync(above)
        with locked(self._folder, _FOLDER) as folder:
            yield folder

    def _check(self, folder: int, file: str, size: int) -> None:
        count, total = 1, size
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(_TEMPORARY):
                    os.unlink(entry.name, dir_fd=folder)  # a writer that was killed left it
                elif entry.name != file:
                    count += 1
                    total += entry.stat(follow_symlinks=False).st_size
        if count > _MOST_VALUES:
            raise ValueRefused(
                f"A session keeps at most {_MOST_VALUES:,} values.", hint="`del kept[name]` makes space."
            )
        if total > self._limit:
            hint = "`del kept[name]` makes space; large data belongs into a file in workspace/."
            raise ValueRefused(
                f"A session keeps at most {self._limit:,} bytes (`sandbox.kept` in the settings).", hint=hint
            )


def checked(name: str) -> str:
    """`name`, if something can be kept under it. Raises ValueRefused otherwise."""
    if not 0 < len(name) <= _LONGEST_NAME:
        raise ValueRefused(f"A name has 1 to {_LONGEST_NAME} characters, not {len(name):,}.")
    if _UNFIT.search(name):
        raise ValueRefused("A name has no control characters.")
    return name


def _file(name: str) -> str:
    """No name leads out of the folder, and no two meet in it."""
    return hashlib.sha256(name.encode()).hexdigest()[:40]


def _write(folder: int, name: str, data: bytes) -> None:
    temporary = f"{_TEMPORARY}{secrets.token_hex(8)}"
    file = os.open(temporary, _NEW, 0o600, dir_fd=folder)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            os.fsync(file)
        finally:
            os.close(file)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _sync(path: Path) -> None:
    folder = os.open(path, _FOLDER)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
