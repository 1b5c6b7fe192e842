"""Nothing that a server started is left behind, however we end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.upstream_lab import SERVERS, awkward, eventually, text_of
from toolfold.errors import UpstreamUnavailable
from toolfold.upstream.fleet import Fleet


def state(pid: int) -> str:
    """R, S, Z …, or nothing for a process that is gone."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip()[:1]


def born(pid: int) -> str:
    """When a process was started: its id alone may be another's by now."""
    return subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if state(pid) not in ("", "Z")]


def children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return [int(child) for child, parent in map(str.split, listed.splitlines()) if int(parent) == pid]


def wait_until(check: Callable[[], bool], seconds: float = 15.0) -> None:
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
    process.wait(timeout=15)
    wait_until(lambda: not alive(family))


def test_ctrl_c_in_the_terminal_reaches_the_whole_group_and_leaves_nothing(parent: Start) -> None:
    process, family = parent("deaf", "stays")
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=15)
    wait_until(lambda: not alive(family))


def test_leaving_the_fleet_ends_everything_before_it_returns(parent: Start) -> None:
    process, family = parent("deaf", "stays")
    process.communicate(timeout=15)
    assert process.returncode == 0
    assert not alive(family)


def test_kill_of_the_whole_group_of_ours_leaves_nothing(parent: Start) -> None:
    process, family = parent()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=15)
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
        await eventually(lambda: not any(state(pid) for pid in pids))
        assert len(set(pids)) == 3
    assert not [pid for pid in set(children(os.getpid())) - before if state(pid) == "Z"]


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


def supervisor_since(before: set[int]) -> int:
    """The process supervisor that was started since then."""
    (found,) = [child for child in set(children(os.getpid())) - before if "supervisor" in command(child)]
    return found


def command(pid: int) -> str:
    return subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
