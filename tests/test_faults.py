"""A short fault test with a fixed seed. `scripts/faults --seed N --minutes 30` is the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SEED = 11


@pytest.mark.skipif(sys.platform != "linux", reason="counts processes, mounts and control groups of Linux")
@pytest.mark.timeout(600)
def test_nothing_is_lost_or_left_when_everything_around_the_gateway_fails(shared_runtime: Path) -> None:
    """In a process of its own, which adopts what others leave behind."""
    command = [sys.executable, "-m", "tests.faults", "--seed", str(SEED), "--minutes", "0.1"]
    done = subprocess.run(
        [*command, "--runtime", str(shared_runtime)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no problem" in done.stdout
    assert "client killed" in done.stdout
