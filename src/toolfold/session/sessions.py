"""Sessions: which sandbox a program meets, and what survives it.

Without a name a run gets a sandbox of its own and leaves nothing. With a name, variables live as long as the sandbox
does, and `workspace/` and `skills/` live on disk. A session belongs to one caller: the same name of another caller is
another session. Runs of one session queue; different sessions run side by side.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from toolfold.config.settings import Settings
from toolfold.errors import LimitExceeded, SandboxDied, SandboxUnavailable
from toolfold.guards.context import LOCAL_CALLER, RunContext
from toolfold.guards.events import RunError, RunResult
from toolfold.sandbox.frames import Done
from toolfold.sandbox.pool import Pool
from toolfold.sandbox.pools import Pools
from toolfold.sandbox.protocol import SessionHome
from toolfold.sandbox.sandbox import Sandbox
from toolfold.session.bridge import Bridge
from toolfold.session.homes import SessionHomes, SessionState, has_files, state_of, take_reset
from toolfold.session.images import Images
from toolfold.session.kept import KeptValues
from toolfold.session.notices import Earlier, Loss, cut_off, missing_name
from toolfold.session.output import OutputRecorder
from toolfold.session.places import Places
from toolfold.session.results import images_refused, program_error, renamed, with_text
from toolfold.session.transcript import NOT_KEPT, append, entry_of

MakeBridge = Callable[[RunContext, OutputRecorder, Images, KeptValues | None], Bridge]
_Key = tuple[str, str]  # caller and name
_REMEMBERED = 1000  # sessions without a sandbox that are kept in mind


@dataclass
class _Session:
    """A named session. `lock` is held by the run that uses it; others wait in line."""

    key: _Key
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    sandbox: Sandbox | None = None
    pool: Pool | None = None
    """Where its sandbox is from."""
    home: SessionHome | None = None
    variables: list[str] = field(default_factory=list[str])
    noted: SessionState | None = None
    """What is on disk about what it left; None before its first run has ended, or where that could not be written."""
    lost: Loss | None = None
    """What the next run must be told, once."""
    earlier: Earlier = field(default_factory=Earlier)
    used: float = 0.0
    has_place: bool = False
    """Whether it is one of those that may live at once: it has a sandbox, or one is being started."""
    runs: int = 0
    """Runs that use it or stand in line for it."""

    @property
    def name(self) -> str:
        return self.key[1]

    @property
    def is_kept(self) -> bool:
        """Whether its files outlive this process."""
        return not self.name.startswith("@")


class Sessions:
    def __init__(self, settings: Settings, pools: Pools, homes: SessionHomes, make_bridge: MakeBridge) -> None:
        self._settings = settings
        self._pools = pools
        self._homes = homes
        self._make_bridge = make_bridge
        self._sessions: dict[_Key, _Session] = {}
        self._admission = Places(1)
        self._run_ended = asyncio.Event()
        self._fresh = Places(settings.run_limit)
        self._numbers = itertools.count(1)
        self._run_tag = secrets.token_hex(3)
        self._janitor: asyncio.Task[None] | None = None
        self._left: OrderedDict[str, list[str]] = OrderedDict()
        """The variables that the last run without a session left, of some callers."""

    async def __aenter__(self) -> Sessions:
        self._janitor = asyncio.create_task(self._close_idle())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._janitor is not None:
            self._janitor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._janitor
        # The pool owns every sandbox and ends those that are still in use.
        self._sessions.clear()

    async def run(self, code: str, run: RunContext) -> RunResult:
        """Run a program. Its own errors, limits and crashes are in the result; cancelling this ends the program.

        Raises LimitExceeded when the time is over before the program could begin.
        """
        if run.session is None:
            return await self._run_fresh(code, run)
        return await self._run_in_session(code, run, run.session_key)

    async def end(self, key: tuple[str, str], *, removed: bool) -> None:
        """End the sandbox of a session, if it has one here, and the program that runs there. `removed`: its files are
        about to go as well."""
        session = self._sessions.get(key)
        if session is None:
            return
        if session.runs and session.sandbox is not None:
            session.sandbox.abort(SandboxDied(f"The session was {'ended' if removed else 'reset'}."))
        await self._put_away(session, "it was reset")
        if removed:
            self._ended(session)

    def is_live(self, key: tuple[str, str]) -> bool:
        session = self._sessions.get(key)
        return session is not None and session.sandbox is not None and session.sandbox.alive

    def transcribe(self, run: RunContext, result: RunResult | None) -> None:
        """Note a run in its session's transcript; `result` is None when it was cancelled."""
        session = self._sessions.get(run.session_key) if run.session is not None else None
        if session is not None and session.home is not None and session.home.path.is_dir():
            append(session.home, entry_of(run.id, run.caller, run.notes.code, result))

    async def home(self, run: RunContext) -> SessionHome:
        """The home of a run's session, which begins if need be."""
        with self._using(run.session_key) as session:
            async with run.deadline.enforced(_not_started(run, "the session was not ready")):
                if session.sandbox is not None and session.sandbox.alive:
                    return session.sandbox.home
                async with session.lock:
                    return (await self._living(session)).home

    # Runs without a session

    async def _run_fresh(self, code: str, run: RunContext) -> RunResult:
        async with self._fresh_slot(run):
            return await self.run_beside(code, run)

    async def run_beside(self, code: str, run: RunContext) -> RunResult:
        """A run without a session that does not wait in line: another run waits for it."""
        async with run.deadline.enforced(_not_started(run, "no sandbox was ready")):
            pool = await self._pools.of(_owner(run.caller))
            sandbox = await pool.take()
        name = f"run-{secrets.token_hex(4)}"
        kept: list[SessionHome] = []

        def workspace() -> Path:
            # What is cut must stay readable, and only that: the next run finds it in a session of this name.
            kept.append(self._homes.for_output(run.caller, name))
            return kept[0].workspace

        has_output = False
        try:
            result, done = await self._run_in(sandbox, code, run, workspace, None)
            has_output = result.output_file is not None
            if result.error is not None:
                hint = missing_name(str(result.error), self._left.get(run.caller, []))
                result = with_text(result, hint)
            elif done is not None:
                self._left[run.caller] = done.names
                if len(self._left) > _REMEMBERED:
                    self._left.popitem(last=False)
            return renamed(result, name) if has_output else result
        finally:
            pool.discard(sandbox)
            for home in kept:
                self._homes.release(home) if has_output else self._homes.drop(home)

    @contextlib.asynccontextmanager
    async def _fresh_slot(self, run: RunContext) -> AsyncGenerator[None]:
        """One of the runs that may be under way at once; the others wait, each caller in a line of bounded length."""
        limit, waiting = self._settings.run_limit, self._fresh.waiting_of(run.caller)
        if self._fresh.full and waiting >= self._settings.run_queue:
            raise LimitExceeded(
                f"{limit} runs are under way and {waiting} of yours wait already; nothing was run.",
                limit="run_queue",
                hint="Try again shortly, or raise `run_limit` or `run_queue` in the settings.",
            )
        async with run.deadline.enforced(_not_started(run, f"{limit} other runs were under way")):
            await self._fresh.take(run.caller)
        try:
            yield
        finally:
            self._fresh.give_back(run.caller)

    @property
    def queued(self) -> int:
        """Runs without a session that wait for others to end."""
        return self._fresh.waiting

    # Runs in a session

    async def _run_in_session(self, code: str, run: RunContext, key: _Key) -> RunResult:
        private = run.privacy
        run.notes.code = code if private is None else NOT_KEPT
        with self._using(key) as session:
            async with run.deadline.enforced(_not_started(run, "an earlier run of the session did not end")):
                await session.lock.acquire()
            try:
                result = await self._run_locked(code, run, session)
            finally:
                session.lock.release()
        if private is not None:
            # Afterwards: what the run's results are called is not to depend on what the program spells out.
            run.notes.code = await private.work(partial(private.tokenise, code), is_small=len(code) < 4096)
        return result

    @contextlib.contextmanager
    def _using(self, key: _Key) -> Generator[_Session]:
        """A session, which begins if need be and is not put away meanwhile."""
        session = self._sessions.setdefault(key, _Session(key))
        session.runs += 1
        try:
            yield session
        finally:
            session.runs -= 1
            session.used = time.monotonic()
            self._run_ended.set()

    async def _run_locked(self, code: str, run: RunContext, session: _Session) -> RunResult:
        async with run.deadline.enforced(_not_started(run, "no sandbox was ready for the session")):
            sandbox = await self._living(session)
        home = sandbox.home
        kept = KeptValues(home, self._settings.sandbox.kept)
        notice = [await asyncio.to_thread(session.lost.text, kept)] if session.lost is not None else []
        notice += session.earlier.since(run.caller)
        try:
            result, done = await self._run_in(sandbox, code, run, lambda: home.workspace, kept)
        except BaseException:
            self._lose(session, "its last run was cancelled", during_run=True)
            raise
        session.lost = None
        if done is not None and sandbox.alive:
            self._remember(session, done.names)
        elif result.error is not None:
            ended = "was stopped by a limit" if result.error.code == "limit" else "crashed"
            self._lose(session, f"its last run {ended if done is None else 'left too many processes'}", during_run=True)
            if session.lost is not None:
                # It is told at once, and to the next run, which may be another caller's.
                result = with_text(result, await asyncio.to_thread(session.lost.at_once, kept))
        return msgspec.structs.replace(result, notice="\n".join(notice), session=run.shown_session)

    def _look_for_changes(self, session: _Session) -> None:
        """Another process may have ended or reset the session."""
        if not session.is_kept or session.home is None:
            return
        if not self._homes.is_current(session.home):
            self._lose(session, "")
            self._homes.release(session.home)
            self._ended(session)
        elif take_reset(session.home):
            self._lose(session, "it was reset")

    def _ended(self, session: _Session) -> None:
        """It begins anew with its next run."""
        session.home, session.noted, session.earlier = None, None, Earlier()
        session.lost = Loss(f"Session {session.name!r} was ended: its variables and files are gone.")

    async def _living(self, session: _Session) -> Sandbox:
        """The session's sandbox, or a new one in its place."""
        self._look_for_changes(session)
        if session.sandbox is not None and not await session.sandbox.wake():
            self._lose(session, "its sandbox ended between two runs")
        if session.sandbox is None:
            await self._admit(session)
            try:
                session.sandbox = await self._open(session)
            except BaseException:
                session.has_place = False
                if session.home is not None:
                    self._homes.release(session.home)
                raise
        return session.sandbox

    async def _admit(self, session: _Session) -> None:
        """Wait for a place. A start that is slow takes up its own and no more."""
        async with self._admission.of(session.key[0]):
            while self.live(but=session) >= self._settings.session_limit:
                self._run_ended.clear()
                idle = [other for other in self._sessions.values() if other.sandbox and not other.runs]
                if idle:
                    await self._put_away(min(idle, key=lambda other: other.used), "it made space for other sessions")
                else:
                    await self._run_ended.wait()
            session.has_place = True

    def live(self, but: _Session | None = None) -> int:
        """How many have a sandbox, or are being given one."""
        return sum(other.has_place for other in self._sessions.values() if other is not but)

    async def _open(self, session: _Session) -> Sandbox:
        """A new session adopts the home of the sandbox that it is given."""
        caller, name = session.key
        session.pool = pool = await self._pools.of(_owner(caller))
        if session.is_kept:
            had, session.home = session.home, self._homes.named(caller, name)
            if had is None:
                self._recall(session)
            elif session.home is None:
                session.lost = Loss(f"Session {name!r} has expired: its variables and files are gone.")
        elif session.home is None:
            state = self._homes.recall_connection(caller, name)
            if state is not None and (state.variables or state.has_files):
                session.lost = Loss.of_connection(state.variables)
        if session.home is not None:
            return await pool.start_in(session.home)
        sandbox = await pool.take()
        if session.is_kept:
            try:
                home = self._homes.adopt(sandbox.home, caller, name)
            except OSError as error:
                pool.discard(sandbox)
                raise SandboxUnavailable(f"The session could not be made: {error.strerror}.") from None
            if home is None:
                # Another process has just made a session of this name: its files are the session's files.
                pool.discard(sandbox)
                session.home = self._homes.named(caller, name)
                assert session.home is not None
                return await pool.start_in(session.home)
            sandbox.home = home
        session.home = sandbox.home
        return sandbox

    async def _run_in(
        self,
        sandbox: Sandbox,
        code: str,
        run: RunContext,
        workspace: Callable[[], Path],
        kept: KeptValues | None,
    ) -> tuple[RunResult, Done | None]:
        name = f"{self._run_tag}-{next(self._numbers)}.txt"
        output = OutputRecorder(
            workspace,
            name,
            self._settings.output_chars,
            run.printed if run.has_listeners else None,
            run.privacy.stream() if run.privacy is not None else None,
        )
        images = Images(self._settings.sandbox.images, images_refused(self._settings))
        bridge = self._make_bridge(run, output, images, kept)
        begun = time.perf_counter()
        done: Done | None = None
        error: RunError | None = None
        try:
            done = await sandbox.run(code, bridge, run.deadline, bridge.replies, bridge.costs, run.values)
            if done.error:
                error = program_error(done, self._settings.output_chars)
        except (LimitExceeded, SandboxDied) as problem:
            problem.hint = " ".join(filter(None, [problem.hint, cut_off(bridge.calls)]))
            error = RunError.of(problem)
        finally:
            bridge.costs.end()
        shown, value = (done.shown, done.value) if done is not None else ("", None)
        if run.privacy is not None:
            shown = await run.privacy.work(partial(run.privacy.tokenise, shown), is_small=len(shown) < 4096)
        text, file = output.finish(shown)
        result = RunResult(
            success=error is None,
            output=text,
            value=value if value is not None else (shown or None),
            error=error,
            execution_time_ms=round((time.perf_counter() - begun) * 1000, 3),
            tool_calls=bridge.calls,
            session=None,
            truncated=file is not None,
            output_file=file,
            images=images.shown,
            run=run.id,
        )
        return result, done

    # What a session remembers, and loses

    def _remember(self, session: _Session, variables: list[str]) -> None:
        session.variables = variables
        if (home := session.home) is None:
            return
        state = SessionState(*session.key, variables, has_files=not session.is_kept and has_files(home))
        if state != session.noted:
            done = self._homes.remember(home, state) if session.is_kept else self._homes.remember_connection(state)
            session.noted = state if done else None

    def _recall(self, session: _Session) -> None:
        """What an earlier process left of it."""
        if session.home is not None and session.lost is None:
            # Nothing is known without the note, which a full disk costs.
            state = state_of(session.home) or SessionState(*session.key, is_running=True)
            session.variables, session.noted = state.variables, None if state.is_running else state
            reason = "it was reset" if take_reset(session.home) else "Toolfold was restarted"
            self._lose(session, reason, during_run=state.is_running)

    def _lose(self, session: _Session, reason: str, *, during_run: bool = False) -> None:
        """Its sandbox is gone. The next run is told, if there was anything to lose: what a run that did not end has
        left is not known."""
        if session.sandbox is not None and session.pool is not None:
            session.pool.discard(session.sandbox, keep_home=True)
            session.sandbox, session.has_place = None, False
            if session.home is not None:
                self._homes.release(session.home)
        if session.variables or during_run:
            what = f"Session {session.name!r}" if session.is_kept else "The session"
            # A run that was to be told may have been cancelled before it could tell anybody.
            names = session.variables or (list(session.lost.variables) if session.lost is not None else [])
            session.lost = Loss.of_variables(what, reason, names)
            session.variables = []

    async def _put_away(self, session: _Session, reason: str) -> None:
        """End an idle session's sandbox. Its files stay, and so does what the next run must be told."""
        async with session.lock:
            sandbox = session.sandbox
            self._lose(session, reason)
            if sandbox is not None:
                await sandbox.close()

    async def _close_idle(self) -> None:
        idle = self._settings.session_idle
        while True:
            await asyncio.sleep(min(60.0, idle))
            for session in list(self._sessions.values()):
                if session.runs or time.monotonic() - session.used < idle:
                    continue
                if session.sandbox is not None:
                    await self._put_away(session, f"it was not used for {idle:g} s")
                elif session.is_kept and len(self._sessions) > _REMEMBERED and not session.runs:
                    # What it must still be told stands on disk, among its variables.
                    del self._sessions[session.key]


def _not_started(run: RunContext, reason: str) -> str:
    return f"Nothing was run: {reason} within {run.deadline.seconds:g} s."


def _owner(caller: str) -> str:
    """The person at this machine owns what is ready beforehand."""
    return "" if caller == LOCAL_CALLER else caller
