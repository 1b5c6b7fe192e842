"""Every program in docs/writing-programs.md runs as written, and every row of its table of results has a test."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

from toolfold.demo.fleet import demo_config
from toolfold.fold import Toolfold

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).parents[1] / "docs" / "writing-programs.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^(`{3,4})(\w+)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)


def examples() -> list[tuple[str, str]]:
    """Each program with the output that is shown below it."""
    blocks = [(language, text) for _, language, text in BLOCK.findall(PAGE)]
    programs = [at for at, (language, _) in enumerate(blocks) if language == "python"]
    assert len(programs) >= 8
    return [(blocks[at][1], blocks[at + 1][1]) for at in programs if blocks[at + 1][0] == "text"]


async def test_every_program_prints_what_the_page_shows(tmp_path: Path) -> None:
    differences: list[str] = []
    with anyio.fail_after(110):
        async with Toolfold.open(demo_config(), data_dir=tmp_path) as fold:
            for program, expected in examples():
                result = await fold.run(program)
                if result.text.split() != expected.split():
                    differences.append(f"{program}\nshown:\n{expected}\nprinted:\n{result.text}")
    assert not differences, "\n\n".join(differences)
