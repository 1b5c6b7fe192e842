"""The program on docs/library.md runs as written and prints what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs" / "library.md").read_text(encoding="utf-8")


def test_the_program_prints_what_the_page_shows(runtime_dir: Path) -> None:
    program, shown = re.findall(r"^```(?:python|text)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "TOOLFOLD_DATA": str(runtime_dir)},
        check=False,
    )
    assert done.stdout == shown, done.stderr


def test_it_needs_nothing_but_toolfold_itself() -> None:
    imports = re.findall(r"^from (toolfold\S*) import", PAGE, re.MULTILINE)
    assert set(imports) == {"toolfold", "toolfold.demo.fleet"}, "the demo's servers are the one exception"
