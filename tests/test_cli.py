"""The command line, run as a person runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from tests import warm
from tests.lab import LAB
from toolfold.cli.main import COMMANDS


@pytest.fixture
def config(runtime_dir: Path) -> Path:
    path = runtime_dir / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"lab": LAB}}))
    return path


def toolfold(
    *words: str, config: Path | None = None, stdin: str = "", cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    place = ["--config", str(config), "--data", str(config.parent)] if config is not None else []
    return subprocess.run(
        [warm.python(), "-m", "toolfold", *words, *place],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        check=False,
    )


def test_the_programs_output_is_the_commands_stdout(config: Path) -> None:
    done = toolfold("run", "-c", "from servers.lab import add\nprint((await add(a=1, b=2))['sum'])", config=config)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_a_program_comes_from_a_file_or_from_standard_input(config: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('from a file')")
    assert toolfold("run", str(program), config=config).stdout == "from a file\n"
    assert toolfold("run", "-", config=config, stdin="'a value'").stdout == "a value\n"


def test_a_failing_program_is_exit_code_1_with_the_error_on_stderr(config: Path) -> None:
    done = toolfold("run", "-c", "print('before')\n1 / 0", config=config)
    assert done.returncode == 1
    assert done.stdout == "before\n"
    assert "ZeroDivisionError" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_timeout_is_in_seconds(config: Path) -> None:
    done = toolfold("run", "-c", "while True: pass", "--timeout", "0.5", config=config)
    assert done.returncode == 1
    assert "0.5 s" in done.stderr


def test_a_result_as_json(config: Path) -> None:
    done = toolfold("run", "-c", "from servers.lab import add\nawait add(a=1, b=2)", "--json", config=config)
    result = json.loads(done.stdout)
    assert result["success"] is True
    assert result["value"] == {"sum": 3}
    assert [call["tool"] for call in result["tool_calls"]] == ["add"]
    assert {"output", "error", "execution_time_ms", "session", "truncated", "output_file"} <= set(result)


def test_files_of_a_session_are_there_for_the_next_command(config: Path) -> None:
    toolfold("run", "-c", "open('workspace/n', 'w').write('1')", "--session", "s", config=config)
    assert toolfold("run", "-c", "print(open('workspace/n').read())", "--session", "s", config=config).stdout == "1\n"


def test_search_and_generate_answer_from_the_cache_without_starting_a_server(config: Path, tmp_path: Path) -> None:
    assert "lab" in toolfold("search", "add numbers", config=config).stdout
    # The same definition, but the server's program is gone: what was listed before still answers.
    logs = config.parent / "logs"
    before = {path: path.stat().st_mtime_ns for path in logs.iterdir()}
    found = toolfold("search", "add numbers", "--json", "--detail", "full", config=config)
    hits = json.loads(found.stdout)["hits"]
    assert hits[0]["name"] == "add"
    done = toolfold("generate", str(tmp_path / "api"), config=config)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "api" / "servers" / "lab" / "add.py").is_file()
    assert {path: path.stat().st_mtime_ns for path in logs.iterdir()} == before


def test_a_folder_of_catalogs_is_searched_without_any_server(shared: Path, tmp_path: Path) -> None:
    words = ["search", "create an issue", "--detail", "name_only", "--catalog", str(shared / "catalogs")]
    done = toolfold(*words, "--data", str(tmp_path / "data"), cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert "github.create_issue" in done.stdout


def test_doctor_proves_servers_and_sandbox_and_says_what_to_do(config: Path) -> None:
    document = json.loads(config.read_text())
    document["mcpServers"]["gone"] = {"command": "no-such-program-anywhere"}
    config.write_text(json.dumps(document))
    done = toolfold("doctor", "--json", config=config)
    lines = json.loads(done.stdout)
    state = {(line["topic"], line["name"]): line for line in lines}
    assert done.returncode == 1
    assert state["server", "lab"]["state"] == "ok"
    assert state["server", "gone"]["state"] == "bad"
    assert str(config) in state["server", "gone"]["todo"]
    assert "Log: " in state["server", "gone"]["todo"]
    sandbox = next(line for line in lines if line["topic"] == "sandbox")
    assert sandbox["state"] == "ok", sandbox
    details = {line["name"].partition(",")[0]: line["detail"] for line in lines if line["topic"] == "kept"}
    kept = {name.lstrip("0123456789 "): detail for name, detail in details.items()}
    assert "stay until they are removed (`retention.sessions`)" in kept["named sessions"]
    assert "unused for 7 days" in kept["long outputs of runs without a session"]
    assert "`retention.outputs`" in kept["long outputs in sessions"]
    assert "100 MB" in kept["logs of servers"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    shown = toolfold(command, "--help").stdout
    assert "Usage" in shown
    assert "Example" in shown


def test_the_other_command_is_serve_with_its_options(config: Path) -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    module, function = project["scripts"]["mcp-code-execution-server"].split(":")
    command = [sys.executable, "-c", f"from {module} import {function}; {function}()"]
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    done = subprocess.run(
        [*command, "--config", str(config), "--data", str(config.parent)],
        input=json.dumps(hello) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert json.loads(done.stdout.splitlines()[0])["result"]["serverInfo"]["name"] == "toolfold", done.stderr


def test_help_lists_every_command() -> None:
    shown = toolfold("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"\b{command}\b", shown)


def test_a_config_that_cannot_be_read_is_one_error_with_its_file(tmp_path: Path) -> None:
    done = toolfold("run", "-c", "1", "--config", str(tmp_path / "absent.json"))
    assert done.returncode == 1
    assert "absent.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_or_folder_that_cannot_be_used_is_named_with_the_plain_reason(config: Path, tmp_path: Path) -> None:
    absent = tmp_path / "absent.py"
    done = toolfold("run", str(absent), config=config)
    assert (done.returncode, done.stderr) == (1, f"Cannot read {absent}: No such file or directory.\n")
    config.write_text('{"mcpServers": {}}')
    file = tmp_path / "file"
    file.write_text("")
    done = toolfold("generate", str(file), config=config)
    assert (done.returncode, done.stderr) == (
        1,
        f"Cannot write the API to {file}: Not a directory.\nName another folder.\n",
    )


def test_two_programs_at_once_are_refused(config: Path) -> None:
    done = toolfold("run", "file.py", "-c", "1", config=config)
    assert done.returncode == 1
    assert "one program" in done.stderr


@pytest.mark.parametrize("imported", ["typer", "toolfold.cli.options"])
def test_ctrl_c_before_the_command_has_begun_ends_it_quietly(imported: str) -> None:
    program = (
        "import builtins, os, signal, sys\n"
        "whole = builtins.__import__\n"
        "def interrupted(name, *rest):\n"
        f"    if name == {imported!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return whole(name, *rest)\n"
        "builtins.__import__ = interrupted\n"
        "from toolfold.cli import main\n"
        "sys.argv = ['toolfold', 'run', '-c', '1']\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_ctrl_c_ends_a_run_cleanly(config: Path) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "toolfold",
            "run",
            "-c",
            "print('begun', flush=True)\nwhile True: pass",
            "--config",
            str(config),
            "--data",
            str(config.parent),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert time.monotonic() - begun < 20
