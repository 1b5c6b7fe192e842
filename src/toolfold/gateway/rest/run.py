"""`POST /run`: one program for one request, answered with its result, or with events while it runs.

A client that leaves ends its program, unless a person is being asked and `approval.on_disconnect` is `wait`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request

from toolfold.errors import ToolfoldError
from toolfold.gateway.rest.answers import NAMES, Event, OutputEvent, answer_of, event_of, question_event
from toolfold.gateway.rest.parameters import RunRequest, converted
from toolfold.gateway.rest.problems import HEADERS, ApiError, encoded, json_response
from toolfold.gateway.server import FRESH

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import Send

    from toolfold.config.callers import Mode
    from toolfold.fold import Toolfold
    from toolfold.gateway.runs import AskLocally
    from toolfold.guards.events import Question, Replied, RunResult

BODY_LIMIT = 4 * 1024**2
_REFUSED_BODY = 64 * 1024**2
_BODY_TIMEOUT = 30.0
_HEARTBEAT = 15.0
_FIRST_EVENT = 0.25
"""Seconds to wait before the head of a stream is sent: a run that is refused at once gets an error status instead."""
_MOST_UNREAD = 1_000_000
"""Characters of output that wait for a client; the oldest are left out."""
_MOST_EVENTS = 5_000
_END_TIMEOUT = 5.0
_MOST_VALUES = 64
EVENT_STREAM = "text/event-stream"


class RunEndpoint:
    def __init__(self, fold: Toolfold, ask_locally: AskLocally | None, mode_of: Callable[[str], Mode]) -> None:
        """`mode_of`: which tools a caller is offered; where these are not ours, it runs no programs here either."""
        self._fold = fold
        # A client of this API shows no form.
        self._ask_locally = ask_locally if fold.settings.approval.without_form == "page" else None
        self._mode_of = mode_of
        self._waits = fold.settings.approval.on_disconnect == "wait"
        self.longest = fold.settings.sandbox.timeout
        """Seconds that a client may give a program."""

    async def __call__(self, request: Request, send: Send) -> Response | None:
        """Answer through `send`, or return the response."""
        state = request.scope["state"]
        if self._mode_of(state["caller"]) == "direct":
            raise ApiError(403, "forbidden", "Programs are not offered here (`mode` is `direct`).")
        wanted = self._checked(await _body(request), host=state.get("host", False))
        run = _Run(wanted, self._fold, self._ask_locally, state)
        streams = wanted.stream or EVENT_STREAM in request.headers.get("accept", "")
        leaving = asyncio.create_task(_left(request))
        leaving.add_done_callback(lambda done: None if done.cancelled() else run.client_left(waits=self._waits))
        try:
            if streams:
                return await run.stream(send)
            return run.response(await run.result())
        finally:
            leaving.cancel()
            await run.end()

    def _checked(self, body: bytes, *, host: bool) -> RunRequest:
        try:
            values = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.ValidationError as error:
            raise ApiError(422, "invalid_request", f"{error}.") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError(400, "invalid_request", f"The body is not JSON: {error}.") from None
        wanted = converted(values, RunRequest, 422)
        if wanted.context and not host:
            message = "`context` is accepted only from callers that are marked `host = true` in the settings."
            raise ApiError(403, "forbidden", message)
        if wanted.context and len(wanted.context) > _MOST_VALUES:
            raise ApiError(422, "invalid_request", f"`context` holds more than {_MOST_VALUES} values.")
        if wanted.timeout is not None and wanted.timeout > self.longest:
            hint = "The limit is `sandbox.timeout` in the settings."
            raise ApiError(422, "invalid_request", f"`timeout` may be at most {self.longest:g} seconds.", hint)
        return wanted


class _Run:
    """One program, and what its client has not read yet."""

    def __init__(
        self, wanted: RunRequest, fold: Toolfold, ask_locally: AskLocally | None, state: dict[str, Any]
    ) -> None:
        self._ask_locally = ask_locally
        self._caller: str = state["caller"]
        self._session = None if wanted.session in (None, "", FRESH) else wanted.session
        self._asking = 0
        self._events: deque[Event] = deque()
        self._unread = 0
        self._lost = 0
        self._news = asyncio.Event()
        self._is_gone = False
        self._task: asyncio.Task[RunResult] = asyncio.create_task(
            fold.run(
                wanted.code,
                session=self._session,
                caller=self._caller,
                groups=state.get("groups", ()),
                context={**state.get("context", {}), **(wanted.context or {})},
                timeout=wanted.timeout,
                on_event=self._on_event,
                ask=self._ask if ask_locally is not None else None,
            )
        )
        self._task.add_done_callback(lambda _: self._news.set())

    # The program's side

    def _on_event(self, event: object) -> None:
        shown = event_of(event)
        if shown is not None:
            self._put(shown)

    async def _ask(self, question: Question) -> Replied:
        assert self._ask_locally is not None
        self._asking += 1
        self._put(question_event(question))
        try:
            return await self._ask_locally(question, self._caller, self._session)
        finally:
            self._asking -= 1

    def _put(self, event: Event) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(event, OutputEvent):
            self._unread += len(event.text)
            if isinstance(last, OutputEvent) and len(last.text) < 64_000:
                self._events[-1] = OutputEvent(text=last.text + event.text, lost=last.lost)
            else:
                self._events.append(event)
        else:
            self._events.append(event)
        while self._unread > _MOST_UNREAD or len(self._events) > _MOST_EVENTS:
            self._drop()
        self._news.set()

    def _drop(self) -> None:
        at = next((at for at, event in enumerate(self._events) if isinstance(event, OutputEvent)), 0)
        dropped = self._events[at]
        del self._events[at]
        if isinstance(dropped, OutputEvent):
            self._unread -= len(dropped.text)
            self._lost += len(dropped.text)

    # The client's side

    def client_left(self, *, waits: bool) -> None:
        self._is_gone = True
        if not (self._asking and waits):
            self._task.cancel()
        self._news.set()

    async def result(self) -> RunResult:
        """Raises ApiError where there was no run."""
        await asyncio.wait([self._task])
        if self._task.cancelled():
            raise ApiError(499, "cancelled", "The client has left.")
        try:
            result = self._task.result()
        except ToolfoldError as error:
            raise ApiError.of(error) from None
        error = result.error
        if error is not None and error.code == "limit" and "`run_queue`" in error.hint:
            raise ApiError(429, "limit", error.message, error.hint, Retry_After="1")
        if error is not None and error.code == "disabled":
            raise ApiError(403, error.code, error.message, error.hint)
        return result

    def response(self, result: RunResult) -> Response:
        return json_response(answer_of(result))

    async def stream(self, send: Send) -> Response | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_EVENT):
                await self._news.wait()
        if self._task.done() and not self._events:
            await self.result()  # what could not be run is refused with a status
        # Proxies such as nginx would hold events back.
        headers = {**HEADERS, "Content-Type": f"{EVENT_STREAM}; charset=utf-8", "X-Accel-Buffering": "no"}
        head = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        while not self._is_gone and (self._events or not self._task.done()):
            if self._events:
                await _send(send, self._next())
                continue
            self._news.clear()
            try:
                async with asyncio.timeout(_HEARTBEAT):
                    await self._news.wait()
            except TimeoutError:
                await send({"type": "http.response.body", "body": b": still running\n\n", "more_body": True})
        try:
            last = _event("finished", answer_of(await self.result()))
        except ApiError as error:
            last = _event("error", error.failure)
        await send({"type": "http.response.body", "body": last, "more_body": False})
        return None

    def _next(self) -> Event:
        event = self._events.popleft()
        if isinstance(event, OutputEvent):
            self._unread -= len(event.text)
            event.lost, self._lost = self._lost, 0
        return event

    async def end(self) -> None:
        """End the program, whatever it waits for."""
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_END_TIMEOUT)
        if not self._task.cancelled():
            self._task.exception()  # looked at, so that asyncio does not log it


async def _send(send: Send, event: Event) -> None:
    await send({"type": "http.response.body", "body": _event(NAMES[type(event)], event), "more_body": True})


def _event(name: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encoded(data))


async def _left(request: Request) -> None:
    """Returns when the client has closed the connection. The body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        message = f"The body must be application/json, not {kind[:60] or 'nothing'}."
        raise ApiError(415, "unsupported_media_type", message, "Send the header `Content-Type: application/json`.")
    length = int(request.headers.get("content-length", "0"))
    body = bytearray()
    received = 0
    try:
        async with asyncio.timeout(_BODY_TIMEOUT):
            async for chunk in request.stream():
                received += len(chunk)
                if received <= BODY_LIMIT:
                    body += chunk
                elif max(length, received) > _REFUSED_BODY:
                    break  # otherwise it is read to its end, so that its sender gets to read the refusal
    except TimeoutError:
        raise ApiError(408, "timeout", "The body did not arrive in time.", Connection="close") from None
    if received > BODY_LIMIT:
        message = f"The body may have at most {BODY_LIMIT:,} bytes."
        raise ApiError(413, "too_large", message, Connection="close")
    return bytes(body)
