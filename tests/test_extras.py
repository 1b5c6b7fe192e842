"""The default install has none of the extras: everything works without them, and says what is estimated or missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

from tests.search_fixtures import OFFICE
from toolfold.errors import ConfigError
from toolfold.telemetry import tokens

EXTRAS = ("wordllama", "rs_bpe", "pydantic_monty")
# Python takes a module that is None for one that is not installed.
BLOCKER = f"import sys\nfor name in {EXTRAS}:\n    sys.modules[name] = None\n"


def lean(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python, and all Python programs that it starts, without the extras."""
    (folder / "sitecustomize.py").write_text(BLOCKER)
    env = {**os.environ, "PYTHONPATH": str(folder), "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=110, cwd=folder, env=env, check=False
    )


@pytest.fixture
def catalogs(tmp_path: Path) -> Path:
    folder = tmp_path / "catalogs"
    folder.mkdir()
    for server, tools in OFFICE.items():
        listed = [{"name": name, "description": description} for name, description in tools.items()]
        (folder / f"{server}.json").write_text(json.dumps({"server": server, "tools": listed}))
    return folder


def test_the_default_install_requires_none_of_them() -> None:
    required = requires("toolfold") or []
    default = [line for line in required if "extra ==" not in line]
    assert any(line.lower().startswith("pystemmer") for line in default)
    for package in ("wordllama", "rs-bpe", "pydantic-monty"):
        assert not any(line.startswith(package) for line in default)
        assert any(line.startswith(package) for line in required)


def test_search_works_on_words(tmp_path: Path, catalogs: Path) -> None:
    words = ["-m", "toolfold", "search", "file a bug report", "--explain", "--catalog", str(catalogs)]
    done = lean(tmp_path, *words, "--data", str(tmp_path / "data"))
    assert done.returncode == 0, done.stderr
    assert "github.create_issue" in done.stdout
    assert "meaning" not in done.stdout
    assert done.stderr == ""


GATEWAY = """
import asyncio, sys
from pathlib import Path
from mcp import Client
from toolfold import Toolfold
from toolfold.gateway.server import make_server

async def main():
    async with Toolfold.open({}, catalog_dirs=(Path(sys.argv[1]),), data_dir=Path(sys.argv[2])) as fold:
        assert not fold.catalog.semantic
        async with Client(make_server(fold)) as client:
            print([tool.name for tool in (await client.list_tools()).tools])
            found = await client.call_tool("search_tools", {"query": "file a bug report"})
            print(found.content[0].text)

asyncio.run(main())
"""


def test_the_gateway_lists_its_tools_and_searches(tmp_path: Path, catalogs: Path) -> None:
    done = lean(tmp_path, "-c", GATEWAY, str(catalogs), str(tmp_path / "data"))
    assert done.returncode == 0, done.stderr
    assert "['search_tools', 'run_code']" in done.stdout
    assert "from servers.github import create_issue" in done.stdout


def test_doctor_says_what_each_missing_extra_would_add(tmp_path: Path) -> None:
    (tmp_path / "toolfold.toml").write_text("")
    words = ["-m", "toolfold", "doctor", "--json", "--config", str(tmp_path / "toolfold.toml")]
    done = lean(tmp_path, *words, "--data", str(tmp_path / "data"))
    lines = {line["name"]: line for line in json.loads(done.stdout) if line["topic"] == "extra"}
    for extra in ("semantic", "tokens", "monty"):
        line = lines[f"{extra} is not installed"]
        assert line["state"] == "warning"
        assert line["detail"]
        assert line["todo"] == f"Run: pip install 'toolfold[{extra}]'"


COUNTS = """
from toolfold.telemetry.tokens import count, estimate, measure
text = "Open a new issue in a repository"
assert measure(text) == (estimate(text), False)
print(measure(text))
count(text)
"""


def test_token_counts_are_labelled_estimates(tmp_path: Path) -> None:
    done = lean(tmp_path, "-c", COUNTS)
    assert done.stdout == "about 7 (estimated; exact with: pip install 'toolfold[tokens]')\n"
    assert "Exact token counts need the `tokens` extra. Run: pip install 'toolfold[tokens]'" in done.stderr
    assert ConfigError.__name__ in done.stderr


def test_with_the_extra_counts_are_exact() -> None:
    text = "Open a new issue in a repository"
    assert tokens.measure(text) == (tokens.count(text), True)
    assert str(tokens.measure("word " * 2000)) == f"{tokens.count('word ' * 2000):,}"


def test_estimates_are_near_the_exact_count_on_real_tools(shared: Path) -> None:
    exact: list[int] = []
    estimated: list[int] = []
    for path in sorted((shared / "catalogs").glob("*.json")):
        for tool in json.loads(path.read_text("utf-8"))["tools"]:
            definition = {key: tool.get(key) for key in ("name", "description", "inputSchema")}
            text = json.dumps(definition, separators=(",", ":"), ensure_ascii=False)
            exact.append(tokens.count(text))
            estimated.append(tokens.estimate(text))
    assert len(exact) > 2_000
    assert 0.95 < sum(estimated) / sum(exact) < 1.05
    near = sum(0.85 < guess / real < 1.15 for guess, real in zip(estimated, exact, strict=True))
    assert near / len(exact) > 0.95


@pytest.mark.parametrize(
    "text",
    [
        "Отправляет сообщения пользователям и создаёт новые задачи, если они ещё не существуют.",
        "搜索网页上的关键词并返回最相关的结果，包括标题、链接和摘要。",
        "إنشاء مشكلة جديدة في المستودع وإرجاع الرقم والرابط إذا نجحت العملية",
        "def f(x: int) -> int:\n    return x**2 if x else 0\n" * 5,
        "550e8400-e29b-41d4-a716-446655440000 " * 5,
    ],
)
def test_estimates_are_of_the_right_size_for_other_texts(text: str) -> None:
    assert 0.6 < tokens.estimate(text) / tokens.count(text) < 1.6
