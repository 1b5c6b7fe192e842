"""Nothing that a person keeps secret in a config may reach a message, a repr or an error."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.config_machine import Machine, texts
from toolfold.config.settings import Settings

SECRET = "hunter2hunter2hunter2"
PLACES: list[dict[str, Any]] = [
    {"command": "x", "env": {"A": SECRET}},
    {"command": "x", "args": ["--api-key", SECRET]},
    {"command": "x", "args": [f"--token={SECRET}"]},
    {"command": "x", "args": ["--header", f"Authorization: Bearer {SECRET}"]},
    {"command": "docker", "args": ["run", "-e", f"TOKEN={SECRET}", "image"]},
    {"command": "x", "args": [f"postgres://me:{SECRET}@db/x"]},
    {"command": "x", "args": [f"--dsn=postgres://me:{SECRET}@db/x"]},
    {"command": "x", "args": [SECRET]},
    {"url": "https://a.example/x", "headers": {"Authorization": f"Bearer {SECRET}"}},
    {"url": f"https://a.example/x?api_key={SECRET}"},
    {"url": f"https://me:{SECRET}@a.example/x"},
    {"url": f"https://a.example/{SECRET}/mcp"},
]
SPOILED: list[dict[str, Any]] = [
    {"command": "x", "env": {"A": SECRET, "B": "${NOT_SET}"}},
    {"command": "x", "env": {"A": f"{SECRET}\0"}},
    {"command": "x", "env": SECRET},
    {"command": "x", "args": SECRET},
    {"command": "x", "args": [{"a": SECRET}]},
    {"command": "x", "disabled": SECRET},
    {"command": "x", "timeout": SECRET},
    {"command": "x", "envFile": SECRET},
    {"command": "x", "type": SECRET},
    {"url": SECRET},
    {"url": f"ftp://{SECRET}"},
    {"url": "https://a.example", "headers": {"A": f"{SECRET}\n"}},
    {"url": "https://a.example", "headers": SECRET},
    {"url": "https://a.example", "bearer_token_env_var": {"x": SECRET}},
    {"url": "https://${HOLDS_SECRET}:x/"},
]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, env={"HOLDS_SECRET": SECRET})


@pytest.mark.parametrize("entry", PLACES)
def test_a_server_s_repr_shows_no_secret(machine: Machine, entry: dict[str, Any]) -> None:
    loaded = machine.load({"mcpServers": {"one": entry}})
    server = loaded.settings.servers["one"]
    assert SECRET in server.model_dump_json()
    for shown in (repr(server), str(server), repr(loaded), repr(loaded.settings), f"{loaded.files}"):
        assert SECRET not in shown


@pytest.mark.parametrize("entry", SPOILED)
@pytest.mark.parametrize("name", ["toolfold.toml", None])
def test_a_problem_shows_no_value_from_the_file(machine: Machine, entry: dict[str, Any], name: str | None) -> None:
    shape: dict[str, Any] = {"servers": {"one": entry}, **({"check": SECRET, "data_dir": 3} if name else {})}
    loaded = machine.load(shape)
    assert loaded.problems
    assert SECRET not in "\n".join(texts(loaded.problems))
    assert SECRET not in repr([dataclasses.astuple(problem) for problem in loaded.problems])


@pytest.mark.parametrize("content", [f'{{"env": {{"A": "{SECRET}" "B"}}}}', f'{{"a": {SECRET}}}', f'{{"{SECRET}'])
def test_a_syntax_error_shows_none_of_the_file(machine: Machine, content: str) -> None:
    machine.project(".mcp.json", content)
    machine.project("toolfold.toml", f'a = "{SECRET}" {SECRET}')
    lines = texts(machine.load().problems)
    assert len(lines) == 2
    assert SECRET not in "\n".join(lines)


def test_the_models_own_errors_show_no_input() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"servers": {"a": {"command": "x", "env": {"A": [SECRET]}, "nope": SECRET}}})
    assert SECRET not in str(caught.value)
