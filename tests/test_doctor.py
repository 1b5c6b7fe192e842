"""`toolfold doctor`: the truth at a glance, and what to type next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.config_machine import Machine
from tests.fold_lab import fold
from tests.lab import LAB

COUNTED = """
import os, pathlib, sys
pathlib.Path(sys.argv[1]).open("a").write("started\\n")
if len(sys.argv) > 2:
    os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path, trusting=False)
    machine.cwd.mkdir()
    machine.home.mkdir()
    return machine


def doctor(machine: Machine, runtime_dir: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    return subprocess.run(
        [warm.python(), "-P", "-m", "toolfold", "doctor", "--data", str(runtime_dir), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        cwd=machine.cwd,
        env={**kept, "HOME": str(machine.home)},
        check=False,
    )


def lines(done: subprocess.CompletedProcess[str], topic: str) -> dict[str, dict[str, Any]]:
    return {line["name"]: line for line in json.loads(done.stdout) if line["topic"] == topic}


def summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    (line,) = lines(done, "summary").values()
    return line


def test_no_servers_is_not_all_well(machine: Machine, runtime_dir: Path) -> None:
    (runtime_dir / "logs").mkdir()
    (runtime_dir / "logs" / "lab.log").touch()
    done = doctor(machine, runtime_dir)
    assert "✓ 0 named sessions, " in done.stdout
    assert "✓ 1 log of servers, " in done.stdout
    assert "all well" not in done.stdout
    assert "no servers to offer" in done.stdout
    assert "toolfold.toml" in done.stdout.rpartition("→")[2]
    assert "no client was found" in done.stdout
    assert "toolfold fold CLIENT" in done.stdout


def test_a_project_that_waits_for_trust_is_the_next_thing_to_do(machine: Machine, runtime_dir: Path) -> None:
    machine.project(".mcp.json", {"mcpServers": {"lab": LAB}})
    last = summary(doctor(machine, runtime_dir, "--json"))
    assert last["state"] == "warning"
    assert "toolfold trust" in last["todo"]


def test_clients_that_know_toolfold_and_those_that_do_not_are_named(machine: Machine, runtime_dir: Path) -> None:
    machine.user(".cursor/mcp.json", {"mcpServers": {"lab": LAB}})
    machine.user(".gemini/settings.json", {"theme": "dark"})
    done = doctor(machine, runtime_dir, "--json")
    clients = lines(done, "client")
    assert (clients["Cursor"]["state"], clients["Cursor"]["todo"]) == ("warning", "Run: toolfold fold cursor")
    assert "1 server (lab)" in clients["Cursor"]["detail"]
    assert clients["Gemini CLI"]["todo"] == "Run: toolfold fold gemini"
    assert "no client knows Toolfold" in summary(done)["name"]
    assert summary(done)["todo"] == "Run: toolfold fold cursor"
    fold(machine, "cursor")
    done = doctor(machine, runtime_dir, "--json")
    assert done.returncode == 0, done.stdout
    assert lines(done, "client")["Cursor"]["state"] == "ok"
    assert "~/.cursor/mcp.json" in lines(done, "client")["Cursor"]["detail"]
    assert summary(done) == {
        "topic": "summary",
        "name": "all well; 1 server (lab); Cursor can use them",
        "state": "ok",
    }


def test_each_server_is_started_once_also_one_that_fails(machine: Machine, runtime_dir: Path, tmp_path: Path) -> None:
    script = tmp_path / "counted.py"
    script.write_text(COUNTED)
    works, fails = tmp_path / "works", tmp_path / "fails"
    servers = {
        "works": {**LAB, "command": sys.executable, "args": [str(script), str(works), LAB["command"], *LAB["args"]]},
        "fails": {"command": sys.executable, "args": [str(script), str(fails)]},
    }
    machine.user(".config/toolfold/toolfold.toml", "")
    config = machine.project("mcp.json", {"mcpServers": servers})
    done = doctor(machine, runtime_dir, "--json", "--config", str(config))
    assert done.returncode == 1
    assert lines(done, "server")["works"]["state"] == "ok", done.stdout
    assert works.read_text() == fails.read_text() == "started\n"
    assert summary(done)["name"] == "1 to put right: fails"
    assert summary(done)["todo"]
