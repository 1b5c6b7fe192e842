"""The page about running a gateway for a team is held to the code."""

from __future__ import annotations

import re
from pathlib import Path

from toolfold.config.settings import SandboxSettings, Settings
from toolfold.gateway.connections import ConnectionLimits

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")


def test_everything_in_the_data_folder_is_in_the_table() -> None:
    """Each row says whether it belongs into a backup, so nothing that a gateway keeps may be missing."""
    written: set[str] = set()
    for path in (ROOT / "src" / "toolfold").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        written |= set(re.findall(r'\bdata(?:_dir)? / "([\w.-]+)"', text))
        for name in re.findall(r"\bdata_dir / (_?[A-Z]+)\b", text):
            written |= set(re.findall(rf'^{name} = "([\w.-]+)"', text, re.MULTILINE))
    rows = "\n".join(
        re.findall(r"^\| `.*", PAGE.partition("| in the data folder |")[2].partition("**Ret")[0], re.MULTILINE)
    )
    assert {"sessions", "skills", "audit.db", "http-token", "auth"} <= written
    assert {name for name in written if f"`{name}`" not in rows and f"`{name}/`" not in rows} <= {"retention.lock"}


def test_the_stated_sizes_are_the_defaults() -> None:
    settings, sandbox = Settings.model_fields, SandboxSettings.model_fields
    assert f"| `session_limit` | {settings['session_limit'].default} |" in PAGE
    assert f"| {settings['run_limit'].default}, {settings['run_queue'].default} |" in PAGE
    limits = f"{sandbox['memory'].default // 1000**2} MB, {sandbox['cpu'].default:g}, {sandbox['processes'].default}"
    assert f"| {limits} |" in PAGE
    assert f"| `sandbox.pool` | {sandbox['pool'].default} |" in PAGE
    assert f"holds {ConnectionLimits().total} connections" in PAGE
