"""A tree of real processes, seen from outside: who is in it, what it uses, that it stands still when told to."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toolfold.sandbox import processes as module
from toolfold.sandbox.processes import NO_CORE, Hoards, Processes, Sleep, no_core
from toolfold.sandbox.protocol import SessionHome
from toolfold.sandbox.walls.identity import take

FIRST = """
import subprocess, sys, time
children = [subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL) for code in sys.argv[1:]]
print("ready", flush=True)
time.sleep(600)
"""
SLEEPS = "import time; time.sleep(600)"
WORKS = "while True: pass"
NESTED = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]).wait()"

Start = Callable[..., Processes]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a first process with these programs below it."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*programs: str, folders: tuple[str, ...] = ()) -> Processes:
        process = subprocess.Popen(
            [sys.executable, "-c", FIRST, *programs], stdout=subprocess.PIPE, start_new_session=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return Processes(process.pid, folders)

    yield begin
    for process in started:
        tree = Processes(process.pid, ()).pids()
        for pid in [*tree, process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class TestTree:
    def test_everything_below_the_first_belongs_to_it(self, start: Start) -> None:
        tree = start(SLEEPS, NESTED)
        until(lambda: len(tree.pids()) == 3)
        assert os.getpid() not in tree.pids()
        assert Processes(2**22 - 1, ()).pids() == []

    def test_what_it_uses(self, start: Start) -> None:
        tree = start(WORKS, "x = bytearray(50_000_000)\n" + SLEEPS)
        until(lambda: tree.use(0).cpu > 0.3)
        until(lambda: tree.use(10**12).memory > 50_000_000)
        use = tree.use(0)
        assert use.processes == 2
        assert 50_000_000 < use.memory < 300_000_000
        assert use.memory <= tree.use(10**12).memory + 5_000_000, "what is shared counts once where it matters"

    def test_files_in_memory_count_as_memory(self, start: Start) -> None:
        shared = Path("/dev/shm")
        if not shared.is_dir():
            pytest.skip("there is no /dev/shm here")
        tree, plain = start(SLEEPS, folders=("/dev/shm",)), start(SLEEPS)
        before = tree.use(10**12).memory
        file = shared / f"toolfold-test-{os.getpid()}"
        try:
            file.write_bytes(b"x" * 30_000_000)
            assert tree.use(10**12).memory - before > 25_000_000
            assert plain.use(10**12).memory < before + 25_000_000
        finally:
            file.unlink()


class TestStandingStill:
    def test_nothing_runs_between_pause_and_resume(self, start: Start) -> None:
        tree = start(WORKS, SLEEPS)
        sleep = Sleep(tree, None)
        until(lambda: tree.use(0).cpu > 0.1)
        assert not sleep.still(), "it was not told to"
        sleep.resume()
        sleep.pause()
        until(sleep.still)
        before = tree.use(0).cpu
        time.sleep(0.1)
        assert tree.use(0).cpu == before
        assert sleep.still()
        sleep.pause()
        assert sleep.still(), "told twice is told once"
        sleep.resume()
        assert not sleep.still()
        until(lambda: tree.use(0).cpu > before)

    def test_what_ran_in_between_is_noticed_for_good(self, start: Start) -> None:
        tree = start(WORKS)
        sleep = Sleep(tree, None)
        sleep.pause()
        until(sleep.still)
        (pid,) = tree.pids()
        before = tree.activity()
        os.kill(pid, 18)
        until(lambda: tree.activity() != before)
        os.kill(pid, 19)
        until(lambda: all(state in (b"T", b"t") for state, _ in tree.activity().values()))
        assert not sleep.still()


class TestHoards:
    def test_pipes_and_polls_are_counted(self, start: Start) -> None:
        pipes = "import os\nkept = [os.pipe() for _ in range(10)]\n"
        polls = "import select\nmore = [select.epoll() for _ in range(3)]\n"
        tree = start(pipes + polls + SLEEPS)
        (pid,) = tree.pids()
        until(lambda: len([*Path(f"/proc/{pid}/fd").iterdir()]) >= 26)
        assert 12 <= tree.hoarded(0) <= 14, "ten pipes, and all epoll instances but one"
        assert tree.hoarded(1000) == 0, "not looked at closely"

    def test_too_many_are_a_broken_limit_when_it_is_time_to_look(
        self, start: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tree = start("import os\nkept = [os.pipe() for _ in range(10)]\n" + SLEEPS)
        (pid,) = tree.pids()
        until(lambda: len([*Path(f"/proc/{pid}/fd").iterdir()]) >= 20)
        sleep = Sleep(tree, None)
        now = [1000.0]
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
        most = tree.hoarded(0)
        few, enough = Hoards(tree, sleep, most - 1), Hoards(tree, sleep, most)
        few.begin()
        assert few.exceeded() is None, "too early to look"
        now[0] += 0.6
        broken = few.exceeded()
        assert broken is not None
        assert broken.limit == "sandbox.processes"
        assert enough.exceeded() is None
        few.begin()
        sleep.pause()
        assert few.exceeded() is not None, "always before it sleeps"
        sleep.resume()


def test_no_core_is_ours_for_a_moment_only() -> None:
    before = resource.getrlimit(resource.RLIMIT_CORE)
    if before[1] == 0:
        pytest.skip("core files are forbidden here altogether")
    with no_core():
        assert resource.getrlimit(resource.RLIMIT_CORE) == (NO_CORE, before[1])
    assert resource.getrlimit(resource.RLIMIT_CORE) == before


class TestOwners:
    def test_a_home_keeps_the_user_it_was_given(self, tmp_path: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root gives files away")
        homes = [SessionHome(tmp_path / str(number)) for number in range(2)]
        for home in homes:
            home.workspace.mkdir(parents=True)
            home.skills.mkdir()
        (homes[0].workspace / "inner").mkdir()
        (homes[0].workspace / "inner" / "file").touch()
        (homes[0].workspace / "link").symlink_to("/etc/hostname")
        owner = take(homes[0], 1_000_000, 5000)
        assert 1_000_000 <= owner < 1_005_000
        for path in (homes[0].workspace, homes[0].skills, homes[0].workspace / "inner" / "file"):
            assert (path.stat().st_uid, path.stat().st_gid) == (owner, owner)
        assert (homes[0].workspace / "link").lstat().st_uid == owner
        assert Path("/etc/hostname").stat().st_uid != owner
        assert homes[0].workspace.stat().st_mode & 0o777 == 0o700
        assert take(homes[0], 1_000_000, 5000) == owner
        assert take(homes[0], owner, 1) == owner, "the first of the range"
        assert take(homes[0], owner + 1, 1) == owner + 1, "one that is not in the range is changed"
        assert take(homes[1], 1_000_000, 1) == 1_000_000
        assert homes[1].path.stat().st_mode & 0o111 == 0o111


@pytest.mark.parametrize(("blocks", "inodes", "held"), [(1000, 0, 4_096_000), (0, 1000, 1_024_000), (0, 0, 0)])
def test_files_that_live_in_memory_count_as_memory(
    monkeypatch: pytest.MonkeyPatch, blocks: int, inodes: int, held: int
) -> None:
    first = subprocess.Popen(["sleep", "60"])  # without children nothing else is counted
    told = (4096, 4096, 5000, 5000 - blocks, 5000, 9000, 9000 - inodes, 9000, 0, 255)

    def statvfs(path: str) -> os.statvfs_result:
        return os.statvfs_result(told)

    monkeypatch.setattr(os, "statvfs", statvfs)
    try:
        alone = Processes(first.pid, ()).use(0).memory
        assert Processes(first.pid, ("/somewhere",)).use(0).memory - alone == held
        assert Processes(first.pid, ("/somewhere", "/else")).use(0).memory - alone == 2 * held
    finally:
        first.kill()
        first.wait()
