"""Every program in docs/examples.md runs as written and prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

from toolfold.demo.fleet import demo_config
from toolfold.demo.scenarios import SCENARIOS
from toolfold.fold import Toolfold

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[1] / "docs" / "examples.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> list[tuple[str, str]]:
    """Each program with the output that is shown below it."""
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    programs = [at for at, (language, _) in enumerate(blocks) if language == "python"]
    assert all(at + 1 < len(blocks) and blocks[at + 1][0] == "text" for at in programs)
    return [(blocks[at][1], blocks[at + 1][1]) for at in programs]


def lines(text: str) -> list[str]:
    """The text without what no reader sees: blanks at the ends of lines."""
    return [line.rstrip() for line in text.strip().splitlines()]


async def test_every_program_prints_what_the_page_shows(tmp_path: Path):
    differences: list[str] = []
    with anyio.fail_after(110):
        async with Toolfold.open(demo_config(), data_dir=tmp_path) as fold:
            for program, expected in examples():
                result = await fold.run(program)
                if lines(result.text) != lines(expected):
                    differences.append(f"{program}\nshown:\n{expected}\nprinted:\n{result.text}")
    assert not differences, "\n\n".join(differences)


def test_the_page_shows_the_six_programs_of_the_demo():
    programs = [program for program, _ in examples()]
    assert [scenario.name for scenario in SCENARIOS if scenario.program not in programs] == []


@pytest.mark.parametrize(
    "line",
    [
        "from tool_discovery import search_tools",
        "from client import call_mcp_tool",
        'os.listdir("servers")',
        "help(",
    ],
)
def test_the_page_shows_every_way_to_find_and_call_a_tool(line: str):
    assert any(line in program for program, _ in examples())
