"""Settings that protect: read strictly, merged so that a project cannot weaken a person's own, never defaulted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config_machine import Machine
from toolfold.errors import ConfigError

USER_FILE = ".config/toolfold/toolfold.toml"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("text", "line", "key", "expected"),
    [
        ('[policy]\nprofile = "opne"', 2, "policy.profile", "'open'"),
        (
            '[[policy.rules]]\nmatch = "a.*"\ndo = "ask"\n\n[[policy.rules]]\ndo = "ak"',
            6,
            "policy.rules.1.do",
            "'ask'",
        ),
        ('[[policy.rules]]\nmatch = "github"\ndo = "ask"', 2, "policy.rules.0.match", "server.tool"),
        ('[[policy.rules]]\nmatch = "a.*"', 1, "policy.rules.0.do", "this key is missing"),
        ('[[policy.rules]]\ndo = "deny"\nargs = { a = [] }', 3, "policy.rules.0.args", "at least one"),
        ('[[policy.rules]]\ndo = "deny"\nwhen = { destructiv = true }', 3, "policy.rules.0.when", "no such key"),
        ('[[policy.rules]]\nmatch = "a.*"\naction = "deny"', 3, "policy.rules.0.action", "no such key. And 1 more"),
        ('[[policy.rules]]\ndo = "deny"\ntool = "x"', 3, "policy.rules.0.tool", "no such key"),
        ("[policy]\nrule = []", 2, "policy.rule", "rules"),
        ("policy = 3", 1, "policy", "table"),
        ('session_limit = 4\n[polciy]\nprofile = "strict"', 2, "polciy", "policy"),
        ('[[policies.rules]]\ndo = "deny"', 1, "policies", "policy"),
        ('[context.inject]\n"a.*" = { user = "user_id" }', 2, "context.inject", "context.NAME"),
        ('[context.inject]\na = { user = "context.user" }', 2, "context.inject", "server.tool"),
        ("[limits]\ncalls_per_run = -1", 2, "limits.calls_per_run", "greater than or equal"),
        ("[limits]\nspend_per_day = inf", 2, "limits.spend_per_day", "finite"),
        ("[limits.callers.ci]\ncalls = 1", 2, "limits.callers", "no such key"),
        ("[approval]\ntimeout = 0", 2, "approval.timeout", "greater than"),
        ('[policy]\nprofile = "${NOT_SET}"', 2, "policy.profile", "NOT_SET"),
    ],
)
@pytest.mark.parametrize("found", [True, False], ids=["found", "named"])
def test_an_error_starts_nothing_and_points_at_the_line(
    machine: Machine, text: str, line: int, key: str, expected: str, found: bool
) -> None:
    path = machine.user(USER_FILE, text + "\n")
    with pytest.raises(ConfigError) as caught:
        machine.load(None if found else path)
    assert str(caught.value).startswith(f"{path}, line {line}: {key}")
    assert expected in caught.value.message


def test_json_is_pointed_at_as_well(machine: Machine) -> None:
    path = machine.project("mine.json", '{\n  "servers": {},\n  "policy": {\n    "profile": "none"\n  }\n}')
    with pytest.raises(ConfigError, match=r"policy\.profile") as caught:
        machine.load(path)
    assert f"{path}, line 4: " in caught.value.message


def test_no_value_is_in_the_message(machine: Machine) -> None:
    with pytest.raises(ConfigError) as caught:
        machine.load({"policy": {"rules": [{"do": "hunter2"}]}})
    assert "hunter2" not in str(caught.value)


def test_an_untrusted_project_has_no_say_not_even_by_an_error(machine: Machine) -> None:
    machine.trusting = False
    machine.project("toolfold.toml", '[policy]\nprofile = "opne"\n')
    assert machine.load().settings.policy.profile == "careful"


def test_a_project_adds_to_a_persons_own_policy_and_does_not_weaken_it(machine: Machine) -> None:
    machine.user(
        USER_FILE,
        '[policy]\nprofile = "strict"\n[[policy.rules]]\nmatch = "a.*"\ndo = "deny"\n'
        '[context.inject]\n"a.*" = { user = "context.user" }\n'
        '[limits]\ncalls_per_run = 5\nspend_per_run = 9\ntools = { "a.*" = 1 }\n',
    )
    machine.project(
        "toolfold.toml",
        '[policy]\nprofile = "open"\n[[policy.rules]]\nmatch = "a.*"\ndo = "allow"\n'
        '[context.inject]\n"a.*" = { user = "context.other" }\n"b.*" = { user = "context.user" }\n'
        '[limits]\ncalls_per_run = 50\nspend_per_run = 1\ntools = { "a.*" = 9, "b.*" = 2 }\n',
    )
    settings = machine.load().settings
    assert settings.policy.profile == "strict"
    assert [rule.do for rule in settings.policy.rules] == ["deny", "allow"]
    assert settings.context.inject == {"a.*": {"user": "context.user"}, "b.*": {"user": "context.user"}}
    assert (settings.limits.calls_per_run, settings.limits.spend_per_run) == (5, 1)
    assert settings.limits.tools == {"a.*": 1, "b.*": 2}


def test_nested_tables_of_arguments_are_dotted_names(machine: Machine) -> None:
    rule = {"args": {"filter": {"owner": ["a", 1]}, "force": True}, "do": "deny"}
    [read] = machine.load({"policy": {"rules": [rule]}}).settings.policy.rules
    assert read.args == {"filter.owner": ("a", 1), "force": True}
