"""The bytes that a real MCP client is sent, over stdio and over HTTP: no personal value is among them."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests import warm
from tests.servers.people import ADA, TOOLS
from tests.test_gateway_http import started
from tests.test_privacy_runs import EVERYTHING, leaks, sent_to

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent / "servers"
FAILING = "from servers.people import person\nx = await person()\nraise ValueError(x['email'] + ' ' + x['name'])"
LONG = "from servers.people import many\nfor row in (await many(count=3000))['rows']: print(row, end=' ')"


def command(folder: Path, mode: str, *more: str, **settings: Any) -> list[str]:
    people = {"command": warm.python(), "args": [str(HERE / "people.py"), str(folder / "sent.jsonl")]}
    config = folder / "config.json"
    shown = {"servers": {"people": people}, "privacy": {"mode": mode}, "audit": True, **settings}
    config.write_text(json.dumps(shown))
    return ["-m", "toolfold", "serve", "--config", str(config), "--data", str(folder), *more]


async def use(client: Client) -> list[Any]:
    """Everything that a client can get out of it, with progress."""
    told: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async def run(code: str, session: str | None) -> Any:
        arguments = {"code": code} | ({"session": session} if session else {})
        return await client.call_tool("run_code", arguments, progress_callback=on_progress)

    results = [await run(EVERYTHING, "s"), await run(FAILING, "s"), await run(LONG, None)]
    results.append(await run("from servers.people import send\nx = await send(to='EMAIL_1')\nprint('sent')", "s"))
    await client.call_tool("search_tools", {"query": "people", "detail": "full"})
    assert "EMAIL_1" in "".join(told)
    return results


def check(results: list[Any], wire: bytes, folder: Path) -> None:
    assert not results[0].is_error, results[0]
    assert results[1].is_error
    assert "sent" in str(results[3].content), results[3]
    assert len(wire) > 10_000
    text = wire.decode("utf-8", "replace")
    assert leaks(text) == []
    assert "user7@" not in text
    assert "user2999@" not in text
    assert "EMAIL_1" in text
    assert {"to": ADA["email"]} in sent_to(folder / "sent.jsonl", "send")


@pytest.mark.parametrize(("mode", "era"), [("ingress", "2026-07-28"), ("egress", "legacy"), ("egress", "auto")])
async def test_over_stdio(runtime_dir: Path, mode: str, era: str) -> None:
    wire = runtime_dir / "wire"
    arguments = [str(HERE / "tee.py"), str(wire), warm.python(), *command(runtime_dir, mode)]
    async with (
        asyncio.timeout(100),
        Client(StdioServerParameters(command=sys.executable, args=arguments), mode=era) as client,
    ):
        results = await use(client)
    check(results, wire.read_bytes(), runtime_dir)


async def call_directly(client: Client) -> None:
    """Everything that a client can get by calling the servers' tools itself, with progress."""
    told: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async def call(tool: str, **arguments: Any) -> Any:
        return await client.call_tool(f"people__{tool}", arguments, progress_callback=on_progress)

    # On a busy machine the server may not have started when the first answer is due; the list grows then.
    wanted = {f"people__{tool}" for tool in TOOLS}
    while not wanted <= {each.name for each in (await client.list_tools(cache_mode="bypass")).tools}:
        await asyncio.sleep(0.1)
    person = await call("person")
    email = person.structured_content["email"]
    assert email.startswith("EMAIL_")
    for tool in ("as_text", "note", "with_key", "progress"):
        assert not (await call(tool)).is_error
    assert email in "".join(told)
    for tool in ("fail", "refuse"):
        failed = await call(tool, to=email)
        assert failed.is_error
        assert email in str(failed.content)
    # What the model writes is a token, and what its own server gets is the value.
    assert (await call("send", to=email)).structured_content == {"got": {"to": email}}
    long = await call("many", count=3000)
    assert "characters cut" in str(long.content)
    # The whole of it, by whichever way this mode has.
    link = next((each for each in long.content if each.type == "resource_link"), None)
    if link is not None:
        whole: Any = (await client.read_resource(link.uri)).contents[0]
        assert "EMAIL_" in whole.text
    else:
        (file,) = re.findall(r"all of it: (workspace/[\w./-]+)", long.content[0].text)
        read = f"text = open({file!r}).read()\nfor at in range(0, len(text), 9000): print(text[at : at + 9000])"
        assert "EMAIL_" in str((await client.call_tool("run_code", {"code": read})).content)
    await client.get_prompt("people__greet")
    await client.read_resource("toolfold://people/people://notes")


@pytest.mark.parametrize(("mode", "era"), [("direct", "legacy"), ("hybrid", "2026-07-28")])
async def test_over_stdio_by_direct_calls(runtime_dir: Path, mode: str, era: str) -> None:
    wire = runtime_dir / "wire"
    serve = command(runtime_dir, "egress", "--mode", mode, direct=["people.*"], expose=["prompts", "resources"])
    arguments = [str(HERE / "tee.py"), str(wire), warm.python(), *serve]
    async with (
        asyncio.timeout(200),
        Client(StdioServerParameters(command=sys.executable, args=arguments), mode=era) as client,
    ):
        await call_directly(client)
    text = wire.read_text()
    assert leaks(text) == []
    assert "user7@" not in text
    assert "user2999@" not in text
    assert {"to": ADA["email"]} in sent_to(runtime_dir / "sent.jsonl", "send")


@asynccontextmanager
async def tapped(port: int) -> AsyncGenerator[tuple[int, bytearray]]:
    """Another port that leads to this one, and what was sent back through it."""
    taken = bytearray()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ours: int | None) -> None:
        try:
            while data := await reader.read(65536):
                if ours is None:
                    taken.extend(data)
                else:
                    # The gateway answers only to its own name.
                    data = data.replace(b"127.0.0.1:%d" % ours, b"127.0.0.1:%d" % port)
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        their_reader, their_writer = await asyncio.open_connection("127.0.0.1", port)
        ours = writer.get_extra_info("sockname")[1]
        both = copy(reader, their_writer, ours), copy(their_reader, writer, None)
        await asyncio.gather(*both, return_exceptions=True)

    async with await asyncio.start_server(connect, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], taken
        server.close()


@pytest.mark.parametrize(("mode", "era"), [("ingress", "legacy"), ("egress", "auto")])
async def test_over_http(runtime_dir: Path, mode: str, era: str) -> None:
    serve = command(runtime_dir, mode, "--http", "127.0.0.1:0", "--no-token")
    async with asyncio.timeout(100), started(serve) as gateway:
        async with tapped(gateway.port) as (port, taken), Client(f"http://127.0.0.1:{port}/mcp", mode=era) as client:
            results = await use(client)
        logged = "".join(gateway.printed)
    check(results, bytes(taken), runtime_dir)
    assert leaks(logged) == []
    for path in [*(runtime_dir / "logs").rglob("*"), *runtime_dir.glob("audit*")]:
        if path.is_file():
            assert leaks(path.read_bytes().decode("latin-1")) == [], path
