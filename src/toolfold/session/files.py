"""A session's `workspace/` from outside: list, read, write and remove files, never through a link.

A program may have laid anything there: links to the host's files, pipes and devices, a million names, a sparse file of
terabytes. Each part of a path is opened by itself and must be a plain folder, and only plain files are read.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import stat
from collections.abc import Generator
from pathlib import Path, PurePosixPath

import msgspec

from toolfold.errors import InvalidRequest
from toolfold.sandbox.protocol import SessionHome
from toolfold.sandbox.quota import measured
from toolfold.session.removal import remove_tree

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe would wait for somebody who writes to it.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20
_DEEPEST = 100
_MOST_LISTED = 1000
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


class FileInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    """`file`, `folder`, `link` (never followed) or `other`: a pipe, a socket, a device."""
    size: int
    """Bytes from its beginning to its end; a sparse file takes less on disk."""
    modified: float


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    files: list[FileInfo]
    more: int
    """Names that were left out; at least so many, where there are very many."""


class SessionFiles:
    """Paths are relative to `workspace/`, which may be written in front. Every method blocks."""

    def __init__(self, home: SessionHome, limit: int) -> None:
        """`limit` is in bytes that all files may take."""
        self._home = home
        self._limit = limit

    def ls(self, path: str = "", *, limit: int = _MOST_LISTED) -> Listing:
        """What a folder holds, by name; of a very large one, some."""
        limit = max(1, min(limit, 100_000))
        with self._folder(_parts(path)) as folder, os.scandir(folder) as entries:
            found = sorted(itertools.islice((entry.name for entry in entries), limit + 1))
            more = sum(1 for _ in itertools.islice(entries, 1_000_000)) + max(0, len(found) - limit)
            infos: list[FileInfo] = []
            for name in found[:limit]:
                with contextlib.suppress(FileNotFoundError):
                    infos.append(_info(name, os.stat(name, dir_fd=folder, follow_symlinks=False)))
        return Listing(files=infos, more=more)

    def read(self, path: str, *, most: int = 10_000_000) -> bytes:
        """The bytes of a file. Raises InvalidRequest if there are more than `most`."""
        with self._open(path) as file:
            size = os.fstat(file).st_size
            if size > most:
                raise InvalidRequest(f"{path!r} has {size:,} bytes, more than {most:,}.", hint="Use `get`.")
            data = bytearray()
            while len(data) <= most and (more := os.read(file, _CHUNK)):
                data += more
            return bytes(data[:most])

    def get(self, path: str, target: Path) -> int:
        """Copy a file out of the session; answers its size. Holes in it stay holes. `target` is whole or not there."""
        temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}")
        with self._open(path) as file:
            copy = os.open(temporary, _NEW, 0o644)
            try:
                try:
                    size = _copy(file, copy)
                finally:
                    os.close(copy)
                temporary.replace(target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            return size

    def put(self, source: Path | bytes, path: str) -> int:
        """Copy a file, or bytes, into the session; answers the size. A file that is there already is replaced."""
        *above, name = _parts(path) or [""]
        if not name:
            raise InvalidRequest("Name the file in the workspace.")
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        held = measured(self._home).bytes
        if held + size > self._limit:
            message = f"{size:,} bytes are too many: the session holds {held:,} of {self._limit:,} already."
            raise InvalidRequest(message, hint="The limit is `sandbox.disk` in the settings.")
        with self._folder(above, make=True) as folder:
            with contextlib.suppress(FileNotFoundError):
                there = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISDIR(there.st_mode):
                    raise InvalidRequest(f"{path!r} is a folder.")
            temporary = f".{secrets.token_hex(8)}"
            file = os.open(temporary, _NEW, 0o644, dir_fd=folder)
            try:
                try:
                    _give(self._home.workspace.lstat(), file)
                    if isinstance(source, bytes):
                        _write_all(file, source)
                    else:
                        with source.open("rb") as given:
                            _copy(given.fileno(), file)
                finally:
                    os.close(file)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
        return size

    def rm(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a link (not what it leads to), or with `recursive` a folder and all that is in it."""
        *above, name = _parts(path) or [""]
        if not name:
            raise InvalidRequest("Name the file to remove.", hint="`toolfold sessions reset --files` removes all.")
        with self._folder(above) as folder:
            try:
                is_folder = stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
            except FileNotFoundError:
                raise InvalidRequest(f"There is no {path!r} in the workspace.") from None
            if not is_folder:
                os.unlink(name, dir_fd=folder)
                return
            if not recursive:
                raise InvalidRequest(f"{path!r} is a folder.", hint="Remove it with all that is in it: `-r`.")
            # Out of the program's reach first, so that nothing can be put in its place meanwhile.
            away = self._home.path / f"removed-{secrets.token_hex(8)}"
            top = os.open(self._home.path, _FOLDER)
            try:
                os.rename(name, away.name, src_dir_fd=folder, dst_dir_fd=top)
            finally:
                os.close(top)
        remove_tree(away)

    @contextlib.contextmanager
    def _folder(self, parts: list[str], *, make: bool = False) -> Generator[int]:
        """A descriptor of a folder in the workspace, each part of the way a plain folder."""
        folder = os.open(self._home.workspace, _FOLDER)
        try:
            for part in parts:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o755, dir_fd=folder)
                        _give_folder(os.fstat(folder), part, folder)
                try:
                    inner = os.open(part, _FOLDER, dir_fd=folder)
                except OSError as error:
                    raise InvalidRequest(_why("/".join(parts), error)) from None
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _open(self, path: str) -> Generator[int]:
        """A plain file."""
        *above, name = _parts(path) or [""]
        if not name:
            raise InvalidRequest("Name a file in the workspace.")
        with self._folder(above) as folder:
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                # A device is not even opened: that alone may do something.
                if not stat.S_ISREG(status.st_mode):
                    raise InvalidRequest(f"{path!r} is a {_kind(status)}, not a plain file.")
                file = os.open(name, _FILE, dir_fd=folder)
            except OSError as error:
                raise InvalidRequest(_why(path, error)) from None
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise InvalidRequest(f"{path!r} is not a plain file.")
            yield file
        finally:
            os.close(file)


def _parts(path: str) -> list[str]:
    if "\0" in path or len(path) > 4000:
        raise InvalidRequest("A path has at most 4,000 characters, none of them zero.")
    parts = [part for part in PurePosixPath(path).parts if part != "/"]
    if parts[:1] == ["workspace"]:
        parts = parts[1:]
    if ".." in parts or len(parts) > _DEEPEST:
        raise InvalidRequest(f"{path[:200]!r} leads out of the workspace, or too deep into it.")
    return parts


def _why(path: str, error: OSError) -> str:
    match error.errno:
        case errno.ENOENT:
            return f"There is no {path[:200]!r} in the workspace."
        case errno.ELOOP:
            return f"{path[:200]!r} is a link, or leads through one; links are not followed."
        case errno.ENOTDIR:
            return f"{path[:200]!r} leads through something that is no plain folder."
        case _:
            return f"{path[:200]!r}: {error.strerror}."


def _kind(status: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(status.st_mode), "pipe, socket or device")


def _info(name: str, status: os.stat_result) -> FileInfo:
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "other")
    shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return FileInfo(name=shown, kind=kind, size=status.st_size, modified=status.st_mtime)


def _copy(source: int, target: int) -> int:
    """Copy what is in a file; the length of holes is not. Answers the length."""
    size = os.fstat(source).st_size
    at = 0
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
            end = min(size, os.lseek(source, at, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                break
            end = size  # a file system that knows no holes
        os.lseek(target, at, os.SEEK_SET)
        os.lseek(source, at, os.SEEK_SET)
        while at < end and (data := os.read(source, min(_CHUNK, end - at))):
            _write_all(target, data)
            at += len(data)
        if at < end:
            break  # it has become shorter
    os.ftruncate(target, size)
    return size


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _give(owner: os.stat_result, file: int) -> None:
    """As root, each session's files belong to a user of its own."""
    if owner.st_uid != os.geteuid():
        os.fchown(file, owner.st_uid, owner.st_gid)


def _give_folder(owner: os.stat_result, name: str, folder: int) -> None:
    if owner.st_uid != os.geteuid():
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=folder, follow_symlinks=False)
