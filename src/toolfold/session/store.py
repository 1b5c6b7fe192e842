"""Sessions as their owner manages them: on disk, with or without a gateway that runs.

A session that another process runs can be reset and ended as well: that process notices before its next run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from toolfold.config.settings import Settings
from toolfold.errors import InvalidRequest
from toolfold.guards.context import LOCAL_CALLER
from toolfold.sandbox.protocol import SessionHome
from toolfold.sandbox.quota import measured
from toolfold.session.files import SessionFiles
from toolfold.session.homes import (
    SessionHomes,
    SessionState,
    ask_for_reset,
    home_path,
    homes_in,
    is_in_use,
    is_shared,
    set_shares,
    shares_of,
    state_of,
)
from toolfold.session.kept import KeptValues
from toolfold.session.notebook import FORMATS, exported
from toolfold.session.removal import empty_tree
from toolfold.session.transcript import Entry, entries

if TYPE_CHECKING:
    from toolfold.session.sessions import Sessions

_LONGEST_NAME = 200
_MOST_SHARES = 100


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a session without looking into its files."""

    name: str
    owner: str
    state: Literal["live", "put away"]
    """Whether a sandbox with its variables is there; `put away` keeps files and kept values only."""
    last_used: float
    """In seconds since 1970."""
    size: int
    files: int
    variables: list[str]
    """Those of its last run; in a session that is put away they are gone."""
    kept: list[str]
    shared_with: list[str]


class SessionStore:
    """`live` answers what runs in this process, if anything does."""

    def __init__(self, settings: Settings, live: Callable[[], Sessions | None] = lambda: None) -> None:
        self._settings = settings
        self._data_dir = settings.data_dir
        self._live = live

    async def list(self, caller: str | None = None, *, most: int | None = None) -> list[SessionInfo]:
        """All sessions, or those of one caller, the last used first. Outputs of runs without a session are none.

        `most`: no more than so many.
        """
        return await asyncio.to_thread(self._list, caller, most)

    def has(self, name: str, *, caller: str = LOCAL_CALLER) -> bool:
        """Whether a caller has a session of this name."""
        return home_path(self._data_dir / "sessions", caller, name).is_dir()

    async def show(self, name: str, *, caller: str = LOCAL_CALLER) -> SessionInfo:
        """Raises InvalidRequest where there is no such session, as all of these do."""
        home = self._home(name, caller)
        return await asyncio.to_thread(self._info, home, state_of(home) or SessionState(caller, name))

    async def transcript(self, name: str, *, caller: str = LOCAL_CALLER) -> list[Entry]:
        """What was run in it, the oldest first."""
        home = self._home(name, caller)
        return await asyncio.to_thread(lambda: list(entries(home)))

    async def export(self, name: str, form: str = "ipynb", *, caller: str = LOCAL_CALLER) -> str:
        """The transcript as a Jupyter notebook (`ipynb`) or as Markdown (`md`)."""
        if form not in FORMATS:
            raise InvalidRequest(f"A session is exported as {' or '.join(FORMATS)}, not {form!r}.")
        return exported(name, await self.transcript(name, caller=caller), form)

    async def reset(self, name: str, *, caller: str = LOCAL_CALLER, files: bool = False) -> None:
        """Forget a session's variables; with `files`, also its files and kept values."""
        home = self._home(name, caller)
        ask_for_reset(home)
        await self._end_here(caller, name, removed=False)
        if files:
            for folder in (home.workspace, home.skills):
                await asyncio.to_thread(empty_tree, folder)
            await asyncio.to_thread(self._kept(home).clear)

    async def end(self, name: str, *, caller: str = LOCAL_CALLER) -> None:
        """Remove a session with its files, kept values and transcript. A program that runs in it is ended."""
        home = self._home(name, caller)
        await self._end_here(caller, name, removed=True)
        await asyncio.to_thread(self._remove, home, caller, name)

    async def share(self, name: str, with_caller: str, *, caller: str = LOCAL_CALLER) -> str:
        """Let another caller use a session, which is made if it is not there yet; answers how that caller names it."""
        checked_name(name)
        if not with_caller.strip() or with_caller == caller or len(with_caller) > _LONGEST_NAME:
            raise InvalidRequest(f"A session is shared with another caller, not with {with_caller[:50]!r}.")
        home = await asyncio.to_thread(self._made, caller, name)
        shares = shares_of(home)
        if len(shares) >= _MOST_SHARES:
            raise InvalidRequest(f"A session is shared with at most {_MOST_SHARES} callers.")
        set_shares(home, sorted({*shares, with_caller}))
        return f"@{caller}/{name}"

    async def unshare(self, name: str, with_caller: str, *, caller: str = LOCAL_CALLER) -> None:
        """From the next run on, the other caller cannot use it any more."""
        home = self._home(name, caller)
        set_shares(home, [other for other in shares_of(home) if other != with_caller])

    def files(self, name: str, *, caller: str = LOCAL_CALLER) -> SessionFiles:
        """The files of its `workspace/`."""
        return SessionFiles(self._home(name, caller), self._settings.sandbox.disk)

    def _list(self, caller: str | None, most: int | None) -> list[SessionInfo]:
        named: list[tuple[float, SessionHome, SessionState]] = []
        for home, status in homes_in(self._data_dir):
            state = state_of(home)
            if state is not None and not state.is_nameless and caller in (None, state.caller):
                named.append((status.st_mtime, home, state))
        named.sort(key=lambda each: -each[0])
        found: list[SessionInfo] = []
        for _, home, state in named[:most]:
            with contextlib.suppress(FileNotFoundError):  # it was ended meanwhile
                found.append(self._info(home, state))
        return found

    def _info(self, home: SessionHome, state: SessionState) -> SessionInfo:
        held = measured(home)
        live = self._live()
        is_live = is_in_use(home) or (live is not None and live.is_live((state.caller, state.name)))
        return SessionInfo(
            name=state.name,
            owner=state.caller,
            state="live" if is_live else "put away",
            last_used=home.path.stat().st_mtime,
            size=held.bytes,
            files=held.files,
            variables=state.variables,
            kept=self._kept(home).names(),
            shared_with=shares_of(home),
        )

    def _home(self, name: str, caller: str) -> SessionHome:
        home = SessionHome(home_path(self._data_dir / "sessions", caller, checked_name(name)))
        if not home.path.is_dir():
            hint = "`toolfold sessions list` names them."
            if caller == LOCAL_CALLER:
                owners = sorted({state.caller for each, _ in homes_in(self._data_dir) if (state := state_of(each))})
                others = [owner for owner in owners if owner != LOCAL_CALLER]
                hint += f" Those of another caller need `--caller`: {', '.join(others[:5])}." if others else ""
            raise InvalidRequest(f"There is no session {name[:100]!r} of {caller!r}.", hint=hint)
        return home

    def _kept(self, home: SessionHome) -> KeptValues:
        return KeptValues(home, self._settings.sandbox.kept)

    async def _end_here(self, caller: str, name: str, *, removed: bool) -> None:
        live = self._live()
        if live is not None:
            await live.end((caller, name), removed=removed)

    def _made(self, caller: str, name: str) -> SessionHome:
        homes = SessionHomes(self._data_dir)
        try:
            home = homes.named(caller, name) or homes.adopt(homes.new(), caller, name) or homes.named(caller, name)
            assert home is not None
            if state_of(home) is not None and not (home.path / "transcript.jsonl").exists():
                homes.remember(home, SessionState(caller, name))  # nothing has begun in it
            return home
        finally:
            homes.close()

    def _remove(self, home: SessionHome, caller: str, name: str) -> None:
        from toolfold.privacy.store import VaultStore

        homes = SessionHomes(self._data_dir)
        try:
            homes.end(home)
        except FileNotFoundError:
            pass  # somebody else was faster
        finally:
            homes.close()
        VaultStore(self._data_dir, with_values=True).forget(caller, name)


def checked_name(name: str) -> str:
    """`name`, if a session on disk can have it. Any text can be one: it never becomes part of a path."""
    if not 0 < len(name) <= _LONGEST_NAME:
        raise InvalidRequest(f"A session's name has 1 to {_LONGEST_NAME} characters, not {len(name):,}.")
    if name.startswith("@"):
        raise InvalidRequest(f"{name[:50]!r} is not kept on disk: names that begin with `@` are those of connections.")
    return name


def shared_session(data_dir: Path, written: str, caller: str) -> tuple[str, str]:
    """Owner and name of the session that `@owner/name` means. Raises InvalidRequest if it is not the caller's to use.

    Both may have slashes in them.
    """
    at = 0
    for _ in range(8):
        at = written.find("/", at + 1)
        if at < 0:
            break
        owner, name = written[1:at], written[at + 1 :]
        if owner == caller or is_shared(data_dir, owner, name, caller):
            return owner, name
    raise InvalidRequest(
        f"No session {written[:100]!r} is shared with you.",
        hint=f"Its owner can share it: `toolfold sessions share NAME --with {caller}`.",
    )
