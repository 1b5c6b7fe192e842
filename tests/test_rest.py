"""The REST API of a real gateway over HTTP: what each endpoint answers, and to whom."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import warm
from tests.asking import SERVER as LEDGER
from tests.asking import called
from tests.lab import LAB
from tests.test_privacy_runs import EVERYTHING, leaks
from toolfold import Toolfold
from toolfold.gateway.http import serve_http
from toolfold.gateway.questions import Questions
from toolfold.guards.events import Question, Replied, Reply

pytestmark = pytest.mark.anyio

TOKENS = {"owner": "owner", "web": "token of web", "ci": "token of ci", "dora": "token of dora"}
OWNER = f"token:{hashlib.sha256(b'owner').hexdigest()[:8]}"
ADD = "from servers.lab import add\nprint((await add(a=1, b=2))['sum'])\nopen('workspace/a.txt', 'w').write('hello')"
NOTE = "from servers.ledger import note\nprint(await note(text='the secret' + ' value'))"
SNEAKED = """
from toolfold import get_prompt, read_resource
globals()[ada["email"]] = "a variable"
for call, *names in (
    (get_prompt, "people", ada["email"]), (get_prompt, ada["email"], "x"), (read_resource, ada["email"], "x:/y")
):
    try:
        await call(*names)
    except Exception:
        pass
"""
ENDLESS = "import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.01)"


@dataclass
class Person:
    """The one at the gateway's machine."""

    asked: asyncio.Queue[Question] = field(default_factory=asyncio.Queue[Question])
    answers: asyncio.Queue[Reply] = field(default_factory=asyncio.Queue[Reply])

    questions: Questions = field(default_factory=Questions)

    async def __call__(self, question: Question, caller: str, session: str | None) -> Replied:
        self.asked.put_nowait(question)
        return Replied(await self.answers.get(), "page")


@dataclass
class Gateway:
    fold: Toolfold
    url: str
    person: Person
    data: Path

    @asynccontextmanager
    async def client(self, who: str = "owner") -> AsyncGenerator[httpx2.AsyncClient]:
        headers = {"authorization": f"Bearer {TOKENS[who]}"}
        async with httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=60) as client:
            yield client

    async def get(self, path: str, who: str = "owner", /, **query: Any) -> httpx2.Response:
        async with self.client(who) as client:
            return await client.get(f"/api/v1{path}", params=query)

    async def read(self, path: str, who: str = "owner", /, **query: Any) -> Any:
        answer = await self.get(path, who, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def run(self, code: str, who: str = "owner", **more: Any) -> Any:
        async with self.client(who) as client:
            answer = await client.post("/api/v1/run", json={"code": code, **more})
            assert answer.status_code == 200, answer.text
            return answer.json()


@asynccontextmanager
async def serving(data: Path, **settings: Any) -> AsyncGenerator[Gateway]:
    known = {
        name: {"token_sha256": hashlib.sha256(token.encode()).hexdigest()}
        for name, token in TOKENS.items()
        if name != "owner"
    }
    callers = {**known, "web": {**known["web"], "host": True}, "dora": {**known["dora"], "mode": "direct"}}
    ledger = {"command": sys.executable, "args": [str(LEDGER), str(data / "ledger.jsonl")]}
    rules = [{"match": "ledger.note", "do": "ask"}, {"match": "lab.fail", "caller": "ci", "do": "deny"}]
    config = {
        "servers": {"lab": LAB, "ledger": ledger},
        "callers": callers,
        "policy": {"rules": rules},
        "sandbox": {"pool": 1},
        **settings,
    }
    person = Person()
    async with Toolfold.open(config, data_dir=data) as fold:
        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(
            serve_http(fold, "127.0.0.1", 0, token="owner", started=started.set_result, ask_locally=person)
        )
        try:
            yield Gateway(fold, (await started).removesuffix("/mcp"), person, data)
        finally:
            serving.cancel()
            await asyncio.wait([serving])


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> AsyncIterator[Gateway]:
    """One gateway for all tests, in which web and ci have run a program each, in sessions of one name."""
    data = tmp_path_factory.mktemp("rest")
    (data / "runtime").symlink_to(shared_runtime)
    async with serving(data, audit=True) as found:
        assert (await found.run(ADD, "web", session="a/b"))["success"]
        assert not (await found.run(f"{ADD}\nraise ValueError('no')", "ci", session="a/b"))["success"]
        yield found


async def test_a_program_is_run_and_answered(gateway: Gateway) -> None:
    answer = await gateway.run("from servers.lab import add\nprint('one')\nawait add(a=1, b=2)")
    assert (answer["success"], answer["output"], answer["value"]) == (True, "one\n{'sum': 3}", {"sum": 3})
    [call] = answer["calls"]
    assert (call["server"], call["name"], call["ok"]) == ("lab", "add", True)
    assert (await gateway.read(f"/runs/{answer['run']}"))["output"] == answer["output"]
    assert "arguments" not in call
    failed = await gateway.run("1 / 0")
    assert (failed["success"], failed["error"]["line"]) == (False, 1)
    assert "ZeroDivisionError" in failed["error"]["text"]
    big = await gateway.run("2 ** 200")
    assert big["value"] == 2**200
    assert (await gateway.run("x = 1", session="kept"))["session"] == "kept"
    assert (await gateway.run("x + 1", session="kept"))["value"] == 2
    assert not (await gateway.run("x", session="new"))["success"]
    late = await gateway.run("import time\ntime.sleep(60)", timeout=0.5)
    assert late["error"]["code"] == "limit"


async def test_search_and_tools_are_those_of_the_caller(gateway: Gateway) -> None:
    found = await gateway.read("/mcp/tools/search", query="add", detail_level="full", limit=1)
    assert found["hits"][0]["import"] == "from servers.lab import add"
    assert found["hits"][0]["input_schema"]["required"] == ["a", "b"]
    assert found["text"].startswith("1 of ")
    assert "servers" in (await gateway.read("/mcp/tools/search"))["text"]
    tools = await gateway.read("/tools", server="lab")
    assert "fail" in [tool["name"] for tool in tools["tools"]]
    hidden = await gateway.read("/tools", "ci", server="lab", detail_level="with_description")
    assert "fail" not in [tool["name"] for tool in hidden["tools"]]
    assert "calls" not in hidden["tools"][0]
    assert (await gateway.read("/tools/lab/add"))["signature"].startswith("async def add(")
    assert (await gateway.get("/tools/lab/fail", "ci")).status_code == 404
    page = await gateway.read("/tools", limit=2)
    assert (len(page["tools"]), page["next"]) == (2, 2)


async def test_servers_show_their_health(gateway: Gateway) -> None:
    servers = {server["name"]: server for server in (await gateway.read("/servers"))["servers"]}
    assert set(servers) == {"lab", "ledger"}
    assert (servers["lab"]["state"], servers["lab"]["connection"]) == ("listed", "ready")
    assert (await gateway.read("/servers/lab", "ci"))["connection"] == ""
    assert (await gateway.get("/servers/none")).status_code == 404


async def test_callers_see_their_own_runs_sessions_files_and_records(gateway: Gateway) -> None:
    for who, ok in (("web", True), ("ci", False)):
        [run] = (await gateway.read("/runs", who, session="a/b"))["runs"]
        assert (run["caller"], run["ok"], run["calls"]) == (who, ok, 1)
        detail = await gateway.read(f"/runs/{run['id']}", who)
        assert detail["code"].startswith(ADD)
        assert detail["output"].startswith("3\n")
        [call] = detail["call_list"]
        assert (call["server"], call["name"], call["ok"], call["line"]) == ("lab", "add", True, 2)
        stranger = "ci" if who == "web" else "web"
        assert (await gateway.get(f"/runs/{run['id']}", stranger)).status_code == 404
        [session] = (await gateway.read("/sessions", who))["sessions"]
        assert (session["name"], session["owner"]) == ("a/b", who)
        assert {record.get("caller") for record in (await gateway.read("/audit", who))["records"]} == {who}
    files = await gateway.read("/sessions/a%2Fb/files", "web")
    assert [(file["name"], file["size"]) for file in files["files"]] == [("a.txt", 5)]
    content = await gateway.get("/sessions/a%2Fb/files/content", "web", path="a.txt")
    assert (content.content, content.headers["content-type"]) == (b"hello", "application/octet-stream")
    assert content.headers["content-disposition"] == "attachment"
    for file, status in (("none.txt", 404), ("../state.json", 404), (".", 404), ("", 400)):
        assert (await gateway.get("/sessions/a%2Fb/files/content", "web", path=file)).status_code == status
    for path in ("/runs", "/sessions", "/audit", "/stats", "/skills"):
        refused = await gateway.get(path, "ci", caller="web")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert (await gateway.get("/sessions/a%2Fb/files", "ci", caller="web")).status_code == 403


async def test_the_owner_sees_what_all_callers_do(gateway: Gateway) -> None:
    runs = (await gateway.read("/runs", limit=500))["runs"]
    assert {"web", "ci"} <= {run["caller"] for run in runs}
    assert {run["ok"] for run in (await gateway.read("/runs", failed="true"))["runs"]} == {False}
    page = await gateway.read("/runs", limit=1)
    assert page["runs"] == runs[:1]
    assert (await gateway.read("/runs", limit=1, before=page["next"]))["runs"] == runs[1:2]
    assert {"web", "ci"} <= {session["owner"] for session in (await gateway.read("/sessions"))["sessions"]}
    assert (await gateway.read("/sessions/a%2Fb", caller="web"))["owner"] == "web"
    assert (await gateway.get("/sessions/a%2Fb")).status_code == 404
    records = (await gateway.read("/audit", target="lab.*"))["records"]
    assert {record["type"] for record in records} == {"call", "tool"}
    assert {"web", "ci"} <= {record.get("caller") for record in records}
    stats = await gateway.read("/stats")
    assert stats["gateway"]["runs"] > (await gateway.read("/stats", "web"))["gateway"]["runs"] > 0
    assert stats["total"]["runs"] == stats["gateway"]["runs"]
    assert {"web", "ci"} <= {each["caller"] for each in stats["callers"]}
    assert (await gateway.read("/overview"))["servers"] == {"listed": 2}


async def test_skills_are_listed_with_their_source(gateway: Gateway) -> None:
    code = "def twice(n: int) -> int:\n    '''Two times n.'''\n    return 2 * n"
    saved = await gateway.run(f"from toolfold import save_skill\nsave_skill('twice', {code!r})", "web")
    assert saved["success"], saved
    [skill] = (await gateway.read("/skills", "web"))["skills"]
    assert (skill["name"], skill["scope"]) == ("twice", "user")
    assert "return 2 * n" in (await gateway.read("/skills/twice", "web"))["source"]
    assert (await gateway.get("/skills/twice", "ci")).status_code == 404
    assert (await gateway.read("/skills/twice", caller="web"))["version"] == 1


# Streams


@asynccontextmanager
async def streaming(gateway: Gateway, code: str, who: str = "owner", **more: Any) -> AsyncGenerator[AsyncIterator[Any]]:
    """The events of a run as pairs of name and data."""
    async with (
        gateway.client(who) as client,
        client.stream(
            "POST", "/api/v1/run", json={"code": code, **more}, headers={"accept": "text/event-stream"}
        ) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"

        async def events() -> AsyncIterator[Any]:
            name = ""
            async for line in answer.aiter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    yield name, json.loads(line.removeprefix("data: "))

        yield events()


async def test_a_run_is_streamed_event_by_event(gateway: Gateway) -> None:
    code = "from toolfold import progress\nprogress('half', 0.5)\n" + ADD
    async with streaming(gateway, code) as events:
        seen = [event async for event in events]
    kinds = [kind for kind, _ in seen]
    assert kinds[-1] == "finished"
    assert [kind for kind in kinds if kind != "output"] == ["progress", "call", "call", "finished"]
    assert "".join(data["text"] for kind, data in seen if kind == "output") == "3\n5"
    assert [data["ok"] for kind, data in seen if kind == "call"] == [None, True]
    assert seen[-1][1]["success"]


async def test_a_client_that_leaves_ends_its_program(gateway: Gateway) -> None:
    async with streaming(gateway, ENDLESS, session="left") as events:
        assert await anext(aiter(events)) == ("output", {"text": "begun\n", "lost": 0})
        [running] = (await gateway.read("/overview"))["running"]
    async with asyncio.timeout(15):
        while (await gateway.read(f"/runs/{running['id']}"))["ok"] is None:
            await asyncio.sleep(0.02)
    assert (await gateway.read(f"/runs/{running['id']}"))["error_code"] == "cancelled"


async def test_a_client_that_leaves_without_a_stream_ends_its_program(gateway: Gateway) -> None:
    waiting = asyncio.create_task(gateway.run(ENDLESS))
    async with asyncio.timeout(20):
        while not (running := (await gateway.read("/overview"))["running"]):
            await asyncio.sleep(0.02)
        waiting.cancel()
        while (await gateway.read("/overview"))["running"]:
            await asyncio.sleep(0.02)
    assert (await gateway.read(f"/runs/{running[0]['id']}"))["error_code"] == "cancelled"


async def test_a_body_that_breaks_off_is_no_error_of_ours(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    address, _, port = gateway.url.removeprefix("http://").partition(":")
    head = "Authorization: Bearer owner\r\nContent-Type: application/json\r\nContent-Length: 99\r\n"
    reader, writer = await asyncio.open_connection(address, int(port))
    writer.write(f"POST /api/v1/run HTTP/1.1\r\nHost: {address}:{port}\r\n{head}\r\n{{".encode())
    writer.write_eof()
    async with asyncio.timeout(20):
        await reader.read()
    writer.close()
    await gateway.read("/servers")
    assert caplog.messages == []


async def test_a_slow_reader_loses_output_and_is_told(gateway: Gateway) -> None:
    code = "for _ in range(300): print('x' * 20_000)\nfrom servers.ledger import note\nawait note(text='x')"
    async with streaming(gateway, code) as events:
        async with asyncio.timeout(20):
            await gateway.person.asked.get()  # all is printed, and nothing was read
        gateway.person.answers.put_nowait("no")
        seen = [event async for event in events]
    output = [data for kind, data in seen if kind == "output"]
    lost = sum(data["lost"] for data in output)
    assert lost + sum(len(data["text"]) for data in output) == 300 * 20_001
    assert seen[-1][0] == "finished"


@pytest.mark.parametrize("reply", ["once", "no"])
async def test_a_person_is_asked_and_the_client_does_not_see_what_they_see(gateway: Gateway, reply: Reply) -> None:
    before = len(called(gateway.data))
    async with streaming(gateway, NOTE) as events:
        seen: list[Any] = []
        async for kind, data in events:
            seen.append((kind, data))
            if kind == "question":
                question = await gateway.person.asked.get()
                assert "the secret value" in question.text
                assert data == {"call": question.call, "kind": "tool", "server": "ledger", "waiting": 1}
                assert len(called(gateway.data)) == before
                gateway.person.answers.put_nowait(reply)
    assert seen[-1][1]["success"] == (reply == "once")
    assert "the secret value" not in json.dumps(seen)
    assert len(called(gateway.data)) == before + (reply == "once")


# What is refused


async def test_bad_requests_are_told_apart(gateway: Gateway) -> None:
    kind = {"content-type": "application/json"}
    async with gateway.client() as client:
        for body, headers, status in (
            (b'{"code": ', kind, 400),
            (b'{"code": "\xff"}', kind, 400),
            (b"[]", kind, 422),
            (b"{}", kind, 422),
            (b'{"code": 1}', kind, 422),
            (b'{"code": "", "other": 1}', kind, 422),
            (b'{"code": "", "timeout": 0}', kind, 422),
            (b'{"code": "", "timeout": 31}', kind, 422),
            (b'{"code": "", "context": {"a": "b"}}', kind, 403),
            (b'{"code": "1"}', {"content-type": "text/plain"}, 415),
            (b'{"code": "1"}', {}, 415),
            (b'{"code": "%s"}' % (b"x" * 5_000_000), kind, 413),
        ):
            answer = await client.post("/api/v1/run", content=body, headers=headers)
            assert (answer.status_code, body[:40]) == (status, body[:40])
            assert set(answer.json()["error"]) == {"code", "message", "hint"}
        for path, status in (
            ("/runs?limit=x", 400),
            ("/runs?limit=0", 400),
            ("/runs?limit=1&limit=2", 400),
            ("/runs?nothing=1", 400),
            ("/runs?failed=yes", 400),
            ("/runs?before=yesterday", 400),
            ("/audit?since=nan", 400),
            ("/mcp/tools/search?detail_level=all", 400),
            ("/sessions/%FF", 400),
            ("/sessions/@1/files", 404),
            ("/nothing", 404),
            ("/runs/", 404),
            ("/", 404),
        ):
            answer = await client.get(f"/api/v1{path}")
            assert (path, answer.status_code) == (path, status)
            assert answer.json()["error"]["message"]


async def test_methods_are_told(gateway: Gateway) -> None:
    async with gateway.client() as client:
        refused = await client.delete("/api/v1/runs")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
        assert (await client.get("/api/v1/run")).headers["allow"] == "OPTIONS, POST"
        head = await client.head("/api/v1/stats")
        assert (head.status_code, head.content) == (200, b"")
        options = await client.options("/api/v1/run")
        assert (options.status_code, options.headers["allow"]) == (204, "OPTIONS, POST")
        assert "access-control-allow-origin" not in options.headers


async def test_only_callers_pass_and_no_page_of_another_site(gateway: Gateway) -> None:
    async with httpx2.AsyncClient(base_url=gateway.url) as client:
        for headers in ({}, {"authorization": "Bearer x"}):
            answer = await client.get("/api/v1/stats", headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
    async with gateway.client() as client:
        for headers in (
            {"host": "evil.example"},
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        ):
            assert (await client.get("/api/v1/stats", headers=headers)).status_code == 403
            assert (await client.post("/api/v1/run", json={"code": "1"}, headers=headers)).status_code == 403
        assert (await client.get("/api/v1/stats", headers={"origin": gateway.url})).status_code == 200


async def test_callers_who_are_offered_no_programs_run_none(gateway: Gateway) -> None:
    async with gateway.client("dora") as client:
        refused = await client.post("/api/v1/run", json={"code": "print(1)"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
        assert (await client.get("/api/v1/tools")).status_code == 200


async def test_host_applications_give_context(gateway: Gateway) -> None:
    code = "from toolfold import context\nprint(context.user_id, context.org)"
    async with gateway.client("web") as client:
        headers = {"toolfold-context": json.dumps({"user_id": "7", "org": "header"})}
        answer = await client.post("/api/v1/run", json={"code": code, "context": {"org": "body"}}, headers=headers)
        assert answer.json()["output"] == "7 body\n"


async def test_health_and_readiness_say_no_more_than_they_must(gateway: Gateway) -> None:
    async with httpx2.AsyncClient(base_url=gateway.url) as client:
        assert (await client.get("/healthz")).json() == {"alive": True}
        assert (await client.get("/readyz")).json() == {"ready": True}
        assert (await client.post("/healthz")).status_code == 405
        assert (await client.get("/readyz", headers={"authorization": "Bearer x"})).json() == {"ready": True}
    async with gateway.client() as client:
        ready = (await client.get("/readyz")).json()
    assert (ready["ready"], ready["servers"]) == (True, {"listed": 2})
    assert ready["sandbox"]


async def test_a_gateway_that_cannot_run_programs_is_not_ready(runtime_dir: Path) -> None:
    broken = {
        "servers": {"gone": {"command": "/nonexistent/server"}},
        "sandbox": {"backend": "container", "image": "x"},
    }
    async with serving(runtime_dir, **broken) as gateway, gateway.client() as client:
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["ready"]) == (503, False)
        refused = await client.post("/api/v1/run", json={"code": "1"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "sandbox_unavailable")
        assert refused.headers["retry-after"]
        streamed = await client.post("/api/v1/run", json={"code": "1", "stream": True})
        assert streamed.status_code in (200, 503)
        assert "sandbox_unavailable" in streamed.text
        async with asyncio.timeout(20):
            while (answer := await client.get("/readyz")).json()["sandbox"] == "starting":
                await asyncio.sleep(0.02)
        assert answer.json()["sandbox"].startswith("No ") or "container" in answer.json()["sandbox"]
        audit = (await client.get("/api/v1/audit")).json()
        assert (audit["enabled"], audit["records"]) == (False, [])


async def test_a_gateway_that_cannot_record_is_not_ready_until_it_can(runtime_dir: Path) -> None:
    async def ready(client: httpx2.AsyncClient) -> tuple[int, bool]:
        async with asyncio.timeout(60):
            while (answer := await client.get("/readyz")).json()["sandbox"] == "starting":
                await asyncio.sleep(0.02)
        assert ("audit" in answer.json()) is (answer.status_code == 503)
        return answer.status_code, answer.json()["ready"]

    (runtime_dir / "audit.db").mkdir()
    async with serving(runtime_dir, servers={}, audit=True) as gateway, gateway.client() as client:
        assert await ready(client) == (503, False)
        assert "audit log cannot be written" in (await client.get("/readyz")).json()["audit"]
        refused = await client.post("/api/v1/run", json={"code": "1"})
        assert refused.json()["error"]["code"] == "audit"
        (runtime_dir / "audit.db").rmdir()
        assert await ready(client) == (200, True), "without any run meanwhile"
        assert (await client.post("/api/v1/run", json={"code": "1"})).json()["success"]
        (runtime_dir / "audit.db").unlink()
        (runtime_dir / "audit.db").mkdir()
        refused = await client.post("/api/v1/run", json={"code": "1"})
        assert refused.json()["error"]["code"] == "audit"
        assert await ready(client) == (503, False)


async def test_too_many_runs_are_refused_and_nobody_is_asked_where_nobody_is_there(runtime_dir: Path) -> None:
    async with serving(runtime_dir, run_limit=1, run_queue=0, approval={"without_form": "deny"}) as gateway:
        async with streaming(gateway, ENDLESS) as events:
            await anext(aiter(events))
            async with gateway.client() as client:
                refused = await client.post("/api/v1/run", json={"code": "1"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "limit")
        async with asyncio.timeout(20):
            while (await gateway.read("/overview"))["running"]:
                await asyncio.sleep(0.02)
        denied = await gateway.run(NOTE)
        assert "no way to ask one here" in denied["error"]["text"]
        assert gateway.person.asked.empty()


async def test_a_client_may_leave_while_a_person_decides(runtime_dir: Path) -> None:
    async with serving(runtime_dir, approval={"on_disconnect": "wait"}) as gateway:
        async with streaming(gateway, NOTE) as events:
            while (await anext(aiter(events)))[0] != "question":
                pass
        for _ in range(3):  # requests that come after the client has left: by then it is noticed
            assert len((await gateway.read("/overview"))["running"]) == 1
        gateway.person.answers.put_nowait("once")
        async with asyncio.timeout(20):
            while (await gateway.read("/overview"))["running"]:
                await asyncio.sleep(0.02)
        [run] = (await gateway.read("/runs"))["runs"]
        assert (run["ok"], run["error"]) == (True, "")
        assert len(called(gateway.data)) == 1


async def test_no_private_value_is_told(runtime_dir: Path) -> None:
    people = {
        "command": warm.python(),
        "args": [str(LEDGER.parent / "people.py"), str(runtime_dir / "sent.jsonl")],
    }
    audit = {"enabled": True, "values": True}
    async with serving(runtime_dir, servers={"people": people}, privacy={"mode": "egress"}, audit=audit) as gateway:
        told: list[Any] = []
        async with streaming(gateway, EVERYTHING, session="s") as events:
            told += [event async for event in events]
        assert told[-1][1]["success"], told[-1]
        told.append(await gateway.run("raise ValueError(ada['email'] + ada['name'])", session="s"))
        told.append(await gateway.run(SNEAKED, session="s"))
        assert len(told[-1]["calls"]) == 3, told[-1]
        runs = (await gateway.read("/runs"))["runs"]
        paths = ["/runs", *(f"/runs/{run['id']}" for run in runs), "/sessions", "/audit", "/stats", "/skills"]
        told += [await gateway.read(path) for path in paths]
        for path in ("/sessions/s/files", "/sessions/s/files/content"):
            refused = await gateway.get(path, path="people.json")
            assert (refused.status_code, "private" in refused.text) == (403, True)
            told.append(refused.text)
    told += [file.read_text() for file in (runtime_dir / "ledger").glob("*.jsonl")]
    assert leaks(*(json.dumps(each) for each in told)) == []
