"""One configured server: started when it is first needed, shared by all callers, and started again when it ended.

The SDK wants a connection to be entered and left by the same task, so each connection has a task of its own. Callers
use `connection` directly, and ask for another one only when it is None.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import cast

from toolfold.config.settings import ServerConfig
from toolfold.definitions import Listing
from toolfold.errors import SignInNeeded, UpstreamError, UpstreamIsToolfold, UpstreamUnavailable
from toolfold.upstream.asking import Roots
from toolfold.upstream.auth.authorization import Authorization
from toolfold.upstream.connection import (
    QUOTED_CHARS,
    Connection,
    Transport,
    last_output,
    unauthorized,
)
from toolfold.upstream.handshake import Era, IncompatibleError, IsToolfoldError, ProbeFailedError
from toolfold.upstream.health import Health, State
from toolfold.upstream.remote import RefusedError, needs_authorization
from toolfold.upstream.serverlog import DOCTOR, ServerLog
from toolfold.upstream.starts import StartQueue, Turn
from toolfold.upstream.stdio import CannotStartError
from toolfold.upstream.subscriptions import Subscriptions

FIRST_DELAY = 0.5
LONGEST_DELAY = 60.0
CLOSE_TIMEOUT = 10.0
RELIST_SPACING = 1.0
"""Seconds between two listings of a server that announces changes."""
USUAL_RELISTS = 5
"""Listings in a row that are no more than a server which is being set up, part by part. While it goes on announcing
changes after so many, the time between two doubles each time."""

Opener = Callable[[], AbstractAsyncContextManager[Transport]]


class UpstreamServer:
    """Opens and watches the connections to one server; a server that keeps failing is left alone for a while."""

    def __init__(
        self,
        server: str,
        config: ServerConfig,
        log: ServerLog,
        opener: Opener,
        starts: StartQueue,
        on_listing: Callable[[Listing], None],
        authorization: Authorization | None = None,
        roots: Callable[[], Roots | None] = lambda: None,
    ) -> None:
        self.server = server
        self.config = config
        self.connection: Connection | None = None
        self.authorization = authorization
        self.subscriptions = Subscriptions(server, self.connected)
        self._log = log
        self._opener = opener
        self._starts = starts
        self._turn: Turn | None = None
        self._on_listing = on_listing
        self._roots = roots
        self._opening: asyncio.Task[Connection] | None = None
        self._connection_tasks: set[asyncio.Task[None]] = set()
        self._era: Era = "legacy" if config.transport == "sse" else "auto"
        self._failures = 0
        self._retry_at = 0.0
        self._started = 0
        self._last_error = ""
        self._problems: tuple[str, ...] = ()
        self._relisted = 0
        self._listings_begun = 0
        self._newest_listing = 0
        self._closed = False

    async def connected(self, *, background: bool = False, now: bool = False) -> Connection:
        """The live connection, started if there is none. Everyone who waits shares the one start.

        A start in the `background` comes after those that a caller waits for. `now` starts the server even if its
        last failure is too recent for an ordinary call to try again.
        """
        if self.connection is not None:
            return self.connection
        if self._closed:
            raise UpstreamUnavailable(self.server, "is closed.")
        if self._opening is None:
            wait = self._retry_at - time.monotonic()
            if wait > 0 and not now and not (self.authorization and self.authorization.changed):
                if self.authorization is not None and self.authorization.waits_for_person:
                    raise SignInNeeded(self.server, self._last_error)
                raise UpstreamUnavailable(
                    self.server,
                    f"is down and will be tried again in {max(wait, 0.1):.1f} s. {self._last_error}",
                )
            self._turn = Turn(urgent=not background)
            self._opening = asyncio.create_task(self._open(self._turn), name=f"start {self.server}")
            self._opening.add_done_callback(self._opened)
        elif not background:
            self.hurry()
        opening = self._opening
        try:
            # A caller that gives up must not stop the start that others wait for.
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if opening.cancelled() and self._closed and not (task and task.cancelling()):
                raise UpstreamUnavailable(self.server, "was closed before it had started.") from None
            raise

    def hurry(self) -> None:
        """A caller waits for this server: a start in the queue goes first, and the next call may start it at once."""
        self._retry_at = 0.0
        if self._turn is not None:
            self._starts.hurry(self._turn)

    def _opened(self, task: asyncio.Task[Connection]) -> None:
        self._opening = None
        self._turn = None
        if not task.cancelled():
            task.exception()

    async def _open(self, turn: Turn) -> Connection:
        try:
            if self.config.transport != "stdio":
                return await self._start()
            async with self._starts.wait_for(turn):
                return await self._start()
        except UpstreamError as error:
            self._failures += 1
            self._retry_at = time.monotonic() + _delay(self._failures)
            self._last_error = error.message.removeprefix(f"{self.server}: ")
            raise

    async def _start(self) -> Connection:
        deadline = asyncio.get_running_loop().time() + self.config.start_timeout
        try:
            return await self._attempt(self._era, deadline)
        except ProbeFailedError as error:
            self._log.note(f"{error}; starting it again without a probe")
        connection = await self._attempt("legacy", deadline)
        self._era = "legacy"
        return connection

    async def _attempt(self, era: Era, deadline: float) -> Connection:
        opened: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._run_connection(era, deadline, opened), name=f"upstream {self.server}")
        self._connection_tasks.add(task)
        task.add_done_callback(self._connection_tasks.discard)
        try:
            return await opened
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def _run_connection(self, era: Era, deadline: float, opened: asyncio.Future[Connection]) -> None:
        """One connection, from its start to its end."""
        from toolfold.telemetry.spans import leave_trace
        from toolfold.upstream.session import PendingConnection

        loop = asyncio.get_running_loop()
        connection: Connection | None = None
        transport: Transport | None = None
        self._log.begin(f"starting ({era})")
        try:
            async with asyncio.timeout_at(deadline) as limit, self._opener() as transport:
                pending = PendingConnection(self.server, self.config, self._log, transport, self._roots())
                async with pending.session:
                    limit.reschedule(None)
                    try:
                        async with asyncio.timeout_at(deadline):
                            connection = await pending.connect(era, deadline - loop.time())
                    except Exception as error:
                        await transport.wait_for_exit()
                        # Reported before the server is stopped, which may take a while.
                        opened.set_exception(self._failure(error, transport))
                        return
                    self._ready(connection)
                    opened.set_result(connection)
                    leave_trace()
                    await self._watch(connection)
                    self._on_end(connection, "was closed" if connection.closing else transport.reason())
                    limit.reschedule(loop.time() + CLOSE_TIMEOUT)
        except asyncio.CancelledError:
            opened.cancel()
            raise
        except Exception as error:
            if not opened.done():
                opened.set_exception(self._failure(error, transport))
            elif connection is not None:
                self._on_end(connection, f"could not be reached ({_cause(error, self._log)})")
        finally:
            if connection is not None:
                self._on_end(connection, "was closed")

    def _ready(self, connection: Connection) -> None:
        self.connection = connection
        connection.on_close = partial(self._drop, connection)
        self._started += 1
        self._last_error = ""

    def _drop(self, connection: Connection) -> None:
        if self.connection is connection:
            self.connection = None

    def _on_end(self, connection: Connection, reason: str) -> None:
        """A connection has ended: give the reason to those who wait, and decide when it may be opened again."""
        if connection.end_reason.done():
            return
        reason = reason or "went away"
        connection.end_reason.set_result(reason)
        self._drop(connection)
        if connection.closing:
            return
        # A server that has answered a call is restarted at once, one that never did after a pause.
        self._failures = 0 if connection.answered else self._failures + 1
        self._retry_at = time.monotonic() + _delay(self._failures - 1)
        self._last_error = f"The server {reason}.{last_output(connection.transport, self._log)}"
        self._log.note(f"the server {reason}")

    async def _watch(self, connection: Connection) -> None:
        """Until the connection ends, list the server again whenever it says that its lists changed."""
        from toolfold.upstream.session import follow_changes

        relisting: asyncio.Task[None] | None = None
        following = asyncio.create_task(follow_changes(connection))
        try:
            while not (connection.closing or connection.over):
                if connection.stale and (relisting is None or relisting.done()):
                    connection.stale = False
                    relisting = asyncio.create_task(self._relist(connection))
                await connection.wake.wait()
                connection.wake.clear()
        finally:
            for task in (relisting, following):
                if task is not None:
                    task.cancel()
            await asyncio.gather(*(task for task in (relisting, following) if task), return_exceptions=True)

    async def _relist(self, connection: Connection) -> None:
        try:
            self._on_listing(await self._listing(connection))
        except Exception as error:
            self._log.note(f"the changed list was not taken over: {error!r}")
        await asyncio.sleep(relist_spacing(self._relisted))
        self._relisted = self._relisted + 1 if connection.stale else 0
        connection.wake.set()

    async def listing(self, *, background: bool = False, now: bool = False) -> Listing:
        return await self._listing(await self.connected(background=background, now=now))

    async def _listing(self, connection: Connection) -> Listing:
        while True:
            self._listings_begun += 1
            number = self._listings_begun
            listing, problems = await connection.listing()
            # One that began later and ended first may be newer than this one, which must not take its place.
            if number > self._newest_listing:
                self._newest_listing = number
                self._problems = tuple(problems)
                return listing

    def _failure(self, error: Exception, transport: Transport | None) -> Exception:
        """Why the server did not start. A model reads this too: `doctor` names the files, and this names `doctor`."""
        output = last_output(transport, self._log) if transport is not None else ""
        match error:
            case ProbeFailedError() | UpstreamError():
                return error
            case CannotStartError(hint=hint):
                return UpstreamUnavailable(self.server, str(error), hint=hint)
            case TimeoutError():
                seconds = self.config.start_timeout
                return UpstreamUnavailable(
                    self.server,
                    f"did not answer the handshake within {seconds:g} s (its `start_timeout`).{output}",
                    hint=f"If it is only slow, raise its `start_timeout`. {DOCTOR}",
                )
            case IsToolfoldError():
                return UpstreamIsToolfold(self.server, "is Toolfold, which is never folded into itself.")
            case IncompatibleError():
                return UpstreamUnavailable(self.server, f"speaks only other versions of MCP ({error}).")
            case _:
                pass
        status = error.status if isinstance(error, RefusedError) else getattr(transport, "status", None)
        if needs_authorization(status):
            problem = self.authorization.problem if self.authorization is not None else None
            return unauthorized(self.server, self._log, status, problem)
        hint = f"Run its command by hand to see more. {DOCTOR}"
        if self.config.transport != "stdio":
            hint = f"Check that it is up, and its `url`. {DOCTOR}"
        if transport is not None and (reason := transport.reason()):
            return UpstreamUnavailable(self.server, f"the server {reason} before it was ready.{output}", hint=hint)
        where = self._log.redactor.address
        return UpstreamUnavailable(
            self.server, f"cannot be reached at {where}: {_cause(error, self._log)}.{output}", hint=hint
        )

    @contextmanager
    def redacted(self) -> Generator[None]:
        """An error that leaves this block is without the server's secrets, wherever in its words they were."""
        try:
            yield
        except UpstreamError as error:
            error.message, error.hint = self.mask(error.message), self.mask(error.hint)
            error.args = (error.message,)
            raise

    def mask(self, text: str) -> str:
        """`text` without the server's secrets."""
        return self._log.redactor.text(text)

    def stop(self) -> list[asyncio.Task[None]]:
        """Begin to close, and return the tasks to wait for."""
        self._closed = True
        self.subscriptions.close()
        if self._opening is not None:
            self._opening.cancel()
        if self.connection is not None:
            self.connection.close()
        return list(self._connection_tasks)

    @property
    def log_file(self) -> Path:
        return self._log.path

    def health(self) -> Health:
        connection = self.connection
        wait = self._retry_at - time.monotonic() if self._last_error else 0.0
        state: State = "idle"
        if connection is not None:
            state = "ready"
        elif self._opening is not None:
            state = "starting"
        elif self._last_error:
            state = "backoff" if wait > 0 else "failed"
        return Health(
            server=self.server,
            state=state,
            log_file=self._log.path,
            protocol_version=connection.version if connection else "",
            pid=connection.transport.pid if connection else None,
            restarts=max(0, self._started - 1),
            last_error=self.mask(self._last_error),
            retry_in=round(max(0.0, wait), 1) if state == "backoff" else 0.0,
            problems=tuple(map(self.mask, (*self._problems, *(connection.unmet if connection else ())))),
        )


def relist_spacing(relisted: int) -> float:
    return min(LONGEST_DELAY, RELIST_SPACING * 2 ** min(max(0, relisted - USUAL_RELISTS), 16))


def _delay(failures: int) -> float:
    return 0.0 if failures < 1 else min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(failures - 1, 16))


def _cause(error: BaseException, log: ServerLog) -> str:
    """The innermost reason, in one line: the SDK's task groups wrap it several times."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    text = log.quoted(str(error), QUOTED_CHARS)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
