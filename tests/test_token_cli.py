"""`toolfold token`: what it writes into a person's file, what it leaves alone, and that the token is shown once."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_cli import toolfold
from toolfold.config.rewrite import TomlFile, table
from toolfold.errors import ConfigError

WRITTEN = """\
# My settings
session_limit = 7   # few

[callers.old] # of last year
token_sha256 = "{digest}"
groups = ["a"]

# What programs may use
[sandbox]
timeout = 60
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / ".config" / "toolfold" / "toolfold.toml"
    path.parent.mkdir(parents=True)
    path.write_text(WRITTEN.replace("{digest}", "a" * 64))
    return path


def token(*words: str, home: Path) -> Any:
    return toolfold("token", *words, cwd=home, env={"HOME": str(home), "XDG_CONFIG_HOME": ""})


def test_a_token_is_shown_once_and_only_its_hash_is_kept(file: Path, tmp_path: Path) -> None:
    made = token("new", "ci", "--group", "bots", "--host", home=tmp_path)
    assert made.returncode == 0, made.stderr
    secret = made.stdout.strip()
    text = file.read_text()
    assert text.startswith(WRITTEN.replace("{digest}", "a" * 64))
    assert secret not in text + made.stderr
    caller = tomllib.loads(text)["callers"]["ci"]
    assert caller == {"token_sha256": hashlib.sha256(secret.encode()).hexdigest(), "groups": ["bots"], "host": True}
    listed = json.loads(token("list", "--json", home=tmp_path).stdout)
    assert [one["name"] for one in listed] == ["old", "ci"]
    assert "ci  groups bots  host" in token("list", home=tmp_path).stdout
    assert token("new", "ci", home=tmp_path).returncode == 1
    assert token("new", "local", home=tmp_path).returncode == 1
    assert token("new", "jwt:ada", home=tmp_path).returncode == 1


def test_the_first_token_makes_a_private_file(tmp_path: Path) -> None:
    assert token("new", "ci", home=tmp_path).returncode == 0
    path = tmp_path / ".config" / "toolfold" / "toolfold.toml"
    assert path.stat().st_mode & 0o077 == 0
    assert list(tomllib.loads(path.read_text())["callers"]) == ["ci"]


def test_revoking_removes_the_caller_and_nothing_else(file: Path, tmp_path: Path) -> None:
    assert token("revoke", "old", home=tmp_path).returncode == 0
    assert file.read_text() == (
        "# My settings\nsession_limit = 7   # few\n\n\n# What programs may use\n[sandbox]\ntimeout = 60\n"
    )
    assert token("revoke", "old", home=tmp_path).returncode == 1


def test_lines_to_paste_are_printed_and_nothing_is_written(file: Path, tmp_path: Path) -> None:
    before = file.read_text()
    printed = token("new", "ci", "--print", home=tmp_path).stdout
    secret, _, lines = printed.partition("\n\n")
    digest = tomllib.loads(lines)["callers"]["ci"]["token_sha256"]
    assert digest == hashlib.sha256(secret.encode()).hexdigest()
    assert file.read_text() == before


@pytest.mark.parametrize(
    "text",
    [
        "callers = { old = { token_sha256 = 'x' } }\n",
        "callers.old.token_sha256 = 'x'\n",
        "[callers]\nold = { token_sha256 = 'x' }\n",
        "note = '''\n[callers.old]\ntoken_sha256 = \"y\"\n'''\n[callers]\nold.token_sha256 = 'x'\n",
    ],
)
def test_a_file_that_is_written_otherwise_is_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "toolfold.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="by hand"):
        TomlFile(path).remove_table("callers", "old")
    assert path.read_text() == text


@given(
    name=st.text(min_size=1, max_size=8), value=st.text(max_size=8), groups=st.lists(st.text(max_size=4), max_size=3)
)
def test_any_table_is_read_back_as_it_was_meant(name: str, value: str, groups: list[str]) -> None:
    values = {"token_sha256": value, "groups": groups, "host": True}
    assert tomllib.loads(table("callers", name, values)) == {"callers": {name: values}}
