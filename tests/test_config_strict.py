"""An error in what keeps things closed stops the start and names the file, the line and the key; never a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config_machine import Machine
from toolfold.errors import ConfigError

SECRET = "deadbeefsecret"
WRONG = [
    (f'[callers.ci]\ntoken_sha256 = "{SECRET}"', "callers.ci.token_sha256", 3),
    ("[callers.ci]\ntoken = 3", "callers.ci.token", 3),
    ("[caller.ci]\ntoken_sha256 = 3", "caller", 2),
    ("callers = 3", "callers", 2),
    ('[policy]\nprofile = "opn"', "policy.profile", 3),
    ('[[policy.rules]]\nmatch = "github.*"\ndo = "alow"', "policy.rules.0.do", 4),
    ('[[policy.rules]]\ndo = "ask"\n[[policy.rules]]\nmatch = "a.*"\ndo = "alow"', "policy.rules.1.do", 6),
    ("[context.inject]\n'a.*' = { x = 'y' }", "context.inject.a", 3),
    ("audit = 3", "audit", 2),
    ("[audit]\nvalues = 'maybe'", "audit.values", 3),
    ("[audit]\nheads = 'x'", "audit.heads", 3),
    ("[audits]\nvalues = true", "audits", 2),
]


@pytest.mark.parametrize(("text", "key", "line"), WRONG)
@pytest.mark.parametrize("named", [True, False])
def test_the_start_is_refused(text: str, key: str, line: int, named: bool, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    path = machine.user(".config/toolfold/toolfold.toml", f"session_limit = 7\n{text}\n")
    machine.cwd.mkdir(exist_ok=True)
    with pytest.raises(ConfigError) as refused:
        machine.load(path if named else None)
    assert str(refused.value).startswith(f"{path}, line {line}: {key}")
    assert SECRET not in str(refused.value)


def test_a_config_in_memory_is_refused_as_well(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"callers\.ci"):
        Machine(tmp_path).load({"callers": {"ci": {}}})


def test_a_person_s_own_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.user(".config/toolfold/toolfold.toml", "[callers.ci\n")
    with pytest.raises(ConfigError, match="valid TOML"):
        machine.load()


def test_a_project_that_is_not_trusted_cannot_stop_the_start(tmp_path: Path) -> None:
    machine = Machine(tmp_path, trusting=False)
    machine.project("toolfold.toml", "callers = 3")
    assert machine.load().settings.callers == {}


def test_a_relative_head_file_starts_at_the_config(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.user(".config/toolfold/toolfold.toml", "[audit]\nhead_file = 'heads'")
    audit = machine.load().settings.audit
    assert audit.enabled
    assert audit.head_file == machine.home / ".config" / "toolfold" / "heads"
