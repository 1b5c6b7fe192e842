"""No false alarms: every program that the documentation and the demo show passes the review."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

from toolfold.demo.fleet import demo_config
from toolfold.demo.scenarios import SCENARIOS
from toolfold.fold import Toolfold
from toolfold.review.review import review

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(?:python|py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def programs() -> list[tuple[str, str]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    shown = [(page.name, code) for page in pages for code in FENCE.findall(page.read_text(encoding="utf-8"))]
    return [*shown, *((scenario.name, scenario.program) for scenario in SCENARIOS)]


async def test_every_program_that_is_shown_passes(tmp_path: Path) -> None:
    assert len(programs()) > len(SCENARIOS)
    with anyio.fail_after(100):
        async with Toolfold.open(demo_config(), data_dir=tmp_path) as fold:
            await fold.refresh()
            alarms = [
                (where, finding)
                for where, code in programs()
                # A server that the demo does not have says nothing about the program.
                for finding in review(code, fold.catalog.names, fold.catalog.tool)
                if finding.code != "unknown_server"
            ]
    assert alarms == []
