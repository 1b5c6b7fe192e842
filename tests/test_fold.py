"""`fold` and `unfold` of real formats: what is written where, and what is left alone."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.config_machine import Machine
from tests.fold_lab import CODEX, JSON_FILES, LAUNCH, everything, fold, known, unfold
from toolfold.config.folding import journal as journals
from toolfold.config.folding import undo
from toolfold.config.folding.journal import Journal
from toolfold.config.folding.plan import Options, plan_fold
from toolfold.errors import ConfigError

GITHUB = {"command": "npx", "args": ["-y", "server-github"], "env": {"GITHUB_TOKEN": "ghp_0123456789abcdefghij0123"}}
OURS = ".config/toolfold/toolfold.toml"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.cwd.mkdir()
    return machine


def ours(machine: Machine) -> dict[str, Any]:
    return tomllib.loads((machine.home / OURS).read_text())


def at(machine: Machine, client: str) -> dict[str, Any]:
    document: Any = json.loads((machine.home / JSON_FILES[client][0]).read_text())
    for name in JSON_FILES[client][1]:
        document = document[name]
    return document


ENTRIES: dict[str, dict[str, Any]] = {
    "claude-code": {"type": "stdio", "command": "toolfold", "args": ["serve"], "alwaysLoad": True},
    "claude-desktop": {"command": "/opt/toolfold/bin/toolfold", "args": ["serve"]},
    "cursor": {"command": "/opt/toolfold/bin/toolfold", "args": ["serve"]},
    "windsurf": {"command": "/opt/toolfold/bin/toolfold", "args": ["serve"]},
    "vscode": {"type": "stdio", "command": "/opt/toolfold/bin/toolfold", "args": ["serve"]},
    "gemini": {"command": "toolfold", "args": ["serve"], "timeout": 600_000, "trust": True},
    "zed": {"command": "/opt/toolfold/bin/toolfold", "args": ["serve"]},
    "opencode": {"type": "local", "command": ["toolfold", "serve"], "enabled": True, "timeout": 600_000},
}


@pytest.mark.parametrize("client", JSON_FILES)
def test_servers_move_and_toolfold_is_registered(machine: Machine, client: str) -> None:
    name, (key,) = JSON_FILES[client]
    entry = {"type": "local", "command": ["npx", "-y", "server-github"]} if client == "opencode" else GITHUB
    path = machine.user(name, json.dumps({"theme": "dark", key: {"github": entry}}, indent=2))
    before = everything(machine)
    plan = fold(machine, client)
    assert list(plan.moved) == ["github"]
    assert at(machine, client) == {"toolfold": ENTRIES[client]}
    assert json.loads(path.read_text())["theme"] == "dark"
    assert machine.load().settings.servers["github"].command == "npx"
    assert stat.S_IMODE((machine.home / OURS).stat().st_mode) == 0o600
    unfold(machine)
    assert everything(machine) == before


@pytest.mark.parametrize("client", [*JSON_FILES, "codex"])
def test_a_client_without_any_file_gets_one_and_loses_it_again(machine: Machine, client: str) -> None:
    (machine.home / ".config").mkdir(parents=True)
    before = set(machine.root.rglob("*"))
    fold(machine, client)
    assert any("toolfold" in file.skipped for file in machine.load().files)
    assert not plan_fold(known(client), machine.host, LAUNCH, Options()).changes
    unfold(machine)
    assert set(machine.root.rglob("*")) == before


def test_codex_gets_its_lines_for_approval_and_time(machine: Machine) -> None:
    text = (
        'model = "o"\n\n[mcp_servers.github]  # work\ncommand = "npx"\nargs = ["-y", "server-github"]\n\n[tui]\nx = 1\n'
    )
    path = machine.user(CODEX, text)
    fold(machine, "codex")
    assert path.read_text() == (
        'model = "o"\n\n\n[tui]\nx = 1\n\n[mcp_servers.toolfold]\ncommand = "toolfold"\nargs = ["serve"]\n'
        "required = true\nstartup_timeout_sec = 30\ntool_timeout_sec = 600\n"
        'default_tools_approval_mode = "approve"\n'
    )
    assert (machine.home / OURS).read_text().startswith("# work\n[servers.github]\n")
    unfold(machine)
    assert path.read_text() == text


def test_comments_stay_in_the_client_s_file_and_those_of_an_entry_go_with_it(machine: Machine) -> None:
    text = '{\n  // servers\n  "mcpServers": {\n    "a": {\n      "command": "x" // why x\n    }\n  } // end\n}\n'
    path = machine.user(".cursor/mcp.json", text)
    fold(machine, "cursor")
    assert "// servers" in path.read_text()
    assert "// end" in path.read_text()
    assert (machine.home / OURS).read_text() == '# why x\n[servers.a]\ncommand = "x"\n'


# ---- permissions in the client


def test_claude_code_may_call_toolfold_and_keeps_its_other_permissions(machine: Machine) -> None:
    path = machine.user(".claude/settings.json", '{"permissions": {"allow": ["Bash(ls)"], "deny": ["WebFetch"]}}')
    fold(machine, "claude-code")
    allowed = json.loads(path.read_text())["permissions"]
    assert allowed == {"allow": ["Bash(ls)", "mcp__toolfold"], "deny": ["WebFetch"]}
    # The person allows something else meanwhile: that stays.
    path.write_text(json.dumps({"permissions": {**allowed, "allow": [*allowed["allow"], "Bash(cat)"]}}))
    unfold(machine)
    assert json.loads(path.read_text())["permissions"]["allow"] == ["Bash(ls)", "Bash(cat)"]


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini", "zed"])
def test_with_ask_the_client_goes_on_asking(machine: Machine, client: str) -> None:
    fold(machine, client, granted=False)
    text = b"".join(content for content, _ in everything(machine).values() if b"edits" not in content).decode()
    for word in ("mcp__toolfold", "default_tools_approval_mode", "trust", "tool_permissions"):
        assert word not in text


def test_cursor_s_list_is_added_to_only_where_there_is_one(machine: Machine) -> None:
    fold(machine, "cursor")
    # Making the file would replace the list that the person has in the settings of the program.
    assert not (machine.home / ".cursor/permissions.json").exists()
    unfold(machine)
    path = machine.user(".cursor/permissions.json", '{"mcpAllowlist": ["github:*"] /* mine */}')
    fold(machine, "cursor")
    assert path.read_text() == '{"mcpAllowlist": ["github:*", "toolfold:*"] /* mine */}'


def test_gemini_s_list_of_allowed_servers_gets_toolfold(machine: Machine) -> None:
    document = {"mcp": {"allowed": ["a"]}, "mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}
    path = machine.user(".gemini/settings.json", document)
    plan = fold(machine, "gemini")
    written = json.loads(path.read_text())
    assert written["mcp"]["allowed"] == ["a", "toolfold"]
    assert list(written["mcpServers"]) == ["b", "toolfold"]
    assert plan.left == {"b": "not among the servers that `mcp` allows"}


# ---- what means something else elsewhere


def test_an_entry_means_the_same_in_our_file(machine: Machine) -> None:
    machine = Machine(machine.root, env={"TOKEN": "t", "HOST": "h"})
    entries = {
        "bare": {"command": "x", "args": ["$TOKEN", "a$TOKEN-b", "${HOST:-none}"], "timeout": 5000, "trust": True},
        "events": {"url": "https://a.example/events", "headers": {"X": "$TOKEN"}},
        "both": {"command": "x", "httpUrl": "https://b.example/"},
    }
    machine.user(".gemini/settings.json", {"mcpServers": entries})
    before = machine.load().settings.servers
    fold(machine, "gemini")
    after = machine.load()
    assert not after.problems
    found = after.settings.servers
    assert {name: found[name].model_copy(update={"source": before[name].source}) for name in found} == before
    assert ours(machine)["servers"]["events"]["type"] == "sse"
    assert ours(machine)["servers"]["bare"]["call_timeout"] == 5


def test_what_cannot_be_said_in_our_file_stays(machine: Machine) -> None:
    machine.user(".gemini/settings.json", {"mcpServers": {"odd": {"command": "x", "args": ["$$TOKEN"]}}})
    plan = fold(machine, "gemini")
    assert plan.left == {"odd": "it cannot be written in Toolfold's own words"}
    assert list(at(machine, "gemini")) == ["odd", "toolfold"]


@pytest.mark.parametrize("key", ["disabled_tools", "enabled_tools", "excludeTools", "disabledTools"])
def test_a_server_whose_tools_are_limited_stays(machine: Machine, key: str) -> None:
    machine.user(".cursor/mcp.json", {"mcpServers": {"db": {"command": "x", key: ["drop"]}}})
    plan = fold(machine, "cursor")
    assert key in plan.left["db"]
    assert "db" in at(machine, "cursor")


def test_disabled_and_unusable_servers_stay(machine: Machine) -> None:
    servers: dict[str, Any] = {"off": {"command": "x", "disabled": True}, "broken": {"args": []}, "odd": 3}
    machine.user(".cursor/mcp.json", {"mcpServers": servers})
    plan = fold(machine, "cursor")
    assert plan.left["off"] == "disabled"
    assert {*plan.left} == {"off", "broken", "odd"}
    assert {*at(machine, "cursor")} == {*servers, "toolfold"}


def test_vs_code_goes_on_asking_for_its_inputs_and_hands_them_to_toolfold(machine: Machine) -> None:
    inputs = [{"id": "gh-token", "type": "promptString", "password": True}, {"id": "org", "default": "acme"}]
    env = {"TOKEN": "${input:gh-token}", "ORG": "${input:org}"}
    path = machine.user(JSON_FILES["vscode"][0], {"inputs": inputs, "servers": {"gh": {"command": "x", "env": env}}})
    fold(machine, "vscode")
    written = json.loads(path.read_text())
    assert written["inputs"] == inputs
    passed = written["servers"]["toolfold"]["env"]
    assert passed == {"TOOLFOLD_INPUT_GH_TOKEN": "${input:gh-token}", "TOOLFOLD_INPUT_ORG": "${input:org}"}
    folded = Machine(machine.root, env={"TOOLFOLD_INPUT_GH_TOKEN": "secret"}).load().settings.servers["gh"]
    assert folded.env == {"TOKEN": "secret", "ORG": "acme"}


def test_version_2_of_opencode_gets_its_own_entry(machine: Machine) -> None:
    servers = {"a": {"type": "local", "command": ["x"]}}
    path = machine.user(JSON_FILES["opencode"][0], {"mcp": {"servers": servers}})
    fold(machine, "opencode")
    limits = {"startup": 30_000, "request": 600_000}
    entry = {"type": "local", "command": ["toolfold", "serve"], "timeout": limits}
    assert json.loads(path.read_text()) == {"mcp": {"servers": {"toolfold": entry}}}


# ---- Toolfold itself


def test_toolfold_is_never_folded(machine: Machine) -> None:
    mine = {"gateway": {"command": "uvx", "args": ["toolfold", "serve"]}, "a": {"command": "x"}}
    machine.user(".cursor/mcp.json", {"mcpServers": mine})
    plan = fold(machine, "cursor")
    # It is registered already, by another name: that entry is kept as it is.
    assert at(machine, "cursor") == {"gateway": mine["gateway"]}
    assert list(ours(machine)["servers"]) == list(plan.moved) == ["a"]


def test_an_entry_by_address_counts_and_another_server_of_our_name_does_not(machine: Machine) -> None:
    remote = {"url": "http://127.0.0.1:8484/mcp"}
    machine.user(".cursor/mcp.json", {"mcpServers": {"toolfold": remote, "a": {"command": "x"}}})
    fold(machine, "cursor")
    assert at(machine, "cursor") == {"toolfold": remote}
    unfold(machine)
    machine.user(".cursor/mcp.json", {"mcpServers": {"toolfold": {"command": "x"}}})
    with pytest.raises(ConfigError, match="another server"):
        fold(machine, "cursor")


def test_an_entry_that_would_not_see_what_is_moved_is_an_error(machine: Machine) -> None:
    mine = {"command": "toolfold", "args": ["serve", "--config", "x.json"]}
    machine.user(".cursor/mcp.json", {"mcpServers": {"toolfold": mine, "a": {"command": "x"}}})
    before = everything(machine)
    with pytest.raises(ConfigError, match="--config"):
        fold(machine, "cursor")
    assert everything(machine) == before


# ---- which file


def test_servers_of_the_project_go_to_the_project_and_those_of_the_person_do_not(machine: Machine) -> None:
    machine.project(".mcp.json", {"mcpServers": {"shared": {"command": "s"}}})
    local = {str(machine.cwd): {"mcpServers": {"mine": GITHUB}, "history": ["x"]}}
    path = machine.user(".claude.json", {"mcpServers": {"all": {"command": "a"}}, "projects": local})
    before = everything(machine)
    plan = fold(machine, "claude-code")
    assert list(tomllib.loads((machine.cwd / "toolfold.toml").read_text())["servers"]) == ["shared"]
    assert {*ours(machine)["servers"]} == {"all", "mine"}
    assert any("mine was for this project only" in note for note in plan.notes)
    written = json.loads(path.read_text())
    assert written["projects"][str(machine.cwd)] == {"mcpServers": {}, "history": ["x"]}
    assert list(json.loads((machine.cwd / ".mcp.json").read_text())["mcpServers"]) == ["toolfold"]
    unfold(machine)
    assert everything(machine) == before


def test_only_the_files_that_are_asked_for_change(machine: Machine) -> None:
    machine.project(".cursor/mcp.json", {"mcpServers": {"p": {"command": "p"}}})
    machine.user(".cursor/mcp.json", {"mcpServers": {"u": {"command": "u"}}})
    before = everything(machine)
    plan = fold(machine, "cursor", project=False)
    assert list(plan.moved) == ["u"]
    assert everything(machine)["project/.cursor/mcp.json"] == before["project/.cursor/mcp.json"]
    plan = fold(machine, "cursor", user=False)
    assert list(plan.moved) == ["p"]
    unfold(machine)
    assert everything(machine) == before


def test_a_project_that_was_refused_in_claude_code_stays_refused(machine: Machine) -> None:
    machine.project(".mcp.json", {"mcpServers": {"no": {"command": "x"}, "yes": {"command": "y"}}})
    machine.user(".claude.json", {"projects": {str(machine.cwd): {"disabledMcpjsonServers": ["no"]}}})
    plan = fold(machine, "claude-code")
    assert "no" in plan.left
    assert list(plan.moved) == ["yes"]


def test_named_servers_stay_direct(machine: Machine) -> None:
    machine.user(".cursor/mcp.json", {"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}})
    plan = fold(machine, "cursor", hybrid=frozenset({"a"}))
    assert list(plan.moved) == ["b"]
    assert list(at(machine, "cursor")) == ["a", "toolfold"]
    with pytest.raises(ConfigError, match="no server `z`") as error:
        fold(machine, "cursor", hybrid=frozenset({"z"}))
    assert "a" in error.value.hint


def test_a_name_that_means_another_server_in_our_file_stays(machine: Machine) -> None:
    machine.user(OURS, '[mcpServers.a]\ncommand = "other"\n[servers.b]\ncommand = "b"\n')
    machine.user(".cursor/mcp.json", {"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}})
    before = everything(machine)
    plan = fold(machine, "cursor")
    assert list(plan.left) == ["a"]
    assert list(plan.moved) == ["b"]
    assert ours(machine) == tomllib.loads(before[f"home/{OURS}"][0].decode())
    unfold(machine)
    # What the person had in our file before is theirs.
    assert everything(machine) == before


def test_our_file_with_inline_tables_is_added_to_under_another_key(machine: Machine) -> None:
    machine.user(OURS, 'servers = { a = { command = "a" } }\n')
    machine.user(".cursor/mcp.json", {"mcpServers": {"b": {"command": "b"}}})
    fold(machine, "cursor")
    assert {*machine.load().settings.servers} == {"a", "b"}


def test_an_inline_table_of_servers_stays(machine: Machine) -> None:
    machine.user(CODEX, 'mcp_servers = { a = { command = "a" } }\n')
    before = everything(machine)
    with pytest.raises(ConfigError, match="cannot be edited"):
        fold(machine, "codex")
    assert everything(machine) == before


# ---- what changed since


def test_servers_that_were_added_since_are_folded_by_the_next_fold_and_all_come_back(machine: Machine) -> None:
    path = machine.user(".cursor/mcp.json", {"mcpServers": {"a": {"command": "a"}}})
    fold(machine, "cursor")
    document = json.loads(path.read_text())
    document["mcpServers"]["b"] = {"command": "b"}
    path.write_text(json.dumps(document))
    assert list(fold(machine, "cursor").moved) == ["b"]
    unfold(machine)
    assert at(machine, "cursor") == {"a": {"command": "a"}, "b": {"command": "b"}}
    assert not (machine.home / OURS).exists()


def test_a_server_that_is_there_again_is_the_person_s(machine: Machine) -> None:
    path = machine.user(".cursor/mcp.json", {"mcpServers": {"a": {"command": "a"}}})
    fold(machine, "cursor")
    path.write_text(json.dumps({"mcpServers": {"a": {"command": "newer"}}}))
    notes = unfold(machine)
    assert at(machine, "cursor") == {"a": {"command": "newer"}}
    assert any(note.startswith("a: there is one again") for note in notes)


def test_a_server_that_was_changed_in_our_file_is_kept_there(machine: Machine) -> None:
    machine.user(".cursor/mcp.json", {"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}})
    fold(machine, "cursor")
    path = machine.home / OURS
    path.write_text(path.read_text().replace('command = "a"', 'command = "a"\ncall_timeout = 9'))
    notes = unfold(machine)
    assert ours(machine) == {"servers": {"a": {"command": "a", "call_timeout": 9}}}
    assert any(note.startswith("a: changed since") for note in notes)
    assert {*at(machine, "cursor")} == {"a", "b"}


def test_a_file_that_is_gone_comes_back_and_one_whose_folder_is_gone_does_not(machine: Machine) -> None:
    path = machine.user(".cursor/mcp.json", {"mcpServers": {"a": {"command": "a"}}})
    project = machine.project(".cursor/mcp.json", {"mcpServers": {"p": {"command": "p"}}})
    fold(machine, "cursor")
    path.unlink()
    project.unlink()
    project.parent.rmdir()
    notes = unfold(machine)
    assert at(machine, "cursor") == {"a": {"command": "a"}}
    assert any("folder is gone" in note for note in notes)


def test_a_server_that_three_clients_share_stays_until_the_last_is_unfolded(machine: Machine) -> None:
    for client in ("claude-code", "cursor", "windsurf"):
        machine.user(JSON_FILES[client][0], {"mcpServers": {"a": {"command": "a"}}})
    machine.user(JSON_FILES["windsurf"][0], {"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}})
    before = everything(machine)
    for client in ("claude-code", "cursor", "windsurf"):
        fold(machine, client)
    for client in ("claude-code", "cursor"):
        unfold(machine, client)
        assert ours(machine)["servers"] == {"a": {"command": "a"}, "b": {"command": "b"}}
    unfold(machine, "windsurf")
    assert everything(machine) == before


# ---- files that cannot be changed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"mcpServers": {', "valid JSON"),
        ("[]", "object at the top"),
        ('{"mcpServers": {"a": {"command": "x"}}} extra', "valid JSON"),
        (b"\xff{}", "UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_nothing_is_written(machine: Machine, text: Any, reason: str) -> None:
    machine.user(".cursor/mcp.json", text)
    before = everything(machine)
    with pytest.raises(ConfigError, match=reason) as error:
        fold(machine, "cursor")
    assert "mcp.json" in error.value.message
    assert everything(machine) == before


def test_a_broken_file_of_ours_stops_everything(machine: Machine) -> None:
    machine.user(".cursor/mcp.json", {"mcpServers": {"a": {"command": "a"}}})
    machine.user(OURS, "check = \n")
    before = everything(machine)
    with pytest.raises(ConfigError, match="valid TOML"):
        fold(machine, "cursor")
    assert everything(machine) == before


def test_a_read_only_file_is_not_replaced(machine: Machine) -> None:
    path = machine.user(".cursor/mcp.json", {"mcpServers": {"a": {"command": "a"}}})
    path.chmod(0o444)
    before = everything(machine)
    with pytest.raises(ConfigError, match="read-only"):
        fold(machine, "cursor")
    assert everything(machine) == before


def test_a_link_stays_a_link_and_its_file_is_changed(machine: Machine) -> None:
    real = machine.user("dotfiles/mcp.json", {"mcpServers": {"a": {"command": "a"}}})
    link = machine.home / ".cursor/mcp.json"
    link.parent.mkdir()
    link.symlink_to(real)
    before = real.read_bytes()
    fold(machine, "cursor")
    assert link.is_symlink()
    assert list(json.loads(real.read_text())["mcpServers"]) == ["toolfold"]
    unfold(machine)
    assert link.is_symlink()
    assert real.read_bytes() == before


def test_a_link_of_a_project_that_leaves_it_is_refused(machine: Machine) -> None:
    outside = machine.user("private.json", {"mcpServers": {"a": {"command": "a"}}})
    (machine.cwd / ".mcp.json").symlink_to(outside)
    before = everything(machine)
    with pytest.raises(ConfigError, match="leaves the project"):
        fold(machine, "claude-code")
    assert everything(machine) == before
    fold(machine, "claude-code", project=False)


def test_a_link_to_nothing_is_an_error(machine: Machine) -> None:
    (machine.home / ".cursor").mkdir(parents=True)
    (machine.home / ".cursor/mcp.json").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="does not exist"):
        fold(machine, "cursor")


def test_permissions_of_a_file_are_kept(machine: Machine) -> None:
    path = machine.user(".cursor/mcp.json", {"mcpServers": {"a": GITHUB}})
    path.chmod(0o640)
    machine.user(OURS, "check = true\n").chmod(0o644)
    before = everything(machine)
    fold(machine, "cursor")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    private = [machine.home / OURS, *(machine.home / ".config/toolfold/folds").iterdir()]
    assert {stat.S_IMODE(each.stat().st_mode) for each in private} == {0o600}
    unfold(machine)
    assert everything(machine) == before


# ---- all or nothing


def test_a_file_that_changes_in_the_meantime_is_not_overwritten(machine: Machine) -> None:
    path = machine.user(".cursor/mcp.json", {"mcpServers": {"a": {"command": "a"}}})
    plan = plan_fold(known("cursor"), machine.host, LAUNCH, Options())
    path.write_text('{"mcpServers": {"a": {"command": "newer"}}}')
    before = everything(machine)
    with pytest.raises(ConfigError, match="in the meantime"):
        undo.fold(plan, Journal.of(machine.host))
    assert everything(machine) == before


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_when_a_file_cannot_be_replaced_all_are_as_before(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    machine.user(".claude.json", {"mcpServers": {"a": GITHUB}})
    machine.user(".claude/settings.json", {"permissions": {"allow": []}})
    before = everything(machine)
    plan = plan_fold(known("claude-code"), machine.host, LAUNCH, Options())
    assert len(plan.changes) == 3
    replace = Path.replace

    def full(self: Path, target: Path) -> Path:
        if Path(target) == plan.changes[failing].path:
            raise OSError(28, "No space left on device")
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(ConfigError, match="no space left"):
            undo.fold(plan, Journal.of(machine.host))
    assert everything(machine) == before


@pytest.mark.parametrize("written", [0, 1, 2, 3])
def test_a_fold_that_was_cut_off_is_undone_by_the_next_command(machine: Machine, written: int) -> None:
    machine.user(".claude.json", {"mcpServers": {"a": GITHUB}})
    machine.user(".claude/settings.json", {"permissions": {"allow": []}})
    before = everything(machine)
    plan = plan_fold(known("claude-code"), machine.host, LAUNCH, Options())
    # As if the machine had stopped after some of the files.
    journal = Journal.of(machine.host)
    journal.begin("claude-code", plan.changes, plan.uses)
    journals.write_all(plan.changes[:written])
    assert undo.recover(Journal.of(machine.host)) == ["claude-code"]
    assert everything(machine) == before
    assert undo.recover(Journal.of(machine.host)) == []


def test_copies_are_on_disk_before_anything_else_is_written(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    path = machine.user(".cursor/mcp.json", {"mcpServers": {"a": GITHUB}})
    original = path.read_bytes()
    seen: list[bytes] = []

    def looked(changes: Any) -> None:
        folder = machine.home / ".config/toolfold/folds"
        seen.extend(copy.read_bytes() for copy in folder.glob("*.backup"))

    monkeypatch.setattr(journals, "write_all", looked)
    undo.fold(plan_fold(known("cursor"), machine.host, LAUNCH, Options()), Journal.of(machine.host))
    assert seen == [original]
    assert path.read_bytes() == original


# ---- instructions


@pytest.mark.parametrize(
    ("client", "file"),
    [
        ("claude-code", "CLAUDE.md"),
        ("codex", "AGENTS.md"),
        ("gemini", "GEMINI.md"),
        ("vscode", ".github/copilot-instructions.md"),
    ],
)
def test_agents_of_the_project_are_told_when_asked(machine: Machine, client: str, file: str) -> None:
    before = everything(machine)
    fold(machine, client)
    assert not (machine.cwd / file).exists()
    fold(machine, client, instructions=True)
    text = (machine.cwd / file).read_text()
    assert "search_tools" in text
    assert "run_code" in text
    assert not plan_fold(known(client), machine.host, LAUNCH, Options(instructions=True)).changes
    unfold(machine)
    assert everything(machine) == before


def test_the_block_is_updated_and_the_rest_of_the_file_is_the_project_s(machine: Machine) -> None:
    path = machine.project(
        "AGENTS.md", "# Rules\n\n<!-- toolfold: begin old -->\nold\n<!-- toolfold: end -->\n\nBe kind."
    )
    before = everything(machine)
    fold(machine, "codex", instructions=True)
    text = path.read_text()
    assert text.startswith("# Rules\n\n<!-- toolfold: begin (")
    assert text.endswith("<!-- toolfold: end -->\n\nBe kind.")
    assert "\nold\n" not in text
    unfold(machine)
    assert everything(machine) == before


def test_a_block_that_two_clients_share_stays_until_both_are_unfolded(machine: Machine) -> None:
    path = machine.project("AGENTS.md", "# Rules\n")
    for client in ("codex", "opencode"):
        fold(machine, client, instructions=True)
    unfold(machine, "codex")
    assert "search_tools" in path.read_text()
    path.write_text(f"{path.read_text()}More.\n")
    unfold(machine, "opencode")
    assert path.read_text() == "# Rules\nMore.\n"


def test_vs_code_gets_a_tool_set(machine: Machine) -> None:
    fold(machine, "vscode", instructions=True)
    path = machine.home / ".config/Code/User/prompts/toolfold.toolsets.jsonc"
    (tools,) = [value["tools"] for value in json.loads(path.read_text()).values()]
    assert tools == ["toolfold/search_tools", "toolfold/run_code"]


def test_every_client_is_known_by_its_names() -> None:
    for name in ("claude-code", "Claude Code", "gemini", "Gemini CLI", "VS Code", "vscode", "OpenCode", "zed"):
        assert known(name)


@pytest.mark.skipif(os.name == "nt", reason="paths of Linux")
@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_the_places_of_other_systems_are_used(tmp_path: Path, platform: str) -> None:
    machine = Machine(tmp_path, platform=platform)
    machine.cwd.mkdir()
    place = {"darwin": "Library/Application Support", "win32": "AppData/Roaming"}[platform]
    fold(machine, "claude-desktop")
    assert (machine.home / place / "Claude/claude_desktop_config.json").exists()
