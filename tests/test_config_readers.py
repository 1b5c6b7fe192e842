"""Each client's real format, at its real place on each system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.config_machine import Machine, texts
from toolfold.config.settings import ServerConfig


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


LOCAL = {"command": "npx", "args": ["-y", "server"]}
JSON_PLACES = [
    ("linux", "project", ".mcp.json", "claude-code"),
    ("linux", "user", ".claude.json", "claude-code"),
    ("linux", "user", ".config/Claude/claude_desktop_config.json", "claude-desktop"),
    ("darwin", "user", "Library/Application Support/Claude/claude_desktop_config.json", "claude-desktop"),
    ("win32", "user", "AppData/Roaming/Claude/claude_desktop_config.json", "claude-desktop"),
    ("linux", "project", ".cursor/mcp.json", "cursor"),
    ("darwin", "user", ".cursor/mcp.json", "cursor"),
    ("linux", "user", ".codeium/windsurf/mcp_config.json", "windsurf"),
    ("linux", "project", ".gemini/settings.json", "gemini"),
    ("win32", "user", ".gemini/settings.json", "gemini"),
]
SERVERS_PLACES = [
    ("linux", "project", ".vscode/mcp.json", "vscode"),
    ("linux", "user", ".config/Code/User/mcp.json", "vscode"),
    ("darwin", "user", "Library/Application Support/Code/User/mcp.json", "vscode"),
    ("win32", "user", "AppData/Roaming/Code/User/mcp.json", "vscode"),
]
ZED_PLACES = [
    ("linux", "project", ".zed/settings.json", "zed"),
    ("linux", "user", ".config/zed/settings.json", "zed"),
    ("darwin", "user", ".config/zed/settings.json", "zed"),
    ("win32", "user", "AppData/Roaming/Zed/settings.json", "zed"),
]
TOML_PLACES = [
    ("linux", "project", "toolfold.toml", "toolfold"),
    ("linux", "user", ".config/toolfold/toolfold.toml", "toolfold"),
    ("linux", "user", ".codex/config.toml", "codex"),
    ("linux", "project", ".codex/config.toml", "codex"),
]


@pytest.mark.parametrize(
    ("place", "key"),
    [
        *((place, "mcpServers") for place in JSON_PLACES),
        *((place, "servers") for place in SERVERS_PLACES),
        *((place, "context_servers") for place in ZED_PLACES),
    ],
)
def test_a_client_s_file_is_found_where_that_client_keeps_it(
    machine: Machine, place: tuple[str, str, str, str], key: str
) -> None:
    machine.platform, side, name, client = place
    write = machine.project if side == "project" else machine.user
    path = write(name, {key: {"one": LOCAL}, "theme": "dark"})
    loaded = machine.load()
    assert loaded.settings.servers == {"one": ServerConfig(command="npx", args=("-y", "server"), source=str(path))}
    assert [(file.path, file.format, file.servers) for file in loaded.files] == [(str(path), client, ("one",))]
    assert not loaded.problems


@pytest.mark.parametrize(("platform", "side", "name", "client"), TOML_PLACES)
def test_a_toml_file_is_found_where_its_client_keeps_it(
    machine: Machine, platform: str, side: str, name: str, client: str
) -> None:
    machine.platform = platform
    table = "servers" if client == "toolfold" else "mcp_servers"
    write = machine.project if side == "project" else machine.user
    write(name, f'[{table}.one]\ncommand = "npx"\nargs = ["-y", "server"]\n')
    loaded = machine.load()
    assert loaded.settings.servers["one"].args == ("-y", "server")
    assert [file.format for file in loaded.files] == [client]
    assert not loaded.problems


def test_moved_folders_are_followed(machine: Machine, tmp_path: Path) -> None:
    machine.env = {
        "CODEX_HOME": str(tmp_path / "c"),
        "CLAUDE_CONFIG_DIR": str(tmp_path / "d"),
        "XDG_CONFIG_HOME": str(tmp_path / "x"),
        "APPDATA": str(tmp_path / "a"),
    }
    machine.user("../c/config.toml", '[mcp_servers.codex]\ncommand = "a"')
    machine.user("../d/.claude.json", {"mcpServers": {"claude": LOCAL}})
    machine.user("../x/zed/settings.json", {"context_servers": {"zed": LOCAL}})
    machine.user("../a/Claude/claude_desktop_config.json", {"mcpServers": {"desktop": LOCAL}})
    assert set(machine.load().settings.servers) == {"codex", "claude", "zed"}
    machine.platform = "win32"
    assert "desktop" in machine.load().settings.servers


def test_claude_code_has_servers_for_all_and_for_this_project(machine: Machine) -> None:
    machine.project("x", "")
    machine.user(
        ".claude.json",
        {
            "numStartups": 7,
            "mcpServers": {"all": LOCAL, "both": {"command": "user"}, "off": LOCAL},
            "projects": {
                str(machine.cwd): {
                    "mcpServers": {"here": LOCAL, "both": {"command": "local"}},
                    "disabledMcpServers": ["off"],
                    "disabledMcpjsonServers": ["refused"],
                    "history": [{"display": "x"}],
                },
                "/elsewhere": {"mcpServers": {"there": LOCAL}},
            },
        },
    )
    machine.project(".mcp.json", {"mcpServers": {"refused": LOCAL, "both": {"command": "project"}}})
    loaded = machine.load()
    assert set(loaded.settings.servers) == {"all", "here", "both"}
    assert loaded.settings.servers["both"].command == "local"
    by_name = {Path(file.path).name: file for file in loaded.files}
    assert by_name[".claude.json"].skipped == {"off": "disabled for this project"}
    assert "refused in" in by_name[".mcp.json"].skipped["refused"]
    assert by_name[".mcp.json"].shadowed == {"both": str(machine.home / ".claude.json")}


@pytest.mark.parametrize(
    ("entry", "transport", "url"),
    [
        ({"url": "https://a.example/mcp"}, "http", "https://a.example/mcp"),
        ({"url": "https://a.example/sse"}, "sse", "https://a.example/sse"),
        ({"url": "https://a.example/sse/?x=1"}, "sse", "https://a.example/sse/?x=1"),
        ({"url": "https://a.example/x", "type": "sse"}, "sse", "https://a.example/x"),
        ({"url": "https://a.example/sse", "type": "http"}, "http", "https://a.example/sse"),
        ({"url": "https://a.example/x", "type": "streamable-http"}, "http", "https://a.example/x"),
        ({"url": "https://a.example/x", "transport": "streamableHttp"}, "http", "https://a.example/x"),
        ({"url": "https://a.example/x", "transport": "streamable_http"}, "http", "https://a.example/x"),
        ({"url": "http://[::1]:8080/x", "transport": "SSE"}, "sse", "http://[::1]:8080/x"),
        ({"serverUrl": "https://a.example/x"}, "http", "https://a.example/x"),
        ({"url": "${URL:-https://a.example/sse}"}, "sse", "https://a.example/sse"),
        ({"httpUrl": "https://a.example/sse"}, "http", "https://a.example/sse"),
    ],
)
def test_the_transport_is_what_the_entry_says(
    machine: Machine, entry: dict[str, Any], transport: str, url: str
) -> None:
    server = machine.load({"mcpServers": {"one": entry}}).settings.servers["one"]
    assert (server.transport, server.url) == (transport, url)


def test_gemini_tells_http_from_sse_by_the_key_and_reads_bare_variables(machine: Machine) -> None:
    machine.env = {"TOKEN": "t"}
    machine.user(
        ".gemini/settings.json",
        {
            "mcp": {"excluded": ["no"]},
            "mcpServers": {
                "a": {
                    "httpUrl": "https://a.example/v1",
                    "headers": {"Authorization": "Bearer $TOKEN"},
                    "timeout": 5000,
                },
                "b": {"url": "https://a.example/events", "timeout": 600},
                "c": {"url": "https://a.example/mcp", "command": "ignored"},
                "no": LOCAL,
            },
        },
    )
    loaded = machine.load()
    servers = loaded.settings.servers
    assert {name: server.transport for name, server in servers.items()} == {"a": "http", "b": "sse", "c": "http"}
    assert servers["a"].headers == {"Authorization": "Bearer t"}
    assert (servers["a"].call_timeout, servers["b"].call_timeout) == (5.0, 0.6)
    assert list(loaded.files[0].skipped) == ["no"]


def test_vs_code_has_comments_inputs_and_the_workspace_folder(machine: Machine) -> None:
    machine.env = {"HOST_VALUE": "h", "TOOLFOLD_INPUT_GITHUB_TOKEN": "from-env"}
    machine.project(".env", 'FROM_FILE=f\nexport QUOTED="a # b"\nWINS=file # note\n')
    machine.project(
        ".vscode/mcp.json",
        """{
          // what the servers ask for
          "inputs": [
            {"type": "promptString", "id": "github-token", "description": "x", "password": true},
            {"type": "pickString", "id": "region", "default": "eu", "options": ["eu", "us"]},
            {"type": "promptString", "id": "unknown"},
          ],
          "servers": {
            "github": {
              "type": "stdio", "command": "${workspaceFolder}/run", /* here */
              "args": ["--region=${input:region}"],
              "envFile": "${workspaceFolder}/.env",
              "env": {"TOKEN": "${input:github-token}", "H": "${env:HOST_VALUE}", "N": 3, "B": true,
                      "WINS": "entry", "X": null},
              "cwd": "sub", "dev": {"watch": "x"},
            },
            "asks": {"command": "x", "args": ["${input:unknown}"]},
          },
        }""",
    )
    loaded = machine.load()
    server = loaded.settings.servers["github"]
    assert server.command == f"{machine.cwd}/run"
    assert server.args == ("--region=eu",)
    assert server.cwd == str(machine.cwd / "sub")
    assert server.env == {
        "FROM_FILE": "f",
        "QUOTED": "a # b",
        "WINS": "entry",
        "TOKEN": "from-env",
        "H": "h",
        "N": "3",
        "B": "true",
    }
    expected = "expected the environment variable TOOLFOLD_INPUT_UNKNOWN to hold the input `unknown`"
    where = f"{machine.cwd}/.vscode/mcp.json: servers.asks.args[0]"
    assert texts(loaded.problems) == [f"{where}: {expected}; the server is left out"]


def test_vs_code_s_older_settings_are_read_when_named(machine: Machine) -> None:
    path = machine.user("settings.json", {"editor.fontSize": 12, "mcp": {"inputs": [], "servers": {"one": LOCAL}}})
    assert set(machine.load(path).settings.servers) == {"one"}


def test_codex_takes_secrets_from_the_environment(machine: Machine) -> None:
    machine.env = {"TOKEN": "t", "ORG": "o", "FORWARD": "f"}
    machine.user(
        ".codex/config.toml",
        """
        model = "x"
        [mcp_servers.remote]
        url = "https://a.example/v1"
        bearer_token_env_var = "TOKEN"
        http_headers = { "X-Plain" = "p" }
        env_http_headers = { "X-Org" = "ORG" }
        startup_timeout_sec = 20
        tool_timeout_sec = 45.5
        [mcp_servers.local]
        command = "x"
        startup_timeout_ms = 1500
        env_vars = ["FORWARD", "NOT_SET", { name = "ORG", source = "local" }]
        [mcp_servers.local.env]
        A = "1"
        [mcp_servers.off]
        command = "x"
        enabled = false
        [mcp_servers.unset]
        url = "https://a.example/v1"
        bearer_token_env_var = "MISSING_TOKEN"
        """,
    )
    loaded = machine.load()
    remote, local = loaded.settings.servers["remote"], loaded.settings.servers["local"]
    assert remote.headers == {"X-Plain": "p", "X-Org": "o", "Authorization": "Bearer t"}
    assert (remote.transport, remote.start_timeout, remote.call_timeout) == ("http", 20, 45.5)
    assert local.env == {"FORWARD": "f", "ORG": "o", "A": "1"}
    assert local.start_timeout == 1.5
    assert loaded.files[0].skipped == {"off": "disabled"}
    [problem] = loaded.problems
    assert problem.server == "unset"
    assert "MISSING_TOKEN" in problem.expected


def test_zed_has_two_forms_and_servers_of_its_extensions(machine: Machine) -> None:
    machine.user(
        ".config/zed/settings.json",
        """// Zed
        {"context_servers": {
            "old": {"command": {"path": "node", "args": ["x.js"], "env": {"A": "1"}}, "settings": {}},
            "new": {"source": "custom", "enabled": true, "command": "node", "args": ["x.js"], "timeout": 60000},
            "short": {"command": "node", "timeout": 90},
            "remote": {"url": "https://a.example/mcp", "headers": {"K": "v"}},
            "extension": {"source": "extension", "enabled": true, "settings": {"a": 1}},
        }}""",
    )
    loaded = machine.load()
    servers = loaded.settings.servers
    assert (servers["old"].command, servers["old"].args, servers["old"].env) == ("node", ("x.js",), {"A": "1"})
    assert (servers["new"].call_timeout, servers["short"].call_timeout) == (60, 90)
    assert servers["remote"].headers == {"K": "v"}
    assert loaded.files[0].skipped == {"extension": "started by a Zed extension"}
    assert not loaded.problems


@pytest.mark.parametrize(
    ("entry", "command", "args"),
    [
        ({"command": ["npx", "-y", "x"]}, "npx", ("-y", "x")),
        ({"command": ["npx"], "args": ["x"]}, "npx", ("x",)),
        ({"command": "npx -y x"}, "npx", ("-y", "x")),
        ({"command": "/opt/my tools/x"}, "/opt/my tools/x", ()),
        ({"command": "C:\\Program Files\\x.exe"}, "C:\\Program Files\\x.exe", ()),
        ({"command": "x", "args": [8080, True, 1.5]}, "x", ("8080", "true", "1.5")),
        ({"command": "x", "args": None, "env": None}, "x", ()),
        ({"command": "x", "url": "https://a.example"}, "x", ()),
        ({"command": "x", "disabled": False, "enabled": True, "autoApprove": [], "trust": 1}, "x", ()),
    ],
)
def test_commands_are_taken_as_people_write_them(
    machine: Machine, entry: dict[str, Any], command: str, args: tuple[str, ...]
) -> None:
    server = machine.load({"mcpServers": {"one": entry}}).settings.servers["one"]
    assert (server.command, server.args) == (command, args)


def test_the_home_sign_is_understood_in_commands_and_folders(machine: Machine) -> None:
    server = machine.load({"mcpServers": {"one": {"command": "~/bin/x", "cwd": "~/y"}}}).settings.servers["one"]
    assert (server.command, server.cwd) == (f"{machine.home}/bin/x", f"{machine.home}/y")


@pytest.mark.parametrize(
    "entry", [{"command": "x", "disabled": True}, {"enabled": False}, {"enabled": "false", "url": 3}]
)
def test_a_disabled_server_is_left_out_without_a_problem(machine: Machine, entry: dict[str, Any]) -> None:
    loaded = machine.load({"mcpServers": {"one": entry, "two": LOCAL}})
    assert set(loaded.settings.servers) == {"two"}
    assert loaded.files[0].skipped == {"one": "disabled"}
    assert not loaded.problems


BAD_ENTRIES: list[tuple[object, str, str]] = [
    ("npx", "", "expected an object"),
    (None, "", "expected an object"),
    ({}, "", "expected `command` or `url`"),
    ({"type": "stdio", "url": "https://a.example"}, ".command", "expected the program"),
    ({"type": "http", "command": "x"}, ".url", "expected the URL"),
    ({"type": "websocket", "url": "https://a.example"}, ".type", "stdio"),
    ({"type": 3, "command": "x"}, ".type", "stdio"),
    ({"url": "ftp://a.example"}, ".url", "http://"),
    ({"url": "https://"}, ".url", "http://"),
    ({"url": "https://a:port/"}, ".url", "http://"),
    ({"url": "https://a b/"}, ".url", "http://"),
    ({"command": ""}, ".command", "expected a program"),
    ({"command": []}, ".command", "expected a program"),
    ({"command": 3}, ".command", "expected the program"),
    ({"command": "x", "args": "a b"}, ".args", "expected a list"),
    ({"command": "x", "args": [["a"]]}, ".args[0]", "expected a string"),
    ({"command": "x", "env": ["A=1"]}, ".env", "expected an object"),
    ({"command": "x", "env": {"A": {}}}, ".env.A", "expected a string"),
    ({"command": "x", "env": {"A=B": "1"}}, ".env", "names of environment variables"),
    ({"command": "x", "env": {"A": "\0"}}, ".env.A", "NUL"),
    ({"command": "x", "args": ["\ud800"]}, ".args[0]", "Unicode"),
    ({"command": "x", "envFile": "nowhere.env"}, ".envFile", "expected a readable file"),
    ({"command": "x", "disabled": 3}, ".disabled", "true or false"),
    ({"url": "https://a.example", "headers": {"A b": "1"}}, ".headers", "names of HTTP headers"),
    ({"url": "https://a.example", "headers": {"A": "1\r\nB: 2"}}, ".headers.A", "one line"),
    ({"url": "https://a.example", "headers": {"A": "é"}}, ".headers.A", "ASCII"),
    ({"command": "${NOPE}"}, ".command", "environment variable NOPE"),
    ({"command": "x", "env": {"T": "a${NOPE}"}}, ".env.T", "environment variable NOPE"),
]


@pytest.mark.parametrize(("entry", "key", "expected"), BAD_ENTRIES)
def test_a_bad_entry_costs_only_itself_and_says_where_and_what(
    machine: Machine, entry: object, key: str, expected: str
) -> None:
    loaded = machine.load({"mcpServers": {"bad": entry, "good": LOCAL}})
    assert set(loaded.settings.servers) == {"good"}
    [problem] = loaded.problems
    assert problem.key == f"mcpServers.bad{key}"
    assert expected in problem.expected
    assert problem.expected.endswith("the server is left out")
    assert problem.server == "bad"


@pytest.mark.parametrize("value", [0, -1, "soon", True, float("nan"), float("inf"), 10**400, []])
def test_a_bad_timeout_is_told_and_the_default_stands(machine: Machine, value: object) -> None:
    loaded = machine.load({"mcpServers": {"one": {"command": "x", "timeout": value}}})
    assert loaded.settings.servers["one"].call_timeout == ServerConfig(command="x").call_timeout
    assert [problem.key for problem in loaded.problems] == ["mcpServers.one.timeout"]


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 200, "\u202eevil"])
def test_a_name_that_cannot_be_shown_is_refused(machine: Machine, name: str) -> None:
    loaded = machine.load({"mcpServers": {name: LOCAL}})
    assert not loaded.settings.servers
    [line] = texts(loaded.problems)
    assert "\n" not in line
    assert "\u202e" not in line
    assert len(line) < 600
