"""Sessions that come back: how long a resume takes beside a fresh start, what keeping costs, and 300 at once."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.clones import MANY, MANY_MEGABYTES, many_sessions
from benchmarks.report import Figure
from toolfold import RunResult, Toolfold

_FILES = 100


async def measure(folder: Path, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    figures: list[Figure] = []
    # No sandbox waits: a fresh start and a resume both have to start one.
    async with Toolfold.open({"servers": {}, "sandbox": {"pool": 0}}, data_dir=folder / "resume") as fold:
        progress("a session that was put away, beside a new one")
        await _ran(fold.run("1"))
        write = f"for n in range({_FILES}): open(f'workspace/{{n}}', 'w').write('x' * 1000)"
        await _ran(fold.run(f"from toolfold import keep\nkeep('rows', list(range(1000)))\n{write}", session="put away"))
        fresh: list[float] = []
        resumed: list[float] = []
        for number in range(rounds):
            fresh.append(await _milliseconds(fold.run("1", session=f"new-{number}")))
            await fold.sessions.reset("put away")
            resumed.append(await _milliseconds(fold.run("1", session="put away")))
        ours, other = statistics.median(resumed), statistics.median(fresh)
        title = f"resume of a session with {_FILES} files and a kept value, after it was put away"
        figures.append(Figure(title, ours, other, "first run of a new session", budget=1.5))
        progress("values that are kept")
        loop = (
            "import time\nbegun = time.perf_counter()\nfor n in range({n}): {what}\n(time.perf_counter() - begun) / {n}"
        )
        imports = "from toolfold import keep, kept\nimport os\n"
        plain = "f = open('workspace/x', 'wb'); f.write(b'x' * 500); f.flush(); os.fsync(f.fileno()); f.close()"
        taken = [
            float((await _ran(fold.run(imports + loop.format(n=50, what=what), session="keeping"))).value) * 1000
            for what in ("keep('x', list(range(100)))", "kept['x']", plain)
        ]
        figures.append(Figure("keep() of 100 numbers, durably", taken[0], taken[2], "write and fsync of a file inside"))
        figures.append(Figure("kept[…] of them", taken[1], taken[2], "the same"))
    progress(f"{MANY} live sessions")
    megabytes = await many_sessions(folder / "many")
    title = f"{MANY} live sessions with their gateway"
    return [*figures, Figure(title, megabytes, MANY_MEGABYTES, "the budget", unit="MB", budget=1.0)]


async def _ran(run: Awaitable[RunResult]) -> RunResult:
    result = await run
    assert result.success, result.error
    return result


async def _milliseconds(run: Awaitable[RunResult]) -> float:
    begun = time.perf_counter()
    await _ran(run)
    return (time.perf_counter() - begun) * 1000
