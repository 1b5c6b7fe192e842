"""Sandboxes that are cloned from a zygote beside sandboxes with a bwrap each, measured in turns in one run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.report import Figure
from toolfold import Toolfold
from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxUnavailable
from toolfold.sandbox.choose import Opener, bubblewrap, zygote
from toolfold.sandbox.frames import Request
from toolfold.sandbox.pool import Pool
from toolfold.sandbox.protocol import Backend, Closable
from toolfold.session.homes import SessionHomes

_BURST = 100
_SECONDS = 4.0
_TURNS = 3
_CPU_RUNS = 40
_IDLE = 32
"""Idle sandboxes whose memory is taken together: what they share is shared among so many."""
MANY = 300
MANY_MEGABYTES = 1500.0


@dataclass(frozen=True)
class Kind:
    """A backend, and how many of its sandboxes wait by default."""

    backend: Backend
    folder: Path
    ready: int

    @asynccontextmanager
    async def pool(self, size: int) -> AsyncGenerator[Pool]:
        api = self.folder / "api"
        (api / "servers").mkdir(parents=True, exist_ok=True)
        homes = SessionHomes(self.folder)
        try:
            async with Pool(self.backend, api, homes, SandboxSettings(pool=size)) as pool:
                # The first one brings the zygote, where there is one.
                await fresh(pool)
                await full(pool, size)
                yield pool
        finally:
            homes.close()
            if isinstance(self.backend, Closable):
                await self.backend.close()


Work = Callable[[Kind], Coroutine[Any, Any, float | None]]


class _Host:
    def __init__(self) -> None:
        self.output = bytearray()

    async def answer(self, request: Request) -> Any:
        return None

    def printed(self, data: bytes) -> None:
        self.output += data

    def progress(self, text: str, fraction: float | None) -> None: ...


async def fresh(pool: Pool) -> None:
    """Request to output, and the sandbox thrown away in the background, as a run without a session does it."""
    sandbox = await pool.take()
    host = _Host()
    try:
        await sandbox.run("print('ok')", host, 30)
    finally:
        pool.discard(sandbox)
    if b"ok" not in host.output:
        raise SandboxUnavailable("the sandbox printed nothing.")


async def full(pool: Pool, size: int) -> None:
    async with asyncio.timeout(60):
        while pool.statistics.warm < size or pool.statistics.starting:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.05)


async def measure(data_dir: Path, folder: Path, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    """The figures; none, and a note to `progress`, where zygotes cannot be held."""
    with _processor() as used:
        try:
            cloned = Kind(await _proved(zygote, data_dir, progress), folder / "cloned", 2)
            alone = Kind(await _proved(bubblewrap, data_dir, progress), folder / "alone", 6)
        except SandboxUnavailable as error:
            progress(f"cloned sandboxes do not run here: {error}")
            return []
        rows: list[tuple[str, Work, str, float | None]] = [
            ("fresh run, a sandbox is ready", partial(_ready, rounds), "ms", 1.0),
            ("fresh run, none is ready", partial(_dry, rounds), "ms", None),
            ("each of sustained fresh runs", _sustained, "ms", 0.167),
            (f"burst of {_BURST} fresh runs, last answer", _burst, "ms", 0.25),
            ("processor for a fresh run, all processes", partial(_processor_time, used), "ms", 0.25),
            (f"memory of an idle sandbox, one of {_IDLE}", _memory, "MB", 0.45),
        ]
        figures: list[Figure] = []
        for what, work, unit, budget in rows:
            progress(f"{what}, cloned and one bwrap each")
            ours, other = await _in_turns(work, cloned, alone)
            if ours is not None and other is not None:
                figures.append(Figure(f"cloned: {what}", ours, other, "one bwrap each", unit=unit, budget=budget))
    progress(f"{MANY} live sessions")
    megabytes = await many_sessions(folder / "many")
    title = f"cloned: {MANY} live sessions with their gateway"
    return [*figures, Figure(title, megabytes, MANY_MEGABYTES, "the budget", unit="MB", budget=1.0)]


async def _proved(opener: Opener, data_dir: Path, progress: Callable[[str], None]) -> Backend:
    candidate = await opener(SandboxSettings(), data_dir, progress)
    await candidate.title()
    return candidate.backend


async def _in_turns(work: Work, *kinds: Kind) -> tuple[float, float] | tuple[None, None]:
    """The median of each kind's turns, so that the machine's moods meet both alike."""
    taken: list[list[float]] = [[] for _ in kinds]
    for _ in range(_TURNS):
        for kind, into in zip(kinds, taken, strict=True):
            value = await work(kind)
            if value is None:
                return None, None
            into.append(value)
    return statistics.median(taken[0]), statistics.median(taken[1])


async def _ready(rounds: int, kind: Kind) -> float:
    taken: list[float] = []
    async with kind.pool(kind.ready) as pool:
        for _ in range(rounds):
            await full(pool, kind.ready)
            taken.append(await _milliseconds(fresh(pool)))
    return statistics.median(taken)


async def _dry(rounds: int, kind: Kind) -> float:
    async with kind.pool(0) as pool:
        return statistics.median([await _milliseconds(fresh(pool)) for _ in range(rounds)])


async def _sustained(kind: Kind) -> float:
    """Milliseconds per run while two run at once on every core."""
    count = 0

    async def one_after_the_other(pool: Pool, end: float) -> None:
        nonlocal count
        while time.perf_counter() < end:
            await fresh(pool)
            count += 1

    async with kind.pool(kind.ready) as pool:
        workers = 2 * (os.cpu_count() or 1)
        # No sandbox is left over from a quieter moment.
        await asyncio.gather(*(fresh(pool) for _ in range(2 * kind.ready)))
        end = time.perf_counter() + _SECONDS
        return await _milliseconds(asyncio.gather(*(one_after_the_other(pool, end) for _ in range(workers)))) / count


async def _burst(kind: Kind) -> float:
    async with kind.pool(kind.ready) as pool:
        return await _milliseconds(asyncio.gather(*(fresh(pool) for _ in range(_BURST))))


async def _processor_time(used: Callable[[], float] | None, kind: Kind) -> float | None:
    """Milliseconds of all processes together, the end of the sandboxes included."""
    if used is None:
        return None
    async with kind.pool(0) as pool:
        before = used()
        for _ in range(_CPU_RUNS):
            await fresh(pool)
        while pool.statistics.owned:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        return (used() - before) / _CPU_RUNS


async def _memory(kind: Kind) -> float:
    """Proportional memory of everything that was started, for each sandbox."""
    async with kind.pool(0) as pool:
        sandboxes = [await pool.take() for _ in range(_IDLE)]
        for sandbox in sandboxes:
            await sandbox.run("1", _Host(), 30)
        total = sum(proportional(pid) for pid in descendants())
        for sandbox in sandboxes:
            pool.discard(sandbox)
        return total / _IDLE


async def many_sessions(data_dir: Path) -> float:
    """Megabytes of this process and everything below it, while so many sessions have answered and keep a variable."""
    config: dict[str, Any] = {"servers": {}, "session_limit": MANY}
    async with Toolfold.open(config, data_dir=data_dir) as fold:
        for number in range(MANY):
            await fold.run(f"kept = {number}", session=f"session-{number}")
        results = [await fold.run("kept", session=f"session-{number}") for number in range(MANY)]
        if [result.value for result in results] != [*range(MANY)]:
            raise SandboxUnavailable("a session of many lost its variable.")
        return proportional(os.getpid()) + sum(proportional(pid) for pid in descendants())


async def _milliseconds(work: Awaitable[Any]) -> float:
    begun = time.perf_counter()
    await work
    return (time.perf_counter() - begun) * 1000


def descendants() -> list[int]:
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        for tasks in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                children = [int(child) for child in tasks.read_text().split()]
                found += children
                todo += children
    return found


def proportional(pid: int) -> float:
    """Megabytes of a process, pages that it shares counted by their share."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000
    return 0.0


@contextmanager
def _processor() -> Generator[Callable[[], float] | None]:
    """Milliseconds that this process and everything it starts from now on have used; None where it cannot be counted.

    A control group counts it: clones are not this process's children.
    """
    for base, file, scale in (("cpuacct", "cpuacct.usage", 1e6), ("", "cpu.stat", 1e3)):
        home = Path("/sys/fs/cgroup", base)
        group = home / f"bench-{os.getpid()}"
        try:
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        counter = group / file

        def used(counter: Path = counter, scale: float = scale) -> float:
            words = counter.read_text().split()
            return int(words[0] if len(words) == 1 else words[1]) / scale

        try:
            yield used
        finally:
            (home / "cgroup.procs").write_text(str(os.getpid()))
            with contextlib.suppress(OSError):
                group.rmdir()
        return
    yield None
