"""Parts of the host's side of a sandbox, each by itself: the watch, the lineage of zygotes, and cells around a process
that is no sandbox."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.upstream_lab import eventually
from tests.zygote_lab import is_running
from toolfold.config.settings import SandboxSettings
from toolfold.errors import LimitExceeded, SandboxDied, SandboxUnavailable, ToolfoldError
from toolfold.sandbox.container import cell as container_cell
from toolfold.sandbox.container.cell import ContainerCell
from toolfold.sandbox.container.engine import ContainerEngine
from toolfold.sandbox.monty.backend import MontyCell
from toolfold.sandbox.watch import Watch
from toolfold.sandbox.zygote import lineage
from toolfold.sandbox.zygote.lineage import Lineage

pytestmark = pytest.mark.anyio

FULL = LimitExceeded("The disk is full.", limit="sandbox.disk")


class Inside:
    """A cell and its home, as the watch sees them. `done` is what it did, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.looks = 0
        self.suspicious_at: set[int] = set()
        self.unsure_now = False
        self.unknown = False
        self.found: LimitExceeded | None = None
        self.broken: LimitExceeded | None = None
        self.stands = True
        self.told: list[ToolfoldError] = []
        self.watch = Watch(cast("Any", self), cast("Any", self), 64, self.told.append)

    def begin(self, seconds: float | None = None) -> None:
        if seconds is not None:
            self.done.append(f"begin {seconds:g}")

    def pause(self) -> None:
        self.done.append("pause")

    def resume(self) -> None:
        self.done.append("resume")

    def exceeded(self) -> LimitExceeded | None:
        return self.broken

    def still(self) -> bool:
        return self.stands

    def pids(self) -> list[int]:
        return [7]

    def suspicious(self, pids: Any) -> bool:
        assert pids() == [7]
        self.looks += 1
        return self.looks in self.suspicious_at

    def unsure(self, pids: Any) -> bool:
        assert pids() == [7]
        return self.unsure_now

    def measure(self, pids: Any) -> LimitExceeded | None:
        assert pids() == [7]
        self.done.append("measure")
        return self.found

    def sleep(self) -> None:
        self.done.append("sleep")


class TestWatch:
    async def test_a_run_that_is_measured_goes_on_and_is_looked_at_again(self) -> None:
        inside = Inside()
        inside.suspicious_at = {1, 2}
        inside.watch.begin(5.0)
        await eventually(lambda: inside.looks >= 4)
        inside.watch.stop()
        assert inside.done == ["begin 5", "pause", "measure", "resume", "pause", "measure", "resume"]
        assert inside.told == []

    async def test_a_run_that_has_too_much_is_not_let_go_on(self) -> None:
        inside = Inside()
        inside.suspicious_at, inside.found = {1}, FULL
        inside.watch.begin(5.0)
        await eventually(lambda: inside.told)
        assert (inside.told, inside.done) == ([FULL], ["begin 5", "pause", "measure"])

    async def test_a_limit_that_the_cell_has_seen_broken_is_told(self) -> None:
        inside = Inside()
        inside.broken = FULL
        inside.watch.begin(5.0)
        await eventually(lambda: inside.told)
        assert (inside.told, inside.looks) == ([FULL], 0)

    async def test_what_moved_last_is_measured_before_a_run_has_ended_well(self) -> None:
        inside = Inside()
        inside.watch.begin(5.0)
        await inside.watch.settle()
        assert inside.done == ["begin 5"]
        inside.unsure_now = True
        await inside.watch.settle()
        assert inside.done == ["begin 5", "pause", "measure"], "nothing moves any more"
        inside.broken = FULL
        with pytest.raises(LimitExceeded, match="The disk is full"):
            await inside.watch.settle()
        inside.watch.stop()
        await inside.watch.settle()

    async def test_a_home_is_measured_once_everything_stands_still(self) -> None:
        inside = Inside()
        inside.unsure_now = True
        inside.watch.rest(failed=False)
        await eventually(lambda: "sleep" in inside.done)
        assert inside.done == ["pause", "measure", "sleep"]
        await inside.watch.wake()
        assert inside.told == []
        inside.stands = False
        inside.watch.rest(failed=False)
        inside.unknown, inside.found = True, FULL
        await inside.watch.wake()
        assert inside.told == [FULL], "it is too full to run"
        inside.watch.stop()

    @pytest.mark.parametrize("how", ["limit", "home", "moves"])
    async def test_what_is_broken_between_runs_is_told(self, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("toolfold.sandbox.watch._STILL_WITHIN", 0.05)
        inside = Inside()
        inside.broken = FULL if how == "limit" else None
        inside.unsure_now, inside.found = how == "home", FULL
        inside.stands = how != "moves"
        inside.watch.rest(failed=False)
        await eventually(lambda: inside.told)
        told = inside.told[0]
        if how == "moves":
            assert isinstance(told, SandboxDied)
            assert "went on working after its end" in str(told)
        else:
            assert told is FULL
        inside.watch.stop()

    async def test_what_moves_while_it_sleeps_is_noticed_before_the_next_run(self) -> None:
        inside = Inside()
        inside.watch.rest(failed=False)
        await eventually(lambda: "sleep" in inside.done)
        inside.stands = False
        await inside.watch.wake()
        assert [type(each) for each in inside.told] == [SandboxDied]
        inside.watch.stop()


class FakeZygote:
    def __init__(self, number: int, folders: list[Path]) -> None:
        self.pid = number
        self.folders = folders
        self.alive = True
        self.clones = 0
        self.ended = False

    def holds(self, folder: Path) -> bool:
        return folder in self.folders

    async def end(self) -> None:
        self.ended = True

    def abandon(self) -> None:
        self.ended = True


class Family:
    """A lineage whose zygotes are none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.zygotes: list[FakeZygote] = []
        self.idle = 0
        self.started = 0
        self.fails = False
        monkeypatch.setattr(lineage, "Zygote", SimpleNamespace(start=self._start))
        self.lineage = Lineage(cast("Any", None), Path("/api"), self._on_idle, self._on_start)

    async def _start(self, launcher: Any, api: Path, folders: list[Path]) -> FakeZygote:
        assert api == Path("/api")
        if self.fails:
            raise SandboxUnavailable("no zygote today.")
        self.zygotes.append(FakeZygote(len(self.zygotes) + 1, folders))
        return self.zygotes[-1]

    def _on_idle(self) -> None:
        self.idle += 1

    def _on_start(self) -> None:
        self.started += 1

    async def enter(self, folder: Path) -> FakeZygote:
        return cast("Any", await self.lineage.enter(folder))

    def leave(self, zygote: FakeZygote) -> None:
        self.lineage.leave(cast("Any", zygote))


@pytest.fixture
async def family(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Family]:
    made = Family(monkeypatch)
    yield made
    await made.lineage.close()
    assert all(zygote.ended for zygote in made.zygotes)


class TestLineage:
    async def test_one_zygote_serves_until_nobody_uses_it_for_long(
        self, family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lineage, "IDLE_SECONDS", 0.05)
        first, second = await asyncio.gather(family.enter(tmp_path), family.enter(tmp_path))
        assert first is second
        assert (family.started, family.lineage.pids) == (1, [1])
        family.leave(first)
        await asyncio.sleep(0.1)
        assert not first.ended, "somebody uses it"
        family.leave(first)
        assert (await family.enter(tmp_path)) is first, "it waits for a while"
        await asyncio.sleep(0.1)
        assert not first.ended
        family.leave(first)
        await eventually(lambda: family.idle)
        assert (first.ended, family.lineage.pids, family.idle) == (True, [], 1)
        assert (await family.enter(tmp_path)).pid == 2

    async def test_one_that_was_replaced_lives_as_long_as_it_is_used(
        self, family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lineage, "MOST_CLONES", 3)
        first = await family.enter(tmp_path)
        first.clones = 2
        await family.enter(tmp_path)
        await asyncio.sleep(0)
        assert len(family.zygotes) == 1
        first.clones = 3
        assert await family.enter(tmp_path) is first, "until the next one is ready"
        await eventually(lambda: family.started == 2)
        assert (await family.enter(tmp_path)).pid == 2
        for _ in range(2):
            family.leave(first)
        await asyncio.sleep(0)
        assert not first.ended
        family.leave(first)
        await eventually(lambda: first.ended)
        assert (family.lineage.pids, family.idle) == ([2], 0)
        family.leave(first)

    async def test_one_that_died_or_does_not_see_a_folder_is_replaced(self, family: Family, tmp_path: Path) -> None:
        one, two = tmp_path / "one", tmp_path / "two"
        one.mkdir()
        two.mkdir()
        first = await family.enter(one)
        first.alive = False
        second = await family.enter(one)
        assert second.pid == 2
        third = await family.enter(two)
        assert third.folders == [one, two]
        family.leave(first)
        await eventually(lambda: first.ended)
        third.alive = False
        family.leave(third)
        await eventually(lambda: third.ended)
        assert (await family.enter(two)).pid == 4

    async def test_what_cannot_be_started_is_told_and_tried_again(self, family: Family, tmp_path: Path) -> None:
        family.fails = True
        with pytest.raises(SandboxUnavailable, match="no zygote today"):
            await family.enter(tmp_path)
        assert family.started == 0
        family.fails = False
        assert (await family.enter(tmp_path)).pid == 1
        with pytest.raises(SandboxUnavailable, match="the session's folder is gone"):
            await family.enter(tmp_path / "gone")
        await family.lineage.close()
        with pytest.raises(SandboxUnavailable, match="being shut down"):
            await family.enter(tmp_path)

    async def test_one_that_nobody_waited_for_does_not_stay(
        self, family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lineage, "IDLE_SECONDS", 0.05)
        asking = asyncio.create_task(family.enter(tmp_path))
        await asyncio.sleep(0)
        asking.cancel()
        await eventually(lambda: family.idle)
        assert [zygote.ended for zygote in family.zygotes] == [True]


async def test_an_interpreter_has_ended_when_its_whole_group_has() -> None:
    process = subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $!"], stdout=subprocess.PIPE, start_new_session=True, stdin=subprocess.DEVNULL
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    cell = MontyCell(process, ours, reading)
    assert await asyncio.wait_for(cell.wait(), 30) == "exit code 0"
    assert not is_running(child)
    assert ours.fileno() == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)
    cell.kill()
    theirs.close()
    os.close(writing)
    process.stdout.close()


RECORD = struct.Struct(">cI")


def record(kind: bytes, data: bytes) -> bytes:
    return RECORD.pack(kind, len(data)) + data


def client(tmp_path: Path, script: str, *, limits: bool = True, **settings: Any) -> ContainerCell:
    """A cell around a program that behaves as an engine's client does. `rm` does nothing."""
    command = tmp_path / "docker"
    command.write_text("#!/bin/sh\nexit 0\n")
    command.chmod(0o755)
    engine = ContainerEngine("docker", str(command), "1", rootless=False, holds_limits=limits, remapped=False)
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=theirs.fileno(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    return ContainerCell(engine, "box", SandboxSettings.model_validate(settings), process, ours, theirs)


SAYS = """
import struct, sys
def say(kind, data): sys.stdout.buffer.write(struct.pack('>cI', kind, len(data)) + data); sys.stdout.flush()
"""


class TestContainerCell:
    async def test_what_a_slow_reader_does_not_take_waits_and_all_of_it_arrives(self, tmp_path: Path) -> None:
        cell = client(tmp_path, SAYS + "for n in range(12): say(b'c', bytes([n]) * 250_000)\nsay(b'o', b'printed')")
        await asyncio.sleep(0.1)
        cell.channel.setblocking(False)
        found = b""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(20):
            while len(found) < 3_000_000:
                found += await loop.sock_recv(cell.channel, 1 << 16)
        assert found == b"".join(bytes([n]) * 250_000 for n in range(12))
        os.set_blocking(cell.output, True)
        assert await asyncio.to_thread(os.read, cell.output, 100) == b"printed"
        assert await asyncio.wait_for(cell.wait(), 20) == "exit code 0"

    async def test_a_client_that_does_not_end_is_ended_and_its_container_is_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(container_cell, "_MUST_BE_GONE", 0.2)
        monkeypatch.setattr(container_cell, "_GOES_BY_ITSELF", 0.05)
        cell = client(tmp_path, "import time; time.sleep(600)")
        process = cell._process  # pyright: ignore[reportPrivateUsage] - nobody else knows whether it was reaped
        cell.kill()
        with pytest.raises(SandboxDied, match=r"the container box did not end within 0 s\."):
            await cell.wait()
        assert process.returncode == -9
        assert cell.channel.fileno() == -1

    async def test_words_of_an_engine_that_cannot_start_it_are_its_end(self, tmp_path: Path) -> None:
        cell = client(tmp_path, "import sys; print('no such image', file=sys.stderr); sys.exit(125)")
        assert await asyncio.wait_for(cell.wait(), 20) == "docker failed: no such image"
        cell = client(tmp_path, SAYS + "say(b'c', b'hello')\nprint('warning', file=sys.stderr)\nsys.exit(3)")
        assert await asyncio.wait_for(cell.wait(), 20) == "exit code 3"

    async def test_memory_that_the_engine_saw_run_out_is_a_limit(self, tmp_path: Path) -> None:
        cell = client(tmp_path, SAYS + "say(b'c', b'hello')\nsay(b'm', b'')")
        await asyncio.wait_for(cell.wait(), 20)
        broken = cell.exceeded()
        assert broken is not None
        assert broken.limit == "sandbox.memory"

    async def test_where_the_engine_holds_no_limits_they_are_measured(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use = SimpleNamespace(memory=0, cpu=0.0)

        class Seen:
            def __init__(self, first: int, others: object) -> None:
                assert (first, others) == (123, ())

            def pids(self) -> list[int]:
                return [123, 124]

            def use(self, limit: int) -> Any:
                return use

        class Nothing:
            def __init__(self, *_: object) -> None: ...

            def begin(self) -> None: ...

            def resume(self) -> None: ...

            def exceeded(self) -> None: ...

        def first_process(name: str) -> int | None:
            return 123 if name == "box" else None

        def no_freezer(first: int, pids: list[int]) -> None: ...

        monkeypatch.setattr(container_cell, "_first_process", first_process)
        monkeypatch.setattr(container_cell, "Processes", Seen)
        monkeypatch.setattr(container_cell, "freezer_within", no_freezer)
        monkeypatch.setattr(container_cell, "Sleep", Nothing)
        monkeypatch.setattr(container_cell, "Hoards", Nothing)
        script = SAYS + "say(b'c', b'hello')\nsys.stdin.read()"
        for what, most in (("memory", 100_000_000), ("cpu", 12.0)):
            cell = client(tmp_path, script, limits=False, memory=100_000_000, cpu=2)
            assert (cell.pids(), cell.exceeded()) == ([], None)
            await eventually(cell.pids)
            assert cell.pids() == [123, 124]
            use.memory, use.cpu = 0, 2.0
            cell.begin(5.0)
            setattr(use, what, most)
            assert cell.exceeded() is None, "just as much as it may"
            setattr(use, what, most + 1)
            broken = cell.exceeded()
            assert broken is not None
            assert broken.limit == f"sandbox.{what}"
            cell.kill()
            await asyncio.wait_for(cell.wait(), 20)
            assert cell.pids() == []
