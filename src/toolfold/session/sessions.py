"""Sessions: which sandbox a program meets, and what survives it.

Without a name a run gets a sandbox of its own and leaves nothing. With a name, variables live as long as the sandbox
does, and `workspace/` and `skills/` live on disk. Runs of one session queue; different sessions run side by side.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from toolfold.config.settings import Settings
from toolfold.errors import LimitExceeded, SandboxDied, ToolfoldError
from toolfold.sandbox.pool import Pool
from toolfold.sandbox.protocol import SessionHome
from toolfold.sandbox.sandbox import Sandbox
from toolfold.session.bridge import Bridge
from toolfold.session.events import Event, Output, RunResult
from toolfold.session.homes import SessionHomes
from toolfold.session.output import OutputRecorder, within

CONNECTION = "@connection"
"""The session of a connection that names none. Names that begin with @ leave no files behind when we end."""
MakeBridge = Callable[[OutputRecorder, Callable[[Event], None] | None], Bridge]


@dataclass
class _Live:
    """A named session. `lock` is held by the run that uses it; others wait in line."""

    name: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    sandbox: Sandbox | None = None
    home: SessionHome | None = None
    names: list[str] = field(default_factory=list[str])
    used: float = 0.0


class Sessions:
    def __init__(self, settings: Settings, pool: Pool, homes: SessionHomes, make_bridge: MakeBridge) -> None:
        self._settings = settings
        self._pool = pool
        self._homes = homes
        self._make_bridge = make_bridge
        self._live: dict[str, _Live] = {}
        self._numbers = itertools.count(1)
        self._run_tag = secrets.token_hex(3)
        self._janitor: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Sessions:
        self._janitor = asyncio.create_task(self._close_idle())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._janitor is not None:
            self._janitor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._janitor
        sandboxes = [live.sandbox for live in self._live.values() if live.sandbox is not None]
        self._live.clear()
        await asyncio.gather(*(sandbox.close() for sandbox in sandboxes), return_exceptions=True)

    async def run(
        self,
        code: str,
        *,
        session: str | None = None,
        timeout: float | None = None,
        heard: Callable[[Event], None] | None = None,
    ) -> RunResult:
        """Run a program. Its own errors, limits and crashes are in the result; cancelling this ends the program."""
        limit = timeout or self._settings.sandbox.timeout
        if session is None:
            return await self._run_fresh(code, limit, heard)
        live = self._live.setdefault(session, _Live(session))
        async with live.lock:
            live.used = time.monotonic()
            if live.sandbox is None or not live.sandbox.alive:
                await self._make_space(live)
                live.sandbox = await self._open(live)
                live.home = live.sandbox.home
            try:
                result = await self._run_in(live.sandbox, code, limit, heard, live)
            finally:
                live.used = time.monotonic()
                if not live.sandbox.alive:
                    live.sandbox = None
            return result

    async def _run_fresh(self, code: str, limit: float, heard: Callable[[Event], None] | None) -> RunResult:
        sandbox = await self._pool.take()
        keep = False
        try:
            result = await self._run_in(sandbox, code, limit, heard, None)
            if result.output_file is not None:
                # What was cut must stay readable: the home gets a name that the next run can use.
                name = f"run-{secrets.token_hex(4)}"
                self._homes.adopt(sandbox.home, name)
                keep = True
                result = _renamed(result, name)
            return result
        finally:
            self._pool.discard(sandbox, keep_home=keep)

    async def _open(self, live: _Live) -> Sandbox:
        """A sandbox in the session's own home; a new session adopts the home of the sandbox it is given."""
        home = live.home or self._homes.named(live.name)
        if home is not None:
            return await self._pool.start_in(home)
        sandbox = await self._pool.take()
        if not live.name.startswith("@"):
            sandbox.home = self._homes.adopt(sandbox.home, live.name)
        return sandbox

    async def _run_in(
        self,
        sandbox: Sandbox,
        code: str,
        limit: float,
        heard: Callable[[Event], None] | None,
        live: _Live | None,
    ) -> RunResult:
        name = f"{self._run_tag}-{next(self._numbers)}.txt"
        output = OutputRecorder(
            sandbox.home.workspace,
            name,
            self._settings.output_chars,
            (lambda text: heard(Output(text))) if heard is not None else None,
        )
        bridge = self._make_bridge(output, heard)
        begun = time.perf_counter()
        shown, value, error = "", None, ""
        try:
            done = await sandbox.run(code, bridge, limit)
            shown, value, error = done.shown, done.value, done.error
            if live is not None:
                live.names = done.names
        except (LimitExceeded, SandboxDied) as problem:
            error = f"{type(problem).__name__}: {problem}{_lost(live)}"
        text, file = output.finish(shown)
        return RunResult(
            success=not error,
            output=text,
            value=value if value is not None else (shown or None),
            error=within(error, self._settings.output_chars) or None,
            execution_time_ms=round((time.perf_counter() - begun) * 1000, 3),
            tool_calls=bridge.calls,
            session=live.name if live is not None else None,
            truncated=file is not None,
            output_file=file,
        )

    async def _make_space(self, wanted: _Live) -> None:
        """Close the least recently used sandbox when there are as many as allowed."""
        open_ones = [live for live in self._live.values() if live.sandbox is not None and live is not wanted]
        if len(open_ones) < self._settings.session_limit:
            return
        idle = sorted((live for live in open_ones if not live.lock.locked()), key=lambda live: live.used)
        if not idle:
            raise ToolfoldError(
                f"All {self._settings.session_limit} sessions are busy.",
                hint="Try again shortly, or raise `session_limit` in the settings.",
            )
        await self._shut(idle[0])

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(min(60.0, self._settings.session_idle))
            before = time.monotonic() - self._settings.session_idle
            for live in list(self._live.values()):
                if live.used < before and not live.lock.locked():
                    await self._shut(live)
                    self._live.pop(live.name, None)

    async def _shut(self, live: _Live) -> None:
        sandbox, live.sandbox = live.sandbox, None
        if sandbox is not None:
            await sandbox.close()


def _lost(live: _Live | None) -> str:
    if live is None:
        return ""
    names = f" ({', '.join(live.names[:8])}{', …' if len(live.names) > 8 else ''})" if live.names else ""
    live.names = []
    return f"\nSession {live.name!r} starts anew: its variables{names} are gone, files in workspace/ are kept."


def _renamed(result: RunResult, session: str) -> RunResult:
    output = result.output.replace("all of it: ", f"all of it, in session {session!r}: ", 1)
    return msgspec.structs.replace(result, session=session, output=output)
