"""What the REST API and the dashboard may show of a gateway, and to whom."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab import lab_fold
from toolfold import Toolfold
from toolfold.gateway.views import shapes
from toolfold.gateway.views.viewer import ForbiddenError, NotFoundError, Viewer
from toolfold.gateway.views.views import Views
from toolfold.guards.context import LOCAL_CALLER
from toolfold.telemetry.activity import Activity
from toolfold.telemetry.audit_reader import Filter

pytestmark = pytest.mark.anyio

OWNER, WEB, CI = Viewer("token:1", owner=True), Viewer("web"), Viewer("ci")
CODE = "from servers.lab import add\nprint((await add(a=1, b=2))['sum'])\nopen('workspace/a.txt', 'w').write('hello')"


@dataclass
class Place:
    fold: Toolfold
    views: Views
    runs: dict[str, str]


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> AsyncIterator[Place]:
    """Two callers with one run in a session each, one of them failed, and what the audit log alone remembers."""
    data = tmp_path_factory.mktemp("views")
    (data / "runtime").symlink_to(shared_runtime)
    rules = [{"match": "lab.fail", "caller": "web", "do": "deny"}]
    async with lab_fold(data, audit=True, policy={"rules": rules}) as fold:
        forget = fold.observers.add(activity := Activity())
        await fold.run(CODE, session="mine", caller="web")
        await fold.run(f"{CODE}\nraise ValueError('no')", session="mine", caller="ci")
        forget()
        await fold.run("print('only the audit log knows')", caller="ci")
        runs = {run.caller: run.id for run in activity.recent()}
        yield Place(fold, Views(fold, activity), runs)


async def test_servers_say_how_they_are(place: Place) -> None:
    [server] = (await place.views.servers(OWNER)).servers
    assert (server.name, server.state, server.connection, server.transport) == ("lab", "listed", "ready", "stdio")
    assert server.tools > 3
    assert server.log_file == ""
    [shown] = (await place.views.servers(Viewer(LOCAL_CALLER, owner=True, person=True))).servers
    assert shown.log_file.endswith(".log")
    [less] = (await place.views.servers(WEB)).servers
    assert (less.state, less.connection) == ("listed", "")
    assert less.tools == server.tools - 1  # the one that a rule denies
    with pytest.raises(NotFoundError):
        await place.views.server(WEB, "nothing")


async def test_tools_are_those_of_the_callers_scope(place: Place) -> None:
    everything = await place.views.tools(OWNER, detail="name_only")
    less = await place.views.tools(WEB, detail="with_description")
    assert {tool.name for tool in everything.tools} - {tool.name for tool in less.tools} == {"fail"}
    assert less.tools[0].import_.startswith("from servers.lab import ")
    assert (less.tools[0].calls, less.tools[0].input_schema) == (None, {})
    first = await place.views.tools(WEB, detail="name_only", limit=2)
    assert first.next == 2
    second = await place.views.tools(WEB, detail="name_only", limit=200, offset=2)
    assert second.next is None
    assert [tool.name for tool in [*first.tools, *second.tools]] == [tool.name for tool in less.tools]
    tool = await place.views.tool(WEB, "lab", "add")
    assert set(tool.input_schema["properties"]) >= {"a", "b"}
    with pytest.raises(NotFoundError):
        await place.views.tool(WEB, "lab", "fail")
    found = await place.views.search(WEB, "add numbers", "full", 3)
    assert found.hits[0].name == "add"
    assert found.hits[0].signature


async def test_runs_are_the_callers_own_and_the_audit_log_knows_older_ones(place: Place) -> None:
    views = place.views
    [mine] = (await views.runs(WEB)).runs
    assert (mine.caller, mine.ok, mine.calls, mine.first_line) == ("web", True, 1, CODE.split("\n", maxsplit=1)[0])
    everyone = (await views.runs(OWNER)).runs
    assert [run.caller for run in everyone] == ["ci", "ci", "web"]
    assert [run.ok for run in (await views.runs(OWNER, failed=True)).runs] == [False]
    page = await views.runs(OWNER, limit=1)
    paged = page.runs
    while page.next is not None:
        page = await views.runs(OWNER, limit=1, before=page.next)
        paged += page.runs
    assert [run.id for run in paged] == [run.id for run in everyone]
    detail = await views.run(WEB, place.runs["web"])
    assert (detail.code, detail.output, detail.source) == (CODE, "3\n5", "memory")
    assert [(call.server, call.name, call.ok) for call in detail.call_list] == [("lab", "add", True)]
    older = await views.run(OWNER, everyone[0].id)
    assert (older.source, older.code, older.output) == ("audit", "print('only the audit log knows')", "")
    for strange in (place.runs["ci"], everyone[0].id, "nothing"):
        with pytest.raises(NotFoundError):
            await views.run(WEB, strange)
    with pytest.raises(ForbiddenError):
        await views.runs(WEB, caller="ci")
    with pytest.raises(NotFoundError):
        await views.runs(WEB, before="yesterday")


async def test_sessions_and_their_files_are_the_callers_own(place: Place) -> None:
    views = place.views
    assert {each.owner for each in (await views.sessions(OWNER)).sessions} == {"web", "ci"}
    [session] = (await views.sessions(WEB)).sessions
    assert (session.name, session.owner) == ("mine", "web")
    files = await views.files(WEB, "mine")
    assert [(file.name, file.size) for file in files.files] == [("a.txt", 5)]
    assert await views.file(OWNER, "mine", "a.txt", caller="web") == b"hello"
    with pytest.raises(NotFoundError):
        await views.session(OWNER, "mine")  # the owner has none of this name
    with pytest.raises(ForbiddenError):
        await views.file(CI, "mine", "a.txt", caller="web")


async def test_skills_are_the_callers_own_and_shared_ones(place: Place) -> None:
    code = (
        "from toolfold import save_skill\n"
        'save_skill(\'double_it\', \'def double_it(n: int) -> int:\\n    """Twice n."""\\n    return 2 * n\')'
    )
    result = await place.fold.run(code, caller="web")
    assert result.success, result.text
    [skill] = (await place.views.skills(WEB)).skills
    assert (skill.name, skill.scope, skill.version) == ("double-it", "user", 1)
    assert "n: int" in skill.signature
    assert "return 2 * n" in (await place.views.skill(WEB, "double_it")).source
    assert (await place.views.skills(CI)).skills == []
    assert len((await place.views.skills(OWNER, caller="web")).skills) == 1
    with pytest.raises(NotFoundError):
        await place.views.skill(CI, "double-it")


async def test_the_audit_log_of_all_is_the_owners(place: Place) -> None:
    page = await place.views.audit(OWNER, Filter())
    kinds = {type(record) for record in page.records}
    assert kinds == {shapes.AuditRun, shapes.AuditCall, shapes.AuditTool}
    mine = await place.views.audit(WEB, Filter())
    assert {getattr(record, "caller", "") for record in mine.records} == {"web"}
    [call] = (await place.views.audit(WEB, Filter(target="lab.*"))).records
    assert isinstance(call, shapes.AuditCall)
    assert (call.target, call.ok) == ("lab.add", True)
    with pytest.raises(ForbiddenError):
        await place.views.audit(WEB, Filter(caller="ci"))
    seen: list[int] = []
    before: int | None = None
    while True:
        page = await place.views.audit(OWNER, Filter(until=time.time()), limit=2, before=before)
        seen += [record.seq for record in page.records]
        before = page.next
        if before is None:
            break
    assert (
        seen
        == sorted(seen, reverse=True)
        == [record.seq for record in (await place.views.audit(OWNER, Filter())).records]
    )
    assert (await place.views.audit(OWNER, Filter(until=1.0))).records == []


async def test_counts_are_of_the_caller_or_of_all(place: Place) -> None:
    stats = await place.views.stats(OWNER)
    assert (stats.gateway.runs, stats.gateway.failed_runs, stats.gateway.calls) == (2, 1, 2)
    assert {each.caller for each in stats.callers} == {"web", "ci"}
    assert ("web", "mine") in [(each.caller, each.session) for each in stats.sessions]
    assert stats.tools[0].tool == "lab.add"
    assert stats.days[0].tokens.runs == stats.total.runs > 3
    assert stats.total.labels["tokens_saved"] in {"computed", "estimated"}
    mine = await place.views.stats(WEB)
    assert (mine.gateway.runs, mine.gateway.failed_runs, mine.callers) == (1, 0, [])
    assert {each.caller for each in mine.sessions} == {"web"}
    assert 0 < mine.total.tokens_sent < stats.total.tokens_sent
    assert (await place.views.stats(OWNER, since="2099-01-01")).total.runs == 0
    overview = await place.views.overview(OWNER)
    assert overview.servers == {"listed": 1}
    assert overview.sandbox
    assert overview.running == []


async def test_files_and_skills_that_may_hold_private_values_are_for_people_only(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir, privacy={"enabled": True, "mode": "egress"}) as fold:
        views = Views(fold, Activity())
        await fold.run("open('workspace/ada@example.com.txt', 'w').write('x')", session="s", caller="web")
        assert (await views.session(WEB, "s")).files == 1
        for viewer in (WEB, Viewer("web", owner=True)):
            with pytest.raises(ForbiddenError, match="private"):
                await views.files(viewer, "s")
            with pytest.raises(ForbiddenError, match="private"):
                await views.file(viewer, "s", "ada@example.com.txt")
        files = await views.files(Viewer("web", person=True), "s")
        assert [file.name for file in files.files] == ["ada@example.com.txt"]
