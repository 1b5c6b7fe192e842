"""The warm Python of the tests is like the real one in what tests rely on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm


@pytest.fixture(params=["warm", "real"])
def python(request: pytest.FixtureRequest) -> str:
    return warm.python() if request.param == "warm" else sys.executable


def start(python: str, folder: Path, code: str, *words: str) -> subprocess.Popen[str]:
    script = folder / "script.py"
    script.write_text(code)
    pipe = subprocess.PIPE
    return subprocess.Popen([python, str(script), *words], stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=folder)


def test_words_streams_folder_and_status(python: str, tmp_path: Path) -> None:
    code = "import os, sys\nprint(sys.argv[1:], input(), os.getcwd())\nprint('é', file=sys.stderr)\nsys.exit(7)"
    process = start(python, tmp_path, code, "a", "b c")
    assert process.communicate("typed\n", timeout=60) == (f"['a', 'b c'] typed {tmp_path}\n", "é\n")
    assert process.returncode == 7


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 9), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_signals(python: str, number: signal.Signals, status: int, tmp_path: Path) -> None:
    code = """
import time
try:
    print('ready', flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    raise SystemExit(9)
"""
    process = start(python, tmp_path, code)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    # Its streams close when the process that had them has ended, also where another one stood for it.
    assert process.communicate(timeout=60)[0] == ""
    assert process.returncode == status


def test_what_a_python_that_has_begun_cannot_do_is_done_by_the_real_one(tmp_path: Path) -> None:
    code = "import sys; print(sys.warnoptions, 'toolfold' in sys.modules)"
    for words, env in (["-c", code], {}), (["-c", code], {"PYTHONWARNINGS": "error"}):
        done = subprocess.run(
            [warm.python(), *words], env={**os.environ, **env}, capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout == f"{[*env.values()]} False\n"


def test_commands_are_copies_that_have_everything_imported(tmp_path: Path) -> None:
    process = start(warm.python(), tmp_path, "import sys; print('mcp' in sys.modules)")
    assert process.communicate(timeout=60)[0] == f"{warm.python() != sys.executable}\n"
