"""The demo's hand-written protocol side, held to the SDK's own server with the same tools."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import warm
from toolfold.demo.fleet import build
from toolfold.demo.servers.wire import MODERN_VERSIONS, Wire

# The same tools behind the SDK's low-level server. It runs in a process of its own, on real pipes.
SDK_SERVER = """
import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from toolfold.demo.fleet import build

demo = build("grafana")
tools = {tool.name: tool for tool in demo.tools}

async def list_tools(context, params):
    return types.ListToolsResult(tools=[
        types.Tool(
            name=tool.name, title=tool.title, description=tool.description, input_schema=tool.arguments,
            output_schema=tool.output_schema, annotations=types.ToolAnnotations.model_validate(tool.annotations),
        )
        for tool in demo.tools
    ])

async def call_tool(context, params):
    text, structured, is_error = tools[params.name].answer(params.arguments or {})
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=structured, is_error=is_error
    )

async def main():
    server = Server(demo.name, version="1.0.0", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

anyio.run(main)
"""

ENVELOPE = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": MODERN_VERSIONS[0],
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}
CLIENT: dict[str, Any] = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
GOOD_CALL = {"name": "get_dashboard", "arguments": {"uid": "services"}}
BAD_CALL = {"name": "get_dashboard", "arguments": {"uid": "nothing"}}


def request(at: int, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": at, "method": method} | ({} if params is None else {"params": params})


MODERN = [
    request(1, "server/discover", ENVELOPE),
    request(2, "tools/list", ENVELOPE),
    request(3, "tools/call", ENVELOPE | GOOD_CALL),
    request(4, "tools/call", ENVELOPE | BAD_CALL),
    request(5, "prompts/list", ENVELOPE),
]


def handshake(version: str) -> list[dict[str, Any]]:
    return [
        request(1, "initialize", CLIENT | {"protocolVersion": version}),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request(2, "ping"),
        request(3, "tools/list"),
        request(4, "tools/call", GOOD_CALL),
        request(5, "tools/call", BAD_CALL),
        request(6, "resources/list"),
    ]


def converse(command: list[str], lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Send one request after the other, each when the last one is answered, as both servers may run side by side."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers: list[dict[str, Any]] = []
        for line in lines:
            process.stdin.write(json.dumps(line).encode() + b"\n")
            process.stdin.flush()
            if "id" in line:
                answers.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        assert process.wait(timeout=30) == 0
    return answers


def both(lines: list[dict[str, Any]], folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    ours = converse([sys.executable, "-m", "toolfold.demo", "serve", "grafana"], lines)
    server = folder / "server.py"
    server.write_text(SDK_SERVER)
    return ours, converse([warm.python(), str(server)], lines)


@pytest.mark.parametrize(
    "lines",
    [MODERN, *(handshake(version) for version in ("2025-06-18", "2025-11-25", "1999-01-01"))],
    ids=["modern", "2025-06-18", "2025-11-25", "unknown"],
)
def test_every_answer_is_the_one_that_the_sdk_gives(lines: list[dict[str, Any]], tmp_path: Path):
    ours, theirs = both(lines, tmp_path)
    assert ours == theirs


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26"])
def test_an_old_client_gets_all_that_the_sdk_tells_it(version: str, tmp_path: Path):
    # The SDK leaves out what these versions did not have yet; to say more than an old client reads does no harm.
    ours, theirs = both(handshake(version), tmp_path)
    for mine, reference in zip(ours, theirs, strict=True):
        assert contains(mine, reference), (mine, reference)


def contains(mine: Any, reference: Any) -> bool:
    match mine, reference:
        case dict(), dict():
            pairs = cast("tuple[dict[str, Any], dict[str, Any]]", (mine, reference))
            return all(key in pairs[0] and contains(pairs[0][key], value) for key, value in pairs[1].items())
        case list(), list():
            lists = cast("tuple[list[Any], list[Any]]", (mine, reference))
            return len(lists[0]) == len(lists[1]) and all(map(contains, *lists))
        case _:
            return mine == reference


def test_an_unknown_modern_version_is_refused_with_those_that_are_served():
    meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}}
    answer = Wire(build("slack")).answer(json.dumps(request(7, "tools/list", meta)).encode())
    assert answer is not None
    assert answer["error"]["data"] == {"supported": list(MODERN_VERSIONS), "requested": "2031-01-01"}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"not json\n", -32700),
        (b"[]\n", -32600),
        (b"3\n", -32600),
        (b'{"id": 1, "method": 3}\n', -32600),
        (b'{"id": 1, "method": "tools/call", "params": []}\n', -32602),
        (b'{"id": 1, "method": "tools/call", "params": {}}\n', -32602),
        (b'{"id": 1, "method": "tools/call", "params": {"name": "post_message", "arguments": 3}}\n', -32602),
        (b'{"id": 1, "method": "tools/list", "params": {"_meta": 3}}\n', -32602),
        (b'{"id": 1, "method": "nothing/at/all"}\n', -32601),
    ],
)
def test_nonsense_is_answered_with_the_protocols_error(line: bytes, code: int):
    answer = Wire(build("slack")).answer(line)
    assert answer is not None
    assert answer["error"]["code"] == code


def test_a_notification_gets_no_answer():
    assert Wire(build("slack")).answer(b'{"jsonrpc": "2.0", "method": "notifications/cancelled"}\n') is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(
    method=st.sampled_from(["initialize", "server/discover", "ping", "tools/list", "tools/call", "x"]),
    params=JSON | st.fixed_dictionaries({"name": st.just("post_message"), "arguments": JSON}),
)
def test_no_request_ends_the_server(method: str, params: Any):
    answer = Wire(build("slack")).answer(json.dumps({"id": 1, "method": method, "params": params}).encode())
    assert answer is not None
    assert ("result" in answer) != ("error" in answer)
