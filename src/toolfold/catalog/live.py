"""The catalog of a running fold: kept up to date by its servers, waited for where that helps, asked off the loop."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from toolfold.catalog.catalog import Answer, Catalog, Detail
from toolfold.catalog.entries import EVERYTHING, Scope
from toolfold.catalog.resolve import folded, server_in
from toolfold.catalog.skill_entries import SkillEntries
from toolfold.definitions import Listing, ToolDefinition
from toolfold.errors import UnknownTool, UpstreamError, UpstreamIsToolfold
from toolfold.upstream.fleet import Fleet
from toolfold.upstream.roster import Roster, ServerState

_T = TypeVar("_T")
FIRST_LISTING = 20.0
"""Seconds that a search waits for servers that were never listed before, when nothing is known yet."""
_SOME_KNOWN = 5.0
"""Seconds that it waits when it has something to search in."""
_TIME_TO_ANSWER = 0.05
_ABSENT_SHOWN = 3
_WORD = re.compile(r"[^\W_]+")


class LiveCatalog:
    """Every question is asked, and every listing examined, in one thread; meanwhile nothing else asks or changes the
    catalog."""

    def __init__(self, catalog: Catalog, fleet: Fleet, servers: Iterable[str]) -> None:
        self.catalog = catalog
        missing = set(catalog.missing)
        self.roster = Roster(fleet, self._take, listed=[name for name in servers if name not in missing])
        self._waited_for: set[str] = set()
        """Servers that a search has waited for once; later ones take what is there."""
        self.on_change: Callable[[], None] | None = None
        """Called when a server's definitions have changed."""
        self._lock = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "catalog")

    async def close(self) -> None:
        await self.roster.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    # Questions

    async def search(
        self,
        query: str,
        *,
        detail: Detail = "with_description",
        limit: int | None = None,
        server: str | None = None,
        explain: bool = False,
        scope: Scope = EVERYTHING,
        skills: Callable[[], SkillEntries | None] = lambda: None,
    ) -> Answer:
        """What matches, best first, with a line about servers that are not there yet."""
        await self.listed_once(query=query, scope=scope)
        answer = await self._ask(
            lambda: self.catalog.search(
                query,
                detail=detail,
                limit=limit,
                server=server,
                allow=scope.allow,
                knows=scope.knows,
                explain=explain,
                skills=skills(),
            )
        )
        return replace(answer, text="\n".join(filter(None, [answer.text, self._absent(scope)])))

    async def everything(
        self, detail: Detail, limit: int | None, server: str | None, scope: Scope = EVERYTHING, *, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Every tool (of one `server`, if given) as a program goes through them."""
        return await self._ask(
            lambda: self.catalog.everything(detail, limit=limit, offset=offset, server=server, allow=scope.allow)
        )

    async def find(self, written: str, scope: Scope = EVERYTHING) -> ToolDefinition:
        """The tool that a program means by a name that is not quite one. Raises UnknownTool with the nearest names."""
        await self.listed_once(query=written, scope=scope)
        try:
            return await self._ask(lambda: self.catalog.find(written, allow=scope.allow))
        except UnknownTool as error:
            states = self.missing(scope)
            server, _ = server_in(written, {folded(name): name for name in states})
            if server is not None:
                raise UnknownTool(f"{written.strip()[:100]!r} is not available now: {states[server].text}") from None
            error.hint = " ".join(filter(None, [error.hint, self._absent(scope)]))
            raise

    async def warm(self) -> None:
        """Index new definitions now. What is on disk already is read in a moment when it is asked for."""
        if self._waited_for:
            await self._ask(self.catalog.warm)

    async def recheck(self) -> None:
        """Take over what another process has accepted of what is held back here."""
        if self.catalog.acceptance.outdated():
            async with self._lock:
                self.catalog.recheck()

    # Servers that have not been listed yet

    async def listed(self, servers: Iterable[str] | None = None, timeout: float = FIRST_LISTING) -> None:
        """Wait, within reason, for servers (all by default) whose tools have never been seen."""
        missing = set(self.catalog.missing)
        wanted = missing if servers is None else missing.intersection(servers)
        if wanted:
            await self.roster.wait_for(wanted, timeout)

    async def listed_for_program(self, named: Iterable[str], seconds: float) -> None:
        """A program waits only for servers that it names; the others are listed in the background."""
        if self.catalog.missing:
            self.roster.want()
            await self.listed(named, max(seconds - _TIME_TO_ANSWER, 0.0))

    @property
    def unlisted(self) -> dict[str, UpstreamError]:
        """Servers that could not be listed, and why."""
        states = self.roster.states()
        return {name: state.error for name, state in states.items() if state.state == "failed" and state.error}

    async def listed_once(
        self,
        servers: Container[str] | None = None,
        *,
        query: str = "",
        timeout: float = FIRST_LISTING,
        scope: Scope = EVERYTHING,
    ) -> None:
        """A search waits once for each server that was never listed, and longer only where nothing is known at all."""
        missing = [server for server in self.catalog.missing if server not in self._waited_for or _is_in(query, server)]
        missing = [server for server in missing if scope.may_know(server)]
        if servers is not None:
            missing = [server for server in missing if server in servers]
        if missing:
            self._waited_for.update(missing)
            await self.listed(missing, min(timeout, _SOME_KNOWN if self.catalog.entries else FIRST_LISTING))

    def missing(self, scope: Scope) -> dict[str, ServerState]:
        """The servers that were never listed, as far as a caller may know of them, and how each of them is."""
        states = self.roster.states()
        return {name: states[name] for name in self.catalog.missing if name in states and scope.may_know(name)}

    def _absent(self, scope: Scope) -> str:
        """One line about the servers that are not there yet, and why; empty when all are."""
        unlisted = self.unlisted
        absent = [
            state.text
            for server, state in self.missing(scope).items()
            if not isinstance(unlisted.get(server), UpstreamIsToolfold)
        ]
        more = f"; and {len(absent) - _ABSENT_SHOWN} more" if len(absent) > _ABSENT_SHOWN else ""
        return f"Not available now: {'; '.join(absent[:_ABSENT_SHOWN])}{more}" if absent else ""

    async def _take(self, listing: Listing) -> None:
        async with self._lock:
            examined = await self._in_thread(lambda: self.catalog.examine(listing))
            changed = examined is not None and self.catalog.take(*examined)
        if changed and self.on_change is not None:
            self.on_change()

    async def _ask(self, question: Callable[[], _T]) -> _T:
        """Ask in the thread: a long answer may take a third of a second, and runs go on meanwhile."""
        async with self._lock:
            return await self._in_thread(question)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        working = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            # A thread cannot be called back, and nothing else may ask until it is done.
            await asyncio.gather(working, return_exceptions=True)
            raise


def _is_in(query: str, server: str) -> bool:
    """Whether a query names a server: all the words of its name, one after the other."""
    asked, name = _WORD.findall(query.casefold()), _WORD.findall(server.casefold())
    return bool(name) and any(asked[start : start + len(name)] == name for start in range(len(asked)))
