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


def test_the_table_is_what_the_demo_prints() -> None:
    quoted = re.search(r"<!-- demo -->\n```text\n(.*?)\n```", README, re.DOTALL)
    assert quoted is not None
    done = subprocess.run(
        [sys.executable, "-m", "toolfold", "demo"], capture_output=True, text=True, timeout=110, check=True
    )
    lines = [line.rstrip() for line in done.stdout.splitlines() if not line.startswith("Took ")]
    table, _, words = "\n".join(lines).strip("\n").partition("\n\n")
    assert quoted[1] == table
    direct, tools, ours = re.findall(r"Definitions alone: ([\d,]+) tokens for the (\d+) tools, (\d+) for", words)[0]
    assert f"{direct} tokens for these {tools} tools, and {ours} for Toolfold's two" in README


def test_the_first_screen_has_a_sentence_a_picture_two_commands_a_table_and_a_screenshot() -> None:
    screen, _, _ = README.partition("\n## ")
    places = [screen.index(part) for part in ("**Toolfold folds", ".svg)", "scripts/demo ", "scripts/test ", "```text")]
    assert places == sorted(places)
    assert len(re.findall(r"^scripts/", screen, re.MULTILINE)) == 2
    assert screen.count("```text") == 1
    pictures = sorted((ROOT / "docs" / "pictures").glob("dashboard*.png"))
    assert not pictures or any(f"docs/pictures/{path.name}" in screen for path in pictures)
