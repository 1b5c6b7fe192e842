"""Every benchmark: a table or JSON, with the machine and the versions, documented with an example."""

from __future__ import annotations

import inspect
import io
import json
from pathlib import Path

import pytest
from benchmarks import machine
from benchmarks.__main__ import COMMANDS
from benchmarks.report import Figure, document, show
from rich.console import Console

DOCS = (Path(__file__).parents[1] / "docs" / "benchmarks.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_a_benchmark_has_json_an_example_and_a_place_in_the_docs(command: object) -> None:
    assert inspect.isfunction(command)
    name = command.__name__
    assert "json" in inspect.signature(command).parameters
    assert f"Example: scripts/bench {name}" in (inspect.getdoc(command) or "")
    assert f"`scripts/bench {name}" in DOCS or f", `{name}`" in DOCS


def test_the_machine_and_the_versions_are_in_table_and_document() -> None:
    figures = [Figure("a run", 2.0, 4.0, "another way", budget=1.0), Figure("a small one", 0.05, None, "")]
    console = Console(file=io.StringIO(), width=110)
    show(figures, "Runs", console, "msgspec", "fastmcp[code-mode]==4.1.2")
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "0.50 ×" in text
    assert "0.050 ms" in text
    found = document("runs", {"figures": [figure.data() for figure in figures]}, "msgspec", "no-such-package")
    assert json.loads(json.dumps(found))["figures"][0]["within"] is True
    assert found["machine"]["cores"] >= 1
    assert found["versions"].keys() == {"python", "toolfold", "mcp", "msgspec"}
    line = " ".join(text.split())
    assert f"{found['machine']['cores']} cores" in line
    assert f"msgspec {found['versions']['msgspec']}, fastmcp 4.1.2" in line
    assert str(Path.home()) not in machine.described()
