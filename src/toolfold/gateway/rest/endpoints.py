"""The table of everything that can be read. Adding an endpoint is adding a row; `openapi.py` documents it from that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from toolfold.gateway.rest import parameters as p
from toolfold.gateway.views import shapes
from toolfold.gateway.views.viewer import Viewer
from toolfold.gateway.views.views import Views
from toolfold.telemetry.audit_reader import Filter

Handle = Callable[[Viewer, Mapping[str, str], Any], Awaitable[Any]]
"""With who asks, the parts of the path that have names, and the query."""


@dataclass(frozen=True)
class Endpoint:
    path: str
    """Below /api/v1; `{name}` is one part of the path, in which a slash is written as %2F."""
    summary: str
    answers: type[Struct] | type[bytes]
    handle: Handle
    query: type[Struct] = p.Nothing
    description: str = ""

    @property
    def parts(self) -> list[str]:
        return self.path.split("/")[1:]

    @property
    def names(self) -> list[str]:
        return [part[1:-1] for part in self.parts if part.startswith("{")]


def endpoints(views: Views) -> list[Endpoint]:
    return [
        Endpoint(
            "/mcp/tools/search",
            "Search tools, skills, resources and prompts",
            shapes.Search,
            lambda viewer, _, q: views.search(viewer, q.query, q.detail_level, q.limit),
            p.SearchQuery,
            "As `search_tools` over MCP. An empty query lists the servers; `server:NAME` lists one of them.",
        ),
        Endpoint(
            "/tools",
            "List tools",
            shapes.Tools,
            lambda viewer, _, q: views.tools(
                viewer, server=q.server, detail=q.detail_level, limit=q.limit, offset=q.offset
            ),
            p.ToolsQuery,
        ),
        Endpoint(
            "/tools/{server}/{name}",
            "One tool with its schemas",
            shapes.Tool,
            lambda viewer, path, _: views.tool(viewer, path["server"], path["name"]),
        ),
        Endpoint(
            "/servers", "List servers with their health", shapes.Servers, lambda viewer, _, __: views.servers(viewer)
        ),
        Endpoint(
            "/servers/{name}",
            "One server",
            shapes.Server,
            lambda viewer, path, _: views.server(viewer, path["name"]),
        ),
        Endpoint(
            "/runs",
            "List runs, the newest first",
            shapes.Runs,
            lambda viewer, _, q: views.runs(
                viewer, limit=q.limit, before=q.before, caller=q.caller, session=q.session, failed=q.failed
            ),
            p.RunsQuery,
            "The last few hundred of this gateway, and older ones where the audit log is written.",
        ),
        Endpoint(
            "/runs/{run}",
            "One run with its program, output and calls",
            shapes.RunDetail,
            lambda viewer, path, _: views.run(viewer, path["run"]),
        ),
        Endpoint(
            "/sessions",
            "List sessions, the last used first",
            shapes.Sessions,
            lambda viewer, _, q: views.sessions(viewer, caller=q.caller, limit=q.limit),
            p.SessionsQuery,
        ),
        Endpoint(
            "/sessions/{session}",
            "One session",
            shapes.SessionInfo,
            lambda viewer, path, q: views.session(viewer, path["session"], caller=q.caller),
            p.CallerQuery,
        ),
        Endpoint(
            "/sessions/{session}/files",
            "List the files of a session",
            shapes.Files,
            lambda viewer, path, q: views.files(viewer, path["session"], q.path, caller=q.caller),
            p.FilesQuery,
            "Where personal values are kept private, files are not shown here: they may hold such values.",
        ),
        Endpoint(
            "/sessions/{session}/files/content",
            "The bytes of one file of a session, up to 10 MB",
            bytes,
            lambda viewer, path, q: views.file(viewer, path["session"], q.path, caller=q.caller),
            p.FileQuery,
        ),
        Endpoint(
            "/skills",
            "List skills",
            shapes.Skills,
            lambda viewer, _, q: views.skills(viewer, caller=q.caller),
            p.CallerQuery,
        ),
        Endpoint(
            "/skills/{name}",
            "One skill with its source",
            shapes.SkillDetail,
            lambda viewer, path, q: views.skill(viewer, path["name"], caller=q.caller),
            p.CallerQuery,
        ),
        Endpoint(
            "/audit",
            "Read the audit log, the newest first",
            shapes.Audit,
            lambda viewer, _, q: views.audit(viewer, _filter(q), limit=q.limit, before=q.before),
            p.AuditQuery,
            "A caller reads its own records; the owner reads all.",
        ),
        Endpoint(
            "/stats",
            "Counts of runs, calls and searches, and what they saved",
            shapes.Stats,
            lambda viewer, _, q: views.stats(viewer, caller=q.caller, since=q.since),
            p.StatsQuery,
        ),
        Endpoint(
            "/overview",
            "The gateway at a glance",
            shapes.Overview,
            lambda viewer, _, __: views.overview(viewer),
        ),
    ]


def _filter(q: p.AuditQuery) -> Filter:
    return Filter(
        caller=q.caller or "",
        session=q.session or "",
        run=q.run or "",
        target=q.target or "",
        decision=q.decision or "",
        failed=q.failed,
        since=q.since or 0.0,
        until=q.until if q.until is not None else float("inf"),
    )
