"""What a stdio client sees beside the answers: nothing on stderr, and no name that is only ours."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.test_gateway_greeting import INITIALIZED, hello, request
from tests.test_gateway_stdio import serve_command
from toolfold.config.settings import Settings
from toolfold.fold import Toolfold

pytestmark = pytest.mark.anyio

INNER = "@connection"
SOURCE = Path(__file__).parents[1] / "src" / "toolfold"
Ask = Callable[..., Awaitable[str]]

PROGRAMS = {
    "prints": "x = 5\nprint(x)",
    "fails": "1 / 0",
    "is refused": "from servers.lab import no_such_tool",
    "prints far too much": "print('y' * 200_000)",
    "looks around": (
        "import os\nprint(os.environ, os.getcwd(), os.listdir('.'), open('/proc/self/mountinfo').read(), globals())"
    ),
    "dies": "import os\nos._exit(3)",
    "comes after": "print(x)",
}


@asynccontextmanager
async def serving(runtime_dir: Path, *more: str) -> AsyncGenerator[tuple[Ask, asyncio.subprocess.Process]]:
    """A gateway on stdio, and a way to call one of its tools: the whole answer as it came."""
    process = await asyncio.create_subprocess_exec(
        warm.python(),
        *serve_command(runtime_dir, *more),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        limit=2**22,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout
    number = 1

    async def ask(tool: str, **arguments: Any) -> str:
        nonlocal number
        number += 1
        stdin.write(json.dumps(request(number, "tools/call", name=tool, arguments=arguments)).encode() + b"\n")
        async with asyncio.timeout(60):
            while '"id"' not in (line := (await stdout.readline()).decode()):
                assert "list_changed" in line
            return line

    for message in (hello("2025-11-25"), INITIALIZED):
        stdin.write(json.dumps(message).encode() + b"\n")
    async with asyncio.timeout(60):
        assert b"serverInfo" in await stdout.readline()
    try:
        yield ask, process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def ended(process: asyncio.subprocess.Process) -> str:
    """Close the client's end; all of stderr."""
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.close()
    async with asyncio.timeout(60):
        errors = await process.stderr.read()
        assert await process.wait() == 0
    return errors.decode()


@pytest.mark.parametrize("mode", ["code", "hybrid", "direct"])
async def test_nothing_is_written_to_stderr_at_a_normal_start(runtime_dir: Path, mode: str) -> None:
    async with serving(runtime_dir, "--mode", mode) as (ask, process):
        if mode != "code":
            assert "3" in await ask("lab__add", a=1, b=2)
        if mode == "direct":
            assert await ended(process) == ""
            return
        assert "lab" in await ask("search_tools", query="")
        # More runs than are kept ready: all that is prepared in the background has been.
        for _ in range(12):
            assert '"text":"1"' in await ask("run_code", code="print(1)", session="new")
        assert await ended(process) == ""


async def test_no_inner_name_reaches_the_model_the_program_or_the_logs(runtime_dir: Path) -> None:
    async with serving(runtime_dir) as (ask, process):
        answers = {what: await ask("run_code", code=code) for what, code in PROGRAMS.items()}
        answers["searches"] = await ask("search_tools", query="add")
        answers["names a session"] = await ask("run_code", code="print(1)", session="mine")
        assert "restarted" in answers["dies"] + answers["comes after"]
        answers["stderr"] = await ended(process)
    for what, answer in answers.items():
        assert INNER not in answer, what
    for log in (runtime_dir / "logs").rglob("*"):
        assert INNER.encode() not in log.read_bytes(), log


@pytest.mark.parametrize("switched", [True, False])
async def test_a_result_does_not_name_the_session_of_a_connection(tmp_path: Path, switched: bool) -> None:
    async with Toolfold.open(Settings(data_dir=tmp_path, enabled=switched)) as fold:
        for code in ("print(1)", "from servers.lab import no_such_tool"):
            assert (await fold.run(code, session=INNER)).session is None
            assert (await fold.run(code, session="mine")).session == "mine"


def test_the_inner_name_is_written_in_one_place() -> None:
    assert [path.name for path in SOURCE.rglob("*.py") if INNER in path.read_text()] == ["stdio.py"]
