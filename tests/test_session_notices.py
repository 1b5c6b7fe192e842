"""Whatever ends a session's sandbox, the next run is told once, in plain words: what is gone, and what remains."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters

from tests.lab import lab_fold
from toolfold import Toolfold
from toolfold.sandbox.protocol import SessionHome
from toolfold.session.homes import SessionHomes, SessionState, ask_for_reset, home_path
from toolfold.session.kept import KeptValues

pytestmark = pytest.mark.anyio

KILLS = int(os.environ.get("TOOLFOLD_KILL_ROUNDS", "4"))


@pytest.fixture(scope="module")
async def fold(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> AsyncIterator[Toolfold]:
    data = tmp_path_factory.mktemp("notices")
    (data / "runtime").symlink_to(shared_runtime)
    async with lab_fold(data) as fold:
        yield fold


async def told_once(fold: Toolfold, session: str) -> str:
    """What the next run is told, and that the one after it is told nothing."""
    told = await fold.run("print(1)", session=session)
    assert (await fold.run("print(1)", session=session)).notice == ""
    return told.notice


async def cancelled(fold: Toolfold, session: str) -> None:
    begun = asyncio.Event()
    code = "rows = [1]\nprint(rows)\nwhile True: pass"
    run = asyncio.create_task(fold.run(code, session=session, on_event=lambda event: begun.set()))
    await asyncio.wait_for(begun.wait(), 60)
    run.cancel()
    await asyncio.wait([run])


async def test_a_first_run_that_was_cancelled(fold: Toolfold) -> None:
    await cancelled(fold, "first")
    assert await told_once(fold, "first") == (
        "Session 'first' was restarted (its last run was cancelled): its variables are gone, "
        "files in workspace/ are kept."
    )
    [entry, *_] = await fold.sessions.transcript("first")
    assert (entry.error, entry.code[:11]) == ("The run was cancelled.", "rows = [1]\n")


async def test_a_cancelled_run_does_not_swallow_what_it_was_to_be_told(fold: Toolfold) -> None:
    await fold.run("important = 1", session="twice")
    await fold.sessions.reset("twice")
    await cancelled(fold, "twice")
    assert "its variables (important) are gone" in await told_once(fold, "twice")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("while True: pass", "its last run was stopped by a limit"),
        ("import os; os._exit(3)", "its last run crashed"),
        (
            "import os, time\nfor _ in range(40):\n    if not os.fork(): time.sleep(60); os._exit(0)\n1 / 0",
            "its last run left too many processes",
        ),
        ("x = bytearray(2_000_000_000)\nprint('no memory')", ""),
    ],
)
async def test_a_limit_or_a_crash(fold: Toolfold, code: str, reason: str) -> None:
    await fold.run("from toolfold import keep\nrows = 1\nkeep('cursor', 1)", session=code)
    ended = await fold.run(code, session=code, timeout=3)
    assert not ended.success
    if reason:
        rest = "its variables (rows) are gone, files in workspace/ are kept, and so are kept values (cursor)."
        assert rest in str(ended.error)
        assert await told_once(fold, code) == f"Session {code!r} was restarted ({reason}): {rest}"
    else:
        # A MemoryError is the program's own: nothing is lost by it.
        assert (await fold.run("print(rows)", session=code)).text == "1"


def left_by_another(fold: Toolfold, session: str, state: SessionState) -> SessionHome:
    """A session as a process that has ended left it."""
    homes = SessionHomes(fold.settings.data_dir)
    home = homes.adopt(homes.new(), "local", session)
    assert home is not None
    homes.remember(home, state)
    homes.close()
    return home


async def test_what_an_earlier_process_left(fold: Toolfold) -> None:
    left_by_another(fold, "left", SessionState("local", "left", ["rows"]))
    assert await told_once(fold, "left") == (
        "Session 'left' was restarted (Toolfold was restarted): its variables (rows) are gone, "
        "files in workspace/ are kept."
    )
    left_by_another(fold, "killed", SessionState("local", "killed", is_running=True))
    assert "(Toolfold was restarted): its variables are gone" in await told_once(fold, "killed")
    left_by_another(fold, "empty", SessionState("local", "empty"))
    assert await told_once(fold, "empty") == "", "there was nothing to lose"
    ask_for_reset(left_by_another(fold, "reset before", SessionState("local", "reset before", ["rows"])))
    assert "(it was reset): its variables (rows) are gone" in await told_once(fold, "reset before")


async def test_a_first_run_that_was_killed_is_told_to_one_process_only(runtime_dir: Path) -> None:
    notices: list[str] = []
    for _ in range(2):
        async with lab_fold(runtime_dir) as fold:
            if not notices:
                left_by_another(fold, "s", SessionState("local", "s", is_running=True))
            notices.append((await fold.run("print(1)", session="s")).notice)
    assert ["its variables are gone" in notice for notice in notices] == [True, False]


async def test_what_could_not_be_noted_on_a_full_disk_is_told_all_the_same(
    runtime_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with lab_fold(runtime_dir) as fold:
        await fold.run("x = 1", session="noted later")
        with monkeypatch.context() as disk:
            disk.setattr(SessionHomes, "_note", full)
            await fold.run("y = 2", session="noted later")
            await fold.run("z = 3", session="never noted")
        assert (await fold.run("x + y", session="noted later")).value == 3
    async with lab_fold(runtime_dir) as fold:
        assert "its variables (x, y) are gone" in await told_once(fold, "noted later")
        assert "its variables are gone" in await told_once(fold, "never noted")


async def test_a_session_that_another_process_resets_or_ends(fold: Toolfold) -> None:
    await fold.run("rows = 1", session="changed")
    home = SessionHome(home_path(fold.settings.data_dir / "sessions", "local", "changed"))
    ask_for_reset(home)
    told = await fold.run("x = 1\nprint('rows' in globals())", session="changed")
    assert (told.output, "(it was reset): its variables (rows) are gone" in told.notice) == ("False\n", True)
    homes = SessionHomes(fold.settings.data_dir)
    assert homes.end(home)
    homes.close()
    assert await told_once(fold, "changed") == "Session 'changed' was ended: its variables and files are gone."


async def test_a_program_with_many_mistakes_is_told_the_first_five(fold: Toolfold) -> None:
    result = await fold.run("from servers.lab import add\n" + "await add(a=1)\n" * 7)
    assert result.error is not None
    lines = result.error.text.splitlines()
    assert lines[0] == "Nothing was run."
    assert [line.split(":")[0] for line in lines if line.startswith("line ")] == [f"line {n}" for n in range(2, 7)]
    assert (result.error.line, result.tool_calls) == (2, [])


async def test_a_run_without_a_session_that_misses_a_variable_of_the_last_one(fold: Toolfold) -> None:
    await fold.run("rows = [1]")
    missing = await fold.run("print(rows)")
    assert "This run has no session: `rows` of an earlier run is gone." in str(missing.error)
    assert "no session" not in str((await fold.run("print(never)")).error)
    assert "no session" not in str((await fold.run("print(rows)", caller="other")).error)


def _client(data: Path) -> Client:
    config = data / "none.json"
    config.write_text("{}")
    arguments = ["-m", "toolfold", "serve", "--config", str(config), "--data", str(data)]
    return Client(StdioServerParameters(command=sys.executable, args=arguments))


async def _text(client: Client, code: str, **more: Any) -> str:
    result = await client.call_tool("run_code", {"code": code, **more})
    content: Any = result.content[0]
    return content.text


async def test_a_new_connection_a_clients_timeout_and_a_killed_gateway(runtime_dir: Path) -> None:
    async with _client(runtime_dir) as client:
        assert await _text(client, "rows = [1]\nprint(rows)") == "[1]"
        arguments = {"code": "x = 1\nwhile True: pass", "session": "late"}
        with pytest.raises(MCPError):
            await client.call_tool("run_code", arguments, read_timeout_seconds=2)
        assert await _text(client, "print(1)", session="late") == (
            "Session 'late' was restarted (its last run was cancelled): its variables are gone, "
            "files in workspace/ are kept.\n1"
        )
        await _text(client, "from toolfold import keep\nkeep('n', 1)\ny = 2", session="killed")
    # The same client opens another connection, and is told once that it is one.
    async with _client(runtime_dir) as client:
        told = await _text(client, "print('rows' in globals())")
        assert told == (
            "This is a new connection: variables (rows) and files of the last one are gone. "
            "Give a `session` name to keep them.\nFalse"
        )
        assert await _text(client, "print(1)") == "1"
        assert "Toolfold was restarted): its variables (y) are gone" in await _text(client, "1", session="killed")
        await _text(client, "open('workspace/only.txt', 'w').close()")
    async with _client(runtime_dir) as client:
        told = await _text(client, "print(1)")
        assert told == (
            "This is a new connection: files of the last one are gone. Give a `session` name to keep them.\n1"
        )
        assert await _text(client, "print(1)") == "1"


async def test_a_gateway_that_is_killed_in_the_first_run(runtime_dir: Path) -> None:
    program = f"""
import asyncio
from pathlib import Path
from tests.lab import lab_fold
async def main():
    async with lab_fold(Path({str(runtime_dir)!r})) as fold:
        code = "from toolfold import keep\\nfor n in range(10**9):\\n    keep('n', n)\\n    print(n)"
        await fold.run(code, session="s", on_event=lambda event: print(event.text, end="", flush=True))
asyncio.run(main())
"""
    gateway = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    )
    assert gateway.stdout is not None
    acknowledged = -1
    for line in gateway.stdout:
        acknowledged = int(line)
        if acknowledged == 5:
            gateway.kill()
    gateway.wait()
    async with lab_fold(runtime_dir) as fold:
        told = await fold.run("from toolfold import kept\nprint(kept['n'])", session="s")
        assert int(told.output) >= acknowledged
        assert told.notice == (
            "Session 's' was restarted (Toolfold was restarted): its variables are gone, "
            "files in workspace/ are kept, and so are kept values (n)."
        )


def test_a_writer_that_is_killed_at_any_moment_leaves_every_acknowledged_value_whole(tmp_path: Path) -> None:
    """The long form: TOOLFOLD_KILL_ROUNDS=200."""
    program = f"""
import json
from pathlib import Path
from toolfold.sandbox.protocol import SessionHome
from toolfold.session.kept import KeptValues
kept = KeptValues(SessionHome(Path({str(tmp_path)!r})), 10**8)
number = json.loads(kept.get('n') or '[0]')[0]
while True:
    number += 1
    kept.put('n', [number] * 1000)
    print(number, flush=True)
"""
    chosen = random.Random(7)
    for _ in range(KILLS):
        writer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        writer.stdout.readline()
        left = chosen.randrange(1, 20)
        last = 0
        for line in writer.stdout:
            last = int(line)
            left -= 1
            if left == 0:
                os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        value = json.loads(KeptValues(SessionHome(tmp_path), 10**8).get("n") or b"[]")
        assert len(value) == 1000
        assert len(set(value)) == 1
        assert value[0] >= last
