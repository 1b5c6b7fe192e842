"""Finding files, choosing between them, and surviving what is in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.config_machine import Machine, like_any_owner, texts
from toolfold.config import edge
from toolfold.config.load import load_here
from toolfold.config.settings import SandboxSettings, ServerConfig, Settings
from toolfold.errors import ConfigError


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.cwd.mkdir()
    made.home.mkdir()
    return made


def servers(**commands: str) -> dict[str, object]:
    return {"mcpServers": {name: {"command": command} for name, command in commands.items()}}


def toml(**commands: str) -> str:
    return "".join(f'[servers.{name}]\ncommand = "{command}"\n' for name, command in commands.items())


def test_a_machine_without_configs_gives_no_servers_and_no_problems(machine: Machine) -> None:
    loaded = machine.load()
    assert (loaded.settings.servers, loaded.files, loaded.problems) == ({}, [], [])


def test_ours_wins_then_the_person_s_own_then_the_project_s_then_the_user_s(machine: Machine) -> None:
    names = ["toolfold", "user_toolfold", "local", "project", "user"]
    machine.project("toolfold.toml", toml(s1="toolfold-own"))
    machine.user(".config/toolfold/toolfold.toml", toml(s1="x", s2="user_toolfold"))
    claude = servers(s1="x", s2="x", s3="x", s4="x", s5="user")
    claude["projects"] = {str(machine.cwd): servers(s1="x", s2="x", s3="local")}
    machine.user(".claude.json", claude)
    machine.project(".mcp.json", servers(s1="x", s2="x", s3="x", s4="project"))
    loaded = machine.load()
    won = [loaded.settings.servers[f"s{n}"].command for n in range(1, 6)]
    assert won == ["toolfold-own", *names[1:]]
    assert [Path(file.path).name for file in loaded.files] == [
        "toolfold.toml",
        "toolfold.toml",
        ".mcp.json",
        ".claude.json",
    ]
    assert loaded.files[2].shadowed.keys() == {"s1", "s2", "s3"}
    assert loaded.files[2].shadowed["s1"] == str(machine.cwd / "toolfold.toml")


def test_the_same_definition_twice_is_no_conflict(machine: Machine) -> None:
    first = machine.project(".mcp.json", servers(a="x"))
    machine.user(".cursor/mcp.json", servers(a="x", b="y"))
    loaded = machine.load()
    assert set(loaded.settings.servers) == {"a", "b"}
    assert loaded.settings.servers["a"].source == str(first)
    assert loaded.files[1].same == {"a": str(first)}
    assert loaded.files[1].shadowed == {}


def test_our_own_file_switches_off_what_another_client_has(machine: Machine) -> None:
    machine.project("toolfold.toml", "[servers.a]\nenabled = false\n")
    machine.user(".cursor/mcp.json", servers(a="x", b="y"))
    loaded = machine.load()
    assert set(loaded.settings.servers) == {"b"}
    assert loaded.files[0].skipped == {"a": "disabled"}
    assert loaded.files[1].shadowed == {"a": str(machine.cwd / "toolfold.toml")}
    assert not loaded.problems


def test_another_client_s_disabled_server_does_not_switch_off_ours(machine: Machine) -> None:
    machine.project(".cursor/mcp.json", {"mcpServers": {"a": {"command": "x", "disabled": True}}})
    machine.user(".claude.json", servers(a="y"))
    assert machine.load().settings.servers["a"].command == "y"


def test_an_unusable_entry_leaves_its_name_to_the_next_file(machine: Machine) -> None:
    machine.project(".mcp.json", servers(a="${NOT_SET}"))
    machine.user(".claude.json", servers(a="y"))
    loaded = machine.load()
    assert loaded.settings.servers["a"].command == "y"
    assert [problem.key for problem in loaded.problems] == ["mcpServers.a.command"]


def test_we_never_fold_ourselves_and_say_so(machine: Machine) -> None:
    machine.env = {"BIN": "/opt/toolfold"}
    entries = {
        "direct": {"command": "toolfold", "args": ["serve"]},
        "unset": {"command": "uvx", "args": ["toolfold"], "env": {"A": "${NOT_SET}"}},
        "hidden": {"command": "${BIN}", "args": ["serve"]},
        "demo": {"command": "python", "args": ["-m", "toolfold.demo", "serve", "github"]},
    }
    machine.user(".cursor/mcp.json", {"mcpServers": entries})
    loaded = machine.load()
    assert set(loaded.settings.servers) == {"demo"}
    assert loaded.files[0].skipped == dict.fromkeys(("direct", "unset", "hidden"), "runs toolfold itself")
    assert not loaded.problems


def test_settings_of_several_files_are_laid_over_one_another(machine: Machine) -> None:
    machine.project("toolfold.toml", 'output_chars = 500\n[sandbox]\nmemory = "1GiB"\n')
    machine.user(
        ".config/toolfold/toolfold.toml", 'session_limit = 3\noutput_chars = 900\n[sandbox]\npool = 1\nmemory = "1GB"\n'
    )
    machine.project(".mcp.json", {"mcpCodeExecution": {"maxExecutionTime": 5000, "resourceLimits": {"memory": "2GB"}}})
    loaded = machine.load()
    settings = loaded.settings
    assert (settings.output_chars, settings.session_limit) == (500, 3)
    assert settings.sandbox == SandboxSettings(memory=1024**3, pool=1, timeout=5)
    assert [file.settings for file in loaded.files] == [
        ("output_chars", "sandbox.memory"),
        ("output_chars", "sandbox.memory", "sandbox.pool", "session_limit"),
        ("sandbox.memory", "sandbox.timeout"),
    ]


def test_our_file_takes_every_setting_by_its_own_name(machine: Machine) -> None:
    machine.env = {"SIZE": "64MB"}
    path = machine.project(
        "toolfold.toml",
        """
        check = "off"
        semantic = false
        enabled = false
        catalog_dirs = ["catalogs", "~/more"]
        data_dir = "state"
        session_idle = 60
        [sandbox]
        backend = "bwrap"
        disk = "${SIZE}"
        cpu = "500m"
        packages = ["numpy"]
        [servers.one]
        transport = "http"
        url = "https://a.example/x"
        call_timeout = 5
        start_timeout = 6
        timeout = 2000
        """,
    )
    loaded = machine.load(path)
    settings = loaded.settings
    assert not loaded.problems
    assert (settings.check, settings.semantic, settings.enabled, settings.session_idle) == (False, False, False, 60)
    assert settings.catalog_dirs == (machine.cwd / "catalogs", machine.home / "more")
    assert settings.data_dir == machine.cwd / "state"
    assert settings.sandbox == SandboxSettings(backend="bubblewrap", disk=64_000_000, cpu=0.5, packages=("numpy",))
    assert (settings.servers["one"].call_timeout, settings.servers["one"].start_timeout) == (5, 6)


def test_a_mistyped_key_in_our_file_is_answered_with_the_nearest_one(machine: Machine) -> None:
    machine.project(
        "toolfold.toml",
        'output_char = 1\nzzzzzz = 1\n[sandbox]\nmemmory = "1GB"\n[servers.a]\ncommand = "x"\ncal_timeout = 3\n',
    )
    loaded = machine.load()
    assert set(loaded.settings.servers) == {"a"}
    found = {problem.key: problem.expected for problem in loaded.problems}
    assert "`output_chars`" in found["output_char"]
    assert "`memory`" in found["sandbox.memmory"]
    assert "`call_timeout`" in found["servers.a.cal_timeout"]
    assert "one of" in found["zzzzzz"]


def test_unknown_keys_of_other_clients_are_their_own_business(machine: Machine) -> None:
    machine.user(
        ".gemini/settings.json",
        {"theme": "x", "sandbox": "docker", "mcpServers": {"a": {"command": "x", "trust": True}}},
    )
    machine.user(".codex/config.toml", 'model = "x"\nsandbox_mode = "off"\n')
    loaded = machine.load()
    assert not loaded.problems
    assert loaded.settings.sandbox == SandboxSettings()


@pytest.mark.parametrize(
    ("line", "key", "expected"),
    [
        ("output_chars = 3", "output_chars", "greater than or equal to 200"),
        ('output_chars = "many"', "output_chars", "integer"),
        ('check = "maybe"', "check", "boolean"),
        ("session_idle = inf", "session_idle", "finite"),
        ("sandbox = 3", "sandbox", "table"),
        ('sandbox.memory = "lots"', "sandbox.memory", "512MB"),
        ("sandbox.memory = 0", "sandbox.memory", "greater than 0"),
        ('sandbox.cpu = "fast"', "sandbox.cpu", "cores"),
        ('sandbox.backend = "none"', "sandbox.backend", "'bubblewrap'"),
        ('sandbox.backend = "process"', "sandbox.backend", "'bubblewrap'"),
        ("sandbox.backend = false", "sandbox.backend", "'bubblewrap'"),
        ('data_dir = "${NOT_SET}"', "data_dir", "NOT_SET"),
        ("catalog_dirs = 3", "catalog_dirs", "a list"),
        ("servers = 3", "servers", "object of servers"),
    ],
)
def test_a_bad_setting_is_told_and_its_default_stands(machine: Machine, line: str, key: str, expected: str) -> None:
    path = machine.project("toolfold.toml", f"session_limit = 7\n{line}\n")
    loaded = machine.load(path)
    [problem] = loaded.problems
    assert problem.key == key
    assert expected in problem.expected
    assert "got" not in problem.expected
    assert loaded.settings == Settings(session_limit=7, data_dir=loaded.settings.data_dir)


@pytest.mark.parametrize("level", ["privacy = false", "privacy = true", "audit = false"])
def test_asking_for_what_is_the_case_is_no_problem(machine: Machine, level: str) -> None:
    machine.project("toolfold.toml", level)
    assert not machine.load().problems


# ---- shapes that a caller may hand over

SHAPES: list[dict[str, object]] = [
    {"mcpServers": {"a": {"command": "x"}}},
    {"servers": {"a": {"command": "x"}}},
    {"mcp_servers": {"a": {"command": "x"}}},
    {"context_servers": {"a": {"command": "x"}}},
    {"servers": {"a": {"command": "x"}}, "sandbox": {"timeout": 3}},
    {"servers": {"a": {"type": "stdio", "command": "x"}}, "inputs": []},
    {"servers": {"a": ServerConfig(command="x")}, "sandbox": {"timeout": 3}},
]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_dict_of_any_known_shape_is_read(machine: Machine, shape: dict[str, object]) -> None:
    loaded = machine.load(shape)
    assert loaded.settings.servers["a"].command == "x"
    assert loaded.settings.sandbox.timeout == (3 if "sandbox" in shape else 30)
    assert not loaded.problems


@pytest.mark.parametrize("shape", SHAPES[:4])
@pytest.mark.parametrize("name", ["anything.json", "servers.conf", ".mcp.json", ".cursor/mcp.json"])
def test_a_named_file_is_read_by_its_content_whatever_it_is_called(
    machine: Machine, shape: dict[str, object], name: str
) -> None:
    path = machine.project(name, shape)
    assert set(machine.load(path).settings.servers) == {"a"}


@pytest.mark.parametrize("name", ["fleet.toml", "fleet.conf", "fleet"])
@pytest.mark.parametrize("table", ["servers", "mcp_servers", "mcpServers"])
def test_any_toml_with_servers_is_read_when_named(machine: Machine, name: str, table: str) -> None:
    path = machine.project(name, f'title = "x"\n[{table}.a]\ncommand = "x"\nargs = ["y"]\ndescription = "z"\n')
    loaded = machine.load(path)
    assert loaded.settings.servers["a"].args == ("y",)
    assert not loaded.problems


def test_only_the_named_file_is_read(machine: Machine) -> None:
    machine.project(".mcp.json", servers(a="x"))
    machine.project("toolfold.toml", toml(c="z"))
    path = machine.project("other.json", servers(b="y"))
    assert set(machine.load(path).settings.servers) == {"b"}
    assert set(machine.load("other.json").settings.servers) == {"b"}


def test_ready_settings_pass_through(machine: Machine, tmp_path: Path) -> None:
    given = Settings(servers={"a": ServerConfig(command="x")}, session_limit=3, data_dir=tmp_path / "d")
    assert machine.load(given).settings == given
    moved = machine.load(given, data_dir=tmp_path / "e", catalog_dirs=[tmp_path / "c"]).settings
    assert (moved.data_dir, moved.catalog_dirs) == (tmp_path / "e", (tmp_path / "c",))
    assert moved.servers == given.servers


def test_catalogs_named_by_the_caller_come_before_those_of_the_file(machine: Machine) -> None:
    path = machine.project("conf/toolfold.toml", 'catalog_dirs = ["mine"]\n')
    settings = machine.load(path, catalog_dirs=[Path("given")]).settings
    assert settings.catalog_dirs == (machine.cwd / "given", machine.cwd / "conf/mine")


def test_the_data_folder_is_decided_by_caller_environment_file_and_convention_in_this_order(machine: Machine) -> None:
    assert machine.load().settings.data_dir == machine.home / ".local/share/toolfold"
    machine.env = {"XDG_DATA_HOME": "relative/is/ignored"}
    assert machine.load().settings.data_dir == machine.home / ".local/share/toolfold"
    machine.env = {"XDG_DATA_HOME": str(machine.root / "xdg")}
    assert machine.load().settings.data_dir == machine.root / "xdg/toolfold"
    machine.project("toolfold.toml", 'data_dir = "~/mine"')
    assert machine.load().settings.data_dir == machine.home / "mine"
    machine.env = {**machine.env, "TOOLFOLD_DATA": "~/data"}
    assert machine.load().settings.data_dir == machine.home / "data"
    assert machine.load({"data_dir": "said", "servers": {}}).settings.data_dir == machine.cwd / "said"
    assert machine.load(data_dir=Path("given")).settings.data_dir == machine.cwd / "given"


def test_the_process_s_own_surroundings_are_read_at_the_edge(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.project(".mcp.json", servers(a="${EDGE_TEST}"))
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(machine.home))
    monkeypatch.setenv("EDGE_TEST", "x")
    monkeypatch.setenv("TOOLFOLD_TRUST", "1")
    monkeypatch.setenv("TOOLFOLD_DATA", str(machine.root / "data"))
    monkeypatch.chdir(machine.cwd)
    settings = load_here(None).settings
    assert settings.servers["a"].command == "x"
    assert settings.data_dir == Settings().data_dir == machine.root / "data"
    assert edge.host().home == machine.home


# ---- files that are not what they should be

DEEP_JSON = '{"mcpServers": ' + '{"a":' * 1000 + "1" + "}" * 1001
DEEP_TOML = "x = " + "[" * 1000 + "]" * 1000
BROKEN: list[tuple[str, bytes, str]] = [
    (".mcp.json", b"{", "valid JSON"),
    (".mcp.json", b'{"a": }', "line 1 column 7"),
    (".mcp.json", b"[1, 2]", "an object"),
    (".mcp.json", b"3", "an object"),
    (".mcp.json", b"\xff\xfe\x00", "UTF-8"),
    (".mcp.json", b'{"a": "\xe9"}', "UTF-8"),
    (".mcp.json", DEEP_JSON.encode(), "nesting"),
    (".mcp.json", b"[" * 200_000, "nesting"),
    (".mcp.json", b'{"a": ' + b"9" * 10_000 + b"}", "valid numbers"),
    (".cursor/mcp.json", b'{"a": "' + b"x" * 5_000_000 + b'"}', "at most 5 MB"),
    ("toolfold.toml", b"a = ", "valid TOML"),
    ("toolfold.toml", b"a = 1\na = 2", "valid TOML"),
    ("toolfold.toml", DEEP_TOML.encode(), "nesting"),
]


@pytest.mark.parametrize(("name", "content", "expected"), BROKEN, ids=range(len(BROKEN)))
def test_a_broken_file_is_a_problem_when_found_and_an_error_when_named(
    machine: Machine, name: str, content: bytes, expected: str
) -> None:
    path = machine.project(name, content)
    machine.user(".codex/config.toml", '[mcp_servers.other]\ncommand = "x"')
    loaded = machine.load()
    assert set(loaded.settings.servers) == {"other"}
    [line] = texts(loaded.problems)
    assert line.startswith(f"{path}: ")
    assert expected in line
    with pytest.raises(ConfigError) as caught:
        machine.load(path)
    assert str(path) in str(caught.value)
    assert expected in str(caught.value)


def test_claude_code_s_own_file_may_be_large_for_it_holds_the_history(machine: Machine) -> None:
    machine.user(".claude.json", {**servers(a="x"), "history": "x" * 6_000_000})
    assert set(machine.load().settings.servers) == {"a"}
    assert set(machine.load(machine.home / ".claude.json").settings.servers) == {"a"}


def test_a_directory_in_a_file_s_place_is_told(machine: Machine) -> None:
    (machine.cwd / ".mcp.json").mkdir()
    (machine.home / ".cursor").write_text("a file where a folder should be")
    assert "found a directory" in texts(machine.load().problems)[0]
    with pytest.raises(ConfigError, match="directory"):
        machine.load(machine.cwd / ".mcp.json")


def test_a_named_file_that_is_not_there_is_an_error(machine: Machine) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        machine.load("nowhere.json")
    with pytest.raises(ConfigError, match="readable file"):
        machine.load("nul\0byte.json")


def test_a_file_without_permission_is_a_problem(machine: Machine) -> None:
    machine.project(".mcp.json", servers(a="x")).chmod(0)
    with like_any_owner():
        assert "permission denied" in texts(machine.load().problems)[0]


def test_a_pipe_is_never_waited_for_unless_it_was_named(machine: Machine) -> None:
    os.mkfifo(machine.cwd / ".mcp.json")
    assert "regular file" in texts(machine.load().problems)[0]
    reader, writer = os.pipe()
    os.write(writer, b'{"mcpServers": {"a": {"command": "x"}}}')
    os.close(writer)
    try:
        assert set(machine.load(Path(f"/dev/fd/{reader}")).settings.servers) == {"a"}
    finally:
        os.close(reader)


@pytest.mark.parametrize("content", [b"", b" \n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_quiet_when_found_and_told_when_named(machine: Machine, content: bytes) -> None:
    path = machine.project(".mcp.json", content)
    machine.project("toolfold.toml", content)
    assert not machine.load().problems
    assert "empty" in texts(machine.load(path).problems)[0]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_are_understood(machine: Machine, encoding: str) -> None:
    machine.project(".mcp.json", '{"mcpServers": {"é": {"command": "x"}}}'.encode(encoding))
    machine.project("toolfold.toml", '[servers.b]\ncommand = "y"'.encode(encoding))
    assert set(machine.load().settings.servers) == {"é", "b"}


def test_a_server_written_twice_keeps_its_last_form_and_is_told(machine: Machine) -> None:
    machine.project(".mcp.json", '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}')
    loaded = machine.load()
    assert loaded.settings.servers["a"].command == "y"
    assert "the last one counts" in texts(loaded.problems)[0]


def test_a_file_without_servers_says_where_they_were_expected(machine: Machine) -> None:
    path = machine.project("x.json", {"hello": 1})
    assert "`mcpServers`" in texts(machine.load(path).problems)[0]


@pytest.mark.parametrize("value", [3, [], "x"])
def test_servers_that_are_no_object_are_told(machine: Machine, value: object) -> None:
    machine.project(".mcp.json", {"mcpServers": value})
    machine.user(".claude.json", {"mcpServers": {"a": {"command": "x"}}, "projects": value})
    loaded = machine.load()
    assert set(loaded.settings.servers) == {"a"}
    assert [problem.key for problem in loaded.problems] == ["mcpServers"]


def test_a_config_in_memory_that_contains_itself_is_refused(machine: Machine) -> None:
    endless: dict[str, object] = {"mcpServers": {}}
    endless["again"] = endless
    with pytest.raises(ConfigError, match="nesting"):
        machine.load(endless)
