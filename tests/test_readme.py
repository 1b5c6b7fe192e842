"""The README's promises: its commands exist and its figures are what the demo prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from toolfold.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_two_commands_are_there_to_be_run() -> None:
    for script in ("demo", "test"):
        assert f"scripts/{script} " in README
        assert (ROOT / "scripts" / script).stat().st_mode & 0o111


def test_every_command_it_names_exists() -> None:
    for command in re.findall(r"`toolfold (\w+)", README):
        assert command in COMMANDS


def test_every_page_it_links_to_exists() -> None:
    for target in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (ROOT / target).is_file(), target


def test_the_table_is_exactly_what_the_demo_prints() -> None:
    quoted = re.search(r"<!-- demo -->\n```text\n(.*?)\n```", README, re.DOTALL)
    assert quoted is not None
    done = subprocess.run(
        [sys.executable, "-m", "toolfold", "demo"], capture_output=True, text=True, timeout=110, check=True
    )
    lines = [line.rstrip() for line in done.stdout.splitlines() if not line.startswith("Took ")]
    assert quoted[1] == "\n".join(lines).strip("\n")
