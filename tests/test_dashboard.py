"""The dashboard: who gets in, what is checked, and that nothing of others becomes markup."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from tests.lab import LAB
from toolfold import Question, Toolfold
from toolfold.gateway import dashboard
from toolfold.gateway.dashboard import titles
from toolfold.gateway.dashboard.door import Door
from toolfold.gateway.dashboard.render import render, short
from toolfold.gateway.questions import Questions
from toolfold.schema.forms import read_form
from toolfold.telemetry.activity import Activity
from toolfold.telemetry.observe import SeenCall
from toolfold.telemetry.totals import Totals

pytestmark = pytest.mark.anyio


HOSTILE = "<x-bad>\"'><img src=x onerror=alert(1)>{{9**9}}\x1b[31m\u202egnp.exe\u2066"
"""Markup, quotes, a template, a colour of terminals, and marks that turn text around."""
NAMES = ("runs", "questions", "servers", "tools", "skills", "sessions", "audit")
PAGES = ["/", *(f"/dashboard/{name}" for name in NAMES)]
UNSEEN = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069]")


class Parsed(HTMLParser):
    """What a browser would make of a page: its tags, attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.shown: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        hidden = tag == "option" or ("type", "hidden") in attrs
        self.shown += [value or "" for name, value in attrs if name in ("title", "value", "aria-label") and not hidden]
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action", "hx-get")]

    def handle_data(self, data: str) -> None:
        self.shown.append(data)


@dataclass
class Site:
    """A dashboard on its own listener, and a browser's side of it."""

    door: Door
    http: httpx2.AsyncClient
    origin: str

    async def get(self, path: str = "/", **headers: str) -> httpx2.Response:
        return await self.http.get(f"{self.origin}{path}", headers=headers)

    async def post(self, path: str, data: dict[str, Any] | None = None, **headers: str) -> httpx2.Response:
        sent = {"origin": self.origin, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return await self.http.post(f"{self.origin}{path}", data=data or {}, headers=sent)

    async def parsed(self, path: str) -> Parsed:
        response = await self.get(path)
        assert response.status_code == 200, (path, response.text)
        return Parsed(response.text)

    async def csrf(self) -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', (await self.get()).text)
        assert found
        return found[1]

    async def link(self) -> str:
        return (await self.door.make_link()).removeprefix(self.origin)


@pytest.fixture(scope="module")
async def fold(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Toolfold]:
    """Over the lab, and over definitions of a server that writes markup wherever it can."""
    folder = tmp_path_factory.mktemp("dashboard")
    schema = {"type": "object", "properties": {HOSTILE: {"type": "string", "description": HOSTILE}}}
    tool = {"name": "odd", "title": HOSTILE, "description": HOSTILE, "inputSchema": schema}
    named = {"name": HOSTILE[:60], "description": "x" * 5000, "inputSchema": {"type": "object"}}
    (folder / "catalog").mkdir()
    (folder / "catalog" / "odd.json").write_text(json.dumps({"server": "odd", "tools": [tool, named]}))
    servers = {"lab": LAB, "gone": {"command": HOSTILE}}
    config = {"servers": servers, "sandbox": {"pool": 1}, "audit": {"enabled": True, "values": True}}
    async with Toolfold.open(config, catalog_dirs=(folder / "catalog",), data_dir=folder) as fold:
        await fold.listed(timeout=20)
        yield fold


@pytest.fixture
async def site(fold: Toolfold) -> AsyncGenerator[Site]:
    """Nobody is signed in yet."""
    async with Door(fold, Questions(), Activity()) as door, httpx2.AsyncClient(timeout=60) as http:
        link = await door.make_link()
        yield Site(door, http, link.partition("/dashboard")[0])


@pytest.fixture
async def inside(site: Site) -> Site:
    """A person is signed in."""
    assert (await site.post(await site.link())).status_code == 303
    return site


async def test_a_link_is_good_once_and_looking_at_it_does_not_use_it(site: Site) -> None:
    link = await site.link()
    for _ in range(3):
        assert "Open the dashboard" in (await site.get(link)).text
    assert (await site.get("/")).status_code == 401
    response = await site.post(link)
    assert response.status_code == 303
    cookie = response.headers["set-cookie"]
    for wanted in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"):
        assert wanted in cookie
    assert "<h1>Overview</h1>" in (await site.get("/")).text
    for method in (site.get, site.post):
        assert (await method(link)).status_code == 410


async def test_signing_out_ends_the_cookie_also_where_it_is_kept(inside: Site) -> None:
    kept = dict(inside.http.cookies)
    assert (await inside.post("/dashboard/sign-out", {"csrf": await inside.csrf()})).status_code == 200
    inside.http.cookies.update(kept)
    assert (await inside.get("/")).status_code == 401


async def test_wrong_links_are_limited(site: Site) -> None:
    link = await site.link()
    seen = [(await site.get(f"/dashboard/sign-in/guess{number}")).status_code for number in range(12)]
    assert seen == [410] * 10 + [429] * 2
    assert (await site.post(link)).status_code == 429


@pytest.mark.parametrize("name", ["localhost.evil.example", "evil.example:{port}", "127.0.0.1"])
async def test_another_host_is_refused(inside: Site, name: str) -> None:
    port = inside.origin.rpartition(":")[2]
    assert (await inside.get("/", host=name.format(port=port))).status_code == 403


async def test_looking_whose_process_it_is_holds_nobody_up(inside: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of connections on the machine it takes a while, and anybody can make it happen."""
    loop, others = asyncio.get_running_loop(), threading.Event()

    def look(*_: object) -> bool:
        loop.call_soon_threadsafe(others.set)
        return others.wait(5)

    monkeypatch.setattr("toolfold.gateway.dashboard.app.is_own_process", look)
    assert (await inside.get("/")).status_code == 200


async def test_a_form_needs_its_own_origin_and_token(inside: Site) -> None:
    csrf = await inside.csrf()
    path = "/dashboard/sign-out"
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", f"{inside.origin}.evil.example"):
        assert (await inside.post(path, {"csrf": csrf}, origin=origin)).status_code == 403
    for wrong in ("", "x", csrf[:-1]):
        assert (await inside.post(path, {"csrf": wrong})).status_code == 403
    # A page on another port of this machine is the same site for the cookie, but not for us.
    assert (await inside.get("/", **{"sec-fetch-site": "same-site"})).status_code == 401
    assert (await inside.get("/", **{"sec-fetch-site": "same-origin"})).status_code == 200


async def test_every_answer_has_the_strict_headers(inside: Site) -> None:
    for path in ("/", "/dashboard/nothing", "/dashboard/static/dashboard.css", "/dashboard/sign-in/x"):
        headers = (await inside.get(path)).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert (await inside.get("/")).headers["cache-control"] == "no-store"


async def test_static_files_are_only_ours(inside: Site) -> None:
    for name in ("..%2fapp.py", "%2e%2e/app.py", "htmx.LICENSE.txt", "x.js", ""):
        assert (await inside.get(f"/dashboard/static/{name}")).status_code == 404


async def test_nothing_of_others_becomes_markup(inside: Site, fold: Toolfold) -> None:
    code = f"# {HOSTILE}\nprint({HOSTILE!r})\nopen('workspace/' + {HOSTILE!r}.replace('/', ''), 'w')"
    result = await fold.run(code, session=HOSTILE)
    assert result.success, result.error
    failed = await fold.run(f"from servers.lab import fail\nawait fail(message={HOSTILE!r})", caller=HOSTILE)
    assert failed.error is not None
    runs = [f"/dashboard/runs/{run.id}" for run in inside.door.activity.recent(2)]
    session = f"/dashboard/session?{urlencode({'name': HOSTILE})}"
    query = urlencode(dict.fromkeys(("q", "caller", "session", "target", "done"), HOSTILE))
    queries = [f"{path}?{query}" for path in PAGES]
    with inside.door.questions.waiting(_question(HOSTILE), HOSTILE, HOSTILE):
        for path in [*PAGES, *runs, session, *queries]:
            text = (await inside.get(path)).text
            page = Parsed(text)
            assert "x-bad" not in page.tags, path
            assert page.attributes.isdisjoint({"onerror", "style", "onclick"}), path
            assert all(link.startswith(("/", "#")) for link in page.links), path
            assert not [each for each in page.shown if UNSEEN.search(each)], path
            assert str(9**9) not in text, path
    assert "⟨U+202E⟩" in (await inside.get(runs[1])).text


async def test_a_file_of_a_session_is_a_download_and_no_path_leads_out(inside: Site, fold: Toolfold) -> None:
    code = """
import os
os.makedirs("workspace/a")
open("workspace/a/page.html", "w").write("<script>1</script>")
os.symlink("/etc/passwd", "workspace/out")
"""
    assert (await fold.run(code, session="files")).success
    page = await inside.parsed(f"/dashboard/session?{urlencode({'name': 'files', 'path': 'a'})}")
    [link] = [link for link in page.links if link.startswith("/dashboard/file?")]
    response = await inside.get(link)
    assert response.text == "<script>1</script>"
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["content-disposition"] == "attachment; filename*=UTF-8''page.html"
    assert response.headers["x-content-type-options"] == "nosniff"
    for path in ("out", "../state.json", "../../../http-token", "/etc/passwd", "a", "none", "a\x00b"):
        for name in ("file", "session"):
            found = await inside.get(f"/dashboard/{name}?{urlencode({'name': 'files', 'path': path})}")
            assert "root:" not in found.text
            assert found.status_code in ((404, 503) if (name, path) != ("session", "a") else (200,)), (name, path)
    for caller in ("ada", "../local"):
        found = await inside.get(f"/dashboard/session?{urlencode({'name': 'files', 'caller': caller})}")
        assert found.status_code == 404


async def test_the_first_answer_counts(inside: Site) -> None:
    csrf = await inside.csrf()
    with inside.door.questions.waiting(_question("call one"), "ada", "s") as waiting:
        assert "call one" in (await inside.get("/dashboard/questions")).text
        path = f"/dashboard/questions/{waiting.id}"
        assert (await inside.post(path, {"answer": "run"})).status_code == 403
        assert not waiting.answer.done()
        response = await inside.post(path, {"answer": "run", "csrf": csrf})
        assert (response.status_code, response.headers["location"][:31]) == (303, "/dashboard/questions?done=Allow")
        assert waiting.answer.result()[:2] == ("run", "dashboard")
        response = await inside.post(path, {"answer": "no", "csrf": csrf})
        assert "Too+late" in response.headers["location"]
        assert waiting.answer.result().reply == "run"
    assert "Nothing waits for you" in (await inside.get("/dashboard/questions")).text


async def test_nothing_is_dropped_from_what_a_person_decides_on(inside: Site) -> None:
    hiding = "fine\x1b]8;;hidden\x07\x1b[../hidden/m"
    question = Question(hiding, server="files", tool=hiding, source=hiding, line=1)
    with inside.door.questions.waiting(question, "ada", None):
        page = await inside.get("/dashboard/questions")
    assert page.text.count("hidden⟨U+0007⟩⟨U+001B⟩[../hidden/m") == 3


async def test_a_server_s_form_is_filled_in_here(inside: Site) -> None:
    schema = {
        "properties": {"city": {"type": "string", "minLength": 2}, "nights": {"type": "integer", "default": 1}},
        "required": ["city"],
    }
    question = Question("Where to?", server="travel", form=read_form(schema), replies=("once", "no"))
    with inside.door.questions.waiting(question, "ada", None) as waiting:
        csrf, path = await inside.csrf(), f"/dashboard/questions/{waiting.id}"
        response = await inside.post(path, {"csrf": csrf, "answer": "once", "f0": "R", "f1": "2"})
        assert response.status_code == 422
        assert "must be at least 2 characters" in response.text
        assert 'value="R"' in response.text
        assert (await inside.post(path, {"csrf": csrf, "answer": "once", "f0": "Rome", "f1": "2"})).status_code == 303
        assert waiting.answer.result().values == {"city": "Rome", "nights": 2}


async def test_events_tell_of_output_and_questions_until_the_person_leaves(inside: Site, fold: Toolfold) -> None:
    seen: list[str] = []
    csrf = await inside.csrf()
    async with inside.http.stream("GET", f"{inside.origin}/dashboard/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.aiter_lines()
        async with asyncio.timeout(30):
            while "data: 0" not in seen:
                seen.append(await anext(lines))
            run = asyncio.create_task(fold.run("print('<live>\\x1b[31m')"))
            while not any("ended-" in line for line in seen):
                seen.append(await anext(lines))
            await run
            with inside.door.questions.waiting(_question("x"), "ada", None):
                while "data: 1" not in seen:
                    seen.append(await anext(lines))
            await inside.post("/dashboard/sign-out", {"csrf": csrf})
            run = asyncio.create_task(fold.run("print('unseen')"))
            seen += [line async for line in lines]
            await run
    assert any('"text":"<live>' in line for line in seen)
    assert not any("\x1b" in line for line in seen)


async def test_tools_are_found_and_listed(inside: Site) -> None:
    found = (await inside.get("/dashboard/tools?q=add+two+numbers")).text
    assert "<strong>" not in found
    assert '<span class="soft">lab.</span>add' in found
    listed = (await inside.get("/dashboard/tools?server=lab")).text
    assert "from servers.lab import add" in re.sub("<[^>]+>", "", listed)


async def test_a_skill_is_listed_and_shown_with_its_source(inside: Site, fold: Toolfold) -> None:
    source = 'def double(x: int) -> int:\n    """Twice x: <b>2x</b>."""\n    return 2 * x\n'
    saved = await fold.run(f"from toolfold import save_skill\nsave_skill({source!r})", caller="ada")
    assert saved.success, saved.error
    assert "No skills yet" in (await inside.get("/dashboard/skills")).text
    page = await inside.parsed("/dashboard/skills?caller=ada")
    [link] = [link for link in page.links if link.startswith("/dashboard/skills/double")]
    shown = (await inside.get(link)).text
    assert '<span class="k">return</span>' in shown
    assert "&lt;b&gt;2x" in shown


async def test_a_server_is_asked_again(inside: Site) -> None:
    csrf = await inside.csrf()
    response = await inside.post("/dashboard/servers", {"csrf": csrf, "server": "lab"})
    assert response.headers["location"] == "/dashboard/servers?done=lab+was+asked+for+its+tools."
    response = await inside.post("/dashboard/servers", {"csrf": csrf, "server": "gone"})
    assert "could+not+be+listed" in response.headers["location"]
    assert (await inside.post("/dashboard/servers", {"csrf": csrf, "server": "none"})).status_code == 404


async def test_the_audit_log_is_filtered_and_paged(inside: Site, fold: Toolfold) -> None:
    await fold.run(
        "from servers.lab import add, fail\nfor n in range(120): await add(a=n, b=1)\nawait fail(message='x')"
    )
    newest = (await inside.get("/dashboard/audit?target=lab.*")).text
    assert newest.count('<tr class="call">') == 100
    [older] = [link for link in Parsed(newest).links if "before=" in link]
    assert "target=lab" in older
    assert 'class="call"' in (await inside.get(older)).text
    await fold.run("from servers.lab import add\nawait add(a=1, b=1)")
    assert "1 calls" not in (await inside.get("/dashboard/audit")).text
    assert 'data-label="call">1<' in (await inside.get("/dashboard/runs")).text
    failed = (await inside.get("/dashboard/audit?target=lab.fail&failed=1")).text
    assert "lab.fail" in failed
    assert "lab.add" not in failed
    assert "No record matches" in (await inside.get("/dashboard/audit?since=2999-01-01")).text
    for odd in (
        "since=x",
        "until=9999-12-31",
        "before=99999999999999999999",
        "before=-1",
        "decision=%00",
        f"before={'9' * 5000}",
        "offset=1e9",
        f"offset={'9' * 5000}",
    ):
        for page in ("audit", "tools"):
            assert (await inside.get(f"/dashboard/{page}?{odd}")).status_code == 200, (page, odd)


async def test_tools_of_a_run_are_counted_only_as_far_as_its_calls_are_known() -> None:
    calls = [SeenCall(str(number), "tool", "lab", "add", None, 0.0) for number in range(3)]
    assert titles.tools(calls, 3) == "lab.add × 3"
    assert titles.tools(calls, 2500) == "lab.add × 3 and 2,497 more calls"


async def test_a_form_that_breaks_off_is_no_error_of_ours(inside: Site, caplog: pytest.LogCaptureFixture) -> None:
    address, _, port = inside.origin.removeprefix("http://").partition(":")
    cookie = "; ".join(f"{name}={value}" for name, value in inside.http.cookies.items())
    head = f"Host: {address}:{port}\r\nOrigin: {inside.origin}\r\nCookie: {cookie}\r\nContent-Length: 99\r\n\r\ncsrf"
    reader, writer = await asyncio.open_connection(address, int(port))
    writer.write(f"POST /dashboard/sign-out HTTP/1.1\r\n{head}".encode())
    writer.write_eof()
    async with asyncio.timeout(20):
        await reader.read()
    writer.close()
    assert (await inside.get("/")).status_code == 200
    assert caplog.messages == []


async def test_a_run_that_only_the_audit_log_knows_is_not_called_running(fold: Toolfold) -> None:
    """It may be one of another process, or of one that was killed."""
    begun = asyncio.Event()
    code = "import asyncio\nprint('begun', flush=True)\nawait asyncio.sleep(60)"
    run = asyncio.create_task(fold.run(code, on_event=lambda _: begun.set()))
    async with asyncio.timeout(20):
        await begun.wait()
    async with Door(fold, Questions(), Activity()) as door, httpx2.AsyncClient(timeout=60) as http:
        link = await door.make_link()
        site = Site(door, http, link.partition("/dashboard")[0])
        assert (await site.post(await site.link())).status_code == 303
        [newest, *_] = re.findall("/dashboard/runs/[0-9a-f]+", (await site.get("/dashboard/runs")).text)
        for path in ("/", "/dashboard/runs", newest, "/dashboard/audit"):
            page = (await site.get(path)).text
            assert "0.00 ms" not in page, path
            assert "not ended</span>" in page, path
            assert "running</span>" not in page, path
    run.cancel()
    await asyncio.wait([run])


def test_a_log_that_is_off_promises_no_records() -> None:
    shown: dict[str, Any] = {"records": [], "next": "", "page": "audit", "csrf": "", "waiting": 0}
    for enabled in (True, False):
        asked = SimpleNamespace(target="", caller="", session="", decision="", since="", until="", failed="", any=False)
        page = render("audit.html", enabled=enabled, asked=asked, **shown)
        assert ("They appear with the first run" in page) is enabled


@pytest.mark.parametrize(
    "path", ["/dashboard/runs/none", "/dashboard/skills/none", "/dashboard/x", "/dashboard/session"]
)
async def test_what_is_not_there_is_not_found(inside: Site, path: str) -> None:
    assert (await inside.get(path)).status_code == 404


async def test_the_first_page_stays_small(inside: Site) -> None:
    """The figure of the whole page with all that it loads, uncompressed."""
    page = await inside.parsed("/")
    loaded = {link for link in page.links if link.startswith("/dashboard/static/")}
    assert len(loaded) >= 5
    sizes = [len((await inside.get(path)).content) for path in ("/", *loaded)]
    assert sum(sizes) <= 150_000


async def test_a_loss_is_not_told_as_a_saving(inside: Site, fold: Toolfold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold.ledger, "totals", lambda: Totals(tokens_direct=100, tokens_sent=150))
    assert "50.0 % more than direct calls" in (await inside.get("/")).text
    monkeypatch.setattr(fold.ledger, "totals", lambda: Totals(tokens_direct=150, tokens_sent=75))
    assert ">50.0 % less than direct calls" in (await inside.get("/")).text


def test_short_numbers() -> None:
    assert [short(each) for each in (9_999, 12_345, 999_999, -1_234_567, 999_999_999)] == [
        "9,999", "12.3 k", "1000 k", "-1.23 M", "1000 M",
    ]  # fmt: skip


def test_the_parts_of_others_are_vendored_with_their_licences() -> None:
    folder = Path(dashboard.__file__).parent / "static"
    for name in ("htmx", "uPlot"):
        assert (folder / f"{name}.LICENSE.txt").read_text()


def _question(text: str) -> Question:
    return Question(text, server=text[:50], tool="note", arguments=(text,), line=1, source=text)
