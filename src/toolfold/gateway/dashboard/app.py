"""The dashboard: pages for the person who runs this gateway, at / and below /dashboard/.

Nothing here can be read or done without the cookie of a person who came with a one-time link. An agent's bearer token
is not even looked at, and the cookie opens nothing elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from toolfold.errors import ToolfoldError
from toolfold.gateway.dashboard.pages import Pages
from toolfold.gateway.dashboard.render import Rendered, render
from toolfold.gateway.dashboard.sign_in import COOKIE_SECONDS, Person
from toolfold.gateway.peer import is_own_process
from toolfold.gateway.views.viewer import NotFoundError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from toolfold.gateway.dashboard.door import Address, Door

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not `no-referrer`: with it, browsers hide the origin of a form too. Other sites get nothing either way.
    "Referrer-Policy": "same-origin",
}
_log = logging.getLogger(__name__)
_STATIC = Path(__file__).parent / "static"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_BODY_LIMIT = 512 * 1024
_BODY_TIMEOUT = 10.0


class Dashboard:
    """An ASGI application."""

    def __init__(self, door: Door, address: Address) -> None:
        self._hosts = frozenset(address.hosts)
        self._port = address.port
        self._own_only = address.own_only
        # Cookies of one host go to every port of it: several gateways must not overwrite each other's.
        self._cookie = f"toolfold-{address.port}"
        self._sign_in = door.sign_in
        self._command = door.command
        self._pages = Pages(door)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = scope["state"].pop("connection", None)
        request = Request(scope, receive)
        try:
            try:
                response = await self._respond(request, connection)
            except NotFoundError as error:
                response = _page(render("message.html", title="Not found", text=str(error)), 404)
            except ToolfoldError as error:
                response = _page(render("message.html", title="This cannot be shown", text=str(error)), 503)
            except ClientDisconnect:
                return  # before it had sent its form
            except Exception:
                _log.exception("A page of the dashboard failed: %s", request.scope["path"])
                text = "The log of the gateway says why."
                response = _page(render("message.html", title="Something went wrong", text=text), 500)
            response.headers.update(_HEADERS)
            response.headers.setdefault("Cache-Control", "no-store")
            await response(scope, receive, send)
        except asyncio.CancelledError:
            return  # the end of the gateway; the connection is closed already

    async def _respond(self, request: Request, connection: Any) -> Response:
        named = request.headers.getlist("host")
        if len(named) != 1 or (self._hosts and named[0] not in self._hosts):
            return _refused("This address is not one that the gateway answers to.")
        if self._own_only and not await asyncio.to_thread(is_own_process, request.client, self._port):
            return _refused("Only the user who runs this gateway may see its dashboard.")
        if request.method not in ("GET", "HEAD", "POST"):
            return Response(status_code=405, headers={"Allow": "GET, HEAD, POST"})
        parts = request.scope["path"].strip("/").split("/")
        if parts[:2] == ["dashboard", "static"] and len(parts) == 3:
            return _static(parts[2])
        # Browsers always say where a form was sent from, and newer ones where any request comes from.
        if request.method == "POST" and not _is_own_origin(request.headers.getlist("origin"), named[0]):
            return _refused("This form was sent from another site.")
        if parts[:2] == ["dashboard", "sign-in"] and len(parts) == 3:
            return self._signing_in(request, parts[2])
        cookie = request.cookies.get(self._cookie, "")
        person = self._sign_in.person(cookie)
        if person is None or request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            # A part of a page that cannot be fetched any more becomes the whole page that says why.
            headers = {"HX-Refresh": "true"} if "hx-request" in request.headers else {}
            return _page(self._signed_out(), 401, headers)
        if connection is not None:
            connection.prove()
        if request.method == "POST":
            return await self._post(request, parts, person, cookie)
        shown = await self._pages.get(parts, request, person)
        return shown if isinstance(shown, Response) else _page(shown)

    def _signing_in(self, request: Request, secret: str) -> Response:
        """The link's page. What fetches links ahead of a person (a preview, a scanner) does not press the button."""
        address = request.client.host if request.client is not None else ""
        if not self._sign_in.may_try(address):
            text = "There were too many wrong links. Wait a minute, then try again."
            return _page(render("message.html", title="Not now", text=text), 429, {"Retry-After": "60"})
        if not self._sign_in.is_good(secret):
            self._sign_in.was_wrong(address)
            return _page(self._signed_out(dead=True), 410)
        if request.method != "POST":
            return _page(render("sign_in.html", path=f"/dashboard/sign-in/{quote(secret, safe='')}"))
        cookie = self._sign_in.use(secret)
        assert cookie is not None
        response = RedirectResponse("/", 303)
        response.set_cookie(
            self._cookie,
            cookie,
            max_age=COOKIE_SECONDS,
            path="/",
            httponly=True,
            samesite="strict",
            secure=request.headers["origin"].startswith("https:"),
        )
        return response

    def _signed_out(self, *, dead: bool = False, left: bool = False) -> Rendered:
        return render("signed_out.html", command=self._command, dead=dead, left=left)

    async def _post(self, request: Request, parts: list[str], person: Person, cookie: str) -> Response:
        sent = parse_qs((await _body(request)).decode("utf-8", "replace"), keep_blank_values=True)
        if not person.sent(sent.get("csrf", [""])[0]):
            return _refused("This form is out of date. Go back, reload the page and send it again.")
        if parts == ["dashboard", "sign-out"]:
            self._sign_in.forget(cookie)
            response = _page(self._signed_out(left=True))
            response.delete_cookie(self._cookie, path="/", httponly=True, samesite="strict")
            return response
        shown = await self._pages.post(parts, sent, person)
        return shown if isinstance(shown, Response) else _page(shown, 422)


def _is_own_origin(origins: list[str], host: str) -> bool:
    """Whether a form was sent by a page of this host. In front of it there may be a proxy that speaks https."""
    return origins in ([f"http://{host}"], [f"https://{host}"])


def _page(text: Rendered, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(text, status, headers, "text/html")


def _refused(text: str) -> Response:
    return _page(render("message.html", title="Refused", text=text), 403)


def _static(name: str) -> Response:
    """One of our files. They are no secret, and their address changes with their content."""
    file = next((each for each in _STATIC.iterdir() if each.name == name and each.suffix in _TYPES), None)
    if file is None:
        raise NotFoundError("There is no such file.")
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(file.read_bytes(), 200, headers, _TYPES[file.suffix])


async def _body(request: Request) -> bytes:
    """The body; what is too long or too slow is empty."""
    body = bytearray()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_BODY_TIMEOUT):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _BODY_LIMIT:
                    return b""
            return bytes(body)
    return b""
