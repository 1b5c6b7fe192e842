"""Reads a server's stdout as JSON-RPC messages, one per line, in linear time.

Servers print banners, progress bars and stack traces on the stream that belongs to the protocol. Whatever is not a
message is passed to `on_junk` and otherwise ignored, with one exception: an invalid *answer* to a request becomes an
error answer, so that the caller learns of it at once and not after its timeout.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from toolfold.schema.large import LARGE, uncollected

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

_START = re.compile(rb'\{\s*"(?:jsonrpc|id|result|error|method|params)"')
_WHITESPACE = b" \t\r\n\0"


class MessageTooLongError(Exception):
    """A line is longer than the limit."""


class Lines:
    """Splits chunks of bytes into lines. Each byte is copied once, however long its line is."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self.ready: deque[bytes] = deque()
        self.ready_bytes = 0
        """Memory that the lines in `ready` take, object overhead included: short lines count too."""

    def feed(self, chunk: bytes) -> None:
        head, newline, rest = chunk.partition(b"\n")
        self._keep(head)
        if not newline:
            return
        *whole, last = rest.split(b"\n")
        self._end()
        for line in whole:
            self._keep(line)
            self._end()
        self._keep(last)

    def end(self) -> None:
        """The stream has ended: a last line without a newline counts too."""
        if self._size:
            self._end()

    def pop(self) -> bytes:
        line = self.ready.popleft()
        self.ready_bytes -= sys.getsizeof(line)
        return line

    def _keep(self, part: bytes) -> None:
        if part:
            self._size += len(part)
            if self._size > self._limit:
                self._parts.clear()
                raise MessageTooLongError
            self._parts.append(part)

    def _end(self) -> None:
        line = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        if line := line.strip(_WHITESPACE):
            self.ready.append(line)
            self.ready_bytes += sys.getsizeof(line)


class Parser:
    """Reads lines as JSON-RPC messages of the SDK's own types."""

    def __init__(self, on_junk: Callable[[bytes], None]) -> None:
        from mcp.shared.message import SessionMessage
        from mcp_types import ErrorData, JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

        self._message = SessionMessage
        self._response = JSONRPCResponse
        self._error = JSONRPCError
        self._error_data = ErrorData
        self._adapter = jsonrpc_message_adapter
        self._decode = msgspec.json.Decoder().decode
        self._on_junk = on_junk

    def parse(self, line: bytes) -> list[SessionMessage]:
        """The messages of one line: one, or none, or several where the server still sends batches."""
        messages = self._read(line)
        if messages is None and (start := _START.search(line)) is not None and start.start() > 0:
            # A banner printed without a newline, or a byte order mark, in front of a real message.
            messages = self._read(line[start.start() :])
            if messages:
                self._on_junk(line[: start.start()])
        if messages is None:
            self._on_junk(line)
            return []
        return messages

    def _read(self, line: bytes) -> list[SessionMessage] | None:
        try:
            value = self._decode(line) if len(line) < LARGE else _decode_large(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return self._read_strictly(line)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            found = [message for item in items if (message := self._typed(item)) is not None]
            return found or None
        message = self._typed(value)
        return None if message is None else [message]

    def _typed(self, value: Any) -> SessionMessage | None:
        match value:
            case {"jsonrpc": "2.0", "id": int() | str() as number, "result": result} if (
                "method" not in value and not isinstance(number, bool) and isinstance(result, dict)
            ):
                # By far the most frequent and largest message: not validated a second time.
                content = cast("dict[str, Any]", result)
                return self._message(self._response.model_construct(jsonrpc="2.0", id=number, result=content))
            case dict():
                try:
                    return self._message(self._adapter.validate_python(value, by_name=False))
                except ValueError:
                    return self._invalid(cast("dict[str, Any]", value))
            case _:
                return None

    def _read_strictly(self, line: bytes) -> list[SessionMessage] | None:
        """What msgspec refuses may still be a message to the SDK, or the invalid answer to a request."""
        try:
            return [self._message(self._adapter.validate_json(line, by_name=False))]
        except ValueError:
            pass
        number = _answer_id(line)
        return None if number is None else [self._failed(number)]

    def _invalid(self, value: dict[str, Any]) -> SessionMessage | None:
        number = value.get("id")
        if isinstance(number, bool) or not isinstance(number, int | str) or "method" in value:
            return None
        return self._failed(number) if "result" in value or "error" in value else None

    def _failed(self, number: int | str) -> SessionMessage:
        data = self._error_data(code=INVALID_ANSWER, message="the answer is not a valid JSON-RPC message")
        return self._message(self._error(jsonrpc="2.0", id=number, error=data))


def encoded(message: Any) -> bytes:
    """A message as it is sent. What programs send may be large, and the SDK's own way takes many times as long."""
    fields = {name: getattr(message, name) for name in message.model_fields_set}
    try:
        return msgspec.json.encode(fields)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
        # Unset, not none: JSON-RPC forbids `"params": null`.
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()


class _Answer(msgspec.Struct):
    """A large answer, of which only the outer layers are decoded."""

    jsonrpc: str
    id: int | str
    result: dict[str, msgspec.Raw]


_decode_answer = msgspec.json.Decoder(_Answer).decode


def _decode_large(line: bytes) -> Any:
    """Structured content stays as it is (`msgspec.Raw`): the program that asked for it decodes it, at its own cost."""
    with uncollected():
        try:
            answer = _decode_answer(line)
        except msgspec.DecodeError:
            return msgspec.json.decode(line)
        result: dict[str, Any] = {
            key: value if key == "structuredContent" else msgspec.json.decode(value)
            for key, value in answer.result.items()
        }
        structured = result.get("structuredContent")
        if structured is not None and len(memoryview(structured)) == 4 and bytes(structured) == b"null":
            result["structuredContent"] = None
        return {"jsonrpc": answer.jsonrpc, "id": answer.id, "result": result}


INVALID_ANSWER = -32700
"""JSON-RPC's parse error."""

_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ANSWER = re.compile(rb"\{\s*(?:" + _VERSION + rb',\s*)?"id"\s*:\s*(\d{1,15})\s*,\s*"(?:result|error)"')
_ID_LAST = re.compile(rb'.*"id"\s*:\s*(\d{1,15})\s*(?:,\s*' + _VERSION + rb")?\}", re.DOTALL)
_RESULT_FIRST = re.compile(rb"\{\s*(?:" + _VERSION + rb',\s*)?"(?:result|error)"')


def _answer_id(line: bytes) -> int | None:
    """The id of the request that an unreadable line answers, if it has one where answers have it."""
    found = _ANSWER.match(line)
    if found is None and _RESULT_FIRST.match(line):
        found = _ID_LAST.fullmatch(line[-100:])
    return int(found[1]) if found else None
