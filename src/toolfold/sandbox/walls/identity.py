"""Who the sandbox's processes are on the host, when the host's process is root.

An ordinary user's sandbox is that user, locked in. Root's sandboxes are not root: each home has a user id that owns
nothing else, so that neither file permissions nor the kernel's per-user limits make their exceptions for root.

Such a user cannot enter folders that only root can, such as root's home, where the sandbox's parts may well be. So
bwrap is started from one thread with a private mount table, in which exactly those folders have a second name that
every user can reach. Only that thread and its children see it, and it ends with them.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from toolfold.sandbox.bubblewrap.process import BwrapProcess
from toolfold.sandbox.exits import uninterrupted
from toolfold.sandbox.protocol import SessionHome

_WANTED = 65536
_HIGH = 0x77000000
"""Beyond every range that distributions, systemd and container engines hand out."""
_FOR_ZYGOTES = 256
"""Ids at the end of the range that are kept for zygotes: a home never has the id of one."""
_CLONE_NEWNS = 0x00020000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_PLACES = ("/mnt", "/media", "/srv", "/run", "/opt")


class SpareUsers:
    """Starts processes as users that own nothing. Made by `find_spare_users`; `close` ends the processes as well."""

    def __init__(self, first: int, count: int, thread: ThreadPoolExecutor, names: _Names) -> None:
        self._first = first
        self._count = count
        self._thread = thread
        self._names = names

    def take(self, home: SessionHome) -> int:
        """The user that a home's processes are."""
        return take(home, self._first, self._count - _FOR_ZYGOTES)

    def take_for_zygote(self) -> int:
        """A user that no home's processes are."""
        return self._first + self._count - 1 - secrets.randbelow(_FOR_ZYGOTES)

    def let_all_exist(self, pid: int) -> None:
        """Map every spare user, to itself, into the new user namespace of a process that waits for it."""
        line = f"{self._first} {self._first} {self._count}"
        for name, text in (("setgroups", "deny"), ("uid_map", line), ("gid_map", line)):
            Path(f"/proc/{pid}/{name}").write_text(text)

    async def start(
        self, owner: int, bwrap: Path, arguments: list[str], paths: Iterable[Path], output: int, given: Sequence[int]
    ) -> tuple[BwrapProcess, dict[Path, str]]:
        """Start bwrap as `owner`; answers the process, and for each of `paths` the name by which it reaches it.

        A process is tied to the life of the thread that started it, which is why there is one thread for all.
        """

        def launch() -> tuple[BwrapProcess, dict[Path, str]]:
            names = {path: self._names.reachable(path) for path in paths}
            command = [self._names.reachable_program(bwrap), *arguments]
            return BwrapProcess(command, output, given, cwd="/", user=owner, group=owner, extra_groups=[]), names

        def end(started: tuple[BwrapProcess, dict[Path, str]]) -> None:
            started[0].kill()
            started[0].wait()

        # The descriptors must stay open until the thread has used them.
        return await uninterrupted(asyncio.get_running_loop().run_in_executor(self._thread, launch), on_cancel=end)

    def close(self) -> None:
        self._thread.shutdown(wait=False)


class _Names:
    """Second names for folders, in the mount table of the thread that made this."""

    def __init__(self, kept: Sequence[Path]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._call("unshare", _CLONE_NEWNS)
        self._mount(None, "/", None, _MS_REC | _MS_PRIVATE)
        self._place = _place(kept)
        self._mount("tmpfs", str(self._place), "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=64k")
        self._known: dict[Path, str] = {}

    def reachable(self, path: Path) -> str:
        """A name for `path` that needs no right to any folder above it."""
        known = self._known.get(path)
        if known is not None and not path.samefile(known):
            # Another folder has its name now.
            self._call("umount2", os.fsencode(known), _MNT_DETACH)
            self._mount(str(path), known, None, _MS_BIND)
        elif known is None:
            name = self._place / str(len(self._known))
            if path.is_dir():
                name.mkdir()
            else:
                name.touch()
            self._mount(str(path), str(name), None, _MS_BIND)
            known = self._known[path] = str(name)
        return known

    def reachable_program(self, program: Path) -> str:
        """The same for a program that finds its libraries beside its folder, as those from wheels do."""
        if program.is_relative_to("/usr"):
            return str(program)
        folder = program.parents[2]
        return str(Path(self.reachable(folder)) / program.relative_to(folder))

    def _mount(self, source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
        texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
        self._call("mount", *texts[:3], flags, texts[3])

    def _call(self, name: str, *arguments: Any) -> None:
        if getattr(self._libc, name)(*arguments):
            raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def _place(kept: Sequence[Path]) -> Path:
    """An ordinary folder to cover, in which nothing is that will be needed."""
    for place in map(Path, _PLACES):
        if place.is_dir() and not place.is_symlink() and not any(path.is_relative_to(place) for path in kept):
            return place
    raise FileNotFoundError(", ".join(_PLACES))


def find_spare_users(kept: Sequence[Path]) -> SpareUsers | None:
    """None when we are not root, or are root of a container that may not mount or has no ids to spare.

    `kept` are paths that must stay visible under their own names as well.
    """
    if os.geteuid() != 0:
        return None
    spare = own_spare_ids()
    if spare is None:
        return None
    thread = ThreadPoolExecutor(1, "toolfold-start")
    try:
        names = thread.submit(_Names, [path.resolve() for path in kept]).result()
    except OSError:
        thread.shutdown()
        return None
    return SpareUsers(*spare, thread, names)


def take(home: SessionHome, first: int, count: int) -> int:
    """An id of this range for a home's processes. A home keeps the one it was given, and its files belong to it."""
    owner = home.workspace.lstat().st_uid
    if not first <= owner < first + count:
        owner = first + secrets.randbelow(count)
    # These hold nothing but homes; whether anybody gets this far is decided by the folders above.
    for folder in (home.path.parent, home.path):
        folder.chmod(folder.stat().st_mode | 0o111)
    for folder in (home.workspace, home.skills):
        if folder.lstat().st_uid != owner:
            _give(folder, owner)
            # Another home's user gains nothing by getting this far.
            folder.chmod(0o700)
    return owner


def own_spare_ids() -> tuple[int, int] | None:
    """The range for this process."""
    return spare_ids(Path("/proc/self/uid_map").read_text(), Path("/proc/self/gid_map").read_text())


def spare_ids(users: str, groups: str) -> tuple[int, int] | None:
    """A range (first, count) that exists for users and groups alike, here, and that is not in use."""
    for first, count in _extents(users):
        if first <= _HIGH and first + count >= _HIGH + _WANTED and _covers(groups, _HIGH, _WANTED):
            return _HIGH, _WANTED
    for first, count in _extents(users):
        # A container's usual 65,536: keep away from its first users and from nobody (65534).
        begin, end = first + count // 2, first + count - 1024
        if end - begin >= 1024 and _covers(groups, begin, end - begin):
            return begin, end - begin
    return None


def _extents(text: str) -> list[tuple[int, int]]:
    """The ids that exist here: (first, count)."""
    rows = (line.split() for line in text.splitlines())
    return [(int(first), int(count)) for first, _, count in rows]


def _covers(text: str, begin: int, count: int) -> bool:
    return any(first <= begin and begin + count <= first + size for first, size in _extents(text))


def _give(folder: Path, owner: int) -> None:
    """Make a folder's files the sandbox's. Links are changed themselves, never followed."""
    for _, folders, files, here in os.fwalk(folder):
        os.fchown(here, owner, owner)
        for name in (*folders, *files):
            os.chown(name, owner, owner, dir_fd=here, follow_symlinks=False)
