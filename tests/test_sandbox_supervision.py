"""What holds between and around runs: standing still, limits measured without a cgroup, and nothing that survives."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.backends.available import candidate
from tests.hostile.arena import Listener
from tests.hostile.resources import FILL_SOCKETS
from tests.hostile.sleepers import LEAVES, PRELUDE
from toolfold.config.settings import SandboxSettings
from toolfold.errors import LimitExceeded, SandboxDied, SandboxUnavailable
from toolfold.sandbox.bubblewrap.backend import Bubblewrap
from toolfold.sandbox.bubblewrap.cell import BubblewrapCell
from toolfold.sandbox.protocol import SessionHome
from toolfold.sandbox.sandbox import Sandbox
from toolfold.sandbox.zygote.backend import Zygotes

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["zygote", "bubblewrap"])
def data_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> Path:
    """One for each way to make a sandbox, which its name tells."""
    data = tmp_path_factory.mktemp(request.param) / request.param
    data.mkdir()
    (data / "runtime").symlink_to(shared_runtime)
    return data


async def _backend(data_dir: Path, **settings: Any) -> Bubblewrap | Zygotes:
    found = await candidate(data_dir.name, data_dir, SandboxSettings.model_validate(settings))
    assert isinstance(found.backend, Bubblewrap | Zygotes)
    return found.backend


@asynccontextmanager
async def _sandbox(
    data_dir: Path, home: Path, *, without_groups: bool = False, **settings: Any
) -> AsyncGenerator[tuple[Sandbox, BubblewrapCell]]:
    """A sandbox, and the cell in it. `without_groups` is a machine on which no cgroup can be made."""
    backend = await _backend(data_dir, **settings)
    if without_groups:
        backend._cgroups = None  # pyright: ignore[reportPrivateUsage]
    (home / "workspace").mkdir(parents=True, exist_ok=True)
    (home / "skills").mkdir(exist_ok=True)
    api = data_dir / "api"
    (api / "servers").mkdir(parents=True, exist_ok=True)
    cell = await backend.start(SessionHome(home), api)

    async def started() -> BubblewrapCell:
        return cell

    sandbox = await Sandbox.start(started(), SessionHome(home), SandboxSettings.model_validate(settings))
    try:
        yield sandbox, cell
    finally:
        await sandbox.close()
        if isinstance(backend, Zygotes):
            await backend.close()


async def _until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


both_ways = pytest.mark.parametrize("without_groups", [False, True], ids=["groups where they are", "no groups"])


@both_ways
async def test_threads_and_processes_stand_still_between_runs(
    data_dir: Path, tmp_path: Path, *, without_groups: bool
) -> None:
    count = tmp_path / "workspace" / "count"
    code = """
    import os, threading, time
    def work():
        while True:
            with open("workspace/count", "a") as file:
                file.write("x")
            time.sleep(0.005)
    threading.Thread(target=work, daemon=True).start()
    if os.fork() == 0:
        work()
    time.sleep(0.1)
    """
    async with _sandbox(data_dir, tmp_path, without_groups=without_groups) as (sandbox, cell):
        await sandbox.run(textwrap.dedent(code), Listener(slow=False), 10)
        await _until(cell.still)
        before = count.stat().st_size
        await asyncio.sleep(0.2)
        assert count.stat().st_size == before
        await sandbox.run("import time; time.sleep(0.2)", Listener(slow=False), 10)
        assert count.stat().st_size > before


@both_ways
async def test_variables_survive_standing_still(data_dir: Path, tmp_path: Path, *, without_groups: bool) -> None:
    async with _sandbox(data_dir, tmp_path, without_groups=without_groups) as (sandbox, cell):
        await sandbox.run("x = 41", Listener(slow=False), 10)
        await _until(cell.still)
        done = await sandbox.run("x + 1", Listener(slow=False), 10)
        assert done.value == 42


def _state(pid: int) -> str:
    """Empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


# A timer that undoes SIGSTOP, 0.3 s after the run and then every 0.1 s. Without a handler newer kernels send it once.
WAKES_ITSELF = """
import ctypes, os, signal, struct, threading, time
signal.signal(signal.SIGCONT, lambda *_: None)
libc = ctypes.CDLL(None)
event = ctypes.create_string_buffer(struct.pack("Qii", 0, signal.SIGCONT, 0) + bytes(64))
timer = ctypes.c_void_p()
assert libc.timer_create(1, event, ctypes.byref(timer)) == 0
assert libc.timer_settime(timer, 0, struct.pack("4q", 0, 100_000_000, 0, 300_000_000), None) == 0
asleep = threading.Event()
def work():
    asleep.wait()
    time.sleep(0.2)
    while True:
        WORK
threading.Thread(target=work, daemon=True).start()
asleep.set()
"""
BURNS = WAKES_ITSELF.replace("WORK", "pass")
WRITES = WAKES_ITSELF.replace("WORK", "open('workspace/more%d' % time.monotonic_ns(), 'wb').write(bytes(2_000_000))")
# Works for a moment and stops itself again, so that it is stopped whenever somebody looks.
HIDES = WAKES_ITSELF.replace("WORK", "open('workspace/count', 'a').write('x'); os.kill(os.getpid(), signal.SIGSTOP)")


@pytest.mark.parametrize("code", [BURNS, WRITES, HIDES], ids=["burns", "writes", "hides"])
async def test_a_program_that_wakes_itself_between_runs_is_ended_where_nothing_holds_it(
    data_dir: Path, tmp_path: Path, code: str
) -> None:
    async with _sandbox(data_dir, tmp_path, without_groups=True) as (sandbox, _):
        await sandbox.run(code, Listener(slow=False), 10)
        await _until(lambda: not sandbox.alive)
        assert "went on working after its end" in str(sandbox._failure)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("code", [BURNS, WRITES, HIDES], ids=["burns", "writes", "hides"])
async def test_a_program_that_wakes_itself_between_runs_does_nothing_where_it_is_frozen(
    data_dir: Path, tmp_path: Path, code: str
) -> None:
    async with _sandbox(data_dir, tmp_path) as (sandbox, cell):
        if not _freezes(cell):
            pytest.skip("no group can be frozen here: run as root, or under systemd-run -p Delegate=yes")
        await sandbox.run(code, Listener(slow=False), 10)
        await _until(cell.still)
        before, size = _work(cell), _size(tmp_path / "workspace")
        await asyncio.sleep(1)
        # A signal costs the kernel some microseconds; nothing of the program runs.
        assert _work(cell) < before + 5_000_000
        assert _size(tmp_path / "workspace") == size
        assert cell.still()


@pytest.mark.parametrize("left", LEAVES)
async def test_nothing_goes_on_working_where_nothing_can_be_frozen(data_dir: Path, tmp_path: Path, left: str) -> None:
    count = tmp_path / "workspace" / "count"
    async with _sandbox(data_dir, tmp_path, without_groups=True) as (sandbox, cell):
        await sandbox.run(f"{PRELUDE}\n{LEAVES[left]}\ntime.sleep(0.1)\n", Listener(slow=False), 10)
        await _until(lambda: cell.still() or not sandbox.alive)
        if not sandbox.alive:
            await sandbox.close()
        # A process that was born while the others were looked at is found by the next look.
        async with asyncio.timeout(20):
            before = -1
            while before != (before := count.stat().st_size):
                await asyncio.sleep(0.3)


def _freezes(cell: BubblewrapCell) -> bool:
    group = cell._group  # pyright: ignore[reportPrivateUsage]
    return group is not None and group.freezer is not None


def _work(cell: BubblewrapCell) -> int:
    """How long all threads have run so far, in nanoseconds."""
    counts = [path for pid in cell.pids() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(path.read_text().split()[0]) for path in counts)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*"))


async def test_a_message_between_runs_ends_the_sandbox(data_dir: Path, tmp_path: Path) -> None:
    code = """
    import os, threading, time
    from toolfold_guest.channel import channel
    number = channel()._sock.fileno()
    threading.Timer(0.02, lambda: os.write(number, b"x")).start()
    """
    async with _sandbox(data_dir, tmp_path) as (sandbox, _):
        with contextlib.suppress(SandboxDied):  # on a busy machine it comes before the end of the run
            await sandbox.run(textwrap.dedent(code), Listener(slow=False), 10)
        await _until(lambda: not sandbox.alive)


async def test_a_thread_that_asks_after_the_end_is_told_so(data_dir: Path, tmp_path: Path) -> None:
    code = """
    import threading, time
    from toolfold import ToolError, search_tools
    said = []
    def late():
        time.sleep(0.01)
        try:
            search_tools("x")
        except ToolError as error:
            said.append(str(error))
    thread = threading.Thread(target=late)
    thread.start()
    """
    async with _sandbox(data_dir, tmp_path) as (sandbox, _):
        await sandbox.run(textwrap.dedent(code), Listener(slow=False), 10)
        await asyncio.sleep(0.05)
        done = await sandbox.run("thread.join(); said", Listener(slow=False), 10)
        assert done.value in (["the run that this belongs to has ended"], [])
        assert sandbox.alive


MEMORY = """
import mmap, os, time
def take():
    block = mmap.mmap(-1, 60_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, len(block), 4096):
        block[offset] = 1
    time.sleep(20)
for _ in range(5):
    if os.fork() == 0:
        take()
take()
"""
SHARED = """
import mmap, time
block = mmap.mmap(-1, 400_000_000)
for offset in range(0, len(block), 4096):
    block[offset] = 1
time.sleep(20)
"""
IN_TMP = """
import mmap, os, time
taken = bytearray(b"x") * 150_000_000
for folder in ("/tmp", "/dev/shm"):
    with open(folder + "/large", "wb") as file:
        for _ in range(60):
            file.write(bytes(1_000_000))
time.sleep(20)
"""

IN_SOCKETS = f"""
import os, socket, time
{FILL_SOCKETS}
for _ in range(20):
    if os.fork() == 0:
        break
kept = fill()
time.sleep(20)
"""


@both_ways
@pytest.mark.parametrize(
    "code", [MEMORY, SHARED, IN_TMP, IN_SOCKETS], ids=["processes", "shared", "files in memory", "sockets"]
)
async def test_memory_of_the_whole_tree_is_limited(
    data_dir: Path, tmp_path: Path, code: str, *, without_groups: bool
) -> None:
    async with _sandbox(data_dir, tmp_path, without_groups=without_groups, memory="200MB") as (sandbox, _):
        with pytest.raises(LimitExceeded) as caught:
            await sandbox.run(code, Listener(slow=False), 15)
        assert caught.value.limit == "sandbox.memory"


async def test_processor_time_is_limited_without_groups(data_dir: Path, tmp_path: Path) -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one processor cannot give more than one core: run on a machine with two")
    code = "import os\nos.fork(); os.fork()\nwhile True: pass"
    async with _sandbox(data_dir, tmp_path, without_groups=True, cpu=0.05) as (sandbox, _):
        with pytest.raises(LimitExceeded) as caught:
            await sandbox.run(code, Listener(slow=False), 30)
        assert caught.value.limit == "sandbox.cpu"


async def test_a_home_that_is_too_full_can_still_be_emptied(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir(parents=True)
    (tmp_path / "workspace" / "old").write_bytes(bytes(30_000_000))
    async with _sandbox(data_dir, tmp_path, disk="20MB") as (sandbox, _):
        await sandbox.run("import os; os.remove('workspace/old')", Listener(slow=False), 10)
        assert sandbox.alive
        with pytest.raises(LimitExceeded) as caught:
            await sandbox.run(
                "for n in range(3): open(f'workspace/{n}', 'wb').write(bytes(15_000_000))", Listener(slow=False), 10
            )
        assert caught.value.limit == "sandbox.disk"


# Keeps within the limit during the run, and writes as fast as it can from its end until it is stopped.
WRITES_AFTERWARDS = """
import os, threading
done = threading.Event()
def write():
    done.wait()
    while True:
        with open(f"workspace/{os.urandom(8).hex()}", "wb") as file:
            file.write(bytes(1_000_000))
threading.Thread(target=write, daemon=True).start()
done.set()
"""


async def _limit(sandbox: Sandbox, cell: BubblewrapCell, code: str) -> str:
    """The limit that a run, or what goes on after it, breaks; empty when it sleeps within all of them."""
    try:
        await sandbox.run(code, Listener(slow=False), 10)
    except LimitExceeded as error:
        return error.limit
    await _until(lambda: not sandbox.alive or cell.still())
    await asyncio.sleep(0.1)
    failure = sandbox._failure  # pyright: ignore[reportPrivateUsage]
    return failure.limit if isinstance(failure, LimitExceeded) else ""


@both_ways
async def test_what_is_written_between_runs_is_never_allowed(
    data_dir: Path, tmp_path: Path, *, without_groups: bool
) -> None:
    """A home is used again and again by programs that write after their end: soon nothing runs in it any more."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    refused = 0
    for _ in range(30):
        before = _size(workspace)
        async with _sandbox(data_dir, tmp_path, without_groups=without_groups, disk="20MB") as (sandbox, cell):
            limit = await _limit(sandbox, cell, WRITES_AFTERWARDS)
        refused = refused + 1 if limit == "sandbox.disk" and _size(workspace) == before else 0
        if refused == 3:
            return
    pytest.fail(f"it holds {_size(workspace):,} bytes, and programs still run in it")


@both_ways
async def test_many_short_runs_cannot_make_more_files_than_one(
    data_dir: Path, tmp_path: Path, *, without_groups: bool
) -> None:
    code = "import os\nfor n in range(400): open(f'workspace/{os.urandom(8).hex()}', 'wb').close()"
    async with _sandbox(data_dir, tmp_path, without_groups=without_groups, disk="1MB") as (sandbox, cell):
        runs, limit = 0, ""
        while not limit and runs < 6:
            runs, limit = runs + 1, await _limit(sandbox, cell, code)
    assert limit == "sandbox.disk"


async def test_a_home_that_gets_another_name_is_still_measured(data_dir: Path, tmp_path: Path) -> None:
    async with _sandbox(data_dir, tmp_path / "before", disk="20MB") as (sandbox, _):
        (tmp_path / "before").rename(tmp_path / "after")
        sandbox.home = SessionHome(tmp_path / "after")
        with pytest.raises(LimitExceeded) as caught:
            await sandbox.run(
                "for n in range(3): open(f'workspace/{n}', 'wb').write(bytes(15_000_000))", Listener(slow=False), 10
            )
        assert caught.value.limit == "sandbox.disk"


async def test_no_cgroup_is_left_behind(data_dir: Path, tmp_path: Path) -> None:
    async with _sandbox(data_dir, tmp_path) as (sandbox, cell):
        group = cell._group  # pyright: ignore[reportPrivateUsage]
        if group is None:
            pytest.skip("no cgroup can be made here: run as root, or under systemd-run -p Delegate=yes")
        paths = group._paths  # pyright: ignore[reportPrivateUsage]
        assert all(path.is_dir() for path in paths)
        with pytest.raises(LimitExceeded):
            await sandbox.run("while True: pass", Listener(slow=False), 0.2)
    assert not any(path.exists() for path in paths)


async def test_the_reason_is_told_when_a_sandbox_does_not_start(data_dir: Path, tmp_path: Path) -> None:
    backend = await _backend(data_dir)
    (tmp_path / "workspace").mkdir()
    (tmp_path / "skills").mkdir()
    home = SessionHome(tmp_path)
    with pytest.raises((SandboxDied, SandboxUnavailable), match="No such file"):
        await Sandbox.start(backend.start(home, data_dir / "no-such-folder"), home, SandboxSettings())


HOST = """
import asyncio, sys
from pathlib import Path
from tests.hostile.arena import Listener
from tests.hostile.resources import FILL_SOCKETS
from toolfold.config.settings import SandboxSettings
from toolfold.sandbox import choose
from toolfold.sandbox.pool import Pool
from toolfold.session.homes import SessionHomes

async def main():
    data = Path(sys.argv[1])
    settings = SandboxSettings(pool=2)
    found = await getattr(choose, data.name)(settings, data)
    async with Pool(found.backend, data / "api", SessionHomes(data), settings) as pool:
        one, two = await pool.take(), await pool.take()
        await one.run("import os\\nif os.fork() == 0:\\n    while True: pass", Listener(slow=False), 10)
        running = asyncio.create_task(two.run("import os\\nos.fork()\\nwhile True: pass", Listener(slow=False), 60))
        three = await pool.take()
        pids = [pid for sandbox in (one, two, three) for pid in sandbox.cell.pids()]
        print(*pids, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_nothing_survives_a_host_that_is_killed(data_dir: Path) -> None:
    await _backend(data_dir)
    (data_dir / "api" / "servers").mkdir(parents=True, exist_ok=True)
    root = Path(__file__).parents[1]
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, str(data_dir)],
        stdout=subprocess.PIPE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": ":".join([str(root), *filter(None, sys.path)])},
        start_new_session=True,
    )
    try:
        assert host.stdout is not None
        pids = [int(pid) for pid in (await asyncio.to_thread(host.stdout.readline)).split()]
        assert len(pids) >= 4
    finally:
        host.send_signal(signal.SIGKILL)
        host.communicate()
    deadline = time.monotonic() + 10
    while any(_state(pid) not in ("", "Z") for pid in pids):
        assert time.monotonic() < deadline, "a sandbox survived its host"
        await asyncio.sleep(0.02)
