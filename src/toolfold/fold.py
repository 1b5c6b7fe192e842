"""The library's front: open a fold, search it, run programs in it.

async with Toolfold.open("toolfold.toml") as fold:
    hits = await fold.search("create issue")
    result = await fold.run("from servers.github import create_issue\n...")
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from toolfold.catalog.catalog import Answer, Catalog, Detail
from toolfold.catalog.trees import ApiTrees
from toolfold.config.load import Loaded, load_here
from toolfold.config.settings import Settings
from toolfold.definitions import ToolResult
from toolfold.errors import FoldClosed, LimitExceeded, UpstreamError
from toolfold.guards.context import (
    LOCAL_CALLER,
    Ask,
    Deadline,
    RunContext,
    RunOptions,
    call_deadline,
    check_text,
    make_context,
    run_deadline,
)
from toolfold.guards.events import SWITCHED_OFF, CallKind, Event, RunError, RunResult
from toolfold.guards.streaming import streamed
from toolfold.guards.watch import Watch
from toolfold.telemetry.ledger import Ledger
from toolfold.telemetry.observe import Observer, Observers, SeenSearch
from toolfold.telemetry.uses import Uses

if TYPE_CHECKING:
    from toolfold.catalog.entries import Scope
    from toolfold.catalog.live import LiveCatalog
    from toolfold.guards.chain import Chain
    from toolfold.guards.guard import Guard, Proceed
    from toolfold.sandbox.choose import Choice
    from toolfold.sandbox.pool import PoolStatistics
    from toolfold.sandbox.protocol import SessionHome
    from toolfold.schema.validation import Validators
    from toolfold.session.bridge import World
    from toolfold.session.direct import DirectCalls
    from toolfold.session.homes import SessionHomes
    from toolfold.session.start import Started, Statistics
    from toolfold.session.store import SessionStore
    from toolfold.session.workshop import Workshop
    from toolfold.skills.skills import Skills
    from toolfold.telemetry.counting import Tokenizer
    from toolfold.upstream.fleet import Fleet
    from toolfold.upstream.roster import Roster

_log = logging.getLogger("toolfold")


class Toolfold:
    """Everything behind the two tools. Nothing is started until it is needed; leaving the context ends all of it."""

    def __init__(self, loaded: Loaded, guards: Sequence[Guard] = (), tokenizer: Tokenizer | None = None) -> None:
        self.loaded = loaded
        self.settings = loaded.settings
        self.catalog = Catalog.open(self.settings)
        self._guards = tuple(guards)
        self._untold = [project.text for project in loaded.untrusted]
        """What the first search says once."""
        self._stack = contextlib.AsyncExitStack()
        self._fleet: Fleet | None = None
        self._started: asyncio.Task[Started] | None = None
        self._live: LiveCatalog | None = None
        self._trees = ApiTrees(self.catalog, self.settings)
        self._runs: set[asyncio.Task[Any]] = set()
        self.uses = Uses(self.settings.data_dir)
        self.observers = Observers()
        self.ledger = Ledger(self.settings, self.catalog, tokenizer)
        """What runs and searches have cost in tokens, and what the direct way would have."""
        self.observers.add(self.ledger)

    @classmethod
    def open(
        cls,
        config: Path | str | Mapping[str, Any] | Settings | None = None,
        *,
        guards: Sequence[Guard] = (),
        catalog_dirs: tuple[Path, ...] = (),
        data_dir: Path | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> Toolfold:
        """`config`: a file, a dict of the same shape, Settings, or None for what is found on this machine.

        `guards` see every call to an upstream, in this order, before it is checked and sent. `tokenizer` counts tokens
        for the ledger, in a thread. What takes long to set up is logged by the logger `toolfold`.
        """
        source = Path(config) if isinstance(config, str) else config
        return cls(load_here(source, catalog_dirs=catalog_dirs, data_dir=data_dir), guards, tokenizer)

    async def __aenter__(self) -> Toolfold:
        from toolfold.catalog.live import LiveCatalog
        from toolfold.upstream.fleet import Fleet

        if self.loaded.data_problem:
            _log.warning(self.loaded.data_problem)
        data = self.settings.data_dir
        keyring = self.settings.uses_keyring
        fleet = Fleet(self.settings.servers, log_dir=data / "logs", auth_dir=data / "auth", keyring=keyring)
        self._stack.push_async_callback(self.ledger.close)
        self._fleet = await self._stack.enter_async_context(fleet)
        if self.settings.audit.enabled:
            self.catalog.acceptance.on_noted = self._chain.note
        self._live = LiveCatalog(self.catalog, fleet, self.settings.servers)
        self._stack.push_async_callback(self._live.close)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._fleet = None
        with contextlib.suppress(asyncio.CancelledError):
            for task in [*self._runs, self._started]:
                if task is not None and not task.done():
                    task.cancel()
                    await asyncio.wait([task], timeout=5)
            await self._trees.close()
        await self._stack.aclose()

    # The two tools

    async def search(
        self,
        query: str,
        *,
        detail: Detail = "with_description",
        limit: int | None = None,
        server: str | None = None,
        explain: bool = False,
        caller: str = LOCAL_CALLER,
    ) -> Answer:
        """What matches (on one `server`, if given), best first, with `.text` as the model reads it."""
        check_text(query, "query")
        begun = time.perf_counter()
        answer = await self.live.search(
            query,
            detail=detail,
            limit=limit,
            server=server,
            explain=explain,
            scope=self._chain.scope(caller),
            skills=partial(self.skills.entries, caller),
        )
        told, self._untold = self._untold, []
        text = "\n".join(filter(None, [answer.text, *told]))
        self.observers.notify(Observer.searched, SeenSearch(caller, query, text, time.perf_counter() - begun))
        return replace(answer, text=text)

    async def run(
        self,
        code: str,
        *,
        session: str | None = None,
        caller: str = LOCAL_CALLER,
        groups: Iterable[str] = (),
        context: Mapping[str, str] | None = None,
        timeout: float | None = None,
        check: bool | None = None,
        on_event: Callable[[Event], None] | None = None,
        ask: Ask | None = None,
    ) -> RunResult:
        """Run a program. With a `session` its variables and files are there for the caller's next run.

        `caller` is whose sessions these are; `groups` and `context` are what guards and the program may know of it and
        of the run (a user's id, say): `context.user_id` in the program, and in arguments by `context.inject`.
        `timeout` is in seconds from now, whatever is waited for but a person; without it the time that servers take
        is not counted, up to what one call may take. `ask` puts a guard's question to a person.
        Raises a ToolfoldError when no run was possible at all; how a program failed is in the result.
        """
        check_text(code, "code")
        run = await self._context(
            code,
            run_deadline(self.settings, timeout),
            session=session,
            caller=caller,
            groups=groups,
            context=context,
            on_event=on_event,
            ask=ask,
        )
        with self._running():
            try:
                checked = self.settings.check if check is None else check
                result = await self._chain.recorded(code, run, lambda: self._run(code, run, check=checked))
            except LimitExceeded as error:
                return RunResult(success=False, error=RunError.of(error), session=run.shown_session, run=run.id)
            except asyncio.CancelledError:
                self._transcribe(run, None)
                raise
        self._transcribe(run, result)
        return result

    async def call(
        self,
        server: str,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        kind: CallKind = "tool",
        timeout: float | None = None,
        send: Proceed | None = None,
        **options: Unpack[RunOptions],
    ) -> ToolResult:
        """Call one tool without a program; by `kind`, read a resource (`name` is its URI) or get a prompt.

        `options` are as for `run`. It is a run of its own for the guards. A long result of a tool is cut, and all of it
        kept in the session's workspace. Raises a ToolfoldError unless the server answered. `send` does something else
        with a resource or a prompt, once its server is up and if the guards would let it be read.
        """
        target = f"{server}.{name}" if kind == "tool" else f"{kind}:{server}:{name}"
        run = await self._context(target, call_deadline(self.settings, server, timeout), direct=True, **options)
        with self._running():
            await self.live.recheck()
            return await self._direct.recorded(target, run, kind, server, name, dict(arguments or {}), send)

    async def _context(
        self, code: str, deadline: Deadline, *, direct: bool = False, **options: Unpack[RunOptions]
    ) -> RunContext:
        self._check_open()
        run = make_context(code, deadline, direct=direct, **options)
        owner: tuple[str, str] | None = None
        if run.session is not None and run.session.startswith("@") and "/" in run.session:
            from toolfold.session.store import shared_session

            owner = shared_session(self.settings.data_dir, run.session, run.caller)
        privacy = await self._chain.privacy_of(*(owner or (run.caller, run.session)))
        watch = Watch(self.observers) if self.observers else None
        return replace(run, privacy=privacy, session_of=owner, watch=watch)

    @contextlib.contextmanager
    def _running(self) -> Generator[None]:
        """This task is a run, which ends with the fold at the latest."""
        task = asyncio.current_task()
        assert task is not None
        self._runs.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if self._fleet is None and not task.uncancel():
                raise FoldClosed("Toolfold was closed during the run.") from None
            raise
        finally:
            self._runs.discard(task)

    async def _run(self, code: str, run: RunContext, *, check: bool) -> RunResult:
        from toolfold.review.servers import named_servers

        if not self.settings.enabled:
            return RunResult(success=False, error=SWITCHED_OFF, session=run.shown_session, run=run.id)
        # What we do before the program is not its time, as far as there is time for servers.
        ready = run.deadline.enforced(f"Nothing was run: Toolfold was not ready within {run.deadline.seconds:g} s.")
        async with ready:
            with run.deadline.waiting():
                await self.live.recheck()
                if self.catalog.missing:
                    named = named_servers(code, self.catalog.missing, self.catalog.names)
                    await self.live.listed_for_program(named, run.deadline.patience)
                refused = await self._workshop.refusal(code, run, check=check)
                if refused is not None:
                    return RunResult(success=False, error=refused, session=run.shown_session, run=run.id)
                sessions = (await self._sandbox()).sessions
                await self._trees.fresh(self._chain.scope(run.caller))
        result = await sessions.run(code, run)
        await self.skills.finished(run, ok=result.success)
        return result

    def _transcribe(self, run: RunContext, result: RunResult | None) -> None:
        if run.notes.code and (started := self._ready) is not None:
            started.sessions.transcribe(run, result)

    @property
    def sessions(self) -> SessionStore:
        """The sessions on disk: list, look into, export, reset, end and share them, and their files."""
        from toolfold.session.store import SessionStore

        return SessionStore(self.settings, lambda: started.sessions if (started := self._ready) else None)

    @property
    def _ready(self) -> Started | None:
        task = self._started
        return task.result() if task is not None and task.done() and task.exception() is None else None

    def stream(
        self, code: str, *, timeout: float | None = None, check: bool | None = None, **options: Unpack[RunOptions]
    ) -> AsyncIterator[Event]:
        """The same run, event by event; the last one is `Finished`. Leaving the loop early ends the program.

        `options` are as for `run`. A question is an `ApprovalRequest`; the run waits until it is answered by
        `approve()` or `deny()`.
        """
        return streamed(partial(self.run, code, timeout=timeout, check=check), options)

    # What they need

    async def listed(self, servers: Iterable[str] | None = None, timeout: float | None = None) -> None:
        """Wait, within reason, for servers (all by default) whose tools have never been seen."""
        await (self.live.listed(servers) if timeout is None else self.live.listed(servers, timeout))

    async def refresh(self, servers: list[str] | None = None) -> None:
        """Ask servers (all by default) for their definitions, side by side, and keep the answers."""
        await self.roster.refresh(servers)

    @property
    def live(self) -> LiveCatalog:
        """The catalog as its servers keep it up to date."""
        self._check_open()
        assert self._live is not None
        return self._live

    def scope(self, caller: str) -> Scope:
        """What a caller may know of."""
        return self._chain.scope(caller)

    async def audit_problem(self) -> str:
        """Why nothing can be recorded, and so nothing is done; empty where it can be, or need not be."""
        return await self._chain.audit_problem()

    @property
    def roster(self) -> Roster:
        """Which servers have been listed, and what became of the others."""
        return self.live.roster

    @property
    def unlisted(self) -> dict[str, UpstreamError]:
        """Servers that could not be listed, and why."""
        return self._live.unlisted if self._live is not None else {}

    @property
    def fleet(self) -> Fleet:
        return self._check_open()

    def _check_open(self) -> Fleet:
        if self._fleet is None:
            raise FoldClosed("Toolfold is not open.", hint="Use `async with Toolfold.open(...) as fold:`.")
        return self._fleet

    async def warm_up(self) -> None:
        """Get the sandbox and the API tree ready before the first program asks for them."""
        await self._sandbox()
        await self._trees.fresh(self._chain.scope(LOCAL_CALLER))
        await self.live.warm()

    async def choice(self) -> Choice:
        """Which sandbox is used here, and the evidence that it holds."""
        return (await self._sandbox()).choice

    @property
    def pool(self) -> PoolStatistics | None:
        """How many sandboxes wait and start now, and how runs stood in line for one; None before the first program."""
        return started.pools.statistics if (started := self._ready) is not None else None

    async def statistics(self) -> Statistics:
        """What sandboxes and sessions of all callers do and use at this moment."""
        from toolfold.session.start import Statistics

        return await started.statistics() if (started := self._ready) is not None else Statistics()

    async def _sandbox(self) -> Started:
        from toolfold.session.start import start_sessions

        if self._started is None or (self._started.done() and self._started.exception() is not None):
            starting = start_sessions(self._world, self._homes, self.settings, self._trees, self._stack)
            self._started = asyncio.create_task(starting)
        return await asyncio.shield(self._started)

    @cached_property
    def _homes(self) -> SessionHomes:
        from toolfold.session.homes import SessionHomes

        homes = SessionHomes(self.settings.data_dir)
        self._stack.callback(homes.close)
        return homes

    @cached_property
    def _world(self) -> World:
        from toolfold.session.bridge import World
        from toolfold.session.own import OwnSessions

        own = OwnSessions(self.sessions, only_reads=self.settings.policy.profile == "read_only")
        self._stack.push_async_callback(self.uses.close)
        return World(self.live, self.fleet, self._validators, self._chain, self.uses, self.skills, own)

    @cached_property
    def _direct(self) -> DirectCalls:
        from toolfold.session.direct import DirectCalls

        async def home_of(run: RunContext) -> SessionHome:
            return await (await self._sandbox()).sessions.home(run)

        return DirectCalls(self._world, self.settings.output_chars, lambda: self._homes, home_of)

    @cached_property
    def skills(self) -> Skills:
        """The skills of every caller."""
        from toolfold.skills.skills import Skills

        skills = Skills(self.settings, self._workshop)
        self._stack.callback(skills.close)
        return skills

    @cached_property
    def _workshop(self) -> Workshop:
        from toolfold.session.workshop import Workshop

        return Workshop(self.live, self._chain, self._validators, self._sandbox)

    @cached_property
    def _validators(self) -> Validators:
        from toolfold.schema.validation import Validators

        return Validators()

    @cached_property
    def _chain(self) -> Chain:
        from toolfold.guards.chain import Chain

        chain = Chain(self.settings, self._guards, self._validators, self.catalog.is_held)
        self._stack.push_async_callback(chain.close)
        return chain
