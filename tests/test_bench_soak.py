"""The soak, short: it counts, it finds nothing here, and it would find something."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import soak as bench
from benchmarks.soak import soak

from tests.backends.available import candidate

pytestmark = pytest.mark.anyio


async def test_many_runs_leave_nothing_behind(tmp_path: Path) -> None:
    await candidate("bubblewrap", tmp_path)
    result = await soak(tmp_path, 60, lambda text: None)
    assert result.endings["went well"] == 57
    assert not [ending for ending in result.endings if "failed" in ending or "nobody" in ending], result.endings
    assert {leak.what: leak.leaked for leak in result.leaks if leak.leaked} == {}
    left = {leak.what: leak.closed for leak in result.leaks}
    assert {left[what] for what in ("processes", "descriptors", "control groups", "homes", "mounts")} == {0}


async def test_what_is_left_behind_is_counted(tmp_path: Path) -> None:
    before = bench._count(tmp_path)  # pyright: ignore[reportPrivateUsage]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as left:
        (tmp_path / "homes" / "mine" / "left").mkdir(parents=True)
        after = bench._count(tmp_path)  # pyright: ignore[reportPrivateUsage]
        assert left.stdin is not None
        left.stdin.close()
    assert after["processes"] == before["processes"] + 1
    assert after["descriptors"] > before["descriptors"]
    assert after["homes"] == before["homes"] + 1
