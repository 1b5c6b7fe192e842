"""Over MCP with a real client: a run solves a task and saves a skill, a new session finds and uses it, and the gateway
is killed with -9 in between, at random points. Nothing acknowledged is lost, nothing is half-written.

`TOOLFOLD_KILL_ROUNDS=200 scripts/test tests/test_skills_killed.py` is the long form.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.office import SERVER
from toolfold.skills.folder import read_skill
from toolfold.skills.store import SkillStore

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(3600)]

ROUNDS = int(os.environ.get("TOOLFOLD_KILL_ROUNDS", "3"))
SERVE = (
    "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); "
    "os.execv(sys.executable, [sys.executable, '-m', 'toolfold', 'serve', *sys.argv[2:]])"
)
TASK = """
from servers.office import read_note
from toolfold import save_skill

async def read_pair(first: str, second: str) -> str:
    '''Read two notes of the office and join them; written in round {round}.'''
    return await read_note(path=first) + ' and ' + await read_note(path=second)

print(await read_pair('a', 'b'))
print(save_skill(read_pair))
"""
USE = "from skills import read_pair\nprint(await read_pair('c', 'd'), read_pair.__doc__)"


class Gateway:
    """One after the other on the same data folder; `pid` is of the last one."""

    def __init__(self, data: Path) -> None:
        self._pid = data / "gateway.pid"
        config = data / "mcp.json"
        servers = {"office": {"command": sys.executable, "args": [str(SERVER), str(data / "ledger.jsonl")]}}
        config.write_text(json.dumps({"mcpServers": servers}))
        serve = ["-c", SERVE, str(self._pid), "--config", str(config), "--data", str(data)]
        self._parameters = StdioServerParameters(command=sys.executable, args=serve)

    def client(self) -> Client:
        return Client(self._parameters)

    def kill(self) -> None:
        os.kill(int(self._pid.read_text()), signal.SIGKILL)


async def call(client: Client, tool: str, **arguments: Any) -> str:
    result = await asyncio.wait_for(client.call_tool(tool, arguments), 60)
    return str(getattr(result.content[0], "text", ""))


async def test_what_was_acknowledged_survives_a_gateway_that_is_killed(runtime_dir: Path) -> None:
    chance = random.Random(int(os.environ.get("TOOLFOLD_KILL_SEED", "14")))
    gateway = Gateway(runtime_dir)
    folder = runtime_dir / "skills" / "callers" / "local"
    known = 0
    for round_ in range(1, ROUNDS + 1):
        acknowledged = False
        code = TASK.format(round=round_)
        with contextlib.suppress(Exception):  # a client whose server is gone fails in many ways
            async with gateway.client() as client:
                saving = asyncio.ensure_future(call(client, "run_code", code=code, session=f"s{round_}"))
                # The moment of the kill: some rounds before the program runs, some long after.
                await asyncio.wait([saving], timeout=chance.choice([0.05, 0.3, 0.8, 1.5, 60]) * chance.random() + 0.01)
                acknowledged = saving.done() and "from skills.read_pair import read_pair" in saving.result()
                gateway.kill()
                await asyncio.gather(saving, return_exceptions=True)
        now = _round_on_disk(folder)
        assert now in ({round_} if acknowledged else {known, round_}), f"round {round_}"
        known = now
    async with gateway.client() as client:
        if not known:
            await call(client, "run_code", code=TASK.format(round=999))
            known = 999
        found = await call(client, "search_tools", query="join two notes of the office")
        assert "from skills import read_pair  # async read_pair(first: str, second: str) -> str" in found
        used = await call(client, "run_code", code=USE, session="new")
        assert "did read_note and did read_note" in used
        assert f"written in round {known}." in used
    store = SkillStore(folder)
    store.refresh()
    assert not [path.name for path in folder.iterdir() if path.name.startswith((".tmp-", ".old-"))]
    assert all(one.description for one in store.history("read-pair"))


def _round_on_disk(folder: Path) -> int:
    """Which round wrote what is there now; it must be whole."""
    if not (folder / "read-pair").exists():
        return 0
    skill = read_skill(folder / "read-pair")
    number = int(skill.description.removesuffix(".").rpartition(" ")[2])
    assert f"written in round {number}." in skill.source
    return number
