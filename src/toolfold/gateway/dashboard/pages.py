"""What each page shows."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.responses import RedirectResponse, Response

from toolfold.gateway.dashboard import asking, titles
from toolfold.gateway.dashboard.events import Streams
from toolfold.gateway.dashboard.highlight import highlight
from toolfold.gateway.dashboard.render import Rendered, plain, render
from toolfold.gateway.dashboard.timeline import calls_by_line, timeline
from toolfold.gateway.views import shapes
from toolfold.gateway.views.viewer import NotFoundError, Viewer
from toolfold.gateway.views.views import Views
from toolfold.guards.context import LOCAL_CALLER
from toolfold.telemetry.audit_reader import Filter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from toolfold.gateway.dashboard.door import Door
    from toolfold.gateway.dashboard.sign_in import Person
    from toolfold.telemetry.totals import Totals

Shown = tuple[str, dict[str, Any]]
"""A template, and what it shows."""

_DAYS = 30
_FEWEST_DAYS = 14
_LATEST_RUNS = 8
_RUNS = 50
_RECORDS = 100
_TOOLS = 100
_HITS = 20
_REFRESH_TIMEOUT = 10.0
_NOTHING = "There is nothing at this address."


class Pages:
    """All of them are for the owner, who is a person: no model reads them."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._fold = door.fold
        self._views = Views(door.fold, door.activity)
        self._viewer = Viewer(LOCAL_CALLER, owner=True, person=True)
        self._streams = Streams(door)
        self._pages = {
            "runs": self._runs,
            "questions": self._questions,
            "servers": self._servers,
            "tools": self._tools,
            "skills": self._skills,
            "sessions": self._sessions,
            "session": self._session,
            "audit": self._audit,
        }

    async def get(self, parts: list[str], request: Request, person: Person) -> Rendered | Response:
        asked = request.query_params
        match parts:
            case ["dashboard", "runs", run]:
                shown = await self._run(run)
            case ["dashboard", "skills", name]:
                shown = await self._skill(name, asked)
            case ["dashboard", "file"]:
                return await self._file(asked)
            case ["dashboard", "events"]:
                return Response(status_code=503) if self._streams.is_full else self._streams.response(person)
            case ["" | "dashboard"]:
                shown = await self._overview(asked)
            case ["dashboard", page] if page in self._pages:
                shown = await self._pages[page](asked)
            case _:
                raise NotFoundError(_NOTHING)
        return self._page(shown, person)

    async def post(self, parts: list[str], sent: dict[str, list[str]], person: Person) -> Rendered | Response:
        match parts:
            case ["dashboard", "questions", number]:
                said, problem = asking.answered(self._door.questions, number, sent)
                if problem is not None:
                    return self._page(self._open_questions("", problem), person)
                return RedirectResponse(f"/dashboard/questions?{urlencode({'done': said})}", 303)
            case ["dashboard", "servers"]:
                said = await self._refresh(sent.get("server", [""])[0])
                return RedirectResponse(f"/dashboard/servers?{urlencode({'done': said})}", 303)
            case _:
                raise NotFoundError(_NOTHING)

    def _page(self, shown: Shown, person: Person) -> Rendered:
        name, values = shown
        page = {"run": "runs", "skill": "skills", "session": "sessions"}.get(name, name)
        return render(f"{name}.html", page=page, csrf=person.csrf, waiting=len(self._door.questions), **values)

    # Runs

    async def _overview(self, asked: Mapping[str, str]) -> Shown:
        seen = await self._views.overview(self._viewer)
        runs = await self._views.runs(self._viewer, limit=_LATEST_RUNS)
        today = datetime.now(UTC).date()
        days = await asyncio.to_thread(self._fold.ledger.by_day, since=today - timedelta(days=_DAYS - 1))
        total = await asyncio.to_thread(self._fold.ledger.totals)
        return "overview", {
            "seen": seen,
            "total": total,
            "days": list(days.items()),
            "chart": _chart(days, today),
            "runs": [self._row(run) for run in runs.runs],
            "servers": len(self._fold.settings.servers),
            "up": (time.time() - self._door.since) * 1000,
        }

    async def _runs(self, asked: Mapping[str, str]) -> Shown:
        wanted = _asked(asked, "caller", "session", "failed")
        before = asked.get("before")
        page = await self._views.runs(
            self._viewer,
            limit=_RUNS,
            before=before,
            caller=wanted.caller or None,
            session=wanted.session or None,
            failed=bool(wanted.failed),
        )
        # Those under way are shown with their output, on the first page.
        running = [] if before or wanted.failed else [run for run in page.runs if self._is_running(run)]
        return "runs", {
            "asked": wanted,
            "here": f"/dashboard/runs?{urlencode(dict(asked))}",
            "callers": await self._callers(),
            "running": [self._row(await self._views.run(self._viewer, run.id)) for run in running],
            "runs": [self._row(run) for run in page.runs if run not in running],
            "next": _with("/dashboard/runs", asked, before=page.next),
        }

    def _is_running(self, run: shapes.Run) -> bool:
        return run.ok is None and self._door.activity.get(run.id) is not None

    def _row(self, run: shapes.Run) -> dict[str, Any]:
        known = self._door.activity.get(run.id)
        if known is None:
            return {"run": run, "title": plain(run.first_line, 200), "tools": "", "source": "audit"}
        tools = titles.tools(known.calls, known.call_count)
        return {"run": run, "title": titles.title(known.code), "tools": tools, "source": "memory"}

    async def _run(self, number: str) -> Shown:
        run = await self._views.run(self._viewer, number)
        bars, ticks = timeline(run)
        return "run", {
            "run": run,
            "name": titles.title(run.code) or plain(run.first_line, 160),
            "here": f"/dashboard/runs/{quote(run.id, safe='')}",
            "lines": highlight(run.code) if run.code else [],
            "marks": calls_by_line(run),
            "timeline": bars,
            "ticks": ticks,
        }

    # Questions and servers

    async def _questions(self, asked: Mapping[str, str]) -> Shown:
        return self._open_questions(asked.get("done", ""))

    def _open_questions(self, done: str, problem: Any = None) -> Shown:
        return "questions", {
            "questions": asking.shown_questions(self._door.questions, problem),
            "problem": problem,
            "done": done if done in asking.MESSAGES else "",
        }

    async def _servers(self, asked: Mapping[str, str]) -> Shown:
        found = await self._views.servers(self._viewer)
        return "servers", {"servers": found.servers, "done": asked.get("done", "")}

    async def _refresh(self, server: str) -> str:
        if server not in self._fold.settings.servers:
            raise NotFoundError(f"There is no server {server[:100]!r}.")
        try:
            async with asyncio.timeout(_REFRESH_TIMEOUT):
                await self._fold.refresh([server])
        except TimeoutError:
            return f"{server} has been asked, and has not answered yet."
        failed = self._fold.unlisted.get(server)
        return f"{server} was asked for its tools." if failed is None else f"{server} could not be listed."

    # Tools and skills

    async def _tools(self, asked: Mapping[str, str]) -> Shown:
        query, server = asked.get("q", "").strip()[:500], asked.get("server", "")
        if query:
            # Not `fold.search`: what a person looks up is not counted as an agent's search.
            answer = await self._fold.live.search(
                query, detail="full", limit=_HITS, server=server or None, scope=self._fold.scope(LOCAL_CALLER)
            )
            tools, total, following = msgspec.convert(answer.rows(), list[shapes.Tool]), answer.total, None
        else:
            offset = _whole(asked.get("offset", "")) or 0
            page = await self._views.tools(
                self._viewer, server=server or None, detail="full", limit=_TOOLS, offset=offset
            )
            tools, following = page.tools, page.next
            total = sum(each.tools for each in self._fold.catalog.servers if server in ("", each.name))
        return "tools", {
            "query": query,
            "server": server,
            "tools": [_tool(tool) for tool in tools],
            "total": total,
            "next": _with("/dashboard/tools", asked, offset=following),
        }

    async def _skills(self, asked: Mapping[str, str]) -> Shown:
        caller = asked.get("caller") or LOCAL_CALLER
        found = await self._views.skills(self._viewer, caller=caller)
        return "skills", {"skills": found.skills, "caller": caller, "callers": await self._callers(caller)}

    async def _skill(self, name: str, asked: Mapping[str, str]) -> Shown:
        caller = asked.get("caller") or LOCAL_CALLER
        skill = await self._views.skill(self._viewer, name, caller=caller)
        return "skill", {"skill": skill, "caller": caller, "lines": highlight(skill.source) if skill.source else []}

    async def _callers(self, *more: str) -> list[str]:
        """Those that are known here."""
        sessions = await self._views.sessions(self._viewer)
        return sorted(
            {LOCAL_CALLER, *more, *self._fold.settings.callers}
            | {session.owner for session in sessions.sessions}
            | {run.caller for run in self._door.activity.recent(500)}
        )

    # Sessions and their files

    async def _sessions(self, asked: Mapping[str, str]) -> Shown:
        return "sessions", {"sessions": (await self._views.sessions(self._viewer)).sessions}

    async def _session(self, asked: Mapping[str, str]) -> Shown:
        name, caller, path = asked.get("name", ""), asked.get("caller") or LOCAL_CALLER, asked.get("path", "")
        session = await self._views.session(self._viewer, name, caller=caller)
        listing = await self._views.files(self._viewer, name, path, caller=caller)
        names = [each for each in path.split("/") if each]

        def link(page: str, parts: list[str]) -> str:
            return f"/dashboard/{page}?{urlencode({'caller': caller, 'name': name, 'path': '/'.join(parts)})}"

        pages = {"folder": "session", "file": "file"}
        return "session", {
            "session": session,
            "top": link("session", []),
            "above": [(each, link("session", names[: depth + 1])) for depth, each in enumerate(names)],
            "files": [
                (file, link(pages[file.kind], [*names, file.name]) if file.kind in pages else "")
                for file in listing.files
            ],
            "more": listing.more,
        }

    async def _file(self, asked: Mapping[str, str]) -> Response:
        """A file as a download: nothing that a program wrote is ever shown by the browser."""
        name, caller, path = asked.get("name", ""), asked.get("caller") or LOCAL_CALLER, asked.get("path", "")
        data = await self._views.file(self._viewer, name, path, caller=caller)
        shown = plain(path.rpartition("/")[2], 200) or "file"
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(shown, safe='')}"}
        return Response(data, 200, headers, "application/octet-stream")

    # The audit log

    async def _audit(self, asked: Mapping[str, str]) -> Shown:
        wanted = _asked(asked, "target", "caller", "session", "decision", "since", "until", "failed")
        until = _day(wanted.until)
        page = await self._views.audit(
            self._viewer,
            Filter(
                caller=wanted.caller,
                session=wanted.session,
                target=wanted.target,
                decision=wanted.decision,
                failed=bool(wanted.failed),
                since=_day(wanted.since) or 0.0,
                until=float("inf") if until is None else until + 86400,
            ),
            limit=_RECORDS,
            before=_whole(asked.get("before", "")),
        )
        kinds = {"AuditRun": "run", "AuditCall": "call", "AuditTool": "tool"}
        return "audit", {
            "enabled": page.enabled,
            "asked": wanted,
            "records": [(kinds[type(each).__name__], each) for each in page.records],
            "next": _with("/dashboard/audit", asked, before=page.next),
        }


def _asked(asked: Mapping[str, str], *names: str) -> SimpleNamespace:
    """What the filters say; `any` is whether one of them narrows it."""
    found = {name: asked.get(name, "").strip()[:200] for name in names}
    return SimpleNamespace(**found, any=any(found.values()))


def _with(path: str, asked: Mapping[str, str], **more: Any) -> str:
    """The address of the next page; empty where there is none."""
    if None in more.values():
        return ""
    return f"{path}?{urlencode({**asked, **more})}"


def _whole(text: str) -> int | None:
    """What a link of ours has in it; None for anything else."""
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def _day(text: str) -> float | None:
    """When a day begins here, in seconds since 1970."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None


def _chart(sums: Mapping[str, Totals], today: date) -> str:
    """Days, tokens of direct calls and tokens that were sent, for uPlot: from the first day on, at least two weeks."""
    first = min([today - timedelta(days=_FEWEST_DAYS - 1), *map(date.fromisoformat, sums)])
    days = [first + timedelta(days=number) for number in range((today - first).days + 1)]
    found = [sums.get(str(day)) for day in days]
    moments = [int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) for day in days]
    direct = [each and each.tokens_direct for each in found]
    return json.dumps([moments, direct, [each and each.tokens_sent for each in found]])


def _tool(tool: shapes.Tool) -> dict[str, Any]:
    """A tool as the page shows it."""
    source = "\n".join(filter(None, [tool.import_, tool.signature]))
    return {
        "server": tool.server,
        "name": tool.name,
        "kind": tool.kind,
        "warning": tool.warning,
        "calls": tool.calls or 0,
        "description": tool.description,
        "about": plain(tool.description.strip().split("\n")[0], 160),
        "lines": highlight(source) if source else [],
    }
