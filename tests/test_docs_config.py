"""Every toolfold.toml in the docs can be used as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.config_machine import Machine

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
_TOML = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(_TOML.findall(page.read_text(encoding="utf-8")))
    if "[mcp_servers." not in block  # Codex's own file: see tests/test_docs_clients.py
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_config_on_a_page_loads_without_a_problem(block: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, env=dict.fromkeys(re.findall(r"\$\{([A-Z_]+)\}", block), "/some/value"))
    for name in re.findall(r"\$\{file:~/([\w./]+)\}", block):
        machine.user(name, "a secret")
    assert not machine.load(machine.user(".config/toolfold/toolfold.toml", block)).problems
