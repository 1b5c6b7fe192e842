"""The page on this machine where a person answers: what it shows, and who it listens to."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx2
import pytest

from toolfold.gateway.approval_page import FOLDER, ApprovalPage
from toolfold.guards.events import Question, Replied

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
    async with httpx2.AsyncClient(timeout=20) as client:
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
    assert await asked.reply() == (answer, "page")
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
    assert (await http.post(f"{url}/unknown", content="run", headers=key)).status_code == 404
    assert (await http.post(f"{url}/{question['id']}", content="yes", headers=key)).status_code == 400
    assert (await http.post(f"{url}/{question['id']}", content="run", headers=key)).status_code == 200
    assert await asked.reply() == ("run", "toolfold approve")
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
