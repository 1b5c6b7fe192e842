"""The settings of privacy: every error stops the start, and patterns that could take long are refused."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.private import Room
from toolfold import Toolfold
from toolfold.config.load import load
from toolfold.config.safe_regex import UnsafeRegexError, compiled
from toolfold.config.settings import Settings
from toolfold.errors import ConfigError


def loaded(tmp_path: Path, config: Any) -> Settings:
    return load(config, cwd=tmp_path, home=tmp_path, env={}, data_dir=tmp_path).settings


@pytest.mark.parametrize(
    ("config", "enabled", "mode"),
    [
        ({}, False, "ingress"),
        ({"privacy": True}, True, "ingress"),
        ({"privacy": False}, False, "ingress"),
        ({"privacy": {"mode": "egress"}}, True, "egress"),
        ({"privacy": {"enabled": False, "mode": "egress"}}, False, "egress"),
        ({"mcpCodeExecution": {"piiTokenization": True}}, True, "ingress"),
        ({"mcpCodeExecution": {"piiTokenization": {"enabled": True, "types": ["email"]}}}, True, "ingress"),
        ({"mcpCodeExecution": {"piiTokenization": True}, "privacy": False}, False, "ingress"),
    ],
)
def test_short_and_long_forms(tmp_path: Path, config: dict[str, Any], enabled: bool, mode: str) -> None:
    privacy = loaded(tmp_path, config).privacy
    assert (privacy.enabled, privacy.mode) == (enabled, mode)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"privacy": "on"}, "privacy"),
        ({"privacy": 1}, "privacy"),
        ({"privacy": {"mode": "both"}}, "privacy.mode"),
        ({"privacy": {"modus": "egress"}}, "privacy.modus"),
        ({"privacy": {"restore": {"crm": ["emial"]}}}, "privacy"),
        ({"privacy": {"restore": {"crm": "email"}}}, "privacy.restore.crm"),
        ({"privacy": {"ignore": ["dates"]}}, "privacy"),
        ({"privacy": {"fields": {"ref": "customer"}}}, "privacy"),
        ({"privacy": {"regions": ["Germany"]}}, "privacy.regions"),
        ({"privacy": {"patterns": {"employee": "(a+)+$"}}}, "privacy.patterns"),
        ({"privacy": {"patterns": {"Employee 1": "x"}}}, "privacy.patterns"),
        ({"privacy": {"words": {"project": ["x"]}}}, "privacy.words"),
        ({"privacy": {"presidio": "no-such-language"}}, "privacy.presidio"),
        ({"privacy": {"values": 0}}, "privacy.values"),
        ({"privacy": {"mode": "${UNSET_VARIABLE}"}}, "privacy"),
        ({"privcy": True, "session_limit": 3}, "privcy"),
        ({"mcpCodeExecution": {"piiTokenization": "on"}}, "mcpCodeExecution.piiTokenization"),
        ({"mcpCodeExecution": {"piiTokenisation": True}}, "mcpCodeExecution.piiTokenisation"),
    ],
)
def test_an_error_stops_the_start_and_is_pointed_at(tmp_path: Path, config: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Toolfold.open(config, data_dir=tmp_path)
    assert key in refused.value.message
    assert "ignored" not in refused.value.message


def test_the_line_in_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "toolfold.toml"
    path.write_text('session_limit = 3\n\n[privacy]\nenabled = true\nmode = "bth"\n')
    with pytest.raises(ConfigError, match=r"toolfold.toml, line 5: privacy.mode"):
        loaded(tmp_path, path)


@pytest.mark.parametrize(
    "pattern",
    [r"(a+)+$", r"(a|a)*b", r"\w+\d", r"\d*\d*x", r".*foo", r"(\d)\1", r"a*", "[", "a?" * 30 + "a" * 30,
     "(?:a|aa)" * 40 + "b", r"(\d+)(\d+)x", r"(?:x(\d+))?\d+y",
     r"(?i)[a-z]+[A-Z]+x", r"(?:[A-Z]+-)*\d", r"(?=a+)b", r"x{2000}"],
)  # fmt: skip
def test_patterns_that_could_take_long_are_refused(pattern: str) -> None:
    with pytest.raises(UnsafeRegexError):
        compiled(pattern)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"EMP-[0-9]{6}", "EMP-123456"),
        (r"[A-Z]{2,4}-\d+(?:-\d+)?", "ABC-12-3"),
        (r"(?<!\d)\d{5}(?!\d)", "12345"),
        (r"(?i)proj[- ]?\d{1,5}", "Proj 77"),
        (r"\bT-(?:\d{3}|[A-Z]{2})\b", "T-XY"),
        (r"[a-z]+@corp", "ada@corp"),
    ],
)
def test_usual_patterns_work_in_time(pattern: str, text: str) -> None:
    assert Room(patterns={"mine": pattern}, ignore=("phone", "card", "email")).text(f"see {text}.") == "see MINE_1."
    begun = time.process_time()
    compiled(pattern).search(("a" * 50_000) + ("1" * 50_000) + ("A-" * 20_000))
    assert time.process_time() - begun < 5
