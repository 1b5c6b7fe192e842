"""The read model over a fold: what a viewer may see of servers, tools, runs, sessions, skills and the audit log."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from toolfold import __version__
from toolfold.catalog.answer import Hit
from toolfold.catalog.entries import View
from toolfold.errors import InvalidRequest
from toolfold.gateway.views import shapes
from toolfold.gateway.views.audit import audit_page, run_of, runs_page
from toolfold.gateway.views.runs import detail_shape, run_shape
from toolfold.gateway.views.viewer import ForbiddenError, NotFoundError, TooLargeError, Viewer
from toolfold.skills.skills import SCOPES
from toolfold.telemetry.activity import Activity, Before
from toolfold.upstream.serverlog import without_paths

if TYPE_CHECKING:
    from toolfold.catalog.catalog import Detail
    from toolfold.catalog.entries import ServerInfo
    from toolfold.fold import Toolfold
    from toolfold.session.store import SessionInfo
    from toolfold.skills.index import Record, Use
    from toolfold.skills.skills import Scope
    from toolfold.skills.store import SkillStore
    from toolfold.telemetry.audit_reader import Filter
    from toolfold.telemetry.totals import Totals
    from toolfold.upstream.roster import ServerState

_LONGEST_FILE = 10_000_000
_MOST_ROWS = 100
_PRIVATE = "Personal values are kept private here, and this may hold them."


class Views:
    """One per gateway. NotFoundError and ForbiddenError say what a viewer may not see."""

    def __init__(self, fold: Toolfold, activity: Activity) -> None:
        self._fold = fold
        self.activity = activity

    # Servers and tools

    async def servers(self, viewer: Viewer) -> shapes.Servers:
        fold = self._fold
        known = self._known(viewer)
        health = {each.server: each for each in fold.fleet.health()}
        states = self._states(viewer)
        uses = await self._uses() if viewer.owner else {}
        found: list[shapes.Server] = []
        for name in sorted({*known, *states}):
            shown = _server(name, known.get(name))
            if (state := states.get(name)) is not None:
                shown.state, shown.next_try_in = state.state, state.next_try_in
                if state.error is not None:
                    shown.error = str(state.error) if viewer.person else without_paths(state.error.message)
            if viewer.owner and name in health:
                now = health[name]
                shown.connection, shown.protocol_version = now.state, now.protocol_version
                shown.transport, shown.restarts = fold.settings.servers[name].transport, now.restarts
                shown.problems = list(now.problems)
                shown.error = shown.error or (now.last_error if viewer.person else without_paths(now.last_error))
                if viewer.person:
                    shown.log_file = str(now.log_file)
            shown.calls = sum(count for (server, _), count in uses.items() if server == name)
            found.append(shown)
        return shapes.Servers(servers=found)

    def _known(self, viewer: Viewer) -> dict[str, ServerInfo]:
        """What the catalog knows of the servers that a viewer may know of."""
        catalog, scope = self._fold.catalog, self._fold.scope(viewer.caller)
        return {info.name: info for info in View.of(catalog.entries, catalog.servers, scope.allow, scope.knows).servers}

    def _states(self, viewer: Viewer) -> dict[str, ServerState]:
        hidden = {info.name for info in self._fold.catalog.servers}.difference(self._known(viewer))
        return {name: state for name, state in self._fold.roster.states().items() if name not in hidden}

    async def server(self, viewer: Viewer, name: str) -> shapes.Server:
        for each in (await self.servers(viewer)).servers:
            if each.name == name:
                return each
        raise NotFoundError(f"There is no server {name[:100]!r}.")

    async def search(self, viewer: Viewer, query: str, detail: Detail, limit: int | None) -> shapes.Search:
        answer = await self._fold.search(query, detail=detail, limit=limit, caller=viewer.caller)
        hits = msgspec.convert(answer.rows(), list[shapes.Tool])
        return shapes.Search(total=answer.total, hits=hits, text=answer.text)

    async def tools(
        self, viewer: Viewer, *, server: str | None = None, detail: Detail, limit: int = 100, offset: int = 0
    ) -> shapes.Tools:
        live = self._fold.live
        await live.listed_once()
        scope = self._fold.scope(viewer.caller)
        rows = await live.everything(detail, limit + 1, server, scope, offset=offset)
        tools = msgspec.convert(rows[:limit], list[shapes.Tool])
        if viewer.owner:
            uses = {self._imported(key): count for key, count in (await self._uses()).items()}
            for tool in tools:
                tool.calls = uses.get((tool.server, tool.name), 0)
        return shapes.Tools(tools=tools, next=offset + limit if len(rows) > limit else None)

    async def tool(self, viewer: Viewer, server: str, name: str) -> shapes.Tool:
        """By the names that programs import, or by the server's own."""
        names, catalog = self._fold.catalog.names, self._fold.catalog
        for entry in catalog.entries_in("tool", self._fold.scope(viewer.caller)):
            hit = Hit(entry, names)
            if server in (hit.server, entry.server) and name in (hit.name, entry.name):
                tool = msgspec.convert(hit.row("full"), shapes.Tool)
                if viewer.owner:
                    tool.calls = (await self._uses()).get((entry.server, entry.name), 0)
                return tool
        raise NotFoundError(f"There is no tool {server[:100]}.{name[:100]}.", hint="Search for it, or list the tools.")

    async def _uses(self) -> dict[tuple[str, str], int]:
        return await asyncio.to_thread(self._fold.uses.counts)

    def _imported(self, key: tuple[str, str]) -> tuple[str, str]:
        names = self._fold.catalog.names
        try:
            return names.server(key[0]), names.function(*key)
        except KeyError:
            return key

    # Runs

    async def runs(
        self,
        viewer: Viewer,
        *,
        limit: int = 50,
        before: str | None = None,
        caller: str | None = None,
        session: str | None = None,
        failed: bool = False,
    ) -> shapes.Runs:
        """`before` is the `next` of the page before."""
        whose, start = viewer.only(caller), _cursor(before)
        recent = self.activity.recent(limit + 1, start, caller=whose, session=session, failed=failed)
        found = [run_shape(run) for run in recent]
        if self._fold.settings.audit.enabled:  # which knows older runs, and those of other processes
            older = await asyncio.to_thread(
                runs_page, self._fold.settings.data_dir, limit + 1, start, whose, session, failed=failed
            )
            found += [run for run in older if self.activity.get(run.id) is None]
            found.sort(key=lambda run: (run.time, run.id), reverse=True)
        last = found[limit - 1] if len(found) > limit else None
        return shapes.Runs(runs=found[:limit], next=f"{last.time!r}-{last.id}" if last is not None else None)

    async def run(self, viewer: Viewer, run: str) -> shapes.RunDetail:
        active = self.activity.get(run)
        if active is not None:
            found: shapes.RunDetail | None = detail_shape(active)
        elif self._fold.settings.audit.enabled:
            found = await asyncio.to_thread(run_of, self._fold.settings.data_dir, run)
        else:
            found = None
        if found is None or not (viewer.owner or found.caller == viewer.caller):
            hint = "" if self._fold.settings.audit.enabled else "Older runs are known where `audit = true` is set."
            raise NotFoundError(f"There is no run {run[:100]!r}.", hint=hint)
        return found

    # Sessions

    async def sessions(self, viewer: Viewer, *, caller: str | None = None, limit: int = 100) -> shapes.Sessions:
        found = await self._fold.sessions.list(viewer.only(caller), most=limit)
        return shapes.Sessions(sessions=[self._session(viewer, each) for each in found])

    async def session(self, viewer: Viewer, name: str, *, caller: str | None = None) -> SessionInfo:
        whose = self._owner_of(viewer, name, caller)
        return self._session(viewer, await self._fold.sessions.show(name, caller=whose))

    async def files(self, viewer: Viewer, name: str, path: str = "", *, caller: str | None = None) -> shapes.Files:
        whose = self._owner_of(viewer, name, caller)
        self._check_private(viewer)
        try:
            listing = await asyncio.to_thread(self._fold.sessions.files(name, caller=whose).ls, path)
        except InvalidRequest as error:
            raise NotFoundError(error.message) from None
        return shapes.Files(path=path, files=listing.files, more=listing.more)

    async def file(self, viewer: Viewer, name: str, path: str, *, caller: str | None = None) -> bytes:
        """The bytes of one file of the workspace; TooLargeError for more than 10 MB."""
        whose = self._owner_of(viewer, name, caller)
        self._check_private(viewer)
        files = self._fold.sessions.files(name, caller=whose)
        try:
            return await asyncio.to_thread(lambda: files.read(path, most=_LONGEST_FILE))
        except InvalidRequest as error:
            if error.hint:  # which only a file that is there has
                raise TooLargeError(error.message, hint="Use `toolfold files get` on that machine.") from None
            raise NotFoundError(error.message) from None

    def _owner_of(self, viewer: Viewer, name: str, caller: str | None) -> str:
        whose = viewer.one(caller)
        if not self._fold.sessions.has(name, caller=whose):
            hint = "Sessions of another caller need `caller`." if viewer.owner and caller is None else ""
            raise NotFoundError(f"There is no session {name[:100]!r} of {whose!r}.", hint=hint)
        return whose

    def _session(self, viewer: Viewer, session: SessionInfo) -> SessionInfo:
        if viewer.person or not self._fold.settings.privacy.enabled:
            return session
        return msgspec.structs.replace(session, kept=[], variables=[])

    def _check_private(self, viewer: Viewer) -> None:
        """What a program has written may hold values that its output would not."""
        if self._fold.settings.privacy.enabled and not viewer.person:
            raise ForbiddenError(_PRIVATE, hint="The owner sees it by `toolfold files` on that machine.")

    # Skills

    async def skills(self, viewer: Viewer, *, caller: str | None = None) -> shapes.Skills:
        stores = self._skill_stores(viewer.one(caller))

        def read() -> list[shapes.Skill]:
            found: list[shapes.Skill] = []
            for scope, store in stores:
                uses = store.uses()
                found += [_skill(scope, one, uses.get(name)) for name, one in store.records().items()]
                for waiting in store.pending():
                    shown = shapes.Skill(
                        name=waiting.name,
                        scope=scope,
                        description=waiting.description,
                        tags=list(waiting.tags),
                        version=waiting.version,
                        signature="",
                        uses=0,
                        succeeded=0,
                        pending=True,
                    )
                    found.append(shown)
            return sorted(found, key=lambda skill: (skill.name, skill.scope, skill.pending))

        return shapes.Skills(skills=await asyncio.to_thread(read))

    async def skill(self, viewer: Viewer, name: str, *, caller: str | None = None) -> shapes.SkillDetail:
        """By either of its names."""
        stores = self._skill_stores(viewer.one(caller))
        folder = name.replace("_", "-")

        def read() -> shapes.SkillDetail | None:
            for scope, store in stores:
                record = store.find(folder)
                if record is not None:
                    shown = msgspec.structs.asdict(_skill(scope, record, store.uses().get(folder)))
                    whole = store.read(folder) if not record.problem else None
                    return shapes.SkillDetail(
                        **shown,
                        source=whole.source if whole is not None else "",
                        document=whole.body if whole is not None else "",
                        provenance=dict(record.provenance),
                    )
            return None

        found = await asyncio.to_thread(read)
        if found is None:
            raise NotFoundError(f"There is no skill {name[:100]!r}.")
        self._check_private(viewer)
        return found

    def _skill_stores(self, caller: str) -> list[tuple[Scope, SkillStore]]:
        skills = self._fold.skills
        seen = skills.seen_by(caller)
        project = self._fold.settings.skills.project
        scopes: list[Scope] = [scope for scope in SCOPES if scope != "project" or project is not None]
        return [(scope, store) for scope in scopes if (store := skills.store(scope, caller)) in seen]

    # The audit log, counts

    async def audit(
        self, viewer: Viewer, wanted: Filter, *, limit: int = 50, before: int | None = None
    ) -> shapes.Audit:
        """`wanted.caller` is empty for everyone that may be seen."""
        whose = viewer.only(wanted.caller or None) or ""
        enabled = self._fold.settings.audit.enabled
        return await asyncio.to_thread(
            audit_page, self._fold.settings.data_dir, wanted, limit, before, whose, enabled=enabled
        )

    async def stats(self, viewer: Viewer, *, caller: str | None = None, since: str | None = None) -> shapes.Stats:
        """`since` is a day of UTC, as `2026-11-16`."""
        whose, ledger = viewer.only(caller), self._fold.ledger

        def read() -> shapes.Stats:
            callers = ledger.by_caller(since=since) if whose is None else {}
            sessions = ledger.by_session(since=since, caller=whose)
            tools = ledger.by_tool(since=since, caller=whose)
            return shapes.Stats(
                caller=whose,
                started=self.activity.started,
                gateway=self._counts(whose),
                total=_tokens(ledger.totals(since=since, caller=whose)),
                days=[
                    shapes.DayTokens(day=day, tokens=_tokens(each))
                    for day, each in ledger.by_day(since=since, caller=whose).items()
                ],
                callers=[
                    shapes.CallerTokens(caller=name, tokens=_tokens(each))
                    for name, each in islice(callers.items(), _MOST_ROWS)
                ],
                sessions=[
                    shapes.SessionTokens(caller=owner, session=name, tokens=_tokens(each))
                    for (owner, name), each in islice(sessions.items(), _MOST_ROWS)
                ],
                tools=[shapes.ToolTokens(**asdict(each)) for each in tools[:_MOST_ROWS]],
            )

        return await asyncio.to_thread(read)

    async def overview(self, viewer: Viewer) -> shapes.Overview:
        fold = self._fold
        states: dict[str, int] = {}
        for state in self._states(viewer).values():
            states[state.state] = states.get(state.state, 0) + 1
        whose = viewer.only(None)
        return shapes.Overview(
            version=__version__,
            started=self.activity.started,
            counts=self._counts(whose),
            running=[run_shape(run) for run in self.activity.running(caller=whose)],
            servers=states,
            tools=len(fold.catalog.entries_in("tool", fold.scope(viewer.caller))),
            sandbox=(await fold.choice()).backend.name if fold.pool is not None else "",
        )

    def _counts(self, caller: str | None) -> shapes.Counts:
        running = len(self.activity.running(caller=caller))
        return shapes.Counts(**asdict(self.activity.counts(caller)), running=running)


def _tokens(totals: Totals) -> shapes.Tokens:
    return msgspec.convert(totals.data(), shapes.Tokens)


def _cursor(before: str | None) -> Before | None:
    if before is None:
        return None
    when, _, run = before.partition("-")
    try:
        return Before(float(when), run)
    except ValueError:
        raise NotFoundError(f"There is no page before {before[:50]!r}.", hint="Send the `next` of a page.") from None


def _server(name: str, info: ServerInfo | None) -> shapes.Server:
    tools, resources, prompts = (info.tools, info.resources, info.prompts) if info is not None else (0, 0, 0)
    state = "listed" if info is not None and not info.missing else "idle"
    return shapes.Server(name=name, state=state, tools=tools, resources=resources, prompts=prompts)


def _skill(scope: Scope, record: Record, use: Use | None) -> shapes.Skill:
    return shapes.Skill(
        name=record.name,
        scope=scope,
        description=record.description,
        tags=list(record.tags),
        version=record.version,
        signature=record.function.signature if record.function is not None else "",
        uses=use.count if use is not None else 0,
        succeeded=use.ok if use is not None else 0,
        last_used=use.last if use is not None else None,
        problem=record.problem,
    )
