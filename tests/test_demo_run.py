"""`toolfold demo` from end to end: real clients, real servers, a real gateway and sandbox."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolfold.demo.scenarios import SCENARIOS


def toolfold_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "toolfold", "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    folder: Path = tmp_path_factory.mktemp("catalog")
    tools = [{"name": name, "description": "A tool.", "inputSchema": {"type": "object"}} for name in "abcde"]
    (folder / "one.json").write_text(json.dumps({"server": "one", "tools": tools}))
    done = toolfold_demo("--json", "--catalog", str(folder))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_both_ways_give_the_same_answer_in_all_six_scenarios(measured: tuple[dict[str, Any], str]):
    report, _ = measured
    assert [row["scenario"] for row in report["rows"]] == [scenario.name for scenario in SCENARIOS]
    for row in report["rows"]:
        assert row["same_answer"], (row["direct"]["answer"], row["folded"]["answer"])
        assert row["direct"]["answer"]
    assert report["same_answers"] is True


def test_our_two_tools_stay_within_their_budget(measured: tuple[dict[str, Any], str]):
    report, _ = measured
    assert 0 < report["folded_definitions"] <= 200
    assert report["direct_definitions"] > report["folded_definitions"]
    assert (report["servers"], report["tools"]) == (7, 17)


def test_data_and_loops_stay_out_of_the_context_when_folded(measured: tuple[dict[str, Any], str]):
    rows = {row["scenario"]: row for row in measured[0]["rows"]}
    for name in ("filter 10,000 rows", "1,000 Salesforce records", "three-server workflow"):
        assert rows[name]["folded"]["tokens"] < rows[name]["direct"]["tokens"] / 5, name
    polling = rows["polling loop of ten"]
    assert polling["direct"]["round_trips"] == 10
    assert all(row["folded"]["round_trips"] == 2 for row in rows.values())


def test_progress_goes_to_stderr_and_the_catalog_is_compared(measured: tuple[dict[str, Any], str]):
    report, stderr = measured
    assert all(f"{scenario.name}: folded" in stderr for scenario in SCENARIOS)
    assert report["catalog"]["tools"] == 5


def test_a_folder_that_is_no_catalog_is_said_before_anything_is_started(tmp_path: Path):
    done = toolfold_demo("--catalog", str(tmp_path))
    assert done.returncode != 0
    assert "holds no catalog" in done.stderr
    assert "starting" not in done.stderr
    assert "Traceback" not in done.stderr
