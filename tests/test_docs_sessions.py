"""Every program and command on docs/sessions.md runs as written, and the example prints what the page shows."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from toolfold import Toolfold

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "sessions.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


async def test_programs_and_commands_do_what_the_page_shows(runtime_dir: Path, tmp_path: Path) -> None:
    env = {**os.environ, "TOOLFOLD_DATA": str(runtime_dir), "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    ran = 0
    async with Toolfold.open({"servers": {}}, data_dir=runtime_dir) as fold:
        for (language, text), (after, expected) in zip(BLOCKS, [*BLOCKS[1:], ("", "")], strict=True):
            if language == "python":
                result = await fold.run(text, session="research")
                assert result.success, result.error
                if after == "text":
                    assert result.text.split() == expected.split()
                    ran += 1
            for line in text.splitlines() if language == "sh" else ():
                command = [warm.python(), "-m", *shlex.split(line)]
                done = await asyncio.to_thread(
                    subprocess.run,
                    command,
                    cwd=tmp_path,
                    env=env,
                    capture_output=True,
                    text=True,
                    input="",
                )
                assert done.returncode == 0, done.stderr
    assert ran == 5
    assert (tmp_path / "copy.txt").read_text() == "two people"
    assert (tmp_path / "research.ipynb").exists()


def test_a_planner_and_a_worker_print_what_the_page_shows() -> None:
    command = [sys.executable, "examples/planner_and_worker.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == [text for language, text in BLOCKS if language == "text"][-1]
