"""Removing a folder that a hostile program filled: any depth, any permissions, and never through a link."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HANDLE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> bool:
    """Remove `path` and everything below it; whether nothing is left.

    Folders are moved up before they are emptied, so that depth costs neither descriptors nor stack, and no path ever
    becomes too long.
    """
    try:
        top = _open(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        _empty_all(top)
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        path.rmdir()
    return not path.exists()


def empty_tree(path: Path) -> None:
    """Remove everything below `path`, in the same way. The folder itself may be mounted, and stays."""
    with contextlib.suppress(FileNotFoundError):
        top = _open(path)
        try:
            _empty_all(top)
        finally:
            os.close(top)


def _empty_all(top: int) -> None:
    mark = secrets.token_hex(8)
    names = (f"{mark}-{number}" for number in itertools.count())
    waiting = _empty(top, top, names)
    while waiting:
        name = waiting.pop()
        with contextlib.suppress(OSError):
            here = os.open(name, _FOLDER, dir_fd=top)
            try:
                waiting += _empty(here, top, names)
            finally:
                os.close(here)
            os.rmdir(name, dir_fd=top)


def _empty(here: int, top: int, names: Iterator[str]) -> list[str]:
    """Unlink a folder's files and move its folders up; answers what they are called there."""
    moved: list[str] = []
    with os.scandir(here) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        with contextlib.suppress(OSError):
            if not is_folder:
                os.unlink(name, dir_fd=here)
            else:
                # Moving a folder changes what is in it (its parent), so it must be writable.
                _unlock(name, here)
                target = next(names)
                os.rename(name, target, src_dir_fd=here, dst_dir_fd=top)
                moved.append(target)
    return moved


def _open(path: Path) -> int:
    _unlock(str(path), None)
    return os.open(path, _FOLDER)


def _unlock(name: str, parent: int | None) -> None:
    """Let its owner read and change a folder: through a handle, so that a link put in its place is not followed."""
    handle = os.open(name, _HANDLE, dir_fd=parent)
    try:
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        if mode & 0o700 != 0o700:
            Path(f"/proc/self/fd/{handle}").chmod(mode | 0o700)
    finally:
        os.close(handle)
