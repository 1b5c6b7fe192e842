"""The `mcpCodeExecution` block of other projects, taken over as far as it can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.config_machine import Machine
from toolfold.config.settings import SandboxSettings
from toolfold.errors import ConfigError

EXAMPLE = {
    "enabled": True,
    "sandboxMode": "docker",
    "securityLevel": "standard",
    "maxExecutionTime": 45_000,
    "piiTokenization": False,
    "auditLogging": False,
    "resourceLimits": {"memory": "256MB", "cpu": "2 cores", "disk": "2GB"},
}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def block(**values: Any) -> dict[str, Any]:
    return {"mcpCodeExecution": values}


@pytest.mark.parametrize(
    ("side", "name"),
    [
        ("project", ".mcp.json"),
        ("user", ".claude.json"),
        ("user", ".cursor/mcp.json"),
        ("user", ".config/zed/settings.json"),
    ],
)
def test_the_whole_block_is_mapped_wherever_it_stands(machine: Machine, side: str, name: str) -> None:
    write = machine.project if side == "project" else machine.user
    write(name, {"mcpServers": {}, "mcpCodeExecution": EXAMPLE})
    loaded = machine.load()
    assert loaded.settings.sandbox == SandboxSettings(
        backend="container", timeout=45, memory=256_000_000, cpu=2, disk=2_000_000_000
    )
    assert loaded.settings.enabled
    assert not loaded.problems


def test_it_may_stand_alone_in_a_file_in_toml_and_in_memory(machine: Machine) -> None:
    assert machine.load({"mcpCodeExecution": EXAMPLE}).settings.sandbox.timeout == 45
    assert machine.load(machine.project("only.json", {"mcpCodeExecution": EXAMPLE})).settings.sandbox.timeout == 45
    machine.project("toolfold.toml", "[mcpCodeExecution]\nmaxExecutionTime = 2500\n[sandbox]\npool = 2\n")
    loaded = machine.load()
    assert (loaded.settings.sandbox.timeout, loaded.settings.sandbox.pool) == (2.5, 2)
    assert not loaded.problems


def test_it_may_stand_with_one_project_of_claude_code(machine: Machine) -> None:
    project = block(maxExecutionTime=1000)
    machine.user(
        ".claude.json", {**block(maxExecutionTime=9000, enabled=False), "projects": {str(machine.cwd): project}}
    )
    settings = machine.load().settings
    assert (settings.sandbox.timeout, settings.enabled) == (1, False)


def test_our_own_names_win_in_the_same_file(machine: Machine) -> None:
    machine.project("toolfold.toml", "[sandbox]\ntimeout = 3\n[mcpCodeExecution]\nmaxExecutionTime = 9000\n")
    assert machine.load().settings.sandbox.timeout == 3


@pytest.mark.parametrize(
    ("given", "backend"),
    [
        ("bubblewrap", "bubblewrap"),
        ("bwrap", "bubblewrap"),
        ("container", "container"),
        ("Docker", "container"),
        ("podman", "container"),
        ("monty", "monty"),
        ("auto", "auto"),
    ],
)
def test_sandbox_modes_have_their_backends(machine: Machine, given: str, backend: str) -> None:
    loaded = machine.load(block(sandboxMode=given))
    assert loaded.settings.sandbox.backend == backend
    assert not loaded.problems


@pytest.mark.parametrize(
    "given", ["process", "none", "off", "subprocess", "host", "disabled", "", False, None, 3, ["bwrap"]]
)
def test_a_mode_that_would_weaken_the_sandbox_is_refused(machine: Machine, given: object) -> None:
    loaded = machine.load(block(sandboxMode=given))
    assert loaded.settings.sandbox.backend == "auto"
    [problem] = loaded.problems
    assert problem.key == "mcpCodeExecution.sandboxMode"
    assert "never run without a sandbox" in problem.expected


@pytest.mark.parametrize(
    ("cpu", "cores"), [("1 core", 1), ("2 cores", 2), ("500m", 0.5), ("0.5", 0.5), (3, 3), ("1.5 CPUs", 1.5)]
)
def test_cores_are_written_in_many_ways(machine: Machine, cpu: object, cores: float) -> None:
    assert machine.load(block(resourceLimits={"cpu": cpu})).settings.sandbox.cpu == cores


@pytest.mark.parametrize(
    ("memory", "size"),
    [
        ("512MB", 512_000_000),
        ("512 mb", 512_000_000),
        ("1GiB", 2**30),
        ("512Mi", 2**29),
        ("1.5G", 1_500_000_000),
        (2**28, 2**28),
    ],
)
def test_sizes_are_written_in_many_ways(machine: Machine, memory: object, size: int) -> None:
    assert machine.load(block(resourceLimits={"memory": memory})).settings.sandbox.memory == size


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"enabled": "yes"}, "enabled"),
        ({"maxExecutionTime": 0}, "maxExecutionTime"),
        ({"maxExecutionTime": -5}, "maxExecutionTime"),
        ({"maxExecutionTime": "soon"}, "maxExecutionTime"),
        ({"maxExecutionTime": True}, "maxExecutionTime"),
        ({"maxExecutionTime": float("inf")}, "maxExecutionTime"),
        ({"maxExecutionTime": 10**400}, "maxExecutionTime"),
        ({"resourceLimits": "512MB"}, "resourceLimits"),
        ({"resourceLimits": {"memory": 512}}, "resourceLimits.memory"),
        ({"resourceLimits": {"memory": "512 parsecs"}}, "resourceLimits.memory"),
        ({"resourceLimits": {"memory": True}}, "resourceLimits.memory"),
        ({"resourceLimits": {"memory": "0MB"}}, "resourceLimits.memory"),
        ({"resourceLimits": {"cpu": "0 cores"}}, "resourceLimits.cpu"),
        ({"resourceLimits": {"cpu": {}}}, "resourceLimits.cpu"),
        ({"resourceLimits": {"gpu": 1}}, "resourceLimits.gpu"),
        ({"sandboxmode": "auto"}, "sandboxmode"),
        ({"maxExecutionTime": "${NOT_SET}"}, "maxExecutionTime"),
    ],
)
def test_a_bad_value_is_told_by_its_own_key_and_changes_nothing(
    machine: Machine, values: dict[str, Any], key: str
) -> None:
    loaded = machine.load(block(**values))
    assert [problem.key for problem in loaded.problems] == [f"mcpCodeExecution.{key}"]
    assert loaded.settings.sandbox == SandboxSettings()
    assert loaded.settings.enabled
    assert (loaded.settings.privacy.enabled, loaded.settings.audit.enabled) == (False, False)


def test_one_bad_limit_leaves_the_others(machine: Machine) -> None:
    limits = {"memory": "64MB", "network": "none", "disk": "x"}
    loaded = machine.load(block(resourceLimits=limits))
    assert loaded.settings.sandbox == SandboxSettings(memory=64_000_000)
    assert len(loaded.problems) == 2


@pytest.mark.parametrize("value", [None, 3, "on", []])
def test_a_block_that_is_no_object_is_told(machine: Machine, value: object) -> None:
    [problem] = machine.load({"mcpCodeExecution": value}).problems
    assert problem.key == "mcpCodeExecution"


def test_variables_work_in_the_block(machine: Machine) -> None:
    machine.env = {"MODE": "podman"}
    settings = machine.load(
        block(sandboxMode="${MODE}", maxExecutionTime="${MS:-2000}", resourceLimits={"memory": "${MEM:-128MB}"})
    ).settings
    assert settings.sandbox == SandboxSettings(backend="container", timeout=2, memory=128_000_000)


@pytest.mark.parametrize(("key", "value"), [("piiTokenization", "on"), ("auditLogging", 1), ("piiTokenisation", True)])
def test_an_error_in_what_keeps_things_closed_stops_the_start(machine: Machine, key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"mcpCodeExecution.{key}"):
        machine.load(block(**{key: value}))


@pytest.mark.parametrize("value", [True, {"enabled": True}, {"enabled": False}, False])
def test_audit_logging_switches_the_audit_log(machine: Machine, value: bool | dict[str, bool]) -> None:
    loaded = machine.load(block(auditLogging=value))
    assert loaded.settings.audit.enabled is (value["enabled"] if isinstance(value, dict) else value)
    assert not loaded.problems


@pytest.mark.parametrize(
    ("level", "profile"), [("low", "open"), ("standard", "careful"), (" High ", "strict"), ("paranoid", "strict")]
)
def test_a_security_level_is_a_profile_of_the_policy(machine: Machine, level: str, profile: str) -> None:
    loaded = machine.load(block(securityLevel=level))
    assert loaded.settings.policy.profile == profile
    assert not loaded.problems


@pytest.mark.parametrize("level", ["very", 3, "${NOT_SET}"])
def test_an_unknown_security_level_starts_nothing(machine: Machine, level: object) -> None:
    with pytest.raises(ConfigError, match=r"mcpCodeExecution\.securityLevel: expected"):
        machine.load(block(securityLevel=level))


def test_rules_of_our_own_and_a_level_of_the_block_are_both_used(machine: Machine) -> None:
    rules = [{"match": "lab.*", "do": "deny"}]
    policy = machine.load({**block(securityLevel="high"), "policy": {"rules": rules}}).settings.policy
    assert (policy.profile, len(policy.rules)) == ("strict", 1)
