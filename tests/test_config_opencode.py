"""opencode's config: found where opencode keeps it, in both of its versions, and in its own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.config_machine import Machine

LOCAL = {"type": "local", "command": ["npx", "-y", "server"], "environment": {"LEVEL": "warn"}, "enabled": True}
REMOTE = {"type": "remote", "url": "https://tracker.example/mcp", "headers": {"Authorization": "Bearer {env:TOKEN}"}}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, env={"TOKEN": "t"})


@pytest.mark.parametrize("shape", [lambda servers: {"mcp": servers}, lambda servers: {"mcp": {"servers": servers}}])
@pytest.mark.parametrize(
    "place",
    [
        ("project", "opencode.json"),
        ("project", "opencode.jsonc"),
        ("project", ".opencode/opencode.jsonc"),
        ("user", ".config/opencode/opencode.json"),
    ],
)
def test_servers_are_found_in_both_versions(machine: Machine, shape: Any, place: tuple[str, str]) -> None:
    getattr(machine, place[0])(place[1], shape({"files": LOCAL, "tracker": REMOTE}))
    loaded = machine.load()
    assert not loaded.problems
    assert [file.format for file in loaded.files] == ["opencode"]
    files, tracker = (loaded.settings.servers[name] for name in ("files", "tracker"))
    assert (files.command, files.args, files.env) == ("npx", ("-y", "server"), {"LEVEL": "warn"})
    assert (tracker.url, tracker.headers) == (REMOTE["url"], {"Authorization": "Bearer t"})


def test_the_file_that_the_environment_names_is_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path, env={"OPENCODE_CONFIG": str(tmp_path / "elsewhere.json")})
    machine.user("../elsewhere.json", {"mcp": {"files": LOCAL}})
    assert list(machine.load().settings.servers) == ["files"]


def test_a_named_file_is_known_by_its_content(machine: Machine) -> None:
    for servers in ({"files": LOCAL}, {"servers": {"files": LOCAL}}):
        loaded = machine.load(machine.project("any.json", {"mcp": servers}))
        assert (loaded.files[0].format, list(loaded.settings.servers)) == ("opencode", ["files"])


def test_its_variables_are_its_own(machine: Machine) -> None:
    machine.user(".config/opencode/secret.txt", "from the file\n")
    env = {"UNSET": "{env:UNSET}", "SHELL_WORD": "${HOME}", "SECRET": "{file:secret.txt}"}
    machine.user(".config/opencode/opencode.json", {"mcp": {"files": {**LOCAL, "environment": env}}})
    found = machine.load().settings.servers["files"].env
    assert found == {"UNSET": "", "SHELL_WORD": "${HOME}", "SECRET": "from the file"}


@pytest.mark.parametrize(
    ("timeout", "start", "call"),
    [(5_000, 30, 60), (90_000, 90, 90), ({"startup": 45_000}, 45, 60), ({"request": 120_000}, 30, 120), ("no", 30, 60)],
)
def test_a_time_out_counts_when_it_is_longer_than_ours(machine: Machine, timeout: Any, start: int, call: int) -> None:
    machine.project("opencode.json", {"mcp": {"files": {**LOCAL, "timeout": timeout}}})
    server = machine.load().settings.servers["files"]
    assert (server.start_timeout, server.call_timeout) == (start, call)


def test_what_is_switched_off_or_provided_by_others_is_left_out(machine: Machine) -> None:
    entries = {"off": {**LOCAL, "enabled": False}, "jira": {"enabled": True}, "odd": 3}
    machine.project("opencode.json", {"mcp": entries})
    loaded = machine.load()
    assert not loaded.settings.servers
    assert loaded.files[0].skipped["off"] == "disabled"
    assert loaded.files[0].skipped["jira"] == "provided by an organization"
