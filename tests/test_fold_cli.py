"""`toolfold fold` and `unfold` as a person types them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import warm
from tests.config_machine import Machine, on_a_terminal
from tests.fold_lab import everything

SECRET = "ghp_0123456789abcdefghij0123456789"
SERVER = {"command": "npx", "args": ["gh"], "env": {"GITHUB_TOKEN": SECRET, "REGION": "eu"}}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.cwd.mkdir()
    machine.user(".cursor/mcp.json", json.dumps({"mcpServers": {"github": SERVER}}, indent=2))
    return machine


def environment(machine: Machine) -> dict[str, str]:
    kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    return {**kept, "HOME": str(machine.home), "TERM": "dumb"}


def toolfold(machine: Machine, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [warm.python(), "-P", "-m", "toolfold", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=machine.cwd,
        env=environment(machine),
        check=False,
    )


def test_the_change_is_shown_without_secrets_and_nothing_is_written_by_print(machine: Machine) -> None:
    before = everything(machine)
    done = toolfold(machine, "fold", "cursor", "--print")
    assert done.returncode == 0, done.stderr
    assert everything(machine) == before
    assert "+[servers.github]" in done.stdout
    assert '-    "github": {' in done.stdout
    assert '+    "toolfold": {' in done.stdout
    assert "github → ~/.config/toolfold/toolfold.toml" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert "eu" in done.stdout


def test_without_a_terminal_nothing_is_changed_until_yes_is_said(machine: Machine) -> None:
    before = everything(machine)
    done = toolfold(machine, "fold", "cursor")
    assert done.returncode == 1
    assert "--yes" in done.stderr
    assert everything(machine) == before
    done = toolfold(machine, "fold", "cursor", "--yes")
    assert done.returncode == 0, done.stderr
    assert "toolfold unfold cursor" in done.stderr
    again = toolfold(machine, "fold", "cursor", "--yes")
    assert (again.returncode, again.stdout) == (0, "")
    assert "nothing to change" in again.stderr
    back = toolfold(machine, "unfold", "cursor", "--yes")
    assert back.returncode == 0, back.stderr
    assert SECRET not in back.stdout + back.stderr
    assert everything(machine) == before


@pytest.mark.parametrize("answer", ["y", "n"])
def test_on_a_terminal_the_person_is_asked(machine: Machine, answer: str) -> None:
    before = everything(machine)
    code, shown = on_a_terminal("fold", "cursor", cwd=machine.cwd, env=environment(machine), answer=answer)
    assert "Fold Cursor like this? [y/N]" in shown
    assert (everything(machine) == before) == (answer == "n")
    assert code == (0 if answer == "y" else 1)


def test_without_a_name_every_client_that_is_here_is_folded_and_unfolded(machine: Machine) -> None:
    machine.user(".codex/config.toml", '[mcp_servers.files]\ncommand = "f"\n')
    before = everything(machine)
    done = toolfold(machine, "fold", "--yes")
    assert done.returncode == 0, done.stderr
    assert "Cursor is folded" in done.stderr
    assert "Codex is folded" in done.stderr
    assert toolfold(machine, "unfold", "--yes").returncode == 0
    assert everything(machine) == before
    assert "Nothing is folded" in toolfold(machine, "unfold", "--yes").stderr


def test_an_unknown_client_is_an_error_with_the_known_ones_and_print_shows_the_entry(machine: Machine) -> None:
    done = toolfold(machine, "fold", "emacs")
    assert done.returncode == 1
    assert "claude-code" in done.stderr
    assert "--print" in done.stderr
    shown = toolfold(machine, "fold", "emacs", "--print")
    assert shown.returncode == 0
    entry = json.loads(shown.stdout)["mcpServers"]["toolfold"]
    assert entry["args"][-1] == "serve"
    assert toolfold(machine, "unfold", "emacs").returncode == 1


def test_a_machine_without_clients_is_told_which_there_are(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.cwd.mkdir()
    machine.home.mkdir()
    done = toolfold(machine, "fold")
    assert done.returncode == 1
    assert "toolfold fold CLIENT" in done.stderr
    assert "opencode" in done.stderr


def test_a_malformed_file_is_one_error_line_and_no_traceback(machine: Machine) -> None:
    machine.user(".cursor/mcp.json", '{"mcpServers": {"a": ')
    done = toolfold(machine, "fold", "cursor", "--yes")
    assert done.returncode == 1
    assert "mcp.json: expected valid JSON" in done.stderr
    assert "Traceback" not in done.stderr


def test_servers_of_a_project_wait_for_trust_and_that_is_said(machine: Machine) -> None:
    machine.project(".mcp.json", {"mcpServers": {"shared": {"command": "s"}}})
    done = toolfold(machine, "fold", "claude-code", "--yes")
    assert done.returncode == 0, done.stderr
    assert "toolfold trust" in done.stderr


def test_a_registered_command_starts_this_toolfold(machine: Machine) -> None:
    toolfold(machine, "fold", "cursor", "--yes")
    entry = json.loads((machine.home / ".cursor/mcp.json").read_text())["mcpServers"]["toolfold"]
    done = subprocess.run([entry["command"], "--version"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
