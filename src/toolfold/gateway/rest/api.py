"""The ASGI application at /api/v1: what a request must be, and which endpoint answers it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from toolfold.errors import ToolfoldError
from toolfold.gateway.rest.endpoints import Endpoint, endpoints
from toolfold.gateway.rest.openapi import document
from toolfold.gateway.rest.parameters import Nothing, query
from toolfold.gateway.rest.problems import HEADERS, ApiError, json_response
from toolfold.gateway.rest.run import RunEndpoint
from toolfold.gateway.routes import site_refusal
from toolfold.gateway.views.viewer import Viewer
from toolfold.gateway.views.views import Views

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from toolfold.config.callers import Mode
    from toolfold.fold import Toolfold
    from toolfold.gateway.runs import AskLocally
    from toolfold.telemetry.activity import Activity

PREFIX = "/api/v1"
_FILE_HEADERS = {
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "default-src 'none'; sandbox",
}
_log = logging.getLogger("toolfold")
_Handle = Callable[[Request, Mapping[str, str], "Send"], Awaitable[Response | None]]


def make_api(
    fold: Toolfold,
    activity: Activity,
    ask_locally: AskLocally | None,
    mode_of: Callable[[str], Mode],
    hosts: Collection[str],
    origins: Collection[str],
) -> RestApi:
    """`mode_of`: which tools a caller is offered."""
    return RestApi(Views(fold, activity), RunEndpoint(fold, ask_locally, mode_of), hosts, origins)


class RestApi:
    """`hosts` and `origins` are by which names, and from which pages, requests may come; none is any."""

    def __init__(self, views: Views, run: RunEndpoint, hosts: Collection[str], origins: Collection[str]) -> None:
        self._run = run
        self._hosts = frozenset(hosts)
        self._origins = frozenset(origins)
        table = endpoints(views)
        self._document = document(table, run.longest)
        self._routes: list[tuple[list[str], dict[str, _Handle]]] = [
            (["run"], {"POST": self._post_run}),
            (["openapi.json"], {"GET": self._openapi}),
            *((endpoint.parts, {"GET": _reading(endpoint)}) for endpoint in table),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request, send)
        except ApiError as error:
            response = error.response()
        except ToolfoldError as error:
            response = ApiError.of(error).response()
        except ClientDisconnect:
            return  # before it had sent its body
        except Exception:
            _log.exception("a request to %s failed", scope["path"])
            response = ApiError(500, "internal", "Something went wrong here; the gateway's log says what.").response()
        if response is not None:
            await response(scope, receive, send)

    async def _respond(self, request: Request, send: Send) -> Response | None:
        refusal = site_refusal(request.scope, self._hosts, self._origins)
        if refusal:
            raise ApiError(403, "forbidden", refusal)
        parts = _parts(request.scope)
        for wanted, methods in self._routes:
            names = _matched(wanted, parts)
            if names is None:
                continue
            more = ["HEAD", "OPTIONS"] if "GET" in methods else ["OPTIONS"]
            allowed = ", ".join(sorted([*methods, *more]))
            if request.method == "OPTIONS":
                return Response(status_code=204, headers={**HEADERS, "Allow": allowed})
            handle = methods.get("GET" if request.method == "HEAD" else request.method)
            if handle is None:
                message = f"{request.method[:20]} is not a method of this path."
                raise ApiError(405, "method_not_allowed", message, Allow=allowed)
            return await handle(request, names, send)
        raise ApiError(
            404, "not_found", "There is nothing at this path.", f"{PREFIX}/openapi.json lists what there is."
        )

    async def _post_run(self, request: Request, names: Mapping[str, str], send: Send) -> Response | None:
        query(request, Nothing)
        return await self._run(request, send)

    async def _openapi(self, request: Request, names: Mapping[str, str], send: Send) -> Response:
        query(request, Nothing)
        return json_response(self._document)


def _reading(endpoint: Endpoint) -> _Handle:
    async def handle(request: Request, names: Mapping[str, str], send: Send) -> Response:
        state = request.scope["state"]
        viewer = Viewer(state["caller"], owner=state.get("owner", False))
        answer = await endpoint.handle(viewer, names, query(request, endpoint.query))
        if isinstance(answer, bytes):
            return Response(answer, 200, {**HEADERS, **_FILE_HEADERS}, media_type="application/octet-stream")
        return json_response(answer)

    return handle


def _parts(scope: Scope) -> list[str]:
    """The parts of the path below the prefix. Each is decoded by itself: a name may have a slash in it."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.partition(b"?")[0].decode("latin-1").removeprefix(PREFIX).removeprefix("/")
    try:
        return [unquote_to_bytes(part).decode() for part in path.split("/")]
    except UnicodeDecodeError:
        raise ApiError(400, "invalid_request", "The path is not valid UTF-8.") from None


def _matched(wanted: list[str], parts: list[str]) -> dict[str, str] | None:
    if len(wanted) != len(parts):
        return None
    names: dict[str, str] = {}
    for pattern, part in zip(wanted, parts, strict=True):
        if pattern.startswith("{"):
            if not part:
                return None
            names[pattern[1:-1]] = part
        elif pattern != part:
            return None
    return names
