"""A run of the suite tells what it left out, and how to get it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

SUITE = """
import pytest
from tests.conftest import pytest_terminal_summary
"""
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_of_podman(number):
    pytest.skip("podman does not run here: podman is not installed. Run: sudo apt-get install -y podman")

@pytest.mark.skipif(True, reason="no IPv6 here: enable it")
def test_of_the_network(): ...

def test_that_runs(): ...
"""


def test_each_reason_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(SUITE)
    (tmp_path / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist.plugin", "-n", "2"]
    done = subprocess.run(
        # A folder of its own: in the common one it would first remove what earlier runs of the suite left, for minutes.
        [*command, "--basetemp", str(tmp_path / "its"), "--rootdir", str(tmp_path), "-c", "/dev/null", str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert "3 tests: podman does not run here: podman is not installed. Run: sudo apt-get install -y podman" in lines
    assert "1 tests: no IPv6 here: enable it" in lines
    assert done.returncode == 0
