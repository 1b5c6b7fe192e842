"""The page about configuration is held to the code."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from tests.config_machine import Machine
from toolfold.config import overlay
from toolfold.config.audit import AuditSettings
from toolfold.config.callers import CallerSettings, JwtSettings
from toolfold.config.clients import locations
from toolfold.config.edge import Host
from toolfold.config.logseq import LogseqSettings
from toolfold.config.metrics import MetricsSettings
from toolfold.config.oauth import OAuthSettings
from toolfold.config.policy import ApprovalSettings, ContextSettings, LimitSettings, PolicySettings, ReviewSettings
from toolfold.config.privacy import PrivacySettings
from toolfold.config.retention import RetentionSettings
from toolfold.config.settings import SandboxSettings, ServerConfig, Settings
from toolfold.config.skills import SkillSettings

PAGE = (Path(__file__).parents[1] / "docs" / "configuration.md").read_text(encoding="utf-8")
MODELS: list[tuple[str, type[BaseModel]]] = [
    ("", Settings),
    ("sandbox.", SandboxSettings),
    ("retention.", RetentionSettings),
    ("skills.", SkillSettings),
    ("logseq.", LogseqSettings),
    ("policy.", PolicySettings),
    ("approval.", ApprovalSettings),
    ("context.", ContextSettings),
    ("review.", ReviewSettings),
    ("limits.", LimitSettings),
    ("servers.NAME.", ServerConfig),
    ("servers.NAME.oauth.", OAuthSettings),
    ("audit.", AuditSettings),
    ("metrics.", MetricsSettings),
    ("callers.NAME.", CallerSettings),
    ("jwt.", JwtSettings),
    ("privacy.", PrivacySettings),
]
ROWS = {row[0]: row for row in re.findall(r"^\| `([\w.]+)` \| ?(.*?) ?\| (.+) \|$", PAGE, flags=re.MULTILINE)}


@pytest.mark.parametrize("name", [f"{prefix}{field}" for prefix, model in MODELS for field in model.model_fields])
def test_every_setting_has_its_line(name: str) -> None:
    assert name in ROWS


def test_no_line_is_about_a_setting_that_does_not_exist() -> None:
    known = {f"{prefix}{field}" for prefix, model in MODELS for field in model.model_fields}
    assert {name for name in ROWS if name in known or "." in name} <= known


@pytest.mark.parametrize(
    ("name", "default"),
    [(f"sandbox.{name}", field.default) for name, field in SandboxSettings.model_fields.items()]
    + [(f"retention.{name}", field.default) for name, field in RetentionSettings.model_fields.items()]
    + [(name, Settings.model_fields[name].default) for name in ("output_chars", "session_idle", "session_limit")]
    + [(name, Settings.model_fields[name].default) for name in ("enabled", "check", "semantic", "privacy", "audit")]
    + [(f"servers.NAME.{name}", ServerConfig.model_fields[name].default) for name in ("call_timeout", "start_timeout")],
)
def test_the_stated_default_is_the_default(name: str, default: object, tmp_path: Path) -> None:
    stated = ROWS[name][1].strip("`")
    if default == () or stated == "none":
        assert (default or None, stated) == (None, "none")
        return
    value = json.loads(stated)
    outer, _, inner = name.rpartition(".")
    shape = {outer: {inner: value}} if outer else {inner: value}
    if outer.startswith("servers"):
        shape = {"servers": {"NAME": {"command": "x", inner: value}}, "check": "on"}
    settings = Machine(tmp_path).load(shape).settings
    owner = settings.servers["NAME"] if outer.startswith("servers") else getattr(settings, outer) if outer else settings
    assert getattr(owner, inner) == default


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_every_place_that_is_searched_is_on_the_page(platform: str) -> None:
    here = Host(cwd=Path("/project"), home=Path("/home"), env={}, platform=platform)
    for place in locations(here):
        assert place.path.name in PAGE
        assert place.path.parent.name in {"project", "home"} or place.path.parent.name in PAGE


def test_every_key_of_the_foreign_block_is_on_the_page() -> None:
    for name in overlay.BLOCK_NAMES.values():
        assert f"`{name.removeprefix(f'{overlay.BLOCK}.').partition('.')[0]}" in PAGE


def test_the_examples_load_without_a_problem(tmp_path: Path) -> None:
    machine = Machine(tmp_path, env={"HOME": "/home/me", "TRACKER_TOKEN": "t"})
    blocks = re.findall(r"^```(toml|json)\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    for number, (language, text) in enumerate(blocks):
        document = tomllib.loads(text) if language == "toml" else json.loads(text)
        path = machine.project(f"{number}/toolfold.{language}", text)
        loaded = machine.load(path)
        assert not loaded.problems
        on = {name for name, entry in document.get("servers", {}).items() if entry.get("enabled", True)}
        assert set(loaded.settings.servers) == on
