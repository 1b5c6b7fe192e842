"""Text that is not ours never acts on the person's terminal; what goes into a pipe stays as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import warm
from tests.config_machine import on_a_terminal
from toolfold.cli.console import printable

NASTY = "a\x1b]0;title\x07b\x1b[2Jc\x9b31md\u202ee\u2066f\rg\x08h\x7f"
ACTED_ON = set("\x1b\x07\x9b\u202e\u2066\x08\x7f")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b2J", "\\x9b2J"),
        ("a\rb", "a\\rb"),
        ("a\r\nb\tc\n", "a\nb\tc\n"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        ("\ud800", "\\ud800"),
        ("Grüße 你好 👩\u200d👩\u200d👧 é", "Grüße 你好 👩\u200d👩\u200d👧 é"),
    ],
)
def test_what_a_terminal_acts_on_becomes_visible(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_nothing_is_left_that_a_terminal_acts_on(text: str) -> None:
    shown = printable(text)
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown if char not in "\n\t")
    shown.encode()
    assert printable(shown) == shown


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    folder = tmp_path / "catalog"
    folder.mkdir()
    tool = {"name": "create_issue", "description": f"Create an issue. {NASTY}", "inputSchema": {"type": "object"}}
    (folder / "tracker.json").write_text(json.dumps({"server": "tracker", "tools": [tool]}))
    return folder


def toolfold(*words: str, cwd: Path) -> str:
    command = [warm.python(), "-P", "-m", "toolfold", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=cwd, check=False).stdout


@pytest.mark.parametrize("detail", ["name_only", "with_description", "full"])
def test_search_shows_descriptions_without_their_escapes(catalog: Path, tmp_path: Path, detail: str) -> None:
    words = ("search", "create issue", "--detail", detail, "--catalog", str(catalog), "--data", str(tmp_path / "data"))
    (tmp_path / "empty.json").write_text('{"mcpServers": {}}')
    words += ("--config", str(tmp_path / "empty.json"))
    shown = toolfold(*words, cwd=tmp_path)
    assert "create_issue" in shown
    assert not set(shown) & ACTED_ON
    as_json = toolfold(*words, "--json", cwd=tmp_path)
    assert not set(as_json) & ACTED_ON
    assert json.loads(as_json)["hits"][0]["name"] == "create_issue"


def test_doctor_shows_a_server_s_last_words_without_their_escapes(runtime_dir: Path) -> None:
    config = runtime_dir / "mcp.json"
    words = f"import sys; sys.stderr.write({NASTY!r} + ' the end'); sys.exit(3)"
    config.write_text(json.dumps({"mcpServers": {"dies": {"command": sys.executable, "args": ["-c", words]}}}))
    shown = toolfold("doctor", "--config", str(config), "--data", str(runtime_dir), cwd=runtime_dir)
    assert "the end" in shown
    assert not set(shown) & ACTED_ON


def test_a_program_s_output_is_harmless_on_a_terminal_and_exact_in_a_pipe(runtime_dir: Path) -> None:
    config = runtime_dir / "mcp.json"
    config.write_text('{"mcpServers": {}}')
    program = f"print({NASTY!r})\nraise ValueError({NASTY!r})"
    words = ("run", "-c", program, "--config", str(config), "--data", str(runtime_dir))
    command = [warm.python(), "-P", "-m", "toolfold", *words]
    piped = subprocess.run(command, capture_output=True, timeout=100, cwd=runtime_dir, check=False).stdout
    assert piped == f"{NASTY}\n".encode()
    env = {**os.environ, "TERM": "dumb"}
    code, shown = on_a_terminal(*words, cwd=runtime_dir, env=env)
    assert code == 1
    assert f"ValueError: {printable(NASTY)}" in shown
    assert shown.startswith(printable(NASTY))
    assert not set(shown) & ACTED_ON


def test_numbers_of_a_table_are_not_broken_over_lines_on_a_narrow_terminal() -> None:
    program = (
        "from toolfold.cli.console import print_table\n"
        "row = ('a_server.with_a_long_name_of_a_tool', '[bold]1,234,567[/]', '196,962', '225,933', 'estimated')\n"
        "print_table(('tool', 'tokens of results', 'sent', 'direct', ''), [row])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "40"},
        check=True,
    )
    assert "1,234,567   196,962   225,933   estimated\n" in done.stdout
