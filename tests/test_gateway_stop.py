"""`toolfold serve` is told to stop: it ends at once, quietly, with the usual exit code, whatever is under way."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.test_gateway_http import MODERN_META, serving
from tests.test_gateway_stdio import serve_command

pytestmark = pytest.mark.anyio

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
ENDLESS = "from servers.lab import add\nprint(await add(a=1, b=2), flush=True)\nwhile True: pass"


def running(name: str = "run_code") -> dict[str, Any]:
    """A run that never ends, and tells when it has begun."""
    params = {"name": name, "arguments": {"code": ENDLESS}, "_meta": MODERN_META | {"progressToken": 1}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def noise(printed: bytes | str) -> list[str]:
    text = printed.decode() if isinstance(printed, bytes) else printed
    return [line for line in text.splitlines() if not line.startswith(("sandbox:", "Dashboard:"))]


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
async def test_over_stdio(runtime_dir: Path, number: signal.Signals, busy: bool) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *serve_command(runtime_dir),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    if busy:
        message = running()
    else:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": MODERN_META}}
    process.stdin.write(json.dumps(message).encode() + b"\n")
    async with asyncio.timeout(60):
        line = await process.stdout.readline()
        assert (b"notifications/progress" if busy else b"search_tools") in line
        process.send_signal(number)
        _, errors = await process.communicate()
    assert noise(errors) == []
    assert process.returncode == CODES[number]


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
async def test_over_http(runtime_dir: Path, number: signal.Signals, busy: bool) -> None:
    async with serving(runtime_dir, "--token", "s3cret", python=sys.executable) as gateway:
        assert gateway.process.stderr is not None
        silent = await asyncio.open_connection("127.0.0.1", gateway.port)
        half = await asyncio.open_connection("127.0.0.1", gateway.port)
        half[1].write(b"POST /mcp HTTP/1.1\r\nhost: x\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        body = json.dumps(running()).encode()
        head = {
            "host": f"127.0.0.1:{gateway.port}",
            "authorization": "Bearer s3cret" if busy else "none",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "run_code",
            "content-length": str(len(body)),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        writer.write(f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body)
        async with asyncio.timeout(60):
            await reader.readuntil(b"notifications/progress" if busy else b"HTTP/1.1 401")
            gateway.process.send_signal(number)
            errors = await gateway.process.stderr.read()
            await gateway.process.wait()
            for streams in (silent, half):
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await streams[0].readexactly(1)
        assert noise("".join(gateway.printed[1:])) + noise(errors) == []
        assert gateway.process.returncode == CODES[number]


async def test_a_second_signal_does_not_cut_the_clean_up_short(runtime_dir: Path) -> None:
    async with serving(runtime_dir, "--no-token", python=sys.executable) as gateway:
        assert gateway.process.stderr is not None
        await gateway.says("sandbox:")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            gateway.process.send_signal(number)
        async with asyncio.timeout(60):
            errors = await gateway.process.stderr.read()
            await gateway.process.wait()
        assert noise(errors) == []
        # Signals that arrive together may be seen in another order.
        assert gateway.process.returncode in CODES.values()
