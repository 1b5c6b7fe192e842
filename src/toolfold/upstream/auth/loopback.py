"""Where the browser brings the answer of an authorization server: a listener on this machine, or the person's paste."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

from mcp.shared.auth import AuthorizationCodeResult

from toolfold.upstream.auth.flow import AuthError, Browser

_LARGEST = 16_384
_REQUEST_TIMEOUT = 10.0
_HOSTS = ("127.0.0.1", "localhost", "::1")
_PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Toolfold</title>"
    "<body style='font:1.1em system-ui;margin:4em auto;max-width:30em'><h1>{title}</h1><p>{text}</p>"
)


class _Answer:
    """Waits for the one answer with the right `state`; everything else is turned away."""

    def __init__(self) -> None:
        self.result: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self.state = ""

    def take(self, query: str) -> bool:
        """Whether this query is the answer to our question."""
        fields = {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}
        if not self.state or not secrets.compare_digest(fields.get("state", "").encode(), self.state.encode()):
            return False
        if self.result.done():
            return True
        if "error" in fields:
            words = ": ".join(filter(None, (fields["error"][:60], fields.get("error_description", "")[:200])))
            self.result.set_exception(AuthError(f"the authorization server refused the sign-in ({words})"))
        elif fields.get("code"):
            self.result.set_result(
                AuthorizationCodeResult(code=fields["code"], state=fields["state"], iss=fields.get("iss"))
            )
        else:
            return False
        return True


@asynccontextmanager
async def browser_here(
    redirect_uri: str,
    show: Callable[[str], None],
    pasted: AsyncIterator[str] | None,
    on_wrong_paste: Callable[[], None],
) -> AsyncGenerator[Browser]:
    """A person who opens the address that `show` is given, and whose browser comes back to `redirect_uri`.

    Port 0 is replaced by a free one. `pasted` gives lines in which the address may be that the browser ended up at. A
    place that is not on this machine cannot be listened to, and is reached by a paste only. Raises OSError when the
    port is taken.
    """
    place = urlsplit(redirect_uri)
    answer = _Answer()
    async with contextlib.AsyncExitStack() as stack:
        if place.scheme == "http" and place.hostname in _HOSTS:
            server = await asyncio.start_server(
                lambda reader, writer: _serve(reader, writer, place.path or "/", answer),
                "::1" if place.hostname == "::1" else "127.0.0.1",
                place.port or (0 if place.port == 0 else 80),
                limit=_LARGEST,
            )
            stack.callback(server.close)
            if place.port == 0:
                port = server.sockets[0].getsockname()[1]
                redirect_uri = place._replace(netloc=f"{place.hostname}:{port}").geturl()
        if pasted is not None:
            reading = asyncio.create_task(_read(pasted, answer, on_wrong_paste))
            stack.callback(reading.cancel)

        async def open_page(url: str) -> None:
            answer.state = parse_qs(urlsplit(url).query).get("state", [""])[0]
            show(url)

        async def wait() -> AuthorizationCodeResult:
            return await answer.result

        yield Browser(redirect_uri, open_page, wait)


async def _read(pasted: AsyncIterator[str], answer: _Answer, on_wrong_paste: Callable[[], None]) -> None:
    async for line in pasted:
        text = line.strip()
        if text and not answer.take(urlsplit(text).query if "?" in text else text):
            on_wrong_paste()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, answer: _Answer) -> None:
    try:
        async with asyncio.timeout(_REQUEST_TIMEOUT):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, _, rest = head.partition(" ")
            target = urlsplit(rest.split(" ", 1)[0])
            if method != "GET" or (target.path or "/") != path:
                status, title, text = "404 Not Found", "Nothing here", ""
            elif answer.take(target.query):
                status, title, text = "200 OK", "Back to the terminal", "You can close this window."
            else:
                status, title, text = "400 Bad Request", "Not this sign-in", "Start it again in the terminal."
            body = _PAGE.format(title=title, text=text).encode()
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
                "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n"
                "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n\r\n".encode()
                + body
            )
            await writer.drain()
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # a browser that closes early, or something else that knocks at the port
    finally:
        writer.close()
