"""A model on loopback that follows a script.

Which step comes next is told by how many tools have answered in the request, so a client that asks again, or asks
something on the side (a title for the conversation), does not confuse it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.clients.wires import WIRES, Asked, Call, Json, Reply, Wire

ASIDE = "A title"
"""The answer to what is asked without tools, on the side of the conversation."""


class Model:
    """`asked` has every request that offered tools, the oldest first."""

    def __init__(self, steps: Sequence[Call], answer: str) -> None:
        self._steps = list(steps)
        self._answer = answer
        self.asked: list[Asked] = []
        self.address = ""

    @property
    def results(self) -> list[str]:
        """What the model has been told by tools, at the end."""
        return max((asked.results for asked in self.asked), key=len)

    def reply(self, asked: Asked) -> Reply:
        number = len(asked.results)
        if not asked.tools:
            return Reply(number, text=ASIDE)
        self.asked.append(asked)
        if number >= len(self._steps):
            return Reply(number, text=self._answer)
        step = self._steps[number]
        names = [name for name in asked.tools if name.endswith(step.tool)]
        if len(names) != 1:
            return Reply(number, text=f"There is not one tool {step.tool}: {', '.join(asked.tools)}")
        return Reply(number, tool=names[0], arguments=step.arguments)


class Writer(Model):
    """A model for agents that take programs from its words: it says one thing after the other, and calls nothing."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__([], "")
        self._words = list(words)

    def reply(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        number = min(len(asked.turns), len(self._words) - 1)
        return Reply(number, text=self._words[number])


@contextmanager
def serving(model: Model) -> Generator[Model]:
    """Serve the model on a free port of loopback; `model.address` has it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send("application/json", b'{"data": [], "models": []}')

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = self.path.split("?")[0]
            wire = next((wire for wire in WIRES if path.endswith(wire.path)), None)
            if wire is None:
                self._send("application/json", b'{"totalTokens": 1, "input_tokens": 1}')
                return
            asked = json.loads(body)
            reply = model.reply(wire.read(asked))
            if asked.get("stream") or "streamGenerateContent" in self.path:
                self._send("text/event-stream", _events(wire, reply, asked))
            else:
                self._send("application/json", json.dumps(wire.whole(reply, asked)).encode())

        def _send(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        model.address = f"http://127.0.0.1:{server.server_port}"
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _events(wire: Wire, reply: Reply, asked: Json) -> bytes:
    lines = [
        (f"event: {event['type']}\n" if "type" in event else "") + f"data: {json.dumps(event)}\n\n"
        for event in wire.events(reply, asked)
    ]
    return ("".join(lines) + wire.ending).encode()
