"""A folder that others write into as well, read and written so that no link leads out of it."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Generator
from pathlib import Path

from toolfold.errors import SkillError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ContainedFolder:
    """Paths are relative, with slashes, and of our own making; what is found at them may be anybody's."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, path: str, limit: int) -> bytes | None:
        """The content of a regular file; None where there is none."""
        with self._errors(path):
            try:
                with self._parent(path, make=False) as parent:
                    descriptor = os.open(path.rpartition("/")[2], _READ, dir_fd=parent)
            except FileNotFoundError:
                return None
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise SkillError(f"{self.path / path} is not a regular file.")
                content = file.read(limit + 1)
            if len(content) > limit:
                raise SkillError(f"{self.path / path} is larger than the {limit:,} bytes that are allowed.")
            return content
        raise AssertionError  # for the type checker: the context manager swallows nothing

    def write(self, path: str, content: bytes) -> None:
        """Replace a file at once: after a crash or a full disk it is whole, old or new. Its mode stays."""
        name = path.rpartition("/")[2]
        with self._errors(path), self._parent(path, make=True) as parent:
            draft = f".{name}.{secrets.token_hex(6)}.tmp"
            mode = 0o666
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
                if not stat.S_ISREG(found):
                    raise SkillError(f"{self.path / path} is not a regular file; links are not followed.")
                mode = stat.S_IMODE(found)
            try:
                with os.fdopen(os.open(draft, _NEW, mode, dir_fd=parent), "wb") as file:
                    if mode != 0o666:  # an old file's mode is kept as it was, whatever the umask
                        os.fchmod(file.fileno(), mode)
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
                os.fsync(parent)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(draft, dir_fd=parent)
                raise

    def names(self, path: str) -> list[str]:
        """The names in a folder of it, sorted; none where it is not there."""
        with self._errors(path):
            try:
                with self._parent(f"{path}/-", make=False) as folder:
                    return sorted(os.listdir(folder))  # noqa: PTH208 - of a descriptor
            except FileNotFoundError:
                return []
        raise AssertionError

    @contextlib.contextmanager
    def _parent(self, path: str, *, make: bool) -> Generator[int]:
        """The folder that `path` is in, opened part by part."""
        here = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in path.split("/")[:-1]:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=here)
                inner = os.open(part, _FOLDER, dir_fd=here)
                os.close(here)
                here = inner
            yield here
        finally:
            os.close(here)

    @contextlib.contextmanager
    def _errors(self, path: str) -> Generator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}:
                raise SkillError(
                    f"{self.path / path} leads through a link or a file; links are not followed."
                ) from None
            raise SkillError(f"Cannot use {self.path / path}: {error.strerror or error}.") from None
