"""A page on this machine where a person answers, for clients that cannot show a form.

It has a listener of its own, on loopback only, which starts with the first question. No client ever connects to it: an
agent's token opens nothing here. A browser comes with a link that is good for one answer; `toolfold approve` comes with
a key from a file that only the owner of the data folder can read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolfold.gateway import approval_html as html
from toolfold.gateway.connections import Connections
from toolfold.gateway.http import listen
from toolfold.gateway.peer import is_own_process
from toolfold.gateway.questions import OpenQuestion, Questions
from toolfold.schema.forms import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

    from toolfold.guards.events import Question, Replied

    Announce = Callable[[Question, str], None]
    """Tells the person about a question; the second argument is the link to it."""

FOLDER = "approvals"
"""In the data folder: a file for each gateway that has asked something, with its port and key."""
_HOST = "127.0.0.1"
_BODY_LIMIT = 4096
_FORM_LIMIT = 512 * 1024
"""Bytes of an answer to a question with a form."""
_BODY_TIMEOUT = 10.0


class ApprovalPage:
    """Puts questions to the person at this machine, until it is closed."""

    def __init__(self, data_dir: Path, announce: Announce, questions: Questions | None = None) -> None:
        """`questions` are those that others may answer as well."""
        self._folder = data_dir / FOLDER
        self._announce = announce
        self._key = secrets.token_urlsafe(32)
        self._open = Questions() if questions is None else questions
        self._port = 0
        self._starting = asyncio.Lock()
        self._stack = contextlib.AsyncExitStack()

    async def close(self) -> None:
        await self._stack.aclose()

    async def ask(self, question: Question, caller: str, session: str | None) -> Replied:
        """Wait for the person's answer. When this is cancelled the question is gone, and its link leads nowhere."""
        async with self._starting:
            if not self._port:
                try:
                    await self._start()
                except BaseException:
                    await self._stack.aclose()
                    raise
        with self._open.waiting(question, caller, session) as waiting:
            self._announce(question, f"http://{_HOST}:{self._port}/approve/{waiting.token}")
            return await waiting.answer

    async def _start(self) -> None:
        sock = listen(_HOST, 0)
        port: int = sock.getsockname()[1]
        await self._stack.enter_async_context(Connections(self, sock))
        file = self._folder / f"{os.getpid()}-{secrets.token_hex(4)}.json"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        self._stack.callback(file.unlink, missing_ok=True)
        with os.fdopen(descriptor, "w", encoding="ascii") as written:
            json.dump({"port": port, "key": self._key}, written)
        self._port = port

    # What the listener serves

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = scope["state"].pop("connection")
        try:
            response = await self._respond(Request(scope, receive), connection)
            await response(scope, receive, send)
        except asyncio.CancelledError:
            return  # the end of the gateway; the connection is closed already

    async def _respond(self, request: Request, connection: Any) -> Response:
        is_named_right = request.headers.getlist("host") == [f"{_HOST}:{self._port}"]
        if not is_named_right or not await asyncio.to_thread(is_own_process, request.client, self._port):
            return html.page(html.REFUSED, 403)
        match request.url.path.split("/"):
            case ["", "approve", token]:
                return await self._page(request, token, connection)
            case ["", "questions", *rest]:
                return await self._questions(request, rest, connection)
            case _:
                return html.page(html.NOT_FOUND, 404)

    async def _page(self, request: Request, token: str, connection: Any) -> Response:
        waiting = next((each for each in self._open if _same(each.token, token)), None)
        if waiting is None:
            return html.page(html.GONE, 410)
        connection.prove()
        if request.method == "GET":
            return html.page(html.question(waiting.question, waiting.caller, waiting.session))
        # Browsers always say where a form was sent from; a form of another site is refused.
        if request.method != "POST" or request.headers.getlist("origin") != [f"http://{_HOST}:{self._port}"]:
            return html.page(html.REFUSED, 403)
        sent = parse_qs((await _body(request, waiting)).decode("ascii", "replace"), keep_blank_values=True)
        reply = sent.get("answer", [""])
        form = waiting.question.form
        typed = html.typed(form, sent) if form is not None else {}
        try:
            if len(reply) != 1 or not waiting.give(reply[0], "page", typed, prefilled=True):
                return html.page(html.REFUSED, 400)
        except InvalidValueError as error:
            return html.page(html.question(waiting.question, waiting.caller, waiting.session, typed, str(error)), 422)
        if form is not None:
            return html.page(html.DECLINED if reply[0] == "no" else html.SENT)
        return html.page(html.DENIED if reply[0] == "no" else html.ALLOWED)

    async def _questions(self, request: Request, rest: list[str], connection: Any) -> Response:
        """For `toolfold approve`."""
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not _same(self._key, key) or "origin" in request.headers:
            return JSONResponse({"error": "the key of this gateway is required"}, 401)
        connection.prove()
        if not rest and request.method == "GET":
            return JSONResponse([_described(waiting) for waiting in self._open])
        waiting = self._open.get(rest[0]) if len(rest) == 1 else None
        if waiting is None:
            return JSONResponse({"error": "no such question: it was answered, or nobody waits for it any more"}, 404)
        reply, typed = _told(await _body(request, waiting))
        try:
            if request.method == "POST" and waiting.give(reply, "toolfold approve", typed):
                return JSONResponse({})
        except InvalidValueError as error:
            return JSONResponse({"error": str(error)}, 422)
        return JSONResponse({"error": "not an answer to this question"}, 400)


def _same(secret: str, given: str) -> bool:
    return hmac.compare_digest(secret.encode(), given.encode())


def _described(waiting: OpenQuestion) -> dict[str, Any]:
    question = waiting.question
    return {
        "id": waiting.id,
        "text": question.text,
        "server": question.server,
        "tool": question.tool,
        "waiting": question.waiting,
        "replies": question.replies,
        "form": None if question.form is None else msgspec.to_builtins(question.form),
        "caller": waiting.caller,
        "session": waiting.session,
        "since": waiting.since,
    }


def _told(body: bytes) -> tuple[str, dict[str, str]]:
    """The answer that `toolfold approve` sends, and what was typed into each field."""
    try:
        told = json.loads(body)
        return str(told["reply"]), {str(name): str(text) for name, text in told.get("typed", {}).items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        return "", {}


async def _body(request: Request, waiting: OpenQuestion) -> bytes:
    """The body; what is too long or too slow is empty."""
    limit = _BODY_LIMIT if waiting.question.form is None else _FORM_LIMIT
    body = bytearray()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_BODY_TIMEOUT):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    return b""
            return bytes(body)
    return b""
