"""The zygotes of one owner and one API tree, one after another.

At any time one of them makes sandboxes. It is replaced after so many, so that what its clones share (the layout of
their memory, the seed of their hashes) does not stay the same for long; when homes are in a folder that it does not
see; and when it died. One that was replaced lives until its last clone has ended.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from toolfold.errors import SandboxUnavailable
from toolfold.sandbox.bubblewrap.launcher import Launcher
from toolfold.sandbox.zygote.process import Zygote

MOST_CLONES = 200
_MOST_FOLDERS = 8
IDLE_SECONDS = 60.0
"""After so long without any sandbox the zygote ends as well."""


class Lineage:
    """`on_start` is called when a zygote was started, `on_idle` when nothing of it is left; after `close` it makes no
    zygote any more."""

    def __init__(
        self, launcher: Launcher, api: Path, on_idle: Callable[[], object], on_start: Callable[[], object]
    ) -> None:
        self._launcher = launcher
        self._api = api
        self._on_idle = on_idle
        self._on_start = on_start
        self._folders: list[Path] = []
        """Where homes were, the most recently used last."""
        self._current: Zygote | None = None
        self._users: dict[Zygote, int] = {}
        """Every zygote that was not told to end, and how many sandboxes use it."""
        self._replacing: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._expiry: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Of every zygote that was not told to end."""
        return [zygote.pid for zygote in self._users]

    async def enter(self, folder: Path) -> Zygote:
        """A zygote that sees the homes in `folder`. It lives until `leave` was called as often as this."""
        if folder in self._folders:
            self._folders.remove(folder)
        self._folders = [*self._folders[1 - _MOST_FOLDERS :], folder]
        while not self._closed:
            if not os.path.isdir(folder):  # noqa: ASYNC240, PTH112 - takes microseconds
                raise SandboxUnavailable("the session's folder is gone.")
            zygote = self._current
            if zygote is not None and zygote.alive and zygote.holds(folder):
                if zygote.clones >= MOST_CLONES:
                    self._replace()
                self._users[zygote] += 1
                self._expire_after(None)
                return zygote
            replacing = self._replace()
            await asyncio.wait([replacing])
            if not replacing.cancelled():
                replacing.result()
        raise SandboxUnavailable("sandboxes are being shut down.")

    def leave(self, zygote: Zygote) -> None:
        """One sandbox less uses it."""
        if zygote in self._users:
            self._users[zygote] -= 1
            self._end_if_unused(zygote)

    def _replace(self) -> asyncio.Task[None]:
        """Start the next zygote, once for all who ask meanwhile; the current one is used until it is ready."""
        if self._replacing is None:
            self._replacing = asyncio.create_task(self._start_next())
            self._replacing.add_done_callback(self._replaced)
        return self._replacing

    async def _start_next(self) -> None:
        folders = [folder for folder in self._folders if folder.is_dir()]
        zygote = await Zygote.start(self._launcher, self._api, folders)
        self._users[zygote] = 0
        self._on_start()
        before, self._current = self._current, zygote
        if before is not None:
            self._end_if_unused(before)
        # The one who asked for it may have given up.
        self._end_if_unused(zygote)

    def _replaced(self, task: asyncio.Task[None]) -> None:
        self._replacing = None
        if not task.cancelled():
            task.exception()  # raised in `enter`; a replacement that was made ahead of time is tried again
        self._tell_if_idle()

    def _end_if_unused(self, zygote: Zygote) -> None:
        if self._users[zygote]:
            return
        if zygote is self._current and zygote.alive:
            self._expire_after(IDLE_SECONDS)
            return
        if zygote is self._current:
            self._current = None
        del self._users[zygote]
        ending = asyncio.create_task(zygote.end())
        self._ending.add(ending)
        ending.add_done_callback(self._has_ended)

    def _has_ended(self, ending: asyncio.Task[None]) -> None:
        self._ending.discard(ending)
        self._tell_if_idle()

    def _tell_if_idle(self) -> None:
        if not (self._closed or self._users or self._ending or self._replacing):
            self._expire_after(None)
            self._on_idle()

    def _expire_after(self, seconds: float | None) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        loop = asyncio.get_running_loop()
        self._expiry = loop.call_later(seconds, self._expire) if seconds is not None else None

    def _expire(self) -> None:
        zygote, self._current = self._current, None
        if zygote is not None:
            self._end_if_unused(zygote)

    async def close(self) -> None:
        """End every zygote, and every sandbox that is left with it."""
        self._closed = True
        self._expire_after(None)
        if self._replacing is not None:
            self._replacing.cancel()
            await asyncio.wait([self._replacing])
        self._current = None
        zygotes, self._users = [*self._users], {}
        await asyncio.gather(*(zygote.end() for zygote in zygotes), *self._ending)

    def abandon(self) -> None:
        """The same without a loop, for what was never closed."""
        for zygote in self._users:
            zygote.abandon()
