"""The first answers on stdio, given while the SDK is still being imported.

What a client asks first never changes: `initialize` or `server/discover`, then `tools/list`. Importing the SDK takes
half a second, for which the client's own start would stand still. When it is there, it gets everything that was asked,
and its answers to what was answered here are dropped. Whatever is not plainly one of these questions is left to it.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import select
from typing import Any, cast

from toolfold import __version__
from toolfold.definitions import OWN_NAME
from toolfold.gateway.texts import INSTRUCTIONS, offered_tools

_OLDER = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MODERN = "2026-07-28"
_META = "io.modelcontextprotocol/"
_SMALL = 64 * 1024
"""Bytes that hold the first questions of any client."""
_OURSELVES = {"name": OWN_NAME, "title": "Toolfold", "version": __version__}
_OFFER: dict[str, Any] = {"capabilities": {"tools": {"listChanged": False}}, "instructions": INSTRUCTIONS}
_ENVELOPE = {"resultType": "complete", "cacheScope": "private", "ttlMs": 0, "_meta": {f"{_META}serverInfo": _OURSELVES}}


class Greeting:
    """`received` is everything that was read; `answered` are the ids of the requests that have their answer.

    `version` is the protocol revision that was agreed on, `""` before that. `read_only` says whether the permission
    profile lets programs only read: clients are told so.
    """

    def __init__(self, wire_in: int = 0, wire_out: int = 1, *, read_only: bool = False) -> None:
        self._tools = offered_tools(read_only=read_only)
        self._wire_in, self._wire_out = wire_in, wire_out
        self.received = bytearray()
        self.answered: set[int | str] = set()
        self._seen = 0
        self.version = ""
        self._over = False

    async def while_importing(self, module: str) -> None:
        """Import a module in a thread, and answer what can be answered until it is there."""
        if _ready(self._wire_in):
            self._read()  # what is there already is not kept waiting by the import
        awake = asyncio.Event()
        importing = asyncio.ensure_future(asyncio.to_thread(importlib.import_module, module))
        importing.add_done_callback(lambda _: awake.set())
        loop = asyncio.get_running_loop()
        while not (self._over or importing.done()):
            if _ready(self._wire_in):
                self._read()
                continue
            loop.add_reader(self._wire_in, awake.set)
            try:
                await awake.wait()
                awake.clear()
            finally:
                loop.remove_reader(self._wire_in)
        await importing

    def _read(self) -> None:
        chunk = os.read(self._wire_in, _SMALL)
        self.received += chunk
        self._over = not chunk or len(self.received) > _SMALL
        while not self._over and (end := self.received.find(b"\n", self._seen)) >= 0:
            line = bytes(self.received[self._seen : end]).strip()
            self._seen = end + 1
            self._over = bool(line) and not self._answer(line)

    def _answer(self, line: bytes) -> bool:
        answer = self.answer_to(line)
        if answer is None:
            return False
        number, body = answer
        if number is not None:
            try:
                os.write(self._wire_out, body + b"\n")
            except OSError:
                return False
            self.answered.add(number)
        return True

    def answer_to(self, line: bytes) -> tuple[int | str | None, bytes] | None:
        """The id and the answer to a message (a notification has neither); None where only the SDK can tell."""
        try:
            message = json.loads(line)
            if message["method"] == "notifications/initialized" and "id" not in message:
                return None, b""
            answer = self._result(message["method"], message.get("params") or {})
            number = message["id"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        if answer is None or message["jsonrpc"] != "2.0" or type(number) not in (int, str):
            return None
        return number, json.dumps({"jsonrpc": "2.0", "id": number, "result": answer}, separators=(",", ":")).encode()

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """The result that the SDK would give; None where only it can tell."""
        if method == "initialize":
            known = params["protocolVersion"] in _OLDER and isinstance(params["capabilities"], dict)
            client = cast("dict[str, Any]", params["clientInfo"])
            if self.version or not known or {type(client["name"]), type(client["version"])} != {str}:
                return None
            self.version = params["protocolVersion"]
            return {"protocolVersion": self.version, "serverInfo": _OURSELVES, **_OFFER}
        if self.version in _OLDER:
            return {"tools": self._tools} if method == "tools/list" and "cursor" not in params else None
        meta = cast("dict[str, Any]", params["_meta"])
        capabilities = meta[f"{_META}clientCapabilities"]
        if meta[f"{_META}protocolVersion"] != MODERN or not isinstance(capabilities, dict) or "cursor" in params:
            return None
        offers: dict[str, dict[str, Any]] = {
            "server/discover": {**_OFFER, "supportedVersions": [MODERN]},
            "tools/list": {"tools": self._tools},
        }
        if method not in offers:
            return None
        self.version = MODERN
        return {**offers[method], **_ENVELOPE}


def _ready(wire: int) -> bool:
    """Whether a read does not block: there is something, or the end, or it is a plain file."""
    poll = select.poll()
    poll.register(wire, select.POLLIN)
    return bool(poll.poll(0))
