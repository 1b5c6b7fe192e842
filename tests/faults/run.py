"""A gateway under load while everything around it fails at random, and what must hold afterwards.

Killed at random: sandboxes, servers, the process that starts servers, the gateway, clients. The disk is full or slow at
times, the gateway stands still at times, requests are cancelled. Then: nothing that was acknowledged is lost or was
done twice, the gateway works, and nothing is left of what it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp import Client

from tests.faults import machine
from tests.faults.gateway import Gateway
from tests.faults.load import Load

CLIENTS = 4
DISK_MB = 64
SETTLING = 90.0
"""Seconds after which what is still there is a leak."""
GROWTH_MB = {"memory, MB": 60, "disk, MB": 5}
"""How much more there may be afterwards."""
SAMPLES = 10
"""How often the gateway is looked at on the way. It may be another process each time."""
OF_A_ZYGOTE = {"processes": 3, "descriptors": 6}
ZYGOTES = 2
"""More zygotes than at the start: one for sandboxes that wait, one for new ones."""
COUNT = """
import collections, json
_found = collections.Counter(open("workspace/log").read().split())
_numbers = {numbers}
print(json.dumps([[n for n in _numbers if not _found[str(n)]], [n for n in _numbers if _found[str(n)] > 1]]))
"""
_OF_SERVERS = ("ledger.py", "lab.py")
_SUPERVISOR = "supervisor_process.py"


@dataclass
class Report:
    seed: int
    faults: Counter[str] = field(default_factory=Counter[str])
    endings: Counter[str] = field(default_factory=Counter[str])
    acknowledged: int = 0
    before: dict[str, float] = field(default_factory=dict[str, float])
    after: dict[str, float] = field(default_factory=dict[str, float])
    during: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    problems: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {'no problem' if not self.problems else f'{len(self.problems)} problems'}"]
        lines += ["faults: " + ", ".join(f"{count} × {name}" for name, count in self.faults.most_common())]
        lines += ["runs: " + ", ".join(f"{count} × {name}" for name, count in self.endings.most_common(12))]
        lines += [f"acknowledged writes and calls, all found once: {self.acknowledged}"]
        for name, value in self.after.items():
            between = " ".join(f"{held[name]:g}" for held in self.during if name in held)
            lines.append(f"{name}: {self.before[name]:g} before, {between or '-'} on the way, {value:g} after")
        return "\n".join([*lines, *(f"PROBLEM: {problem}" for problem in self.problems)])


class Faults:
    """One fault at a time, at random, until the time is over."""

    def __init__(self, gateway: Gateway, disk: machine.Disk, seed: int, report: Report) -> None:
        self._gateway = gateway
        self._disk = disk
        # The order of faults depends on the seed alone; how many there is time for, and whom they hit, does not.
        self._order = random.Random(seed)
        self._random = random.Random(f"{seed}-details")
        self._report = report
        self._kinds: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "sandbox killed": (8, self._kill_sandbox),
            "server killed": (5, self._kill_server),
            "supervisor killed": (1, self._kill_supervisor),
            "gateway killed": (2, self._kill_gateway),
            "gateway told to end": (1, self._end_gateway),
            "gateway stands still": (2, self._freeze),
            "disk full": (3, self._fill_disk),
            "disk slow": (3, self._slow_disk),
            "client killed": (1, self._kill_client),
        }

    async def run(self, seconds: float) -> None:
        """Every kind once in a random order, then at random while there is time."""
        begun = time.monotonic()
        end = begun + seconds
        kinds = list(self._kinds)
        first = self._order.sample(kinds, len(kinds))
        weights = [self._kinds[kind][0] for kind in kinds]
        while first or time.monotonic() < end:
            kind = first.pop() if first else self._order.choices(kinds, weights)[0]
            await self._kinds[kind][1]()
            self._report.faults[kind] += 1
            if (time.monotonic() - begun) * SAMPLES >= seconds * (len(self._report.during) + 1):
                self._report.during.append(_held(self._gateway))
            await asyncio.sleep(self._random.uniform(0.1, 1.0))

    async def _kill(self, wanted: Callable[[str], bool]) -> None:
        found = [pid for pid, command in machine.descendants(self._gateway.pid).items() if wanted(command)]
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._random.choice(sorted(found)), signal.SIGKILL)

    async def _kill_sandbox(self) -> None:
        await self._kill(lambda command: not any(part in command for part in (*_OF_SERVERS, _SUPERVISOR)))

    async def _kill_server(self) -> None:
        await self._kill(lambda command: any(part in command for part in _OF_SERVERS))

    async def _kill_supervisor(self) -> None:
        await self._kill(lambda command: _SUPERVISOR in command)

    async def _kill_gateway(self) -> None:
        await self._replace(signal.SIGKILL, -signal.SIGKILL)

    async def _end_gateway(self) -> None:
        await self._replace(signal.SIGTERM, 128 + signal.SIGTERM)

    async def _replace(self, number: signal.Signals, expected: int) -> None:
        started = set(machine.descendants(self._gateway.pid))
        code = await self._gateway.end(number)
        if code != expected:
            self._report.problems.append(f"after {number.name} the gateway's exit code was {code}")
        await expect(self._report, "processes outlive the gateway", lambda: started & _ours())
        await self._gateway.start()

    async def _freeze(self) -> None:
        os.kill(self._gateway.pid, signal.SIGSTOP)
        await asyncio.sleep(self._random.uniform(0.1, 1.0))
        os.kill(self._gateway.pid, signal.SIGCONT)

    async def _fill_disk(self) -> None:
        unlimited = resource.prlimit(self._gateway.pid, resource.RLIMIT_FSIZE)
        if self._disk.mounted:
            await asyncio.to_thread(self._disk.fill)
        else:
            resource.prlimit(self._gateway.pid, resource.RLIMIT_FSIZE, (0, unlimited[1]))
        await asyncio.sleep(self._random.uniform(0.2, 2.0))
        if self._disk.mounted:
            self._disk.free()
        else:
            resource.prlimit(self._gateway.pid, resource.RLIMIT_FSIZE, unlimited)

    async def _slow_disk(self) -> None:
        self._gateway.slow.touch()
        await asyncio.sleep(self._random.uniform(0.5, 2.0))
        self._gateway.slow.unlink()

    async def _kill_client(self) -> None:
        """A client that started a gateway of its own, on the same data folder, is killed: both are gone."""
        client = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).with_name("stdio_client.py")),
            str(self._gateway.config),
            str(self._gateway.data),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert client.stdout is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                await client.stdout.readline()
        await asyncio.sleep(self._random.uniform(0.0, 0.5))
        started = machine.descendants(client.pid)
        self._gateway.pids |= set(started)
        with contextlib.suppress(ProcessLookupError):
            client.kill()
        await client.wait()
        await expect(self._report, "processes outlive their client", lambda: set(started) & _ours())


def _ours() -> set[int]:
    return set(machine.descendants(os.getpid()))


async def expect(report: Report, problem: str, find: Callable[[], Any], seconds: float = SETTLING) -> None:
    """Wait until nothing is found any more; a problem if that takes too long."""
    end = time.monotonic() + seconds
    while found := find():
        if time.monotonic() > end:
            report.problems.append(f"{problem}: {found}")
            return
        await asyncio.sleep(0.1)


async def run(folder: Path, runtime: Path, seed: int, seconds: float, progress: Callable[[str], None]) -> Report:
    """`folder` must be empty; `runtime` is kept between runs, since it takes long to make."""
    machine.adopt_orphans()
    report = Report(seed)
    folder.mkdir(parents=True, exist_ok=True)
    disk = machine.Disk.prepare(folder / "disk", DISK_MB)
    data = disk.folder / "data"
    data.mkdir(mode=0o700)
    (data / "runtime").symlink_to(runtime)
    gateway = Gateway(folder, data)
    try:
        await gateway.start()
        await _works(gateway)
        report.before = await _settled(gateway)
        load = Load(gateway.url, seed)
        load.start(CLIENTS)
        how = "a small file system" if disk.mounted else "a limit on file sizes, since nothing can be mounted"
        progress(f"faults for {seconds:g} s; the disk is filled by {how}")
        await Faults(gateway, disk, seed, report).run(seconds)
        await load.stop()
        progress("looking at what is left")
        report.endings = load.book.endings
        report.problems += load.book.wrong
        await _works(gateway)
        await _check_acknowledged(gateway, load, folder / "ledger.jsonl", report)
        report.after = await _settled(gateway, like=report.before)
        _compare(report)
        code = await gateway.end(signal.SIGTERM)
        if code != 128 + signal.SIGTERM:
            report.problems.append(f"at the end the gateway's exit code was {code}")
        report.problems += [line for line in gateway.lines if "Traceback" in line or "rror:" in line]
        await expect(report, "processes are left", lambda: machine.descendants(os.getpid()))
        await expect(report, "rooms are left", lambda: machine.rooms(data), seconds=1)
        # Groups of gateways that were killed are empty, and a gateway that starts a minute later removes them.
        await expect(report, "groups with processes are left", lambda: machine.control_groups(gateway.pids, used=True))
        await expect(report, "control groups are left", lambda: machine.control_groups({gateway.pid}))
        await expect(report, "mounts are left", lambda: machine.mounts(data), seconds=1)
    finally:
        for pid in machine.descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        disk.remove()
    return report


async def _works(gateway: Gateway) -> None:
    async with asyncio.timeout(SETTLING), Client(gateway.url) as client:
        while True:
            code = "from servers.lab import add\nprint((await add(a=1, b=2))['sum'])"
            answer: Any = await client.call_tool("run_code", {"code": code})
            if not answer.is_error and answer.content[0].text.strip() == "3":
                return


async def _check_acknowledged(gateway: Gateway, load: Load, ledger: Path, report: Report) -> None:
    noted = Counter(json.loads(line)["arguments"].get("text") for line in ledger.read_text().splitlines())
    lost = [number for number in load.book.noted if not noted[str(number)]]
    twice = [number for number, count in noted.items() if count > 1]
    async with Client(gateway.url) as client:
        for session, numbers in load.book.appended.items():
            # Counted inside: the answer may begin with a notice that has numbers too, and a long one is cut.
            code = COUNT.format(numbers=numbers)
            answer: Any = await client.call_tool("run_code", {"code": code, "session": session})
            missing, repeated = json.loads(answer.content[0].text.strip().splitlines()[-1])
            lost += [f"{session}: {number}" for number in missing]
            twice += [f"{session}: {number}" for number in repeated]
            report.acknowledged += len(numbers)
    report.acknowledged += len(load.book.noted)
    if lost:
        report.problems.append(f"acknowledged and lost: {lost}")
    if twice:
        report.problems.append(f"done twice: {twice}")


def _held(gateway: Gateway) -> dict[str, float]:
    memory, disk = round(machine.resident_mb(gateway.pid)), round(machine.disk_mb(gateway.data), 1)
    return {"descriptors": machine.descriptors(gateway.pid), "memory, MB": memory, "disk, MB": disk}


async def _settled(gateway: Gateway, like: dict[str, float] | None = None) -> dict[str, float]:
    """What the gateway holds once that has stopped changing, or once it is no more than at the start."""
    end = time.monotonic() + SETTLING
    last: dict[str, float] = {}
    steady = 0
    while time.monotonic() < end:
        await asyncio.sleep(0.2)
        now: dict[str, float] = {
            "processes": len(machine.descendants(gateway.pid)),
            "descriptors": machine.descriptors(gateway.pid),
            "rooms": len(machine.rooms(gateway.data)),
            "control groups": len(machine.control_groups({gateway.pid})),
        }
        steady = steady + 1 if now == last else 0
        last = now
        if steady >= 15 and (like is None or all(now[name] <= like[name] + OF_A_ZYGOTE.get(name, 0) for name in now)):
            break
    return {**last, **_held(gateway)}


def _compare(report: Report) -> None:
    for name, value in report.after.items():
        allowed = GROWTH_MB.get(name, ZYGOTES * OF_A_ZYGOTE.get(name, 0))
        if value > report.before[name] + allowed:
            report.problems.append(f"{name} grew from {report.before[name]:g} to {value:g}")
