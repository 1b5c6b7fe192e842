"""The first answers over HTTP, given while the SDK is still being imported (see `greeting.py`).

Only what is plainly a first question from where questions may come is answered here; everything else waits for the
SDK. It gets what was answered here as well, and its answers are dropped: so it knows the sessions that began.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import TYPE_CHECKING

from toolfold.gateway.greeting import MODERN, Greeting

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SMALL = 64 * 1024
_MOST = 256
"""Messages that are kept for the SDK; later ones wait for it."""
_BODY_TIMEOUT = 30.0
_JSON, _EVENTS = b"application/json", b"text/event-stream"


class EarlyEndpoint:
    """The ASGI application at /mcp until `become` has named the one that does all of it.

    `hosts` are the accepted `Host` headers (none: any); `greet` makes what answers one client of
    a caller, or None where only the SDK can.
    """

    def __init__(self, hosts: Collection[str], greet: Callable[[str], Greeting | None]) -> None:
        self._hosts = {host.encode() for host in hosts}
        self._greet = greet
        self._greetings: dict[tuple[str, str], Greeting] = {}
        self._answered: list[tuple[Scope, bytes]] = []
        self._endpoint: asyncio.Future[ASGIApp] = asyncio.get_running_loop().create_future()

    async def become(self, endpoint: ASGIApp) -> None:
        while self._answered:
            scope, body = self._answered.pop(0)
            await endpoint(scope, _received([{"type": "http.request", "body": body, "more_body": False}]), _drop)
        self._endpoint.set_result(endpoint)
        self._greetings.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._endpoint.done():
            headers = dict(scope["headers"])
            if self._is_plain(scope, headers):
                message = await _first(receive)
                answer = self._answer(scope, headers, message)
                if answer is not None:
                    await _send(send, *answer)
                    return
                receive = _received([message] if message else [], receive)
        await (await self._endpoint)(scope, receive, send)

    def _is_plain(self, scope: Scope, headers: dict[bytes, bytes]) -> bool:
        accepted = headers.get(b"accept", b"")
        return (
            scope["method"] == "POST"
            and len(headers) == len(scope["headers"])
            and (not self._hosts or headers.get(b"host") in self._hosts)
            and b"origin" not in headers
            and headers.get(b"content-type") == _JSON
            and _JSON in accepted
            and _EVENTS in accepted
        )

    def _answer(self, scope: Scope, headers: dict[bytes, bytes], message: Message) -> tuple[bytes, str] | None:
        """The body and the session it belongs to."""
        body = message.get("body", b"")
        if self._endpoint.done() or message.get("more_body") or len(body) > _SMALL or len(self._answered) >= _MOST:
            return None
        session = headers.get(b"mcp-session-id", b"").decode("latin-1")
        caller = scope["state"]["caller"]
        greeting = self._greetings.get((caller, session)) if session else self._greet(caller)
        answer = None if greeting is None else greeting.answer_to(body)
        if greeting is None or answer is None or not greeting.version:
            return None
        if headers.get(b"mcp-protocol-version", greeting.version.encode()) != greeting.version.encode():
            return None
        if greeting.version == MODERN:
            mirrored = b"mcp-protocol-version" in headers and headers.get(b"mcp-method") == _method(body)
            return (answer[1], "") if mirrored else None
        begins, session = not session, session or secrets.token_hex(16)
        self._greetings[caller, session] = greeting
        if begins or answer[0] is None:
            self._answered.append(({**scope, "state": {**scope["state"], "new_session": session}}, body))
        return answer[1], session if begins else ""


async def _first(receive: Receive) -> Message:
    """The first part of the body; an empty message if it does not come in time."""
    try:
        async with asyncio.timeout(_BODY_TIMEOUT):
            return await receive()
    except TimeoutError:
        return {}


def _method(body: bytes) -> bytes:
    return json.loads(body)["method"].encode()


def _received(messages: list[Message], receive: Receive | None = None) -> Receive:
    """Receives these messages first."""

    async def next_message() -> Message:
        if not messages and receive is None:
            await asyncio.Event().wait()
        return messages.pop(0) if messages or receive is None else await receive()

    return next_message


async def _drop(message: Message) -> None:
    pass


async def _send(send: Send, body: bytes, session: str) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    headers += [(b"content-type", _JSON)] if body else []
    headers += [(b"mcp-session-id", session.encode())] if session else []
    await send({"type": "http.response.start", "status": 200 if body else 202, "headers": headers})
    await send({"type": "http.response.body", "body": body})
