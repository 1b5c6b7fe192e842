"""The page about clients: every entry on it is read the way that its client reads it, and is ours."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.clients.agents import AGENTS
from tests.config_machine import Machine
from toolfold.cli import fold
from toolfold.config.clients import FORMATS, locations
from toolfold.config.edge import Host
from toolfold.config.folding.targets import TARGETS, Target
from toolfold.config.itself import runs_toolfold

PAGE = (Path(__file__).parents[1] / "docs" / "clients.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
CLIENTS = {
    "Claude Code": ("claude-code", ".mcp.json"),
    "Claude Desktop": ("claude-desktop", "claude_desktop_config.json"),
    "Cursor": ("cursor", ".cursor/mcp.json"),
    "VS Code": ("vscode", ".vscode/mcp.json"),
    "Codex": ("codex", ".codex/config.toml"),
    "Gemini CLI": ("gemini", ".gemini/settings.json"),
    "Zed": ("zed", ".zed/settings.json"),
    "opencode": ("opencode", "opencode.json"),
    "Windsurf": ("windsurf", ".codeium/windsurf/mcp_config.json"),
}
KEYS = {"VS Code": "servers", "Codex": "mcp_servers", "Zed": "context_servers", "opencode": "mcp"}
"""Under which key a client looks for servers, where it is not `mcpServers`."""


def blocks(text: str, *languages: str) -> list[str]:
    found = re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [body for language, body in found if language in languages]


def entry(client: str, text: str) -> dict[str, Any]:
    document = tomllib.loads(text) if client == "Codex" else json.loads(text)
    (key,) = document
    assert key == KEYS.get(client, "mcpServers")
    assert list(document[key]) == ["toolfold"]
    return document[key]["toolfold"]


def over_http() -> dict[str, str]:
    """By client, the entry with an address. The last client named before an entry is the one that it is for."""
    found: dict[str, str] = {}
    client = ""
    pieces = re.split(r"^```(\w+)\n(.*?)^```", SECTIONS["Over HTTP"], flags=re.MULTILINE | re.DOTALL)
    for words, language, body in zip(pieces[0::3], pieces[1::3], pieces[2::3], strict=False):
        client = next((name for name in CLIENTS if re.search(rf"\b{name}\b.*:\s*\Z", words.strip())), client)
        if language != "bash" and client not in found:
            found[client] = body
    return found


def test_every_client_whose_config_we_read_has_its_section() -> None:
    assert {name for name, _ in CLIENTS.values()} == {known.name for known in FORMATS} - {"toolfold", "servers"}
    assert set(CLIENTS) <= set(SECTIONS)


@pytest.mark.parametrize("client", CLIENTS)
def test_an_entry_that_starts_us_is_read_by_its_client_and_known_as_ours(client: str, tmp_path: Path) -> None:
    (text,) = blocks(SECTIONS[client], "json", "toml")
    given = entry(client, text)
    words = given["command"] if client == "opencode" else [given["command"], *given["args"]]
    assert words == ["toolfold", "serve"]
    loaded = Machine(tmp_path).load(Machine(tmp_path).project(CLIENTS[client][1], text))
    assert not loaded.problems
    # Read as that client's file, and left out because it is ourselves: we are never folded into ourselves.
    (file,) = loaded.files
    assert file.format == CLIENTS[client][0]
    assert dict(file.skipped) == {"toolfold": "runs toolfold itself"}


@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "Claude Desktop"])
def test_an_entry_with_our_address_is_read_by_its_client(client: str, tmp_path: Path) -> None:
    text = over_http()[client]
    entry(client, text)
    loaded = Machine(tmp_path).load(Machine(tmp_path).project(CLIENTS[client][1], text))
    assert not loaded.problems
    server = loaded.settings.servers["toolfold"]
    assert (server.transport, server.url) == ("http", "http://127.0.0.1:8484/mcp")
    assert server.headers == {"Authorization": "Bearer TOKEN"}


def test_the_entry_with_a_token_sends_it(tmp_path: Path) -> None:
    text = blocks(SECTIONS["Over HTTP"], "json")[-1]
    machine = Machine(tmp_path, env={"TOOLFOLD_TOKEN": "s3cret"})
    loaded = machine.load(machine.project(".mcp.json", text))
    assert not loaded.problems
    assert loaded.settings.servers["toolfold"].headers == {"Authorization": "Bearer s3cret"}


def test_what_starts_us_on_the_page_is_known_as_ours() -> None:
    starts = re.findall(r"(?:-- |^|[^\w ] ?)(toolfold serve(?: --[^\n`'#]+)?)", PAGE, re.MULTILINE)
    assert len(starts) >= 5
    for words in map(shlex.split, starts):
        assert runs_toolfold(words[0], words[1:])


def test_the_readme_shows_the_same_command() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    assert "toolfold fold claude-code" in readme
    assert "claude mcp add toolfold -- toolfold serve" in SECTIONS["Claude Code"]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_client_has_its_block_with_what_to_type_and_whether_it_was_tried(target: Target) -> None:
    section = SECTIONS[target.title]
    rows = dict(re.findall(r"^\| (\w[\w ]+) \| (.+) \|$", section, re.MULTILINE))
    assert list(rows) == ["connect", "changes", "restart", "check", "go back"]
    assert rows["connect"] == f"`toolfold fold {target.name}`"
    assert rows["go back"] == f"`toolfold unfold {target.name}`"
    is_tried = target.name in {agent.name for agent in AGENTS}
    assert ("Tried with the real client" in section) == is_tried
    assert ("not tried with the client itself" in section) != is_tried
    here = Host(cwd=Path("/project"), home=Path("/home"), env={}, platform="linux")
    places = [place.path for place in locations(here) if place.format.name == target.name]
    assert any(path.name in rows["changes"] for path in places)
    assert not target.instructions or target.instructions in SECTIONS["What fold does"]


def test_the_page_names_every_option_of_fold() -> None:
    options = set(re.findall(r'typer\.Option\("(--[a-z]+)"', Path(fold.__file__).read_text(encoding="utf-8")))
    assert {"--print", "--yes", "--hybrid", "--ask"} <= options
    for option in options:
        assert f"`{option}" in SECTIONS["What fold does"]
