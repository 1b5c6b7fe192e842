"""The library's front: open a fold, search it, run programs in it.

async with Toolfold.open("toolfold.toml") as fold:
    hits = await fold.search("create issue")
    result = await fold.run("from servers.github import create_issue\n...")
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from toolfold.catalog.catalog import Answer, Catalog
from toolfold.config.load import Loaded, load_here
from toolfold.config.settings import Settings
from toolfold.definitions import Listing
from toolfold.errors import ToolfoldError, UpstreamError
from toolfold.session.events import Event, Finished, RunResult

if TYPE_CHECKING:
    from toolfold.sandbox.choose import Choice
    from toolfold.sandbox.pool import Pool, PoolStatistics
    from toolfold.schema.validation import Validators
    from toolfold.session.sessions import Sessions
    from toolfold.upstream.fleet import Fleet

_T = TypeVar("_T")
_SWITCHED_OFF = "Programs are switched off here (`enabled = false` in the settings); search still works."
_FIRST_LISTING = 20.0
"""Seconds that a search or a run waits for servers that were never listed before."""


class Toolfold:
    """Everything behind the two tools. Nothing is started until it is needed; leaving the context ends all of it."""

    def __init__(self, loaded: Loaded, tell: Callable[[str], None] = lambda text: None) -> None:
        self.loaded = loaded
        self._tell = tell
        self.settings = loaded.settings
        self.catalog = Catalog.open(self.settings)
        self.unlisted: dict[str, UpstreamError] = {}
        """Servers that could not be listed, and why."""
        self._stack = contextlib.AsyncExitStack()
        self._fleet: Fleet | None = None
        self._sessions: asyncio.Task[Sessions] | None = None
        self._choice: Choice | None = None
        self._pool: Pool | None = None
        self._first_listing: asyncio.Task[None] | None = None
        self._tree_lock = asyncio.Lock()
        # The catalog is asked in threads; meanwhile nobody else asks or changes it.
        self._catalog_lock = asyncio.Lock()
        self._tree_version = ""
        self._background: set[asyncio.Task[Any]] = set()
        self._asked: set[str] = set()
        """Servers whose definitions were asked for since this fold was opened."""

    @classmethod
    def open(
        cls,
        config: Path | str | Mapping[str, Any] | Settings | None = None,
        *,
        catalog_dirs: tuple[Path, ...] = (),
        data_dir: Path | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> Toolfold:
        """`config`: a file, a dict of the same shape, Settings, or None for what is found on this machine.

        `tell` hears, from any thread, of set-up that takes long: packages that are installed, an image made.
        """
        source = Path(config) if isinstance(config, str) else config
        return cls(load_here(source, catalog_dirs=catalog_dirs, data_dir=data_dir), tell)

    async def __aenter__(self) -> Toolfold:
        from toolfold.upstream.fleet import Fleet

        fleet = Fleet(self.settings.servers, log_dir=self.settings.data_dir / "logs", on_listing=self._on_listing)
        self._fleet = await self._stack.enter_async_context(fleet)
        return self

    async def __aexit__(self, *exc: object) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            for task in [*self._background, self._first_listing, self._sessions]:
                if task is not None and not task.done():
                    task.cancel()
                    await asyncio.wait([task], timeout=5)
        await self._stack.aclose()

    # The two tools

    async def search(
        self, query: str, *, detail: str = "with_description", limit: int | None = None, explain: bool = False
    ) -> Answer:
        """What matches, best first, with `.text` as the model reads it."""
        await self.listed()
        answer = await self._ask(lambda: self.catalog.search(query, detail=detail, limit=limit, explain=explain))
        if answer.hits or not self.unlisted:
            return answer
        reasons = "\n".join(f"Not available: {str(error)[:200]}" for error in self.unlisted.values())
        return Answer(answer.hits, answer.total, f"{answer.text}\n{reasons}")

    async def run(
        self,
        code: str,
        *,
        session: str | None = None,
        timeout: float | None = None,
        check: bool | None = None,
        heard: Callable[[Event], None] | None = None,
    ) -> RunResult:
        """Run a program. With a `session` its variables and files are there for the next run."""
        if not self.settings.enabled:
            return RunResult(success=False, error=_SWITCHED_OFF, session=session)
        await self.listed()
        refused = self._review(code) if (self.settings.check == "on" if check is None else check) else None
        if refused is not None:
            return RunResult(success=False, error=refused, session=session)
        sessions = await self._sandbox()
        await self._fresh_tree()
        return await sessions.run(code, session=session, timeout=timeout, heard=heard)

    async def stream(
        self, code: str, *, session: str | None = None, timeout: float | None = None, check: bool | None = None
    ) -> AsyncIterator[Event]:
        """The same run, event by event; the last one is `Finished`. Leaving the loop early ends the program."""
        events: asyncio.Queue[Event] = asyncio.Queue()
        task = asyncio.create_task(
            self.run(code, session=session, timeout=timeout, check=check, heard=events.put_nowait)
        )
        task.add_done_callback(lambda _: events.put_nowait(Finished(RunResult(success=False))))
        try:
            while not isinstance(event := await events.get(), Finished):
                yield event
            yield Finished(await task)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    # What they need

    async def listed(self) -> None:
        """Wait, within reason, for servers whose tools have never been seen."""
        if not self.catalog.missing and self._first_listing is None:
            return
        if self._first_listing is None:
            self._first_listing = asyncio.create_task(self.refresh(list(self.catalog.missing)))
        if not self._first_listing.done():
            await asyncio.wait([self._first_listing], timeout=_FIRST_LISTING)

    async def refresh(self, servers: list[str] | None = None) -> None:
        """Ask servers (all by default) for their definitions, side by side, and keep the answers."""
        async for server, listing in self.fleet.listings(servers):
            self._asked.add(server)
            if isinstance(listing, UpstreamError):
                self.unlisted[server] = listing
            else:
                await self._take(listing)

    async def _take(self, listing: Listing) -> None:
        self.unlisted.pop(listing.server, None)
        async with self._catalog_lock:
            self.catalog.update(listing)

    @property
    def fleet(self) -> Fleet:
        if self._fleet is None:
            raise ToolfoldError("Toolfold is not open.", hint="Use `async with Toolfold.open(...) as fold:`.")
        return self._fleet

    async def warm_up(self) -> None:
        """Get the sandbox and the API tree ready before the first program asks for them."""
        await self._sandbox()
        await self._fresh_tree()
        if self._first_listing is not None:
            # New definitions: index them now. What is on disk already is read in a moment when it is asked for.
            await self._ask(self.catalog.warm)

    async def _ask(self, question: Callable[[], _T]) -> _T:
        """Ask the catalog in a thread: a long answer may take a third of a second, and runs go on meanwhile."""
        async with self._catalog_lock:
            asking = asyncio.ensure_future(asyncio.to_thread(question))
            try:
                return await asyncio.shield(asking)
            except asyncio.CancelledError:
                # A thread cannot be called back, and nobody else may ask until it is done.
                await asyncio.gather(asking, return_exceptions=True)
                raise

    async def choice(self) -> Choice:
        """Which sandbox is used here, and the evidence that it holds."""
        await self._sandbox()
        assert self._choice is not None
        return self._choice

    @property
    def pool(self) -> PoolStatistics | None:
        """How many sandboxes wait and start now, and how runs stood in line for one; None before the first program."""
        return self._pool.statistics if self._pool is not None else None

    async def _sandbox(self) -> Sessions:
        if self._sessions is None or (self._sessions.done() and self._sessions.exception() is not None):
            self._sessions = asyncio.create_task(self._start_sandbox())
        return await asyncio.shield(self._sessions)

    async def _start_sandbox(self) -> Sessions:
        from toolfold.guards.arguments import Arguments
        from toolfold.guards.limits import Limits
        from toolfold.sandbox.choose import choose
        from toolfold.sandbox.pool import Pool
        from toolfold.session.bridge import Bridge, World
        from toolfold.session.homes import SessionHomes
        from toolfold.session.output import OutputRecorder
        from toolfold.session.sessions import Sessions

        settings = self.settings.sandbox
        self._choice = await choose(settings, self.settings.data_dir, tell=self._tell)
        await self._fresh_tree()
        checked = Arguments(self._validators)
        world = World(self.catalog, self.fleet, self._validators, self.search, self._on_used)

        def bridge(output: OutputRecorder, heard: Callable[[Event], None] | None) -> Bridge:
            limits = Limits(settings.tool_calls, settings.concurrent_calls)
            return Bridge(world, [limits, checked], output, heard)

        homes = SessionHomes(self.settings.data_dir)
        self._stack.callback(homes.close)
        self._pool = await self._stack.enter_async_context(Pool(self._choice.backend, self._api, homes, settings))
        return await self._stack.enter_async_context(Sessions(self.settings, self._pool, homes, bridge))

    @cached_property
    def _validators(self) -> Validators:
        from toolfold.schema.validation import Validators

        return Validators()

    @property
    def _api(self) -> Path:
        """One folder per set of servers, so that a change rewrites only what changed."""
        servers = sorted([*self.settings.servers, *map(str, self.settings.catalog_dirs)])
        return self.settings.data_dir / "api" / hashlib.sha256("\0".join(servers).encode()).hexdigest()[:16]

    async def _fresh_tree(self) -> None:
        """The generated API is as new as the catalog when this returns. Live sandboxes see the new tree at once."""
        if self._tree_version == self.catalog.version:
            return
        from toolfold.codegen.tree import write_tree

        async with self._tree_lock:
            version = self.catalog.version
            if self._tree_version != version:
                await asyncio.to_thread(write_tree, self.catalog.tools, self._api)
                self._tree_version = version

    def _review(self, code: str) -> str | None:
        from toolfold.review.review import review

        findings = review(code, self.catalog.names, self.catalog.tool, self._validators)
        if not findings:
            return None
        lines = [f"line {each.line}: {each.message} {each.hint}".rstrip() for each in findings[:5]]
        lines += self._usages(finding.tool for finding in findings[:5])
        # A server that could not be listed has no module: say why, not only that.
        lines += [str(error) for server, error in self.unlisted.items() if server in code]
        return "\n".join(["Nothing was run.", *lines])

    def _usages(self, tools: Iterable[tuple[str, str] | None]) -> list[str]:
        """How the tools that were called wrongly are called, each once."""
        from toolfold.codegen.render import usage

        found = [self.catalog.tool(*tool) for tool in dict.fromkeys(tools) if tool is not None]
        return [usage(self.catalog.names, tool) for tool in found[:2] if tool is not None]

    def _on_used(self, server: str) -> None:
        """A server that runs anyway is asked once what it offers now: the cache may be from another day."""
        if server not in self._asked:
            self._asked.add(server)
            self._later(self.refresh([server]))

    def _on_listing(self, listing: Listing) -> None:
        self._later(self._take(listing))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
