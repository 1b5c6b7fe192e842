"""The page on this machine where a person answers: what it shows, and who it listens to."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from toolfold.gateway.approval_page import FOLDER, ApprovalPage
from toolfold.guards.events import Question, Replied
from toolfold.schema.forms import read_form, url_form

pytestmark = pytest.mark.anyio

QUESTION = Question(
    "the text",
    server="<b>ledger</b>",
    tool="note",
    arguments=('text="<script>alert(1)</script>"', "(no arguments)"),
    line=3,
    source="await note(text='&amp;')",
    waiting=50,
)


class Asked:
    """A question that was put, and the link that the person got."""

    def __init__(self, page: ApprovalPage, folder: Path, links: asyncio.Queue[str]) -> None:
        self.page = page
        self.folder = folder
        self._links = links
        self.answer: asyncio.Task[Replied] | None = None
        self.link = ""

    @property
    def origin(self) -> str:
        return self.link.partition("/approve/")[0]

    async def ask(self, question: Question = QUESTION) -> None:
        self.answer = asyncio.create_task(self.page.ask(question, "ada", "s"))
        async with asyncio.timeout(20):
            self.link = await self._links.get()

    async def reply(self) -> Replied:
        assert self.answer is not None
        async with asyncio.timeout(20):
            return await self.answer


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncGenerator[Asked]:
    links: asyncio.Queue[str] = asyncio.Queue()
    page = ApprovalPage(tmp_path, lambda _question, link: links.put_nowait(link))
    made = Asked(page, tmp_path, links)
    try:
        await made.ask()
        yield made
    finally:
        if made.answer is not None:
            made.answer.cancel()
        await page.close()


@pytest.fixture
async def http() -> AsyncGenerator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=60) as client:
        yield client


async def press(http: httpx2.AsyncClient, asked: Asked, answer: str, **headers: str) -> int:
    response = await http.post(asked.link, data={"answer": answer}, headers={"origin": asked.origin, **headers})
    return response.status_code


async def test_it_shows_the_question_and_nothing_of_it_becomes_markup(asked: Asked, http: httpx2.AsyncClient) -> None:
    response = await http.get(asked.link)
    assert response.status_code == 200
    shown = response.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert "&lt;b&gt;ledger&lt;/b&gt;.note" in shown
    for text in (
        "50 calls wait",
        "and 48 more calls",
        "Line 3",
        "&#x27;&amp;amp;&#x27;",
        "ada",
        "Allow these 50 calls",
    ):
        assert text in shown
    assert "<script" not in shown
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    for wanted in ("form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert wanted in policy
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("answer", ["once", "run", "session", "no"])
async def test_a_button_is_the_answer_and_the_link_works_once(
    asked: Asked, http: httpx2.AsyncClient, answer: str
) -> None:
    assert await press(http, asked, answer) == 200
    assert (await asked.reply())[:2] == (answer, "page")
    assert await press(http, asked, "run") == 410
    assert (await http.get(asked.link)).status_code == 410


async def test_a_question_in_a_guard_s_own_words_is_shown_as_it_is(asked: Asked, http: httpx2.AsyncClient) -> None:
    assert asked.answer is not None
    asked.answer.cancel()
    await asked.ask(Question("Send <this>\nto everybody?"))
    shown = (await http.get(asked.link)).text
    assert "<h1>Allow this?</h1>" in shown
    assert "Send &lt;this&gt;\nto everybody?" in shown


async def test_looking_at_the_page_answers_nothing(asked: Asked, http: httpx2.AsyncClient) -> None:
    assert asked.answer is not None
    for url in (asked.link, f"{asked.link}?answer=run"):
        assert (await http.get(url)).status_code == 200
    assert (await http.head(asked.link)).status_code == 403
    assert not asked.answer.done()


async def test_forms_of_other_sites_and_other_names_of_this_machine_are_refused(
    asked: Asked, http: httpx2.AsyncClient
) -> None:
    assert asked.answer is not None
    port = asked.origin.rpartition(":")[2]
    assert (await http.post(asked.link, data={"answer": "run"})).status_code == 403  # no origin
    for origin in ("null", "https://evil.example", f"http://localhost:{port}", f"https://127.0.0.1:{port}"):
        assert await press(http, asked, "run", origin=origin) == 403
    for host in ("evil.example", f"localhost:{port}", f"evil.example:{port}", "127.0.0.1"):
        assert await press(http, asked, "run", host=host) == 403
        assert (await http.get(asked.link, headers={"host": host})).status_code == 403
    assert not asked.answer.done()


@pytest.mark.parametrize("answer", ["", "yes", "ONCE", "once\n", "sudo"])
async def test_what_is_no_answer_leaves_the_question_open(asked: Asked, http: httpx2.AsyncClient, answer: str) -> None:
    assert await press(http, asked, answer) == 400
    assert await press(http, asked, "no") == 200
    assert (await asked.reply()).reply == "no"


async def test_two_answers_in_one_form_are_none(asked: Asked, http: httpx2.AsyncClient) -> None:
    headers = {"origin": asked.origin, "content-type": "application/x-www-form-urlencoded"}
    for body in (b"answer=no&answer=run", b"answer=run&" + b"x" * 100_000, b"\xff\xfe", b""):
        assert (await http.post(asked.link, content=body, headers=headers)).status_code == 400
    assert asked.answer is not None
    assert not asked.answer.done()


async def test_guessed_links_lead_nowhere(asked: Asked, http: httpx2.AsyncClient) -> None:
    for path in ("/", "/approve", "/approve/", f"/approve/{'x' * 43}", "/approve/é", "/approve/a/b", "/mcp"):
        assert (await http.get(f"{asked.origin}{path}")).status_code in (404, 410)


async def test_a_question_that_is_taken_back_is_gone(asked: Asked, http: httpx2.AsyncClient) -> None:
    assert asked.answer is not None
    asked.answer.cancel()
    await asyncio.wait([asked.answer])
    assert (await http.get(asked.link)).status_code == 410
    assert await press(http, asked, "run") == 410


async def test_each_question_has_a_link_of_its_own(asked: Asked, http: httpx2.AsyncClient) -> None:
    first, first_answer = asked.link, asked.answer
    await asked.ask(Question("another", server="ledger", tool="echo"))
    assert first_answer is not None
    assert await press(http, asked, "run") == 200
    assert (await asked.reply()).reply == "run"
    assert not first_answer.done()
    assert (await http.get(first)).status_code == 200
    first_answer.cancel()


async def test_the_key_is_for_the_owner_and_the_file_ends_with_the_gateway(
    asked: Asked, http: httpx2.AsyncClient
) -> None:
    [file] = (asked.folder / FOLDER).iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    told = json.loads(file.read_text())
    assert told["key"] not in asked.link
    assert file.read_text().find(asked.link.rpartition("/")[2]) < 0
    url = f"http://127.0.0.1:{told['port']}/questions"
    key = {"authorization": f"Bearer {told['key']}"}
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": told["key"]}, {**key, "origin": "null"}):
        assert (await http.get(url, headers=headers)).status_code == 401
    [question] = (await http.get(url, headers=key)).json()
    assert (question["text"], question["caller"], question["session"]) == ("the text", "ada", "s")
    assert asked.link.rpartition("/")[2] not in json.dumps(question)
    assert (await http.post(f"{url}/{question['id']}", content="run")).status_code == 401
    assert (await http.post(f"{url}/unknown", json={"reply": "run"}, headers=key)).status_code == 404
    for wrong in ("run", '{"reply": "yes"}', '["run"]', '{"reply": ["run"]}', '{"reply": "run", "typed": 1}'):
        assert (await http.post(f"{url}/{question['id']}", headers=key, content=wrong)).status_code == 400
    assert (await http.post(f"{url}/{question['id']}", json={"reply": "run"}, headers=key)).status_code == 200
    assert await asked.reply() == Replied("run", "toolfold approve")
    assert (await http.get(url, headers=key)).json() == []
    await asked.page.close()
    assert not file.exists()
    with pytest.raises(httpx2.TransportError):
        await http.get(url, headers=key)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can connect as somebody else")
async def test_another_user_of_the_machine_is_refused_even_with_the_link(asked: Asked) -> None:
    port = int(asked.origin.rpartition(":")[2])
    path = asked.link.removeprefix(asked.origin)
    request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n"

    def status(user: int) -> bytes:
        os.seteuid(user)
        try:
            connection = socket.socket()
        finally:
            os.seteuid(0)
        with connection:
            connection.settimeout(20)
            connection.connect(("127.0.0.1", port))
            connection.sendall(request.encode())
            return connection.recv(4096).split(b"\r\n")[0]

    assert b"403" in await asyncio.to_thread(status, 65534)
    assert b"200" in await asyncio.to_thread(status, 0)


class TestForms:
    """What a server asks for in the middle of a call."""

    FORM = read_form(
        {
            "type": "object",
            "properties": {
                '"><b>city': {
                    "type": "string",
                    "title": "<i>City</i>",
                    "description": "<u>where</u>",
                    "default": '">x',
                },
                "nights": {"type": "integer", "minimum": 1},
                "ok": {"type": "boolean", "default": True},
                "room": {"type": "string", "enum": ["s,1", "d"], "enumNames": ["<s>Single", "Double"]},
            },
            "required": ["nights"],
        }
    )
    ASKED = Question("text", server="<b>hotel", tool="book", arguments=("<p>hi",), replies=("once", "no"), form=FORM)

    async def test_nothing_of_it_becomes_markup(self, asked: Asked, http: httpx2.AsyncClient) -> None:
        await asked.ask(self.ASKED)
        shown = (await http.get(asked.link)).text
        for wrong in ("<b>hotel", "<i>City", "<u>why", "<p>hi", "<s>Single", '"><b>city', 'value="">x'):
            assert wrong not in shown
        for right in ("The server <code>&lt;b&gt;hotel", "&lt;i&gt;City&lt;/i&gt;", 'value="&quot;&gt;x"', "Decline"):
            assert right in shown

    async def test_values_are_checked_and_sent(self, asked: Asked, http: httpx2.AsyncClient) -> None:
        await asked.ask(self.ASKED)
        headers = {"origin": asked.origin}
        filled = {"answer": "once", "f0": "Rhône & <x>", "f1": "0", "f3": "1"}
        wrong = await http.post(asked.link, data=filled, headers=headers)
        assert wrong.status_code == 422
        assert "nights must be at least 1." in wrong.text
        assert 'value="Rhône &amp; &lt;x&gt;"' in wrong.text
        assert (await http.post(asked.link, data={**filled, "f1": "2"}, headers=headers)).status_code == 200
        values = {'"><b>city': "Rhône & <x>", "nights": 2, "ok": False, "room": "s,1"}
        assert await asked.reply() == Replied("once", "page", values=values)

    async def test_declining_needs_no_values(self, asked: Asked, http: httpx2.AsyncClient) -> None:
        await asked.ask(self.ASKED)
        assert await press(http, asked, "no") == 200
        assert await asked.reply() == Replied("no", "page")

    async def test_an_address_is_a_link_that_tells_nothing_about_this_page(
        self, asked: Asked, http: httpx2.AsyncClient
    ) -> None:
        await asked.ask(replace(self.ASKED, form=url_form("https://pay.example/x?a=1&b=<y>")))
        shown = (await http.get(asked.link)).text
        assert 'href="https://pay.example/x?a=1&amp;b=&lt;y&gt;" target="_blank" rel="noopener noreferrer"' in shown
        assert "<strong>pay.example</strong>" in shown
        assert await press(http, asked, "once") == 200
        assert await asked.reply() == Replied("once", "page")
