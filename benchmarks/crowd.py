"""What thirty servers that start, fail and hang cost a program that needs none of them.

The same program runs alone and while the crowd comes up, in the same process and by turns of whole folds, so that both
see the same machine.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import Figure
from toolfold import Toolfold

_FILE = str(Path(__file__).with_name("upstream.py"))
_UPSTREAM = {"command": sys.executable, "args": [_FILE]}
_PROGRAM = "from servers.own import echo\nprint(await echo(text='x'))"
_BUDGET = 1.5
_FAILS = "import sys; sys.exit('not today')"
_SLOW = f"import time, runpy; time.sleep(2); runpy.run_path({_FILE!r}, run_name='__main__')"
_FEWEST = 60
_LONGEST = 60.0
"""Seconds for which the program is run beside the crowd, at most."""


async def measure(home: Path, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    """Medians over all runs that began before the working servers were up."""
    alone: list[float] = []
    crowded: list[float] = []
    for number in range(rounds):
        progress(f"alone, {number + 1} of {rounds}")
        alone += await _times({}, home / f"alone{number}")
        progress(f"beside thirty servers, {number + 1} of {rounds}")
        crowded += await _times(_crowd(), home / f"crowd{number}")
    median = statistics.median
    what = "a run beside thirty servers that start"
    return [
        Figure(what, median(crowded), median(alone), "the same alone", budget=_BUDGET),
        Figure("the slowest tenth of them", _p90(crowded), _p90(alone), "the same alone"),
    ]


def _p90(times: list[float]) -> float:
    return statistics.quantiles(times, n=10)[-1]


def _crowd() -> dict[str, Any]:
    python = sys.executable
    crowd: dict[str, Any] = {}
    for number in range(8):
        crowd[f"plain{number}"] = _UPSTREAM
        crowd[f"slow{number}"] = {"command": python, "args": ["-c", _SLOW]}
        crowd[f"fails{number}"] = {"command": python, "args": ["-c", _FAILS]}
    for number in range(3):
        crowd[f"hangs{number}"] = {"command": "sleep", "args": ["600"]}
        crowd[f"missing{number}"] = {"command": "no-such-command-here"}
    return crowd


async def _times(crowd: dict[str, Any], home: Path) -> list[float]:
    """Milliseconds of each run, from when the crowd begins to start."""
    config = {"servers": {"own": _UPSTREAM, **crowd}}
    async with Toolfold.open(config, data_dir=home) as fold:
        await fold.listed(["own"])
        await fold.run(_PROGRAM)
        fold.roster.want()
        hopeless = {name for name in crowd if not name.startswith(("plain", "slow"))}
        begun = time.perf_counter()
        times: list[float] = []
        while time.perf_counter() - begun < _LONGEST:
            started = time.perf_counter()
            result = await fold.run(_PROGRAM)
            times.append((time.perf_counter() - started) * 1000)
            assert result.success, result.text
            if len(times) >= _FEWEST and {*fold.catalog.missing} <= hopeless:
                break
        return times
