"""The words that cross the sandbox's boundary: length-prefixed JSON, decoded into typed messages.

Long texts that go in are sent as they are, behind the frame that says how much `follows`.
Everything that arrives was written by a hostile peer. A frame that is too long, too deep, not JSON, not one of the
messages below, or with a field of another type is a `FrameError`, and the run that sent it ends.
"""

from __future__ import annotations

import struct
from contextlib import nullcontext
from typing import Annotated, Any, Literal

import msgspec

from toolfold.schema.large import LARGE, uncollected

_MAX_VALUES = 200_000
"""Values in one frame. `[],[],[]` takes twenty times its length in memory."""
_HEADER = struct.Struct(">I")


_NAME_CHARS = 1000
_QUERY_CHARS = 2000

_Line = Annotated[str, msgspec.Meta(max_length=_NAME_CHARS)]


class FrameError(Exception):
    """The guest broke the protocol."""


class _Message(msgspec.Struct, tag_field="t", forbid_unknown_fields=True):
    pass


class Ready(_Message, tag="ready"):
    pass


class Call(_Message, tag="call"):
    id: int
    server: _Line
    tool: _Line
    arguments: dict[str, Any]
    line: int = 0
    """The program's line, as the guest says; 0 where it does not know."""


class CallNamed(_Message, tag="call_named"):
    id: int
    name: str
    arguments: dict[str, Any]
    line: int = 0

    def __post_init__(self) -> None:
        # No tool is called that; the nearest names are looked for in what is left.
        self.name = self.name[:_NAME_CHARS]


class Search(_Message, tag="search"):
    id: int
    query: str
    detail: _Line
    limit: int | None
    server: _Line = ""
    """Only what this server offers."""

    def __post_init__(self) -> None:
        # Words beyond this find nothing more, and looking for them would hold everybody up.
        self.query = self.query[:_QUERY_CHARS]


class Resource(_Message, tag="resource"):
    id: int
    server: _Line
    uri: str


class Prompt(_Message, tag="prompt"):
    id: int
    server: _Line
    name: _Line
    arguments: dict[str, str]


class SkillSource(_Message, tag="skill"):
    """The source of a skill that is not among the session's own files."""

    id: int
    name: _Line


class SaveSkill(_Message, tag="save_skill"):
    id: int
    name: _Line
    source: str
    description: str = ""
    tags: Annotated[list[_Line], msgspec.Meta(max_length=100)] = []
    document: str = ""
    """The Markdown of its SKILL.md, where the program wrote one."""


class Keep(_Message, tag="keep"):
    """The session is to keep a value."""

    id: int
    name: _Line
    value: Any


class Kept(_Message, tag="kept"):
    id: int
    name: _Line


class Forget(_Message, tag="forget"):
    id: int
    name: _Line


class KeptNames(_Message, tag="kept_names"):
    id: int


class ManageSession(_Message, tag="session"):
    """Something about the caller's own sessions; `list` has no name."""

    id: int
    action: Literal["list", "show", "reset", "end"]
    name: _Line = ""


class Show(_Message, tag="show"):
    """The model is to see an image; `data` is base64."""

    id: int
    data: str
    name: _Line = ""


class ProgressReport(_Message, tag="progress"):
    text: _Line
    fraction: float | None = None


class Done(_Message, tag="done"):
    """The one message that ends a run. `shown` is the last expression's text, `value` its data where it is JSON."""

    error: str
    names: Annotated[list[_Line], msgspec.Meta(max_length=100)]
    shown: str = ""
    value: Any = None
    line: int = 0
    kind: _Line = ""
    exception: _Line = ""


Request = (
    Call
    | CallNamed
    | Search
    | Resource
    | Prompt
    | SkillSource
    | SaveSkill
    | Keep
    | Kept
    | Forget
    | KeptNames
    | ManageSession
    | Show
)
Message = Ready | Request | ProgressReport | Done

_decoder = msgspec.json.Decoder(Message)


class Following:
    """A long text that is sent behind its frame as it is. Inside, every quote in it would be written and read twice."""

    def __init__(self, text: str) -> None:
        self.text = text


def encode(frame: Any) -> bytes:
    """One frame for the guest. Values that JSON cannot hold are the caller's mistake and raise TypeError."""
    texts = bytearray()

    def follow(value: object) -> tuple[int, int]:
        """Where it will be found among what follows."""
        if not isinstance(value, Following):
            raise TypeError(f"a frame cannot hold {type(value).__name__}")
        begin = len(texts)
        texts.extend(value.text.encode("utf-8", "replace"))
        return begin, len(texts)

    body = msgspec.json.encode(frame, enc_hook=follow)
    if texts:
        body = b'%b,"follows":%d}' % (body[:-1], len(texts))
    return b"".join((_HEADER.pack(len(body)), body, texts))


class FrameReader:
    """Assembles messages from whatever pieces the socket delivers, in linear time."""

    def __init__(self, limit: int) -> None:
        """`limit` is in bytes of one frame."""
        self._limit = limit
        self._chunks = bytearray()
        self._needed = 0

    @property
    def missing(self) -> int:
        """Bytes that the frame which has begun still needs, as far as is known."""
        return max(0, self._needed - len(self._chunks))

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._chunks)

    def feed(self, data: bytes | memoryview) -> list[tuple[Message, int]]:
        """The messages that are complete now, each with its length in bytes."""
        self._chunks += data
        if len(self._chunks) < self._needed:
            return []
        messages: list[tuple[Message, int]] = []
        offset = 0
        while True:
            available = len(self._chunks) - offset
            if available < 4:
                self._needed = 4
                break
            (size,) = _HEADER.unpack_from(self._chunks, offset)
            if size > self._limit:
                raise FrameError(f"a frame of {size:,} bytes; `sandbox.message` is {self._limit:,}")
            if available < 4 + size:
                self._needed = 4 + size
                break
            self._check_values(offset + 4, size)
            with memoryview(self._chunks) as view, uncollected() if size > LARGE else nullcontext():
                messages.append((_decode(view[offset + 4 : offset + 4 + size]), size))
            offset += 4 + size
        if offset:
            del self._chunks[:offset]
        return messages

    def _check_values(self, offset: int, size: int) -> None:
        """Refuse what would grow into many times its length. Texts full of commas are looked at twice."""
        if size <= _MAX_VALUES:
            return
        end = offset + size
        if _values(self._chunks, offset, end) <= _MAX_VALUES:
            return
        # Only what stands between strings counts; a string is two quotes, so there cannot be many more of them.
        bare = self._chunks[offset:end].replace(b"\\\\", b"").replace(b'\\"', b"")
        if bare.count(b'"') > 2 * _MAX_VALUES or sum(map(_values, bare.split(b'"')[::2])) > _MAX_VALUES:
            raise FrameError(f"a frame of more than {_MAX_VALUES:,} values")


def _values(data: bytearray, begin: int = 0, end: int | None = None) -> int:
    end = len(data) if end is None else end
    return data.count(b",", begin, end) + data.count(b"[", begin, end) + data.count(b"{", begin, end)


def _decode(body: memoryview) -> Message:
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"not a message of ours ({error})") from None
