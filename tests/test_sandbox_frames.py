"""What the host makes of bytes from the guest, whatever the bytes are."""

from __future__ import annotations

import itertools
import json
import socket
import struct
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolfold.sandbox.frames import (
    Call,
    CallNamed,
    Done,
    Following,
    FrameError,
    FrameReader,
    Message,
    ProgressReport,
    Search,
    encode,
)
from toolfold.sandbox.guest.toolfold_guest.channel import Channel

LIMIT = 4_000_000
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def sent_by_guest(message: Message) -> bytes:
    return framed(msgspec.json.encode(message))


def read(data: bytes, limit: int = LIMIT) -> list[Message]:
    return [message for message, _ in FrameReader(limit).feed(data)]


@given(arguments=st.dictionaries(st.text(), JSON, max_size=5), pieces=st.lists(st.integers(1, 50), max_size=30))
def test_frames_arrive_however_they_are_cut(arguments: dict[str, Any], pieces: list[int]) -> None:
    sent = Call(7, "server", "tool", arguments)
    data = sent_by_guest(sent) + sent_by_guest(ProgressReport("half", 0.5))
    reader = FrameReader(LIMIT)
    messages: list[Message] = []
    offset = 0
    for size in [*pieces, len(data)]:
        messages += [message for message, _ in reader.feed(data[offset : offset + size])]
        offset += size
    assert messages == [sent, ProgressReport("half", 0.5)]
    assert not reader.partial


@given(data=st.binary(max_size=300))
@example(framed(b""))
@example(framed(b"null"))
@example(framed(b'{"t":"ready"} '))
@example(framed(b"\xef\xbb\xbf{}"))
def test_any_bytes_are_messages_or_an_error(data: bytes) -> None:
    try:
        messages = read(data)
    except FrameError:
        return
    assert all(isinstance(message, Message) for message in messages)


@given(value=JSON)
def test_any_json_is_a_message_or_an_error(value: Any) -> None:
    try:
        messages = read(framed(json.dumps(value).encode("utf-8", "surrogatepass")))
    except FrameError:
        return
    assert len(messages) == 1


def test_a_frame_may_be_as_long_as_the_limit_and_no_longer() -> None:
    body = json.dumps({"t": "call", "id": 1, "server": "s", "tool": "t", "arguments": {"x": "y" * 1000}}).encode()
    assert read(framed(body), limit=len(body))
    with pytest.raises(FrameError, match=r"sandbox\.message"):
        read(framed(body), limit=len(body) - 1)


def test_a_long_frame_is_refused_before_it_has_arrived() -> None:
    with pytest.raises(FrameError):
        FrameReader(LIMIT).feed(struct.pack(">I", LIMIT + 1))


@pytest.mark.parametrize(
    "filler",
    [
        pytest.param(b"[" + b"[]," * 1_100_000 + b"1]", id="arrays"),
        pytest.param(b"[" + b'"",' * 1_100_000 + b"1]", id="empty strings"),
        pytest.param(b'["\\\\",' + b"1," * 1_100_000 + b"1]", id="numbers behind an escape"),
        pytest.param(b'["' + b'\\",' * 10 + b'",' + b"1," * 1_100_000 + b"1]", id="numbers behind a quote"),
    ],
)
def test_a_frame_of_millions_of_values_is_refused(filler: bytes) -> None:
    body = b'{"t":"call","id":1,"server":"s","tool":"t","arguments":{"x":' + filler + b"}}"
    with pytest.raises(FrameError, match="values"):
        read(framed(body))


@pytest.mark.parametrize("text", ["a,b," * 400_000, '{"a":[1,2]},' * 200_000, '\\",' * 300_000])
def test_a_long_text_full_of_commas_is_not_many_values(text: str) -> None:
    sent = Call(1, "s", "t", {"text": text})
    assert read(sent_by_guest(sent)) == [sent]


def test_names_and_queries_are_cut_and_not_searched_for_at_length() -> None:
    (named,) = read(sent_by_guest(CallNamed(1, "x" * 5000, {})))
    (search,) = read(sent_by_guest(Search(1, "word " * 5000, "full", None)))
    assert isinstance(named, CallNamed)
    assert isinstance(search, Search)
    assert len(named.name) == 1000
    assert len(search.query) == 2000


@pytest.mark.parametrize(
    "message",
    [
        ProgressReport("x" * 1001),
        Done(error="", names=["x"] * 101),
        Done(error="", names=["x" * 1001]),
        Call(1, "x" * 1001, "t", {}),
    ],
)
def test_what_people_would_see_is_bounded(message: Message) -> None:
    with pytest.raises(FrameError):
        read(sent_by_guest(message))


@given(texts=st.lists(st.text(min_size=1), max_size=4), chunks=st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_texts_behind_a_frame_arrive_in_their_places(texts: list[str], chunks: list[int]) -> None:
    order = {"t": "run", "code": "1"}
    parts = [{"type": "text", "text": Following(text)} for text in texts] + [{"type": "text", "text": "short"}]
    data = encode({"id": 1, "ok": {"parts": parts}}) + encode(order)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(theirs)
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(channel.request_now({"t": "search"})))
        asking.start()
        ours.recv(1 << 16)
        for size in itertools.chain(chunks, [len(data)]):
            ours.sendall(data[:size])
            data = data[size:]
        asking.join(5)
        assert [part["text"] for part in answers[0]["parts"]] == [*texts, "short"]
        assert order.items() <= channel.next_order().items()


def test_a_frame_holds_nothing_that_is_not_json() -> None:
    with pytest.raises(TypeError, match="object"):
        encode({"id": 1, "ok": object()})
