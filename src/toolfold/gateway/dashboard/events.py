"""What happens now, as server-sent events: the page appends output, and fetches again what has changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import StreamingResponse

from toolfold.gateway.dashboard.render import plain

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from toolfold.gateway.dashboard.door import Door
    from toolfold.gateway.dashboard.sign_in import Person
    from toolfold.telemetry.activity import ActivityEvent

_SILENCE = 15.0
"""Seconds without an event until a comment is sent, by which a connection that is gone is noticed."""
_MOST_STREAMS = 32
_OUTPUT_CHARS = 16_000
"""Characters of output in one event; of more, the end."""


class Streams:
    """The event streams of one dashboard."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._open = 0

    @property
    def is_full(self) -> bool:
        return self._open >= _MOST_STREAMS

    def response(self, person: Person) -> StreamingResponse:
        """What happens from now on, for as long as the person is signed in."""
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._events(person), media_type="text/event-stream", headers=headers)

    async def _events(self, person: Person) -> AsyncGenerator[bytes]:
        changed = asyncio.Event()
        stop = self._door.questions.watch(changed.set)
        self._open += 1
        with self._door.activity.watch() as events:
            happened = asyncio.ensure_future(anext(events))
            asked = asyncio.ensure_future(changed.wait())
            try:
                yield b"retry: 2000\n\n" + _event("questions", len(self._door.questions))
                while self._door.sign_in.is_in(person):
                    done, _ = await asyncio.wait(
                        [happened, asked], timeout=_SILENCE, return_when=asyncio.FIRST_COMPLETED
                    )
                    if not done:
                        yield b": still here\n\n"
                    if asked in done:
                        changed.clear()
                        asked = asyncio.ensure_future(changed.wait())
                        yield _event("questions", len(self._door.questions))
                    if happened in done:
                        sent = _sent(happened.result())
                        happened = asyncio.ensure_future(anext(events))
                        yield sent
            except StopAsyncIteration:  # the gateway ends
                return
            finally:
                self._open -= 1
                stop()
                happened.cancel()
                asked.cancel()


def _sent(event: ActivityEvent) -> bytes:
    run = event.run.id if event.run is not None else ""
    match event.kind:
        case "output":
            return _event("output", {"run": run, "text": plain(event.text[-_OUTPUT_CHARS:])})
        case "call" | "call_end":
            return _event("changed", ["runs", f"run-{run}"])
        case "run":
            return _event("changed", ["runs"])
        case "run_end":
            return _event("changed", ["runs", f"run-{run}", f"ended-{run}"])
        case "lost":
            return _event("changed", ["runs"])


def _event(name: str, data: Any) -> bytes:
    # JSON has no line ends in it, so that an event is one line.
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"
