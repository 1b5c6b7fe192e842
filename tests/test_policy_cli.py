"""`toolfold policy`: rules are written into the person's own file, and tested without calling anything."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests import warm
from toolfold.config.rewrite import TomlFile
from toolfold.errors import ConfigError

CATALOG = {
    "server": "hub",
    "tools": [
        {"name": "delete_repo", "inputSchema": {"type": "object"}},
        {"name": "create-issue", "inputSchema": {"type": "object", "properties": {"owner": {"default": "me"}}}},
    ],
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "hub.json").write_text(json.dumps(CATALOG))
    (tmp_path / "project").mkdir()
    return tmp_path


def policy(home: Path, *words: str, code: int = 0) -> str:
    env = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    env |= {"TOOLFOLD_DATA": str(home / "data")}
    done = subprocess.run(
        [warm.python(), "-m", "toolfold", "policy", *words],
        capture_output=True,
        text=True,
        env=env,
        cwd=home / "project",
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_rule_that_was_written_decides_from_then_on(home: Path) -> None:
    catalog = ("--catalog", str(home / "catalog"))
    before = policy(home, "test", "hub.delete_repo", *catalog)
    assert before == (
        "ask  hub.delete_repo\n  by profile careful, because its name says 'delete' and it is not marked otherwise\n"
    )
    policy(home, "deny", "hub.*")
    assert "deny  hub.delete_repo\n  by rule 1 (deny hub.*)\n" in policy(home, "test", "hub.delete_repo", *catalog)
    policy(home, "allow", "hub.delete_repo", "--caller", "ci")
    for words, do in (([], "deny"), (["--caller", "ci"], "allow")):
        found = json.loads(policy(home, "test", "mcp__hub__delete_repo", "--json", *words, *catalog))
        assert (found["do"], found["target"], found["hidden"]) == (do, "hub.delete_repo", do == "deny")
    listed = policy(home, "list", *catalog)
    assert listed.splitlines() == [
        "rule 1 (allow hub.delete_repo for ci)  names 1 of what is known",
        "rule 2 (deny hub.*)  names 2 of what is known",
        "profile careful  for everything else",
    ]
    path = home / ".config" / "toolfold" / "toolfold.toml"
    assert path.stat().st_mode & 0o777 == 0o600


def test_arguments_sessions_and_defaults_are_tested(home: Path) -> None:
    config = home / "mine.toml"
    config.write_text(
        f'catalog_dirs = ["{home / "catalog"}"]\n'
        '[[policy.rules]]\nmatch = "hub.create-issue"\nargs = { owner = "me" }\nsession = "s"\ndo = "deny"\n'
    )
    named = ("--config", str(config), "--json")

    def do(*words: str) -> str:
        return json.loads(policy(home, "test", "hub.create_issue", *words, *named))["do"]

    assert do() == "allow"
    assert do("--session", "s") == "deny"
    assert do("--session", "s", "--args", '{"owner": "you"}') == "allow"
    assert "JSON object" in policy(home, "test", "hub.create_issue", "--args", "[1]", *named, code=1)
    assert "names no call" in policy(home, "test", "nothing", *named, code=1)


def test_a_pattern_that_names_nothing_is_refused(home: Path) -> None:
    assert "server.tool" in policy(home, "deny", "hub", code=1)
    assert not (home / ".config").exists()
    assert policy(home, "deny", 'a."b\\c', "--print") == '[[policy.rules]]\nmatch = "a.\\"b\\\\c"\ndo = "deny"\n'


FILE = """# my settings
session_limit = 4  # few

[policy]  # careful is fine
profile = "careful"

# never this one
[[policy.rules]]
match = "a.b"  # the worst
do = 'deny'  # always

[sandbox]
timeout = 5
"""


def test_everything_else_in_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "toolfold.toml"
    path.write_text(FILE)
    file = TomlFile(path)
    file.put_first("policy", "rules", {"match": "c.d", "do": "ask"}, "do")
    text = path.read_text()
    assert text.replace('[[policy.rules]]\nmatch = "c.d"\ndo = "ask"\n\n', "") == FILE
    assert text.index("c.d") < text.index("# never this one")
    file.put_first("policy", "rules", {"match": "c.d", "do": "allow"}, "do")
    assert path.read_text() == text.replace('"ask"', '"allow"')
    assert [rule["match"] for rule in tomllib.loads(path.read_text())["policy"]["rules"]] == ["c.d", "a.b"]


@pytest.mark.parametrize(
    "text", ['policy = { profile = "open" }\n', '[policy]\nrules = [{ match = "a.b", do = "ask" }]\n']
)
def test_a_file_that_cannot_be_added_to_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "toolfold.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="by hand"):
        TomlFile(path).put_first("policy", "rules", {"match": "c.d", "do": "ask"}, "do")
    assert path.read_text() == text
