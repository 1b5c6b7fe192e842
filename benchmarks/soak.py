"""Thousands of runs, every twentieth of which crashes, never ends, or is given up: what is left afterwards?

Everything that could leak is counted before and after, with the same number of sandboxes waiting, and once more after
Toolfold is closed. Every count must be the same; memory may not grow.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.left_behind import GROWTH, Leak, control_groups, descendants, entries, homes, resident_megabytes
from benchmarks.machine import described
from benchmarks.report import document
from toolfold import Toolfold
from toolfold.errors import ToolfoldError

if TYPE_CHECKING:
    from rich.console import Console

_BAD_EVERY = 20
_GOOD = "import json\nprint(json.dumps({'n': %d}))"
_IN_SESSION = "n = globals().get('n', 0) + 1\nopen('workspace/n', 'w').write(str(n))"
_BAD = {
    "crashed": "import os; os._exit(3)",
    "crashed hard": "import ctypes; ctypes.string_at(0)",
    "left processes": "import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass\nos._exit(0)",
    "broke the protocol": "from toolfold_guest.channel import channel\nchannel()._sock.sendall(b'\\xff' * 64)",
    "timed out": "while True: pass",
    "were cancelled": "import time; time.sleep(30)",
}
_TIMEOUT = 0.5
_SESSIONS = 8
_SETTLING = 30.0
_WARMING = 10
"""One in so many runs comes before the first count: C libraries (the allocator, SQLite) fill their caches meanwhile."""
_MORE_ZYGOTES = 2
"""A zygote is replaced after some runs; the first one lives for its sessions, the last but one for what waits."""
_OF_A_ZYGOTE = {"processes": 2, "descriptors": 7}


@dataclass(frozen=True)
class Soak:
    runs: int
    seconds: float
    endings: dict[str, int]
    leaks: list[Leak]

    @property
    def clean(self) -> bool:
        return not any(leak.leaked for leak in self.leaks)

    def data(self) -> dict[str, Any]:
        leaks = [leak.data() for leak in self.leaks]
        found = {"runs": self.runs, "seconds": round(self.seconds, 1), "endings": self.endings, "leaks": leaks}
        return document("soak", found)


def show(result: Soak, console: Console) -> None:
    from rich import box
    from rich.table import Table

    endings = ", ".join(f"{count:,} {ending}" for ending, count in result.endings.items())
    console.print(f"{result.runs:,} runs in {result.seconds:.0f} s: {endings}", highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("what", "before", "after", "once closed", "leaked"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for leak in result.leaks:
        table.add_row(leak.what, str(leak.before), str(leak.after), str(leak.closed), str(leak.leaked))
    console.print(table)
    console.print(described(), highlight=False)


async def soak(data_dir: Path, runs: int, progress: Callable[[str], None]) -> Soak:
    """Run the soak in `data_dir`, which should be an empty folder. Takes about a minute for a thousand runs."""
    started = time.monotonic()
    base = await _settled(data_dir)
    endings, before, after = await _inside(data_dir, runs, progress)
    closed = await _settled(data_dir)
    leaks = [
        Leak(what, before[what], after[what], closed[what] - base[what], _allowed(what, before[what]))
        for what in before
    ]
    return Soak(runs, time.monotonic() - started, endings, leaks)


async def _inside(
    data_dir: Path, runs: int, progress: Callable[[str], None]
) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """How the runs ended, and the counts before and after them."""
    endings: Counter[str] = Counter()
    started = time.monotonic()

    async def worker(fold: Toolfold, numbers: Iterator[int]) -> None:
        for number in numbers:
            endings[await _one(fold, number)] += 1
            if number and number % 500 == 0:
                progress(f"{number:,} of {runs:,} runs, {number / (time.monotonic() - started):.0f} a second")

    async def together(fold: Toolfold, numbers: Iterator[int]) -> None:
        await asyncio.gather(*(worker(fold, numbers) for _ in range(2 * (os.cpu_count() or 1))))

    async with Toolfold.open({"servers": {}}, data_dir=data_dir) as fold:
        # Sessions open, threads start and caches fill; what counts is what comes after.
        await fold.run(_BAD["crashed"], session="good-0")
        for number in range(_SESSIONS):
            await fold.run(_IN_SESSION, session=f"good-{number}")
        await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.1) for _ in range(64)))
        await asyncio.gather(*(fold.run(_GOOD % number) for number in range(20)))
        await together(fold, iter(range(runs // _WARMING)))
        before = await _settled(data_dir)
        await together(fold, iter(range(runs // _WARMING, runs)))
        after = await _settled(data_dir)
    return dict(endings), before, after


def _allowed(what: str, before: int) -> int:
    if what == "memory, MB":
        return int(before * (GROWTH - 1))
    return _MORE_ZYGOTES * _OF_A_ZYGOTE.get(what, 0)


async def _one(fold: Toolfold, number: int) -> str:
    if number % _BAD_EVERY == _BAD_EVERY - 1:
        kind = list(_BAD)[number // _BAD_EVERY % len(_BAD)]
        return await _bad(fold, kind, session=f"bad-{number % _SESSIONS}" if number % 3 == 0 else None)
    if number % 10 == 0:
        result = await fold.run(_IN_SESSION, session=f"good-{number // 10 % _SESSIONS}")
    else:
        result = await fold.run(_GOOD % number)
    return "went well" if result.success else f"failed: {str(result.error)[:80]}"


async def _bad(fold: Toolfold, kind: str, session: str | None) -> str:
    run = asyncio.create_task(fold.run(_BAD[kind], session=session, timeout=_TIMEOUT))
    if kind == "were cancelled":
        await asyncio.sleep(0.1)
        run.cancel()
    try:
        result = await run
    except asyncio.CancelledError:
        return kind
    except ToolfoldError as error:
        return f"failed: {error.message[:80]}"
    return kind if not result.success else f"{kind}, and nobody noticed"


async def _settled(data_dir: Path) -> dict[str, int]:
    """Counts once they have stopped changing: sandboxes end in the background and the pool fills itself."""
    deadline = time.monotonic() + _SETTLING
    gc.collect()
    last = _count(data_dir)
    steady = 0
    while steady < 10 and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
        now = _count(data_dir)
        same = {key: value for key, value in now.items() if key != "memory, MB"} == {
            key: value for key, value in last.items() if key != "memory, MB"
        }
        steady = steady + 1 if same else 0
        last = now
    return last


def _count(data_dir: Path) -> dict[str, int]:
    return {
        "processes": len(descendants(os.getpid())),
        "descriptors": entries("/proc/self/fd"),
        "threads": entries("/proc/self/task"),
        "mounts": sum(_mounts(data_dir).values()),
        "control groups": control_groups(os.getpid()),
        "homes": homes(data_dir),
        "memory, MB": resident_megabytes(os.getpid()),
    }


def _mounts(data_dir: Path) -> dict[int, int]:
    """Mount namespace → how much of ours is mounted there, for every namespace that a thread of ours is in."""
    found: dict[int, int] = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            lines = (task / "mountinfo").read_text().splitlines()
            found[(task / "ns" / "mnt").stat().st_ino] = sum(str(data_dir) in line for line in lines)
    return found
