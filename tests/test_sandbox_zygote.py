"""The life of zygotes: one for each owner, replaced after so many sandboxes and when one dies, and none left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.backends.available import candidate
from tests.hostile.arena import Listener
from tests.zygote_lab import Lab, Watching, first_process, is_running, lab_around, parent, value, zygote_of
from toolfold import Toolfold
from toolfold.errors import SandboxDied, SandboxUnavailable
from toolfold.sandbox.sandbox import Sandbox
from toolfold.sandbox.walls.cgroup import Cgroups, find_cgroups
from toolfold.sandbox.zygote import lineage, process
from toolfold.sandbox.zygote.cell import ClonedProcess
from toolfold.sandbox.zygote.process import Clone
from toolfold.sandbox.zygote.shelf import Shelf

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> Path:
    data = tmp_path_factory.mktemp("zygote")
    (data / "runtime").symlink_to(shared_runtime)
    return data


@pytest.fixture
async def lab(data_dir: Path, tmp_path: Path) -> AsyncIterator[Lab]:
    before = _ours()
    async with lab_around(data_dir, tmp_path) as made:
        yield made
    await _until(lambda: not _ours() - before)


def _ours() -> set[int]:
    """Processes below this one: sandboxes, zygotes, and what holds them."""
    found: set[int] = set()
    todo = [os.getpid()]
    while todo:
        tasks: list[Path] = []
        with contextlib.suppress(OSError):  # it may end while it is looked at
            tasks += Path(f"/proc/{todo.pop()}/task").glob("*/children")
        for task in tasks:
            with contextlib.suppress(OSError):
                children = [int(child) for child in task.read_text().split()]
                found.update(children)
                todo += children
    return found


async def _until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def _settled() -> set[int]:
    """Our processes once none of them is about to end any more."""
    before, same = _ours(), 0
    async with asyncio.timeout(60):
        while same < 30:
            await asyncio.sleep(0.01)
            now = _ours()
            before, same = now, same + 1 if now == before else 0
    return before


class TestReplacement:
    async def test_after_so_many_sandboxes_another_zygote_makes_them(
        self, lab: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lineage, "MOST_CLONES", 3)
        first = await lab.start("kept")
        await value(first, "kept = 42")
        old = zygote_of(first)
        for number in range(20):
            sandbox = await lab.start(f"{number}")
            if zygote_of(sandbox) != old:
                break
            await sandbox.close()
        else:
            pytest.fail("it was never replaced")
        assert number >= 2
        # The old one lives for what it made, and no longer.
        assert await value(first, "kept") == 42
        assert is_running(old)
        await first.close()
        await _until(lambda: not is_running(old))
        assert await value(sandbox, "1") == 1

    async def test_what_clones_share_is_not_shared_across_zygotes(
        self, lab: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The seed of hashes and the layout of memory: the reason for replacing them."""
        code = "[hash('text'), [line for line in open('/proc/self/maps') if 'libpython' in line or 'heap' in line][:1]]"
        one, two = await lab.start("one"), await lab.start("two")
        assert await value(one, code) == await value(two, code)
        other = await lab.start("other", owner="another")
        assert (await value(other, code))[0] != (await value(one, code))[0]
        assert (await value(other, code))[1] != (await value(one, code))[1]

    async def test_homes_may_be_in_several_folders(self, lab: Lab) -> None:
        for number, shelf in enumerate(("homes", "sessions", "homes", "sessions/deeper")):
            sandbox = await lab.start(f"{number}", shelf=shelf)
            await value(sandbox, f"open('workspace/file', 'w').write('{number}')")
            assert (sandbox.home.workspace / "file").read_text() == f"{number}"

    async def test_a_folder_that_was_removed_and_made_again_is_another_folder(self, lab: Lab) -> None:
        for _ in range(3):
            sandbox = await lab.start("one", shelf="homes")
            await value(sandbox, "open('workspace/file', 'w').close()")
            assert (sandbox.home.workspace / "file").exists()
            await sandbox.close()
            for path in (sandbox.home.workspace / "file", sandbox.home.workspace, sandbox.home.skills):
                path.unlink() if path.is_file() else path.rmdir()
            sandbox.home.path.rmdir()
            sandbox.home.path.parent.rmdir()

    async def test_a_home_whose_folder_is_gone_is_told(self, lab: Lab) -> None:
        home = lab.home("one", shelf="gone")
        for folder in (home.workspace, home.skills, home.path, home.path.parent):
            folder.rmdir()
        with pytest.raises(SandboxUnavailable, match="folder is gone"):
            await lab.backend.start(home, lab.api)

    async def test_a_home_that_is_gone_is_told(self, lab: Lab) -> None:
        home = lab.home("one")
        for folder in (home.workspace, home.skills):
            folder.rmdir()
        with pytest.raises((SandboxDied, FileNotFoundError)):
            await Sandbox.start(lab.backend.start(home, lab.api), home, lab.settings)


class TestOwners:
    async def test_each_has_a_zygote_of_its_own(self, lab: Lab) -> None:
        sandboxes = [await lab.start(f"{owner}-{number}", owner=owner) for owner in ("ada", "bob") for number in (1, 2)]
        zygotes = [zygote_of(sandbox) for sandbox in sandboxes]
        assert zygotes[0] == zygotes[1] != zygotes[2] == zygotes[3]

    async def test_a_zygote_without_sandboxes_ends_after_a_while(
        self, lab: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lineage, "IDLE_SECONDS", 0.05)
        sandbox = await lab.start("one", owner="ada")
        zygote = zygote_of(sandbox)
        await sandbox.close()
        await _until(lambda: not is_running(zygote))
        assert await value(await lab.start("two", owner="ada"), "1") == 1


class TestDeath:
    @pytest.mark.parametrize("who", ["the zygote", "its bwrap"])
    async def test_it_ends_its_sandboxes_and_the_next_request_makes_another(self, lab: Lab, who: str) -> None:
        one, two = await lab.start("one"), await lab.start("two")
        zygote = zygote_of(one)
        victim = {"the zygote": zygote, "its bwrap": parent(zygote)}[who]
        pids = [first_process(one), first_process(two)]
        watching = Watching()
        running = asyncio.create_task(one.run("print('going')\nimport time; time.sleep(60)", watching, 60))
        async with asyncio.timeout(45):
            await watching.printed_something.wait()
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(SandboxDied, match="zygote ended"):
            async with asyncio.timeout(45):
                await running
        await _until(lambda: not two.alive and not any(map(is_running, pids)))
        assert await value(await lab.start("three"), "1") == 1

    async def test_one_that_is_stuck_is_replaced(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(process, "CLONE_SECONDS", 0.3)
        stuck = zygote_of(await lab.start("one"))
        os.kill(stuck, signal.SIGSTOP)
        sandbox = await lab.start("two")
        assert zygote_of(sandbox) != stuck
        await _until(lambda: not is_running(stuck))

    async def test_a_sandbox_that_is_killed_ends_alone(self, lab: Lab) -> None:
        one, two = await lab.start("one"), await lab.start("two")
        await value(two, "kept = 42")
        os.kill(first_process(one), signal.SIGKILL)
        await _until(lambda: not one.alive)
        assert await value(two, "kept") == 42
        assert zygote_of(await lab.start("three")) == zygote_of(two)

    async def test_how_a_program_ended_its_interpreter_is_told(self, lab: Lab) -> None:
        for code, ending in (
            ("import os; os._exit(7)", "exit code 7"),
            ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ):
            sandbox = await lab.start("one")
            with pytest.raises(SandboxDied, match=ending):
                await sandbox.run(code, Listener(slow=False), 10)
            await sandbox.close()


@pytest.mark.parametrize("seen", [True, False])
async def test_a_session_is_told_what_the_end_of_its_zygote_cost(runtime_dir: Path, seen: bool) -> None:
    """Also where the loop has not seen it yet when the next run comes."""
    await candidate("zygote", runtime_dir)
    async with Toolfold.open({"servers": {}}, data_dir=runtime_dir) as fold:
        assert (await fold.choice()).backend.name == "zygote"
        await fold.run("kept = 42\nopen('workspace/file', 'w').write('still here')", session="s")
        zygotes = [pid for pid in _ours() if b"toolfold_guest.zygote" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        for pid in zygotes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if seen:
            await _until(lambda: not any(map(is_running, zygotes)))
        while any(map(is_running, zygotes)):
            time.sleep(0.01)  # noqa: ASYNC251 - so that the loop sees nothing
        result = await fold.run("open('workspace/file').read()", session="s")
    assert result.value == "still here"
    assert "kept" in result.notice


def test_a_shelf_is_a_folder_and_knows_it_again(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        Shelf.open(tmp_path / "file")
    folder = tmp_path / "folder"
    folder.mkdir()
    shelf = Shelf.open(folder)
    try:
        assert shelf.is_current()
        folder.rmdir()
        assert not shelf.is_current()
        folder.mkdir()
        assert not shelf.is_current(), "another folder of that name"
    finally:
        shelf.close()


@pytest.mark.parametrize(
    ("release", "limited"),
    [("5.13.19-old", False), ("5.14.0", True), ("5.15-rc1", True), ("6.1.0-18-amd64", True), ("4.19.0", False)],
)
async def test_processes_are_counted_by_the_kernel_where_it_counts_those_inside_only(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, release: str, limited: bool
) -> None:
    monkeypatch.setattr("platform.release", lambda: release)
    limit = await value(await lab.start("counted"), "import resource\nresource.getrlimit(resource.RLIMIT_NPROC)[0]")
    assert (limit == lab.settings.processes + 1) is limited


@pytest.mark.parametrize(
    ("status", "killed_by_us", "code", "was_killed"),
    [
        pytest.param(3, False, 3, False, id="it ended by itself"),
        pytest.param(3, True, 3, False, id="it had ended already"),
        pytest.param(None, True, -9, False, id="we ended it"),
        pytest.param(None, False, -9, True, id="something else ended it"),
    ],
)
def test_what_ended_a_clone_is_known(status: int | None, killed_by_us: bool, code: int, was_killed: bool) -> None:
    child = subprocess.Popen(["sleep", "60"])
    read, write = os.pipe()
    ours, theirs = socket.socketpair()
    made = Clone(child.pid, os.pidfd_open(child.pid), ours, os.dup(read), read)
    clone = ClonedProcess(made)
    try:
        if status is not None:
            os.write(write, status.to_bytes(4, sys.byteorder, signed=True))
        if killed_by_us:
            clone.kill()
        os.close(write)
        assert (clone.wait(), clone.returncode, clone.was_killed) == (code, code, was_killed)
    finally:
        child.kill()
        child.wait()
        made.close()
        assert theirs.recv(1) == b"", "nothing of it stays open"
        theirs.close()


class TestNothingIsLeft:
    async def test_closing_ends_every_zygote_and_a_start_after_it_makes_another(self, lab: Lab) -> None:
        zygotes = {zygote_of(await lab.start(owner, owner=owner)) for owner in ("ada", "bob")}
        await lab.backend.close()
        assert not any(map(is_running, zygotes))
        assert await value(await lab.start("again"), "1") == 1

    async def test_a_start_that_is_given_up_leaves_nothing(self, lab: Lab) -> None:
        """At every point of a start: whatever was made for it is gone, and the next one works."""
        await (await lab.start("warm")).close()
        warm = await _settled()
        descriptors, groups = _open_files(), _groups()
        for number in range(60):
            starting = asyncio.create_task(lab.backend.start(lab.home(f"{number}"), lab.api))
            await asyncio.sleep(number / 6000)
            starting.cancel()
            try:
                cell = await starting
            except asyncio.CancelledError:
                continue
            cell.kill()
            await cell.wait()
        # The zygote is the same one still.
        await _until(lambda: _ours() == warm)
        assert _open_files() == descriptors
        assert _groups() == groups
        assert await value(await lab.start("last"), "1") == 1

    async def test_a_sandbox_whose_limits_cannot_be_set_is_none(
        self, lab: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if find_cgroups() is None:
            pytest.skip("no control groups can be made here: run as root, or in a delegated cgroup")
        await (await lab.start("warm")).close()
        warm, descriptors = await _settled(), _open_files()

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(Cgroups, "create", full)
            with pytest.raises(SandboxUnavailable, match=r"limits could not be set: .*No space left on device"):
                await lab.start("unlimited")
        await _until(lambda: _ours() == warm)
        assert _open_files() == descriptors
        assert await value(await lab.start("last"), "1") == 1

    async def test_many_at_once_and_one_after_another_leave_nothing(self, lab: Lab) -> None:
        await (await lab.start("warm")).close()
        warm = await _settled()
        descriptors = _open_files()

        async def one(number: int) -> None:
            sandbox = await lab.start(f"{number}")
            assert await value(sandbox, f"{number} * 2") == number * 2
            await sandbox.close()

        await asyncio.gather(*map(one, range(20)))
        await _until(lambda: _ours() == warm)
        assert _open_files() == descriptors


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _groups() -> list[str]:
    """Control groups of this process's sandboxes."""
    walked = os.walk("/sys/fs/cgroup")
    return sorted(folder for folder, _, _ in walked if f"/toolfold-{os.getpid()}-" in folder)
