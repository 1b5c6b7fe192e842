"""Hosts, zygotes and sandboxes that are killed at any moment leave no process, mount, control group or home behind.

`TOOLFOLD_KILL_ROUNDS=200` makes more rounds of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.backends.available import candidate
from tests.hostile.arena import Listener
from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxDied, SandboxUnavailable
from toolfold.sandbox.choose import zygote
from toolfold.sandbox.pool import Pool
from toolfold.sandbox.walls import cgroup
from toolfold.session.homes import SessionHomes

pytestmark = pytest.mark.anyio

ROUNDS = int(os.environ.get("TOOLFOLD_KILL_ROUNDS", "8"))

PROGRAM = """
import os, time
if os.fork() == 0:
    time.sleep(60)
open("workspace/file", "w").close()
42
"""
# Runs programs in fresh sandboxes and in one that it keeps, for ever. Says so when the first one has run.
HOST = """
import asyncio, sys
from pathlib import Path
from tests.hostile.arena import Listener
from toolfold.config.settings import SandboxSettings
from toolfold.sandbox.choose import zygote
from toolfold.sandbox.pool import Pool
from toolfold.session.homes import SessionHomes

async def main():
    data, mark = Path(sys.argv[1]), int(sys.argv[2])
    settings = SandboxSettings(pool=2, message=mark)
    found = await zygote(settings, data)
    async with Pool(found.backend, data / "api", SessionHomes(data), settings) as pool:
        kept = await pool.take()
        await kept.run("import os\\nif os.fork() == 0:\\n    while True: pass", Listener(slow=False), 20)
        print("going", flush=True)
        async def fresh():
            while True:
                sandbox = await pool.take()
                code = "import os, time\\nif os.fork() == 0: time.sleep(60)\\nopen('workspace/file', 'w').close()"
                await sandbox.run(code, Listener(slow=False), 20)
                pool.discard(sandbox)
        await asyncio.gather(fresh(), fresh())

asyncio.run(main())
"""


@pytest.fixture
async def data_dir(tmp_path: Path, shared_runtime: Path) -> Path:
    data = tmp_path / "data"
    (data / "api" / "servers").mkdir(parents=True)
    (data / "runtime").symlink_to(shared_runtime)
    await candidate("zygote", data)
    return data


@pytest.fixture
def mark() -> int:
    """A limit that nobody else has: it is in the command of every process of a zygote and its clones."""
    return 900_000_000_000 + random.randrange(10**9)


def _marked(mark: int) -> list[int]:
    """Processes of sandboxes with that limit, but not those that only wait to be reaped (they have no command)."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = path.read_bytes()
            if f'"message": {mark}'.encode() in command and b"toolfold_guest" in command:
                found.append(int(path.parent.name))
    return found


async def _until_gone(mark: int) -> None:
    deadline = time.monotonic() + 20
    while left := _marked(mark):
        assert time.monotonic() < deadline, f"{len(left)} processes were left"
        await asyncio.sleep(0.01)


def _groups(pid: int) -> list[Path]:
    """Control groups of sandboxes of this process. Others come and go meanwhile."""
    walked = os.walk("/sys/fs/cgroup", onerror=None)
    return [Path(folder) for folder, _, _ in walked if Path(folder).name.startswith(f"toolfold-{pid}-")]


def _mounts(data_dir: Path) -> list[str]:
    """Of this data folder, in any mount table of any process that may be looked into."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/mountinfo"):
        with contextlib.suppress(OSError):
            found += [line for line in path.read_text().splitlines() if str(data_dir) in line]
    return found


async def test_a_host_that_is_killed_leaves_nothing(data_dir: Path, mark: int, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": ":".join([str(root), *filter(None, sys.path)])}
    hosts: list[int] = []
    for _ in range(ROUNDS):
        command = [sys.executable, "-c", HOST, str(data_dir), str(mark)]
        host = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env=environment, start_new_session=True)
        hosts.append(host.pid)
        try:
            if random.random() < 0.8:
                assert host.stdout is not None
                assert await asyncio.to_thread(host.stdout.readline) == b"going\n"
                assert len(_marked(mark)) >= 4
            await asyncio.sleep(random.random() * 0.4)
        finally:
            host.kill()
            host.communicate()
        await _until_gone(mark)
    assert not _mounts(data_dir)
    # What has no process any more is removed by whoever starts next.
    SessionHomes(data_dir).close()
    assert list((data_dir / "homes").iterdir()) == []
    monkeypatch.setattr(cgroup, "_OLD", -1.0)
    groups = cgroup.find_cgroups()
    if groups is not None:
        groups.sweep()
    assert [group for pid in hosts for group in _groups(pid)] == []


async def test_zygotes_and_sandboxes_that_are_killed_leave_nothing(data_dir: Path, mark: int) -> None:
    settings = SandboxSettings(pool=2, message=mark)
    found = await zygote(settings, data_dir)
    homes = SessionHomes(data_dir)
    ended: list[str] = []

    async def runs(pool: Pool, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                sandbox = await pool.take()
            except (SandboxDied, SandboxUnavailable) as error:
                ended.append(str(error))
                continue
            try:
                done = await sandbox.run(PROGRAM, _quiet(), 20)
                ended.append("" if done.value == 42 else done.error)
            except (SandboxDied, AssertionError) as error:
                ended.append(str(error))
            finally:
                pool.discard(sandbox)

    async with Pool(found.backend, data_dir / "api", homes, settings) as pool:
        stop = asyncio.Event()
        workers = [asyncio.create_task(runs(pool, stop)) for _ in range(3)]
        for _ in range(ROUNDS):
            await asyncio.sleep(random.random() * 0.6)
            victims = _marked(mark)
            if victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(random.choice(victims), signal.SIGKILL)
        stop.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*workers)
        sandbox = await pool.take()
        assert (await sandbox.run("42", _quiet(), 20)).value == 42
        pool.discard(sandbox)
    assert "" in ended
    await _until_gone(mark)
    homes.close()
    assert list((data_dir / "homes").iterdir()) == []
    assert _groups(os.getpid()) == []
    assert not _mounts(data_dir)


def _quiet() -> Listener:
    return Listener(slow=False)
