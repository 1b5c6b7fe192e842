"""The words that cross the sandbox's boundary: length-prefixed JSON, decoded into typed messages.

Everything that arrives was written by a hostile peer. A frame that is too long, too deep, not JSON, not one of the
messages below, or with a field of another type is a `FrameError`, and the run that sent it ends.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

MAX_FRAME = 64 * 1024 * 1024
"""Bytes of one frame from the guest."""
_HEADER = struct.Struct(">I")


class FrameError(Exception):
    """The guest broke the protocol."""


class _Message(msgspec.Struct, tag_field="t", forbid_unknown_fields=True):
    pass


class Ready(_Message, tag="ready"):
    pass


class Call(_Message, tag="call"):
    id: int
    server: str
    tool: str
    arguments: dict[str, Any]


class CallNamed(_Message, tag="call_named"):
    id: int
    name: str
    arguments: dict[str, Any]


class Search(_Message, tag="search"):
    id: int
    query: str
    detail: str
    limit: int | None


class Resource(_Message, tag="resource"):
    id: int
    server: str
    uri: str


class Prompt(_Message, tag="prompt"):
    id: int
    server: str
    name: str
    arguments: dict[str, str]


class Progress(_Message, tag="progress"):
    text: str
    fraction: float | None = None


class Done(_Message, tag="done"):
    """The one message that ends a run. `shown` is the last expression's text, `value` its data where it is JSON."""

    error: str
    names: list[str]
    shown: str = ""
    value: Any = None


Request = Call | CallNamed | Search | Resource | Prompt
Message = Ready | Call | CallNamed | Search | Resource | Prompt | Progress | Done

_decoder = msgspec.json.Decoder(Message)
_encoder = msgspec.json.Encoder()


def encode(frame: Any) -> bytes:
    """One frame for the guest. Values that JSON cannot hold are the caller's mistake and raise TypeError."""
    body = _encoder.encode(frame)
    return _HEADER.pack(len(body)) + body


class FrameReader:
    """Assembles messages from whatever pieces the socket delivers, in linear time."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._chunks = bytearray()
        self._needed = 0

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._chunks)

    def feed(self, data: bytes) -> list[Message]:
        self._chunks += data
        if len(self._chunks) < self._needed:
            return []
        messages: list[Message] = []
        offset = 0
        while True:
            available = len(self._chunks) - offset
            if available < 4:
                self._needed = 4
                break
            (size,) = _HEADER.unpack_from(self._chunks, offset)
            if size > self._limit:
                raise FrameError(f"a frame of {size:,} bytes; the limit is {self._limit:,}")
            if available < 4 + size:
                self._needed = 4 + size
                break
            with memoryview(self._chunks) as view:
                messages.append(_decode(view[offset + 4 : offset + 4 + size]))
            offset += 4 + size
        if offset:
            del self._chunks[:offset]
        return messages


def _decode(body: memoryview) -> Message:
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"not a message of ours ({error})") from None
