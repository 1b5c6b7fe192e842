"""`toolfold savings`: every figure can be counted again from the definitions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from toolfold.telemetry.savings import Savings, ServerCost, definition_tokens, price
from toolfold.telemetry.tokens import count

LAB = Path(__file__).parent / "servers" / "lab.py"
TOOLS: list[dict[str, Any]] = [
    {"name": "add", "description": "Add two numbers.", "inputSchema": {"type": "object", "properties": {"a": {}}}},
    {"name": "multiply", "description": "Multiply two numbers.", "inputSchema": {"type": "object"}},
]


def toolfold(*arguments: str, config: Path, data: Path) -> subprocess.CompletedProcess[str]:
    command = [warm.python(), "-m", "toolfold", "savings", *arguments, "--config", str(config), "--data", str(data)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    catalogs = tmp_path / "catalogs"
    catalogs.mkdir()
    (catalogs / "sums.json").write_text(json.dumps({"server": "sums", "tools": TOOLS}))
    path = tmp_path / "toolfold.toml"
    path.write_text(
        f'catalog_dirs = ["{catalogs}"]\ntoken_price = 2.5\n[servers.lab]\ncommand = "{sys.executable}"\n'
        f'args = ["{LAB}"]\n[servers.broken]\ncommand = "{sys.executable}"\nargs = ["-c", "raise SystemExit(3)"]\n'
    )
    return path


def test_every_server_is_a_row_and_the_sums_are_right(config: Path, tmp_path: Path) -> None:
    done = toolfold("--json", config=config, data=tmp_path / "data")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    rows = {row["server"]: row for row in told["servers"]}
    assert set(rows) == {"lab", "sums"}
    assert rows["sums"]["tools"] == 2
    texts = [
        json.dumps(
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"]},
            separators=(",", ":"),
        )
        for tool in TOOLS
    ]
    assert rows["sums"]["tokens"] == sum(map(count, texts))
    assert told["direct_tokens"] == sum(row["tokens"] for row in rows.values())
    assert 0 < told["toolfold_tokens"] <= 200
    assert told["crossover_tokens"] == told["toolfold_tokens"] + told["search_tokens"]
    assert told["dollars_per_thousand_requests"]["direct"] == pytest.approx(told["direct_tokens"] * 2.5 / 1000)
    assert (told["counted"], told["tokenizer"]) == ("measured", "o200k")
    assert not (tmp_path / "data" / "ledger").exists()
    assert list(told["not_counted"]) == ["broken"]
    assert told["not_counted"]["broken"].startswith("failed: ")


def test_a_person_reads_the_same_figures(config: Path, tmp_path: Path) -> None:
    (tmp_path / "catalogs" / "odd.json").write_text(json.dumps({"server": "[red]odd", "tools": TOOLS}))
    told = json.loads(toolfold("--json", "--price", "10", config=config, data=tmp_path / "data").stdout)
    shown = toolfold("--price", "10", config=config, data=tmp_path / "data").stdout
    assert f"{told['direct_tokens']:,}" in shown
    assert f"{told['dollars_per_thousand_requests']['direct']:,.2f}" in shown
    assert "Not counted: broken" in shown
    assert "[red]odd" in shown
    assert f"below {told['crossover_tokens']:,} tokens" in " ".join(shown.split())


def test_without_servers_it_says_what_to_do(tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text('{"mcpServers": {}}')
    done = toolfold(config=empty, data=tmp_path / "data")
    assert done.returncode == 0
    assert "toolfold doctor" in done.stdout


def test_a_server_without_tools_has_no_search_and_no_crossover(tmp_path: Path) -> None:
    """Nothing was searched, so that there is nothing measured to tell."""
    (tmp_path / "catalogs").mkdir()
    (tmp_path / "catalogs" / "none.json").write_text(json.dumps({"server": "none", "tools": []}))
    config = tmp_path / "toolfold.toml"
    config.write_text(f'catalog_dirs = ["{tmp_path / "catalogs"}"]\n')
    told = json.loads(toolfold("--json", config=config, data=tmp_path / "data").stdout)
    assert [row["tools"] for row in told["servers"]] == [0]
    assert (told["search_tokens"], told["crossover_tokens"], told["crossover_tools"]) == (None, None, None)
    shown = toolfold(config=config, data=tmp_path / "data").stdout
    assert "Crossover" not in shown
    assert "Toolfold is counted in the mode `code`." in " ".join(shown.split())


def test_servers_that_cannot_be_listed_were_found(tmp_path: Path) -> None:
    config = tmp_path / "toolfold.toml"
    config.write_text(f'[servers.broken]\ncommand = "{sys.executable}"\nargs = ["-c", "raise SystemExit(3)"]\n')
    done = toolfold(config=config, data=tmp_path / "data")
    shown = " ".join(done.stdout.split())
    assert done.returncode == 1
    assert "Not counted: broken: failed: the server ended with exit status 3" in shown
    assert "There is nothing to count: no server could be listed. Try: toolfold doctor" in shown


def test_where_direct_calls_are_cheaper() -> None:
    few = Savings((ServerCost("a", 2, 100),), own=150, search=300)
    assert few.saved < 0
    assert few.direct < few.crossover
    assert few.crossover_tools == 9
    assert Savings((), own=150, search=0).crossover_tools == 0


def test_prices() -> None:
    assert price(1_000_000, 3.0, requests=1) == 3.0
    assert price(155, 3.0) == pytest.approx(0.465)
    assert definition_tokens([]) == 0
