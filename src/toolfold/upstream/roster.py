"""Which servers have been listed: asks those that have not, and asks again, after longer and longer pauses, when one
fails. A server that a program or a search names is asked at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from toolfold.definitions import Listing
from toolfold.errors import SignInNeeded, UpstreamError, UpstreamIsToolfold
from toolfold.upstream.fleet import Fleet
from toolfold.upstream.serverlog import without_paths

SHORTEST_PAUSE = 0.5
"""Seconds between two attempts, however urgent."""
LONGEST_PAUSE = 300.0
SIGN_IN_POLL = 1.0
"""Seconds between two looks for a sign-in, which a person does with another command."""
FAILURES_IN_A_WAIT = 3
"""A wait goes on until a server has failed so often in a row; for one that has before, it covers one attempt."""
TEXT_CHARS = 200

OnListing = Callable[[Listing], Awaitable[None]]
State = Literal["idle", "starting", "listed", "failed"]


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one server at one moment.

    `idle` was never asked; `starting` is being asked, or waits for its turn to start; `listed` has told what it
    offers, now or in an earlier process; `failed` has not, and is asked again in `next_try_in` seconds (None: only
    when it is named).
    """

    server: str
    state: State
    log_file: Path
    error: UpstreamError | None = None
    """Why the last attempt failed, also that of a server that was listed before."""
    next_try_in: float | None = None

    @property
    def text(self) -> str:
        """One line for a model: no paths of this machine."""
        match self.state:
            case "failed":
                reason = without_paths(self._reason)
                if len(reason) > TEXT_CHARS:
                    reason = f"{reason[:TEXT_CHARS]}…"
                return f"{self.server}: failed: {reason}{self._next_try}"
            case "starting":
                return f"{self.server}: still starting"
            case "idle":
                return f"{self.server}: not started yet"
            case "listed":
                return f"{self.server}: ready"

    @property
    def detail(self) -> str:
        """One line for an operator: the whole reason, what to do about it, and where the log is."""
        if self.error is None:
            return self.text
        what = " ".join(filter(None, ["failed:", self._reason, self.error.hint])) + self._next_try
        return f"{self.server}: {what} (log: {self.log_file})"

    @property
    def _reason(self) -> str:
        message = self.error.message if self.error is not None else ""
        return " ".join(message.removeprefix(f"{self.server}: ").split())

    @property
    def _next_try(self) -> str:
        if self.next_try_in is None or isinstance(self.error, SignInNeeded):
            return ""
        return f" Next try in {max(self.next_try_in, 1):.0f} s."


class _Server:
    """What the roster remembers of one server."""

    def __init__(self, name: str, listed: bool) -> None:
        self.name = name
        self.listed = listed
        self.asked = False
        """Whether this process has asked for its definitions."""
        self.error: UpstreamError | None = None
        self.failures = 0
        self.next_try: float | None = None
        self.task: asyncio.Task[None] | None = None
        self.urgent = False
        """Whether a caller waits for it."""
        self.pause_is_over = asyncio.Event()
        self.attempt_ended = asyncio.Event()

    @property
    def hopeless(self) -> bool:
        """Whether only another config can help."""
        return isinstance(self.error, UpstreamIsToolfold)

    @property
    def waits_for_person(self) -> bool:
        return isinstance(self.error, SignInNeeded)

    def succeeded(self) -> None:
        self.listed = self.asked = True
        self.error = None

    def failed(self, error: Exception) -> None:
        known = isinstance(error, UpstreamError)
        self.error = (
            error if known else UpstreamError(self.name, f"could not be listed: {type(error).__name__}: {error}")
        )
        self.failures += 1


class Roster:
    """Lists the servers of a fleet.

    `on_listing` gets everything that is learned, also what a server says has changed; a server counts as listed when
    it returns. `listed` names the servers whose definitions are known already.
    """

    def __init__(self, fleet: Fleet, on_listing: OnListing, *, listed: Iterable[str] = ()) -> None:
        known = set(listed)
        self._fleet = fleet
        self._on_listing = on_listing
        self._servers = {name: _Server(name, name in known) for name in fleet.servers}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        fleet.on_listing = self._changed

    def want(self, servers: Iterable[str] | None = None) -> None:
        """Have these servers listed: at once, before all others, whatever happened before.

        Without names: all that have not been listed, in the background, each after the pause that its last failure
        asks for. Names of servers that do not exist are ignored.
        """
        if servers is None:
            for server in self._servers.values():
                if not server.hopeless:
                    self._begin(server)
        else:
            for server in self._named(servers):
                self._hurry(server)

    async def wait_for(self, servers: Iterable[str], timeout: float | None = None) -> dict[str, ServerState]:
        """Want these servers and wait for them, for at most `timeout` seconds; returns those that are not listed.

        A server that fails is asked up to three times within its `start_timeout`; one that failed as often before,
        once. Each attempt is bounded by the server's own limits, so the wait is bounded without a `timeout` too.
        """
        named = self._named(servers)
        for server in named:
            self._hurry(server)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(self._settled(server) for server in named if not server.listed))
        return {server.name: self._state(server) for server in named if not server.listed}

    async def first_answers(self, timeout: float) -> None:
        """Want all servers in the background and wait, at most `timeout` seconds, until each has had one attempt."""
        self.want()
        pending = [server for server in self._servers.values() if not server.listed and server.error is None]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(server.attempt_ended.wait() for server in pending))

    async def refresh(
        self, servers: Iterable[str] | None = None, *, keep_asking: bool = True
    ) -> dict[str, ServerState]:
        """Ask these servers (or all) once for what they offer now, side by side, also those that were listed before.

        The `error` of a state that is returned is the one of this attempt. A server that fails is asked again in the
        background, unless `keep_asking` is false.
        """
        named = self._named(self._servers if servers is None else servers)
        for server in named:
            server.pause_is_over.set()
        asked = [server for server in named if (server.listed or not keep_asking) and not self._closed]
        unlisted = [server.attempt_ended.wait() for server in named if server not in asked and self._begin(server)]
        await asyncio.gather(*unlisted, *(self._ask(server) for server in asked))
        return {server.name: self._state(server) for server in named}

    def used(self, server: str) -> None:
        """A server has answered a call: if its definitions are of an earlier process, it is asked for those of now."""
        for known in self._named([server]):
            if known.listed and not known.asked and not self._closed and self._is_due(known):
                known.asked = True
                self._spawn(self._ask_anew(known))

    def states(self) -> dict[str, ServerState]:
        return {server.name: self._state(server) for server in self._servers.values()}

    async def close(self) -> None:
        """Ask no more, and end every wait. What is known stays known."""
        self._closed = True
        self._fleet.on_listing = None
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self._servers.values():
            server.next_try = None
            server.attempt_ended.set()

    def _named(self, servers: Iterable[str]) -> list[_Server]:
        return [self._servers[name] for name in dict.fromkeys(servers) if name in self._servers]

    def _begin(self, server: _Server) -> bool:
        """See that a server that is not listed is being asked; whether it is."""
        if server.listed or self._closed:
            return False
        if server.task is None or server.task.done():
            server.task = self._spawn(self._keep_asking(server))
        return True

    def _hurry(self, server: _Server) -> None:
        server.urgent = True
        server.pause_is_over.set()
        self._fleet.hurry(server.name)
        self._begin(server)

    async def _settled(self, server: _Server) -> None:
        clock = asyncio.get_running_loop().time
        last_attempt = clock() + self._fleet.servers[server.name].start_timeout
        while True:
            await server.attempt_ended.wait()
            if server.listed or server.hopeless or server.waits_for_person or self._closed:
                return
            if server.failures >= FAILURES_IN_A_WAIT or clock() >= last_attempt:
                return
            self._hurry(server)

    async def _keep_asking(self, server: _Server) -> None:
        """Ask until there is an answer."""
        while not await self._ask(server) and not server.hopeless:
            pause = pause_after(server.failures)
            server.next_try = asyncio.get_running_loop().time() + pause
            await asyncio.sleep(SHORTEST_PAUSE)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause - SHORTEST_PAUSE):
                    await self._pause(server)
            server.next_try = None

    def _is_due(self, server: _Server) -> bool:
        return server.next_try is None or asyncio.get_running_loop().time() >= server.next_try

    async def _ask_anew(self, server: _Server) -> None:
        """Ask a server whose definitions are of an earlier process; if it fails, a later call has it asked again."""
        server.next_try = None
        if not await self._ask(server):
            server.asked = False
            server.next_try = asyncio.get_running_loop().time() + pause_after(server.failures)

    async def _pause(self, server: _Server) -> None:
        """Until the server is named, or a person has signed in to it."""
        while not (server.waits_for_person and self._fleet.signed_in_anew(server.name)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SIGN_IN_POLL if server.waits_for_person else None):
                    await server.pause_is_over.wait()
                    return

    async def _ask(self, server: _Server) -> bool:
        """One attempt; whether it succeeded."""
        server.pause_is_over.clear()
        try:
            listing = await self._fleet.listing(server.name, background=not server.urgent, now=True)
            await self._on_listing(listing)
        except Exception as error:
            server.failed(error)
            return False
        else:
            server.succeeded()
            return True
        finally:
            server.urgent = False
            server.attempt_ended.set()
            server.attempt_ended = asyncio.Event()

    def _changed(self, listing: Listing) -> None:
        """A server says that what it offers has changed."""
        self._spawn(self._take_over(self._servers[listing.server], listing))

    async def _take_over(self, server: _Server, listing: Listing) -> None:
        try:
            await self._on_listing(listing)
        except Exception as error:
            server.failed(error)
        else:
            server.succeeded()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _state(self, server: _Server) -> ServerState:
        state: State = "idle" if server.error is None else "failed"
        wait = None
        if server.listed:
            state = "listed"
        elif server.next_try is not None:
            wait = max(0.0, server.next_try - asyncio.get_running_loop().time())
            if server.pause_is_over.is_set():
                wait = min(wait, SHORTEST_PAUSE)
        elif server.task is not None and not server.task.done():
            state = "starting"
        return ServerState(
            server=server.name,
            state=state,
            log_file=self._fleet.log_file(server.name),
            error=server.error,
            next_try_in=wait,
        )


def pause_after(failures: int) -> float:
    """Seconds until a server that has failed so often in a row is asked again without being named."""
    return min(LONGEST_PAUSE, SHORTEST_PAUSE * 2 ** min(failures - 1, 16))
