"""Many users of one gateway at once, over HTTP: how long their runs take, what fails, and what is left afterwards.

The users are locust's, in an environment of its own; each has a session and waits between its runs. Before them, in
the same run, one user alone shows how long a trivial run takes when nothing else happens.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.left_behind import (
    GROWTH,
    Leak,
    born,
    control_groups,
    descendants,
    entries,
    homes,
    proportional_megabytes,
    resident_megabytes,
)
from benchmarks.load_users import NEWER, TRIVIAL
from benchmarks.machine import described
from benchmarks.over_http import TOKEN, HttpClient, serving
from benchmarks.report import document
from benchmarks.rivals import environment
from toolfold.demo.fleet import demo_servers
from toolfold.errors import ToolfoldError

if TYPE_CHECKING:
    from rich.console import Console

LOCUST = "locust==2.47.0"
THINKING = 1.0
"""Seconds between the runs of one user."""
BUDGET = 5.0
"""p95 of a trivial run under load, in medians of one without."""
_ALONE_SECONDS, _ALONE_THINKING = 20, 0.25
_WARM_UP_SECONDS = 20
"""Enough for each user to run every kind of program once: what an interpreter once had, it does not give back."""
_SETTLING = 60.0
_OPENING_AT_ONCE = 10
_OF_A_ZYGOTE = {"processes": 2, "descriptors": 7}
"""A zygote is replaced after some runs, and lives as long as its sessions: there may be two more than before."""
_ALL_MEMORY = "with all sandboxes and servers, MB"
_TELL_EVERY = 30.0
_Progress = Callable[[str], None]


@dataclass(frozen=True)
class Kind:
    """All runs of one program."""

    name: str
    times: list[float]
    """Milliseconds, as the user saw them."""
    errors: int

    def percentile(self, share: int) -> float:
        if len(self.times) < 2:
            return self.times[0] if self.times else 0.0
        return statistics.quantiles(self.times, n=100, method="inclusive")[share - 1]

    def data(self) -> dict[str, Any]:
        marks = {f"p{share}_ms": round(self.percentile(share), 2) for share in (50, 95, 99)}
        return {"name": self.name, "runs": len(self.times), "errors": self.errors, **marks}


@dataclass(frozen=True)
class Load:
    users: int
    idle: int
    idle_kept: int
    """Idle sessions that still had their variables at the end."""
    idle_megabytes: int
    """What all idle sessions take, with what they share counted once."""
    seconds: float
    alone: float
    """The median of a trivial run of one user alone, in milliseconds."""
    kinds: list[Kind]
    problems: dict[str, int]
    """What went wrong, and how often."""
    leaks: list[Leak]

    @property
    def everything(self) -> Kind:
        times = [taken for kind in self.kinds for taken in kind.times]
        return Kind("all", times, sum(kind.errors for kind in self.kinds))

    @property
    def trivial(self) -> Kind:
        return next((kind for kind in self.kinds if kind.name == TRIVIAL), Kind(TRIVIAL, [], 0))

    @property
    def ratio(self) -> float:
        return self.trivial.percentile(95) / self.alone if self.alone else 0.0

    @property
    def clean(self) -> bool:
        """Nothing failed, nothing was lost, nothing is left."""
        left = any(leak.leaked or leak.closed for leak in self.leaks)
        return not self.problems and self.idle_kept == self.idle and not left

    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "users": self.users,
            "thinking_seconds": THINKING,
            "idle_sessions": self.idle,
            "idle_sessions_kept": self.idle_kept,
            "idle_sessions_mb": self.idle_megabytes,
            "seconds": round(self.seconds, 1),
            "runs_per_second": round(len(self.everything.times) / self.seconds, 2),
            "unloaded_trivial_median_ms": round(self.alone, 3),
            "ratio": round(self.ratio, 2),
            "budget": BUDGET,
            "errors": self.everything.errors,
            "problems": self.problems,
            "kinds": [kind.data() for kind in [*self.kinds, self.everything]],
            "leaks": [leak.data() for leak in self.leaks],
            "clean": self.clean,
        }
        return document("load", found, LOCUST)


def show(load: Load, console: Console) -> None:
    from rich import box
    from rich.table import Table

    whole = load.everything
    title = (
        f"{load.users} users, {THINKING:g} s of thinking between runs, {load.idle} idle sessions, "
        f"{load.seconds / 60:.1f} minutes: {len(whole.times):,} runs, {len(whole.times) / load.seconds:.1f} a second"
    )
    console.print(title, highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("what", "runs", "errors", "p50", "p95", "p99"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for kind in [*load.kinds, whole]:
        marks = [f"{kind.percentile(share):,.1f} ms" for share in (50, 95, 99)]
        table.add_row(kind.name, f"{len(kind.times):,}", str(kind.errors), *marks)
    console.print(table)
    colour = "green" if load.ratio <= BUDGET else "red"
    console.print(
        f"A trivial run: median {load.alone:.1f} ms for one user alone, p95 {load.trivial.percentile(95):.1f} ms "
        f"among {load.users}: [{colour}]{load.ratio:.1f} ×[/] (at most {BUDGET:g} ×)",
        highlight=False,
    )
    if load.idle:
        console.print(
            f"{load.idle_kept} of {load.idle} idle sessions still had their variables; all of them take "
            f"{load.idle_megabytes:,} MB.",
            highlight=False,
        )
    for problem, count in load.problems.items():
        console.print(f"{count} × {problem}", highlight=False, markup=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("what", "before", "after", "once closed", "leaked"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for leak in load.leaks:
        table.add_row(leak.what, str(leak.before), str(leak.after), str(leak.closed), str(leak.leaked))
    console.print(table)
    console.print(described(LOCUST), highlight=False)


async def measure(data_dir: Path, users: int, minutes: float, idle: int, progress: _Progress) -> Load:
    """Start a gateway with the demo's servers on loopback, and let the users run. Raises when locust cannot be had."""
    _allow_descriptors(10 * (users + idle) + 1000)
    progress("getting locust ready in an environment of its own")
    pins = str(Path(__file__).with_name("locust.txt"))
    python = await asyncio.to_thread(environment, data_dir, LOCUST.replace("==", "-"), "--no-deps", "-r", pins)
    with tempfile.TemporaryDirectory(prefix="toolfold-load-", ignore_cleanup_errors=True) as name:
        home = Path(name)
        async with serving(_serve(home, users + idle)) as (url, gateway):
            lab = _Lab(home, url, gateway, python)
            alone = await lab.alone(progress)
            progress(f"{idle} sessions that stay idle")
            megabytes = await lab.open_idle(idle)
            progress(f"{users} users open their sessions")
            await lab.run(users, _WARM_UP_SECONDS, tasks="each")
            before = await lab.settled()
            progress(f"{users} users for {minutes:g} minutes")
            begun = time.monotonic()
            taken = await lab.run(users, minutes * 60, progress=progress)
            seconds = time.monotonic() - begun
            progress("counting what is left")
            after = await lab.settled()
            kept = await lab.kept_idle(idle)
            lab.remember()
        closed = await lab.settled()
    return _load(users, idle, kept, megabytes, seconds, alone, taken, (before, after, closed))


def _allow_descriptors(wanted: int) -> None:
    """What the gateway is started with: a live session takes seven, and by default a process may have 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))


def _load(
    users: int,
    idle: int,
    kept: int,
    megabytes: int,
    seconds: float,
    alone: float,
    taken: list[tuple[str, float, str]],
    counts: tuple[dict[str, int], dict[str, int], dict[str, int]],
) -> Load:
    names = dict.fromkeys(name for name, _, _ in taken)
    kinds = [
        Kind(
            name,
            [ms for kind, ms, _ in taken if kind == name],
            sum(bool(bad) for kind, _, bad in taken if kind == name),
        )
        for name in sorted(names, key=lambda name: (name != TRIVIAL, name))
    ]
    before, after, closed = counts
    leaks = [Leak(what, before[what], after[what], closed[what], _allowed(what, before[what])) for what in before]
    problems = Counter(f"{name}: {bad}" for name, _, bad in taken if bad)
    return Load(users, idle, kept, megabytes, seconds, alone, kinds, dict(problems.most_common(20)), leaks)


def _allowed(what: str, before: int) -> int:
    if what.endswith("MB"):
        return int(before * (GROWTH - 1))
    if what == "threads":
        return min(32, (os.cpu_count() or 1) + 4)  # asyncio starts threads for blocking work as they are needed
    return 2 * _OF_A_ZYGOTE.get(what, 0)


def _serve(home: Path, sessions: int) -> list[str]:
    servers = "".join(
        f"[servers.{name}]\ncommand = {json.dumps(server['command'])}\nargs = {json.dumps(server['args'])}\n"
        for name, server in demo_servers().items()
    )
    config = home / "toolfold.toml"
    config.write_text(f'session_limit = {sessions + 1}\npolicy.profile = "open"\n{servers}', encoding="utf-8")
    command = [sys.executable, "-m", "toolfold", "serve", "--config", str(config), "--data", str(home / "data")]
    return [*command, "--http", "127.0.0.1:0", "--token", TOKEN]


class _Lab:
    """One gateway, its users, and counts of what it has."""

    def __init__(self, home: Path, url: str, gateway: int, python: Path) -> None:
        self._home = home
        self._url = url
        self._gateway = gateway
        self._python = python
        self._family: dict[int, int] = {}

    async def alone(self, progress: _Progress) -> float:
        progress("one user alone")
        taken = await self.run(1, _ALONE_SECONDS, thinking=_ALONE_THINKING, tasks="trivial")
        times = [ms for name, ms, bad in taken if name == TRIVIAL and not bad]
        if not times:
            raise ToolfoldError(f"one user alone got no answer: {taken[:3]}")
        return statistics.median(times)

    async def run(
        self,
        users: int,
        seconds: float,
        *,
        thinking: float = THINKING,
        tasks: Literal["trivial", "each", "mixed"] = "mixed",
        progress: _Progress = lambda text: None,
    ) -> list[tuple[str, float, str]]:
        """Let so many users run: name, milliseconds and problem of each of their runs."""
        result = self._home / "taken.json"
        result.unlink(missing_ok=True)
        told = {
            "LOAD_TOKEN": TOKEN,
            "LOAD_RESULT": str(result),
            "LOAD_THINKING": str(thinking),
            "LOAD_TASKS": tasks,
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
        arguments = ["--headless", "--only-summary", "--loglevel", "ERROR", "--stop-timeout", "30"]
        arguments += ["--users", str(users), "--spawn-rate", str(users), "--run-time", f"{max(1, round(seconds))}s"]
        process = await asyncio.create_subprocess_exec(
            str(self._python), "-m", "locust", "-f", str(Path(__file__).with_name("locustfile.py")),
            "--host", self._url.removesuffix("/mcp"), *arguments,
            env=os.environ | told, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        telling = asyncio.create_task(_tell(seconds, progress))
        try:
            output, _ = await asyncio.wait_for(process.communicate(), seconds + 120)
        finally:
            telling.cancel()
            if process.returncode is None:
                process.kill()
        if not result.exists():
            raise ToolfoldError(f"locust ended with {process.returncode}: {output.decode(errors='replace')[-1000:]}")
        return [(name, taken, bad) for name, taken, bad in json.loads(result.read_bytes())]

    async def open_idle(self, count: int) -> int:
        """Open so many sessions; returns the megabytes that they take."""
        before = await self.settled()
        opened = await self._idle(count, lambda number: f"mine = {number}\nprint(mine)")
        if opened < count:
            raise ToolfoldError(f"only {opened} of {count} idle sessions could be opened")
        return (await self.settled())[_ALL_MEMORY] - before[_ALL_MEMORY]

    async def kept_idle(self, count: int) -> int:
        return await self._idle(count, lambda number: "print(mine)")

    async def _idle(self, count: int, code: Callable[[int], str]) -> int:
        """Run in each idle session; returns how many printed their number."""
        limit = asyncio.Semaphore(_OPENING_AT_ONCE)

        async def one(number: int) -> bool:
            async with limit:
                client = HttpClient(self._url, NEWER)
                text = await client.run(f"idle-{number}", code(number))
                await client.close()
                return text.strip() == str(number)

        return sum(await asyncio.gather(*(one(number) for number in range(count))))

    def remember(self) -> None:
        """From now on only the processes that are there now count: the gateway is about to end."""
        self._family = {pid: born(pid) for pid in descendants(self._gateway)}

    async def settled(self) -> dict[str, int]:
        """Counts once they have stopped changing for a second: sandboxes end in the background, the pool fills."""
        deadline = time.monotonic() + _SETTLING
        last, steady = self._counts(), 0
        while steady < 5 and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
            now = self._counts()
            steady = steady + 1 if _without_memory(now) == _without_memory(last) else 0
            last = now
        return last

    def _counts(self) -> dict[str, int]:
        pid = self._gateway
        found = [each for each, when in self._family.items() if born(each) == when] or descendants(pid)
        return {
            "processes": len(found),
            "descriptors": entries(f"/proc/{pid}/fd"),
            "threads": entries(f"/proc/{pid}/task"),
            "control groups": control_groups(pid),
            "mounts": sum(str(self._home) in line for line in Path("/proc/mounts").read_text().splitlines()),
            "sandbox folders": homes(self._home / "data"),
            "gateway, MB": resident_megabytes(pid),
            _ALL_MEMORY: proportional_megabytes([pid, *found]),
        }


async def _tell(seconds: float, progress: _Progress) -> None:
    begun = time.monotonic()
    while (left := seconds - (time.monotonic() - begun)) > _TELL_EVERY:
        await asyncio.sleep(_TELL_EVERY)
        progress(f"{left - _TELL_EVERY:.0f} s to go")


def _without_memory(counts: dict[str, int]) -> dict[str, int]:
    return {what: count for what, count in counts.items() if not what.endswith("MB")}
