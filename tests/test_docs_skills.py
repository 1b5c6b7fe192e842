"""The examples of docs/skills.md run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from toolfold import Toolfold

pytestmark = pytest.mark.anyio
PAGE = (Path(__file__).parents[1] / "docs" / "skills.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```python {kind}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


async def test_the_programs_run_one_after_the_other(runtime_dir: Path) -> None:
    outputs: list[str] = []
    async with Toolfold.open({"servers": {}, "sandbox": {"pool": 1}}, data_dir=runtime_dir) as fold:
        for code in blocks("program"):
            result = await fold.run(code)
            assert result.success, result.error
            outputs.append(result.output)
    assert outputs[0] == "from skills.top_words import top_words\n"
    assert "only" not in outputs[1]
    assert outputs[2:] == [
        "['a', 'b'] 3\n",
        "from skills import top_words | top_words(text: str, most: int=3) -> list[str]\n",
    ]


def test_the_manager_works_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("host")
    exec(code, {})
    assert (tmp_path / "my-skills" / "monthly-total" / "SKILL.md").is_file()
