"""The page about configuration is held to the code."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, get_args, get_origin

import pytest
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from tests.config_machine import Machine
from toolfold.config import overlay
from toolfold.config.clients import locations
from toolfold.config.edge import Host
from toolfold.config.policy import Rule, When
from toolfold.config.settings import Settings

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "configuration.md").read_text(encoding="utf-8")


def settings_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every setting with its dotted name; NAME stands for what the person chooses."""
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}", field
        nested = [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
        inner = next((kind for kind in nested if issubclass(kind, BaseModel)), None)
        if inner is not None and f"{prefix}{name}" not in EXPLAINED_ELSEWHERE:
            named = "NAME." if get_origin(field.annotation) is dict else ""
            yield from settings_of(inner, f"{prefix}{name}.{named}")


EXPLAINED_ELSEWHERE = {"policy.rules": "security.md", "limits.callers": "its own limits, in place of those above"}
SETTINGS = dict(settings_of(Settings))
ROWS = {row[0]: row for row in re.findall(r"^\| `([\w.]+)` \| ?(.*?) ?\| (.+) \|$", PAGE, flags=re.MULTILINE)}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_has_its_line(name: str) -> None:
    assert name in ROWS


def test_no_line_is_about_a_setting_that_does_not_exist() -> None:
    assert {name for name in ROWS if name in SETTINGS or "." in name} <= set(SETTINGS)


IN_WORDS = {
    "data_dir": "see below",
    "direct_budget": "1500, or 0 with `direct`",
    "callers.NAME.mode": "as `mode`",
    "privacy.regions": "ten countries",
    "review.imports": "any",
    "servers.NAME.transport": "by what is there",
    "servers.NAME.cwd": "where Toolfold runs",
    "servers.NAME.oauth": "on",
    "servers.NAME.oauth.client_id": "registered by itself",
    "servers.NAME.oauth.algorithm": "by the kind of key",
    "servers.NAME.oauth.issuer": "the one that the server names",
    "servers.NAME.oauth.scopes": "what the server asks for",
    "servers.NAME.oauth.redirect_uri": "a free port of 127.0.0.1",
}
"""Defaults that are no value, or depend on other things."""


@pytest.mark.parametrize("name", SETTINGS)
def test_the_stated_default_is_the_default(name: str) -> None:
    field, stated = SETTINGS[name], ROWS[name][1]
    if name in IN_WORDS:
        assert stated == IN_WORDS[name]
        return
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    if stated in {"", "none"}:
        is_table = isinstance(default, BaseModel)
        assert is_table or default in (None, (), {}, "")
        return
    value = json.loads(stated.strip("`"))
    given = TypeAdapter(Annotated[field.annotation, field]).validate_python(value)  # pyright: ignore
    assert given == default


@pytest.mark.parametrize("name", SETTINGS)
def test_a_time_or_a_size_has_its_unit(name: str) -> None:
    field, (_, stated, meaning) = SETTINGS[name], ROWS[name]
    if "parse_size" in f"{field.annotation} {field.metadata}":
        assert re.search(r'B"`$', stated) or "Size" in meaning
    if "timeout" in name or name.endswith(("idle", "leeway", "interval")):
        assert "Seconds" in meaning


def test_the_keys_of_rules_are_on_the_pages() -> None:
    assert all(f"`{key}`" in ROWS["policy.rules"][2] for key in Rule.model_fields)
    security = (DOCS / "security.md").read_text(encoding="utf-8")
    assert all(key in security for key in (*Rule.model_fields, *When.model_fields))


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_every_place_that_is_searched_is_on_the_page(platform: str) -> None:
    here = Host(cwd=Path("/project"), home=Path("/home"), env={}, platform=platform)
    for place in locations(here):
        assert place.path.name in PAGE
        assert place.path.parent.name in {"project", "home"} or place.path.parent.name in PAGE


def test_every_key_of_the_foreign_block_is_on_the_page() -> None:
    for name in overlay.BLOCK_NAMES.values():
        key = name.removeprefix(f"{overlay.BLOCK}.").partition(".")[0]
        assert re.search(rf"^\| `{key}[^|]+\| [^|]+ \|$", PAGE, re.MULTILINE)


def test_every_extra_and_every_variable_of_ours_is_on_the_page() -> None:
    root = DOCS.parent
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert [name for name in extras if name != "test" and f"`toolfold[{name}]`" not in PAGE] == []
    table = PAGE.partition("\n## Environment\n")[2].partition("\n## ")[0]
    read = {
        name
        for path in (root / "src" / "toolfold").rglob("*.py")
        for name in re.findall(r'"(TOOLFOLD_[A-Z_]*[A-Z])_?["{]', path.read_text(encoding="utf-8"))
    }
    assert {"TOOLFOLD_DATA", "TOOLFOLD_TRUST"} <= read
    assert {name for name in read if name not in table} <= {"TOOLFOLD_UPSTREAM"}  # a mark for processes that we start


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
