"""What the audit log holds, as plain data, and how one record is chained to the one before.

A run and a call have two records each. The first is on disk before anything happens, so that nothing happens
unrecorded; the second says how it ended. A run or call without its second record is under way, or was cut off together
with its gateway.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from typing import Any

import msgspec

from toolfold.errors import InvalidRequest

GENESIS = bytes(32)
"""What stands in for the hash before the first record."""
_HEAD = re.compile(r"\s*(\d{1,18}) ([0-9a-f]{64})(?:\s.*)?")


def now() -> float:
    return round(time.time(), 3)


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    time: float = msgspec.field(default_factory=now)
    """Seconds since 1970, UTC."""


class RunStarted(_Record, frozen=True, tag="run"):
    run: str
    caller: str
    code_sha256: str
    session: str | None = None
    language: str = "python"
    code: str = ""
    """The program, or its beginning where it is very long; the hash is of all of it."""
    limits: dict[str, float] = {}


class RunEnded(_Record, frozen=True, tag="run_end"):
    run: str
    ok: bool
    ms: float
    review: str = ""
    """What the review said of the program: `passed`, `refused`, or `off`."""
    error: str = ""
    """The error's code and message."""
    calls: int = 0
    tokens: int = 0
    """About how many tokens the result costs the model."""


class CallStarted(_Record, frozen=True, tag="call"):
    run: str
    """The run that made the call."""
    call: str
    caller: str
    target: str
    """As policies write it: `github.create_issue`, `resource:docs:file:///a`, `prompt:docs:summary`."""
    session: str | None = None
    arguments: Any = None
    """As the program wrote them: their shapes, or their values where the setting asks for these."""


class CallEnded(_Record, frozen=True, tag="call_end"):
    run: str
    call: str
    ok: bool
    ms: float
    decision: str = ""
    rule: str = ""
    approved_by: str = ""
    asked: str = ""
    """What the server asked a person in the middle of the call, and what became of it; no values."""
    result_size: int = 0
    """Bytes or characters of what the upstream answered."""
    error: str = ""


class ToolNoted(_Record, frozen=True, tag="tool"):
    """A definition that is new, has changed, or was accepted by a person; or, as tool `*`, a server's first listing."""

    server: str
    tool: str
    event: str
    """`new`, `changed`, `accepted`, or `trusted` for a change that its server may make."""
    digest: str
    before: str = ""
    """The digest of the definition that was accepted until then."""

    @property
    def target(self) -> str:
        return f"{self.server}.{self.tool}"


class Checkpoint(_Record, frozen=True, tag="checkpoint"):
    """Records up to `through` were dropped by retention; `hash` is that of the last one of them."""

    through: int
    hash: str
    reason: str = ""


class Cut(_Record, frozen=True, tag="cut"):
    """Written by a gateway that found less than it had written itself: up to `expected`, with this hash."""

    expected: int
    hash: str


Record = RunStarted | RunEnded | CallStarted | CallEnded | ToolNoted | Checkpoint | Cut

_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_encoder = msgspec.json.Encoder()


def encode(record: Record) -> bytes:
    """The bytes that are stored and hashed. What JSON cannot hold, such as half a character, is replaced."""
    try:
        return _encoder.encode(record)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError):
        plain = msgspec.structs.asdict(record) | {"type": record.__struct_config__.tag}
        return json.dumps(plain, ensure_ascii=False, default=str).encode("utf-8", "replace")


def decode(body: bytes) -> Record:
    """Raises `msgspec.MsgspecError` for anything but the bytes of a record."""
    return _decoder.decode(body)


def chained(before: bytes, seq: int, body: bytes) -> bytes:
    """The hash of record `seq`, which stands for it and for all records before it."""
    return hashlib.sha256(b"%b%d\0%b" % (before, seq, body)).digest()


class Head(msgspec.Struct, frozen=True):
    """The newest record at some moment. Kept elsewhere, it proves later that the log still holds what it held then."""

    seq: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.seq} {self.hash.hex()}"

    @classmethod
    def parse(cls, line: str) -> Head:
        """The head in `line`, which may go on after it; raises `InvalidRequest`."""
        found = _HEAD.fullmatch(line)
        if found is None:
            raise InvalidRequest("A head is a record's number and its hash, as `toolfold audit head` prints them.")
        return cls(int(found[1]), bytes.fromhex(found[2]))
