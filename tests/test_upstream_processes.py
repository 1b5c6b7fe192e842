"""Nothing that a server started is left behind, however we end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from pathlib import Path

import pytest

from tests.upstream_lab import SERVERS, awkward, eventually, text_of
from toolfold.errors import UpstreamUnavailable
from toolfold.upstream.fleet import Fleet
from toolfold.upstream.processes.supervisor import ServerProcess, Supervisor


def born(pid: int) -> str:
    """When a process was started: its id alone may be another's by now."""
    return subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout


def states(pids: Collection[int]) -> dict[int, str]:
    """R, S, Z … of each process that is not gone."""
    if not pids:
        return {}
    command = ["ps", "-o", "pid=,stat=", "-p", ",".join(map(str, pids))]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {int(pid): state[0] for pid, state in map(str.split, listed.splitlines())}


def alive(pids: list[int]) -> list[int]:
    found = states(pids)
    return [pid for pid in pids if found.get(pid, "Z") != "Z"]


def children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return [int(child) for child, parent in map(str.split, listed.splitlines()) if int(parent) == pid]


def wait_until(check: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


Start = Callable[..., tuple[subprocess.Popen[str], list[int]]]


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Start]:
    """Starts a process that runs a fleet; gives it and everything that has to be gone when it is."""
    started: list[subprocess.Popen[str]] = []
    seen: dict[int, str] = {}

    def start(*flags: str) -> tuple[subprocess.Popen[str], list[int]]:
        process = subprocess.Popen(
            [sys.executable, str(SERVERS / "parent.py"), str(tmp_path / "logs"), *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        family = json.loads(process.stdout.readline())
        assert len(family) == 9
        family += children(process.pid)
        seen.update({pid: born(pid) for pid in family})
        return process, family

    yield start
    for process in started:
        process.kill()
        process.communicate()
    for pid in alive([*seen]):
        if born(pid) == seen[pid]:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("flags", [(), ("deaf", "stays")], ids=["gentle", "stubborn"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_us_ends_every_server_with_all_its_descendants(
    parent: Start, number: signal.Signals, flags: tuple[str, ...]
) -> None:
    process, family = parent(*flags)
    # A daemon's parent leaves at once, and so does nobody else.
    assert len(alive(family)) >= len(family) - 1
    process.send_signal(number)
    process.wait(timeout=60)
    wait_until(lambda: not alive(family))


def test_ctrl_c_in_the_terminal_reaches_the_whole_group_and_leaves_nothing(parent: Start) -> None:
    process, family = parent("deaf", "stays")
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=60)
    wait_until(lambda: not alive(family))


def test_leaving_the_fleet_ends_everything_before_it_returns(parent: Start) -> None:
    process, family = parent("deaf", "stays")
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert not alive(family)


def test_kill_of_the_whole_group_of_ours_leaves_nothing(parent: Start) -> None:
    process, family = parent()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=60)
    wait_until(lambda: not alive(family))


async def family_of(fleet: Fleet, server: str) -> list[int]:
    return json.loads(text_of(await fleet.call(server, "family", {})))


@pytest.mark.anyio
async def test_a_server_that_ended_takes_its_descendants_with_it_and_not_its_neighbours(tmp_path: Path) -> None:
    async with Fleet({"a": awkward(), "b": awkward()}, log_dir=tmp_path) as fleet:
        gone, kept = await family_of(fleet, "a"), await family_of(fleet, "b")
        kept = alive(kept)
        with pytest.raises(UpstreamUnavailable):
            await fleet.call("a", "die", {})
        # The daemon with an empty environment cannot be told apart from a neighbour's: it goes with the fleet.
        await eventually(lambda: len(alive(gone)) <= 1)
        assert alive(kept) == kept
    assert not alive(gone + kept)


@pytest.mark.anyio
async def test_ended_servers_are_reaped(tmp_path: Path) -> None:
    before = set(children(os.getpid()))
    async with Fleet({"a": awkward()}, log_dir=tmp_path) as fleet:
        pids: list[int] = []
        for _ in range(3):
            await fleet.call("a", "echo", {})
            pid = fleet.health()[0].pid
            assert pid is not None
            pids.append(pid)
            with pytest.raises(UpstreamUnavailable):
                await fleet.call("a", "die", {})
        await eventually(lambda: not states(pids))
        assert len(set(pids)) == 3
    assert "Z" not in states(set(children(os.getpid())) - before).values()


@pytest.mark.anyio
async def test_the_loss_of_the_supervisor_is_survived(tmp_path: Path) -> None:
    async with Fleet({"a": awkward()}, log_dir=tmp_path) as fleet:
        before = set(children(os.getpid()))
        await fleet.call("a", "echo", {})
        pid = fleet.health()[0].pid
        assert pid is not None
        os.kill(supervisor_since(before), signal.SIGKILL)
        await eventually(lambda: fleet.health()[0].state != "ready")
        await eventually(lambda: not alive([pid]))
        await fleet.call("a", "echo", {})
        assert fleet.health()[0].restarts == 1


@pytest.mark.anyio
async def test_a_start_that_is_given_up_while_it_is_sent_does_no_harm_to_others(tmp_path: Path) -> None:
    """The supervisor does not read for a while, so that only a part of a large request fits into the socket."""
    large = awkward(env={f"LARGE_{number}": "x" * 100_000 for number in range(6)}, start_timeout=1)
    before = set(children(os.getpid()))
    async with Fleet({"a": awkward(), "b": large, "c": awkward()}, log_dir=tmp_path) as fleet, asyncio.timeout(60):
        await fleet.call("a", "echo", {})
        supervisor = supervisor_since(before)
        os.kill(supervisor, signal.SIGSTOP)
        try:
            with pytest.raises(UpstreamUnavailable, match="within 1 s"):
                await fleet.call("b", "echo", {})
        finally:
            os.kill(supervisor, signal.SIGCONT)
        await fleet.call("c", "echo", {})
        await fleet.call("a", "echo", {})
        assert fleet.health()[0].restarts == 0


class Supervised:
    """A supervisor that has started one program, which has a child of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.supervisor = Supervisor(folder)
        self.null = os.open(os.devnull, os.O_RDWR)
        self.pid = 0
        self.grandchild = 0

    async def open(self) -> ServerProcess:
        before = set(children(os.getpid()))
        reading, writing = os.pipe()
        server = await self.start("sleep 3000 & echo $!; wait", writing)
        os.close(writing)
        with os.fdopen(reading) as told:
            self.grandchild = int(await asyncio.to_thread(told.readline))
        self.pid = supervisor_since(before)
        return server

    async def start(self, script: str, stdout: int | None = None) -> ServerProcess:
        ends = {"stdin": self.null, "stdout": self.null if stdout is None else stdout}
        env = {"PATH": os.environ["PATH"]}
        argv = ["/bin/sh", "-c", script]
        return await self.supervisor.start(argv, env=env, cwd="", log=self._folder / "a.log", **ends)


@pytest.fixture
async def supervised(tmp_path: Path) -> AsyncIterator[Supervised]:
    here = Supervised(tmp_path)
    async with asyncio.timeout(40):
        yield here
    await here.supervisor.close()
    os.close(here.null)


@pytest.mark.anyio
async def test_what_starts_after_its_start_was_given_up_is_stopped(supervised: Supervised) -> None:
    await supervised.open()
    os.kill(supervised.pid, signal.SIGSTOP)
    given_up = asyncio.create_task(supervised.start("exec sleep 4321"))
    for _ in range(10):
        await asyncio.sleep(0)  # sent, and not answered
    given_up.cancel()
    await asyncio.wait([given_up])
    os.kill(supervised.pid, signal.SIGCONT)
    await supervised.start("exec sleep 3000")  # after the one before
    await eventually(lambda: not [child for child in children(supervised.pid) if "4321" in command(child)])
    assert len(children(supervised.pid)) == 2


@pytest.mark.anyio
async def test_a_supervisor_that_is_killed_fails_what_starts_and_takes_what_runs_with_it(
    supervised: Supervised,
) -> None:
    server = await supervised.open()
    os.kill(supervised.pid, signal.SIGSTOP)
    starting = asyncio.create_task(supervised.start("exec sleep 3000"))
    for _ in range(10):
        await asyncio.sleep(0)
    os.kill(supervised.pid, signal.SIGKILL)
    with pytest.raises(ChildProcessError):
        await starting
    await asyncio.wait_for(server.gone, 30)
    assert server.exited.result().status is None
    await eventually(lambda: not alive([server.pid, supervised.grandchild]))
    assert (await supervised.start("exit 3")).pid


@pytest.mark.anyio
async def test_a_supervisor_that_hangs_is_killed_in_the_end_with_what_it_started(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolfold.upstream.processes.supervisor.STOP_TIMEOUT", 0.1)
    server = await supervised.open()
    os.kill(supervised.pid, signal.SIGSTOP)
    await supervised.supervisor.close()
    assert not alive([supervised.pid])
    assert server.exited.done()
    assert server.gone.done()
    await eventually(lambda: not alive([server.pid, supervised.grandchild]))


def supervisor_since(before: set[int]) -> int:
    """The process supervisor that was started since then."""
    (found,) = [child for child in set(children(os.getpid())) - before if "supervisor" in command(child)]
    return found


def command(pid: int) -> str:
    return subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
