"""Reading what servers send: lines, messages, results and listings, for any input at all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCResponse

from toolfold.definitions import BlobPart, TextPart
from toolfold.upstream.listing import ListingReader, schema_flaw
from toolfold.upstream.messages import INVALID_ANSWER, Lines, MessageTooLongError, Parser
from toolfold.upstream.results import (
    InvalidResponseError,
    content_part,
    prompt_messages,
    resource_parts,
    tool_result,
)
from toolfold.upstream.serverlog import readable

# The first example pays for the import of the SDK.
unhurried = settings(deadline=None)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def parse(line: bytes) -> tuple[list[Any], list[bytes]]:
    junk: list[bytes] = []
    return [message.message for message in Parser(junk.append).parse(line)], junk


@unhurried
@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=30))
def test_lines_are_the_same_however_the_bytes_arrive(data: bytes, cuts: list[int]) -> None:
    lines = Lines(limit=1000)
    rest = data
    for cut in cuts:
        lines.feed(rest[:cut])
        rest = rest[cut:]
    lines.feed(rest)
    lines.end()
    whole = [stripped for line in data.split(b"\n") if (stripped := line.strip(b" \t\r\n\0"))]
    assert lines.ready_bytes == sum(map(sys.getsizeof, whole))
    assert [lines.pop() for _ in range(len(lines.ready))] == whole
    assert lines.ready_bytes == 0


def test_a_line_over_the_limit_is_refused_before_it_is_kept() -> None:
    lines = Lines(limit=10)
    lines.feed(b"0123456789\n01234")
    lines.feed(b"56789")
    with pytest.raises(MessageTooLongError):
        lines.feed(b"x")


@unhurried
@given(st.binary(max_size=200))
def test_no_bytes_make_the_parser_fail(line: bytes) -> None:
    messages, junk = parse(line)
    assert messages or junk


@unhurried
@given(anything)
def test_no_json_makes_the_parser_fail(value: Any) -> None:
    parse(json.dumps(value).encode())


@unhurried
@given(st.integers(0, 2**53), st.dictionaries(st.text(), anything, max_size=4))
def test_an_answer_arrives_as_it_was_sent(number: int, result: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
    (message,), junk = parse(line)
    assert isinstance(message, JSONRPCResponse)
    assert (message.id, message.result) == (number, result)
    assert not junk


@pytest.mark.parametrize("prefix", [b"\xef\xbb\xbf", b"\x1b[0m", b"Ready> ", b"{oops} "])
def test_a_message_behind_something_else_is_found(prefix: bytes) -> None:
    (message,), junk = parse(prefix + b'{"jsonrpc": "2.0", "id": 1, "result": {}}')
    assert isinstance(message, JSONRPCResponse)
    assert junk == [prefix]


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":5,"result":[]}',
        b'{"jsonrpc":"2.0","id":5,"error":"no"}',
        b'{"id":5,"result":{}}',
        b'{"jsonrpc":"2.0","id":5,"result":{"text":"\xff"}}',
        b'{"result":{"text":"\xff"},"jsonrpc":"2.0","id":5}',
        b'{"jsonrpc":"2.0","result":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b'},"id":5}',
    ],
)
def test_a_broken_answer_becomes_an_error_answer(line: bytes) -> None:
    (message,), junk = parse(line)
    assert isinstance(message, JSONRPCError)
    assert message.id == 5
    assert isinstance(message.error, ErrorData)
    assert message.error.code == INVALID_ANSWER
    assert not junk


@pytest.mark.parametrize(
    "line",
    [b"hello", b"{", b"[]", b"{}", b"null", b'"x"', b'{"jsonrpc":"2.0","id":true,"result":{}}', b'{"a":1}', b"\xff"],
)
def test_what_is_no_message_is_junk(line: bytes) -> None:
    assert parse(line) == ([], [line])


def test_large_numbers_and_nan_survive() -> None:
    (message,), _ = parse(b'{"jsonrpc":"2.0","id":1,"result":{"big":123456789012345678901234567890,"nan":NaN}}')
    assert message.result["big"] == 123456789012345678901234567890
    assert message.result["nan"] != message.result["nan"]


def test_a_notification_is_read_with_the_sdk() -> None:
    (message,), _ = parse(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
    assert isinstance(message, JSONRPCNotification)


def test_a_structured_null_counts_only_on_the_newer_protocol() -> None:
    raw: dict[str, Any] = {"content": [], "structuredContent": None}
    assert tool_result(raw, modern=True).has_structured
    assert not tool_result(raw, modern=False).has_structured
    assert not tool_result({"content": []}, modern=True).has_structured


def test_a_result_that_asks_for_input_is_refused() -> None:
    with pytest.raises(InvalidResponseError, match="input"):
        tool_result({"resultType": "input_required", "inputRequests": {}}, modern=True)


def test_content_of_an_unknown_kind_is_shown_as_it_is() -> None:
    part = content_part({"type": "hologram", "depth": 3})
    assert part == TextPart('{"type": "hologram", "depth": 3}')
    assert content_part({"type": "image", "data": "aGk="}) == BlobPart("aGk=", "application/octet-stream")


@unhurried
@given(st.dictionaries(st.sampled_from(["content", "structuredContent", "isError", "resultType"]), anything))
def test_any_result_is_read_or_called_invalid(raw: dict[str, Any]) -> None:
    for read in (lambda: tool_result(raw, modern=True), lambda: tool_result(raw, modern=False)):
        with contextlib.suppress(InvalidResponseError):
            read()


@unhurried
@given(st.dictionaries(st.sampled_from(["contents", "messages"]), anything))
def test_any_resource_or_prompt_is_read_or_called_invalid(raw: dict[str, Any]) -> None:
    for read in (resource_parts, prompt_messages):
        with contextlib.suppress(InvalidResponseError):
            read(raw)


entry = st.dictionaries(
    st.sampled_from(
        [
            "name",
            "uri",
            "uriTemplate",
            "title",
            "description",
            "inputSchema",
            "outputSchema",
            "annotations",
            "arguments",
        ]
    ),
    anything,
)


@unhurried
@given(st.lists(entry | anything, max_size=6))
def test_any_listing_is_read_and_every_name_is_kept_once(entries: list[Any]) -> None:
    pages = {"tools/list": "tools", "resources/list": "resources", "prompts/list": "prompts"}

    async def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {pages.get(method, "resourceTemplates"): entries}

    reader = ListingReader("s", request)
    listing = asyncio.run(reader.read(instructions="", tools=True, resources=True, prompts=True))
    named = [cast("dict[str, Any]", item).get("name") for item in entries if isinstance(item, dict)]
    usable = [name for name in named if isinstance(name, str) and name]
    assert [tool.name for tool in listing.tools] == list(dict.fromkeys(usable))
    assert all(isinstance(tool.input_schema, dict) for tool in listing.tools)


@pytest.mark.parametrize("paged", [False, True])
def test_a_listing_keeps_no_more_entries_and_bytes_than_allowed(monkeypatch: pytest.MonkeyPatch, paged: bool) -> None:
    """One page or several, one list or several: the limit on bytes is for the whole listing."""
    monkeypatch.setattr("toolfold.upstream.listing.ENTRIES", 30)
    monkeypatch.setattr("toolfold.upstream.listing.LISTING_BYTES", 1300)
    entries = [{"name": f"n{number}", "uri": f"u://{number}"} for number in range(100)]
    asked: list[str] = []

    async def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append(method)
        key = {"tools/list": "tools", "resources/list": "resources"}.get(method, "resourceTemplates")
        if not paged:
            return {key: entries}
        first = int(params.get("cursor", 0))
        return {key: entries[first : first + 10], "nextCursor": str(first + 10)}

    reader = ListingReader("s", request)
    listing = asyncio.run(reader.read(instructions="", tools=True, resources=True, prompts=False))
    assert len(listing.tools) == 30
    kept = len(listing.resources)
    assert 0 < kept < 30
    assert sum(len(json.dumps(entry, separators=(",", ":"))) for entry in entries[:30] + entries[:kept]) <= 1300
    assert "tools/list sent too much; 30 entries were kept" in reader.problems
    assert asked.count("tools/list") == (4 if paged else 1)


@unhurried
@given(st.text(max_size=300))
def test_words_of_a_server_cannot_move_the_cursor(text: str) -> None:
    shown = readable(f"{text}\x1b[2J\x1b[31m\r\x07", 100)
    assert len(shown) <= 101
    assert not set(shown) & {"\x1b", "\r", "\x07", "\x9b", "\x00"}


@pytest.mark.parametrize("key", ["$schema", "$ref", "$id", "$dynamicRef"])
def test_checking_a_schema_never_reaches_out_to_an_address_in_it(key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        schema_flaw({key: f"http://127.0.0.1:{listening.getsockname()[1]}/schema", "type": "object"})
        with pytest.raises(TimeoutError):
            listening.accept()


def test_a_flawed_schema_is_told_in_one_line() -> None:
    flaw = schema_flaw({"type": "objekt"})
    assert "objekt" in flaw
    assert "\n" not in flaw
    assert schema_flaw({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}) == ""


def test_every_real_tool_is_kept_as_it_was_sent(shared: Path) -> None:
    for path in sorted((shared / "catalogs").glob("*.json")):
        sent = json.loads(path.read_bytes())["tools"]

        async def request(method: str, params: dict[str, Any], sent: list[Any] = sent) -> dict[str, Any]:
            return {"tools": sent}

        reader = ListingReader("s", request, tasks=True)
        listing = asyncio.run(reader.read(instructions="", tools=True, resources=False, prompts=False))
        assert [(tool.name, tool.input_schema) for tool in listing.tools] == [
            (tool["name"], tool["inputSchema"]) for tool in sent
        ]
