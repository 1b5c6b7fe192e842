"""Hosts, zygotes and sandboxes that are killed at any moment leave no process, mount, control group or home behind.

`TOOLFOLD_KILL_ROUNDS=200` makes more rounds of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.backends.available import candidate
from tests.hostile.arena import Listener
from tests.zygote_lab import is_running, parent
from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxDied, SandboxUnavailable
from toolfold.sandbox.bubblewrap.launcher import find_bwrap
from toolfold.sandbox.bubblewrap.process import BwrapProcess
from toolfold.sandbox.choose import zygote
from toolfold.sandbox.pool import Pool
from toolfold.sandbox.protocol import Closable, SessionHome
from toolfold.sandbox.walls import cgroup, identity
from toolfold.sandbox.zygote.backend import Zygotes
from toolfold.session.homes import SessionHomes

ROUNDS = int(os.environ.get("TOOLFOLD_KILL_ROUNDS", "8"))

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120 + 20 * ROUNDS)]

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
# Is killed when it has learned which process bwrap has made, which then waits for bwrap, which waits for the host.
HOST_THAT_DIES_EARLY = """
import asyncio, os, signal, sys
from pathlib import Path
from toolfold.config.settings import SandboxSettings
from toolfold.sandbox.choose import zygote
from toolfold.sandbox.protocol import SessionHome

async def main():
    data, mark = Path(sys.argv[1]), int(sys.argv[2])
    found = await zygote(SandboxSettings(message=mark), data)
    home = SessionHome(data / "homes" / "early")
    home.workspace.mkdir(parents=True, exist_ok=True)
    home.skills.mkdir(exist_ok=True)
    os.pidfd_open = lambda pid: os.kill(os.getpid(), signal.SIGKILL)
    await found.backend.start(home, data / "api")

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


def _host(program: str, data_dir: Path, mark: int) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": ":".join([str(root), *filter(None, sys.path)])}
    command = [sys.executable, "-c", program, str(data_dir), str(mark)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env=environment, start_new_session=True)


async def test_a_host_that_is_killed_leaves_nothing(data_dir: Path, mark: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts: list[int] = []
    for _ in range(ROUNDS):
        host = _host(HOST, data_dir, mark)
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
    deadline = time.monotonic() + 20
    while left := [group for pid in hosts for group in _groups(pid)]:
        # The kernel holds a group a little longer than the last process in it can be seen.
        assert time.monotonic() < deadline, left
        assert groups is not None
        groups.sweep()


async def test_a_host_that_is_killed_while_its_zygote_starts_leaves_nothing(data_dir: Path, mark: int) -> None:
    for _ in range(3):
        host = _host(HOST_THAT_DIES_EARLY, data_dir, mark)
        assert await asyncio.to_thread(host.wait) == -signal.SIGKILL
        host.communicate()
        await _until_gone(mark)


async def test_bwrap_that_is_killed_before_it_lets_its_child_go_on_leaves_nothing() -> None:
    information, inform = os.pipe()
    blocked, unblock = os.pipe()
    options = ["--unshare-user", "--unshare-pid", "--info-fd", str(inform), "--userns-block-fd", str(blocked)]
    bwrap = BwrapProcess([str(find_bwrap()), *options, "--ro-bind", "/", "/", "true"], 2, (inform, blocked))
    os.close(inform)
    told = b""
    while not told.endswith(b"}\n"):
        told += os.read(information, 4096) or pytest.fail("bwrap ended")
    child = int(json.loads(told)["child-pid"])
    assert is_running(child)
    os.kill(bwrap.pid, signal.SIGKILL)
    bwrap.wait()
    async with asyncio.timeout(60):
        while is_running(child):
            await asyncio.sleep(0.01)
    for descriptor in (information, blocked, unblock):
        os.close(descriptor)


class TestStarting:
    """A zygote whose start is disturbed."""

    @pytest.fixture
    async def backend(self, data_dir: Path, mark: int) -> AsyncIterator[Zygotes]:
        found = await zygote(SandboxSettings(message=mark), data_dir)
        assert isinstance(found.backend, Zygotes)
        descriptors = _open_files()
        yield found.backend
        await found.backend.close()
        await _until_gone(mark)
        assert _open_files() == descriptors

    @pytest.fixture
    def home(self, data_dir: Path) -> SessionHome:
        home = SessionHome(data_dir / "homes" / "one")
        home.workspace.mkdir(parents=True)
        home.skills.mkdir()
        return home

    async def test_bwrap_is_killed_before_it_lets_the_zygote_go_on(
        self, backend: Zygotes, data_dir: Path, home: SessionHome, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pidfd_open = os.pidfd_open

        def open_and_kill_parent(pid: int) -> int:
            monkeypatch.undo()
            handle = pidfd_open(pid)
            os.kill(parent(pid), signal.SIGKILL)
            return handle

        monkeypatch.setattr(os, "pidfd_open", open_and_kill_parent)
        async with asyncio.timeout(15):
            with pytest.raises(SandboxUnavailable, match="did not start"):
                await backend.start(home, data_dir / "api")
        cell = await backend.start(home, data_dir / "api")
        cell.kill()
        await cell.wait()

    async def test_the_backend_is_closed_while_a_thread_starts_bwrap(
        self, backend: Zygotes, data_dir: Path, home: SessionHome, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if os.geteuid() != 0:
            pytest.skip("bwrap is started in a thread only as root")
        in_thread, may_go_on = threading.Event(), threading.Event()
        inherited: list[int] = []

        class SlowProcess(BwrapProcess):
            def __init__(self, command: Sequence[str], output: int, given: Sequence[int], **options: Any) -> None:
                in_thread.set()
                may_go_on.wait(10)
                inherited.extend(os.fstat(descriptor).st_ino for descriptor in (output, *given))
                super().__init__(command, output, given, **options)

        monkeypatch.setattr(identity, "BwrapProcess", SlowProcess)
        starting = asyncio.create_task(backend.start(home, data_dir / "api"))
        assert await asyncio.to_thread(in_thread.wait, 10)
        closing = asyncio.create_task(backend.close())
        for _ in range(10):
            await asyncio.sleep(0)
        may_go_on.set()
        async with asyncio.timeout(60):
            await closing
            with pytest.raises(SandboxUnavailable, match="shut down"):
                await starting
        # Their numbers would be those of other files by now, had they been closed.
        assert inherited, "the descriptors were closed before bwrap inherited them"

    async def test_the_backend_is_closed_while_sandboxes_start(
        self, backend: Zygotes, data_dir: Path, home: SessionHome
    ) -> None:
        for milliseconds in (0, 20, 60, 100, 200):
            starts = [asyncio.create_task(backend.start(home, data_dir / "api")) for _ in range(8)]
            await asyncio.sleep(milliseconds / 1000)
            await backend.close()
            async with asyncio.timeout(60):
                started = await asyncio.gather(*starts, return_exceptions=True)
            for cell in started:
                if isinstance(cell, BaseException):
                    assert isinstance(cell, SandboxUnavailable), cell
                else:
                    cell.kill()
                    await cell.wait()


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
    assert isinstance(found.backend, Closable)
    await found.backend.close()
    assert "" in ended
    await _until_gone(mark)
    homes.close()
    assert list((data_dir / "homes").iterdir()) == []
    assert _groups(os.getpid()) == []
    assert not _mounts(data_dir)


def _quiet() -> Listener:
    return Listener(slow=False)


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
