"""The promises of the typed API over every real tool at hand."""

from __future__ import annotations

import compileall
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.test_codegen_hostile import assert_declares_only
from tests.typed_api import Values, catalog_tools, run_with_tree
from toolfold.codegen import render
from toolfold.codegen.from_schema import arguments
from toolfold.codegen.names import ApiNames, parameters
from toolfold.codegen.tree import write_tree
from toolfold.definitions import ToolDefinition
from toolfold.errors import InvalidArguments
from toolfold.guards.arguments import check_arguments
from toolfold.schema.validation import Validators
from toolfold.telemetry import tokens

ROUNDS = 3


@pytest.fixture(scope="module")
def tools(shared: Path) -> list[ToolDefinition]:
    return catalog_tools(shared)


@pytest.fixture(scope="module")
def dest(tools: list[ToolDefinition], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api")
    report = write_tree(tools, folder)
    assert report.written == len({(tool.server, tool.name) for tool in tools})
    return folder


def test_every_module_compiles_and_only_declares(dest: Path) -> None:
    modules = [path for path in (dest / "servers").rglob("*.py") if not path.name.startswith(("_", "index."))]
    assert len(modules) > 2000
    for path in modules:
        assert_declares_only(path.read_text(encoding="utf-8"))
    assert compileall.compile_dir(dest / "servers", quiet=2, legacy=False)


def test_the_tree_is_formatted_as_ruff_would_at_its_own_width_and_at_a_wider_one(dest: Path) -> None:
    for width in ("88", "120"):
        command = [
            sys.executable,
            "-m",
            "ruff",
            "format",
            "--check",
            "--isolated",
            "--no-cache",
            "--line-length",
            width,
        ]
        done = subprocess.run(
            [*command, str(dest / "servers")], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.timeout(600)
def test_the_tree_and_agent_code_pass_pyright_in_strict_mode(dest: Path, tools: list[ToolDefinition]) -> None:
    (dest / "pyrightconfig.json").write_text(
        json.dumps({"typeCheckingMode": "strict", "pythonVersion": "3.11", "include": ["servers", "agent.py"]})
    )
    (dest / "agent.py").write_text(AGENT)
    wrong = dest / "agent.py"
    command = [sys.executable, "-m", "pyright", "--outputjson", "--project", str(dest)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=580)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] > len(tools)
    problems = [(Path(each["file"]), each["range"]["start"]["line"]) for each in found["generalDiagnostics"]]
    expected = [(wrong, number) for number, line in enumerate(AGENT.split("\n")) if "# wrong" in line]
    assert sorted(set(problems)) == expected, found["generalDiagnostics"][:5]


AGENT = """\
import servers.github
from servers.github import create_issue
from servers.github import list_issues as issues
from servers.github.index import create_issue as indexed


async def main() -> None:
    print(await create_issue(owner="o", repo="r", title="t", labels=["bug"]))
    print(await create_issue({"owner": "o", "repo": "r", "title": "t"}))
    print(await create_issue("o", "r", "t"), await indexed("o", "r", title="t"))
    print(await issues(owner="o", repo="r", state="open"))
    print(await servers.github.get_issue(owner="o", repo="r", issue_number=1))
    await create_issue(owner="o", repo="r")  # wrong
    await create_issue(owner="o", repo="r", title="t", lables=["bug"])  # wrong
    await create_issue(owner="o", repo="r", title=5)  # wrong
    await issues(owner="o", repo="r", state="opened")  # wrong
"""


def made(tools: list[ToolDefinition]) -> Iterator[tuple[ToolDefinition, dict[str, Any]]]:
    """Random arguments that each tool's schema allows, as its own validator says."""
    validators = Validators(limit=10_000)
    for number, tool in enumerate(tools):
        found = 0
        for attempt in range(30):
            candidate = Values(tool.input_schema, seed=number * 1000 + attempt).arguments()
            try:
                check_arguments(validators, tool, candidate)
            except InvalidArguments:
                continue
            yield tool, candidate
            found += 1
            if found == ROUNDS:
                break


def test_valid_arguments_arrive_unchanged_under_the_original_names(tools: list[ToolDefinition], dest: Path) -> None:
    names = ApiNames.of(tools)
    cases = list(made(tools))
    reached = {(tool.server, tool.name) for tool, _ in cases}
    assert len(reached) >= 0.99 * len(tools), "the generator no longer finds valid arguments"
    given: list[Any] = []
    for tool, wire in cases:
        taken = arguments(tool).keywords
        words = parameters(dict.fromkeys(taken.values()))
        keywords = {words[name]: value for name, value in wire.items()}
        # As many as there are without a gap, in the order of the signature.
        first = list(takewhile(keywords.__contains__, taken))
        # A sole dict holds all arguments; what is meant as the first of them must fit nothing else.
        first = [] if len(first) == 1 and isinstance(keywords[first[0]], dict) else first
        place = [names.server(tool.server), names.function(tool.server, tool.name)]
        given.append([*place, keywords, wire, first])
    answers = run_with_tree(
        dest,
        """
import importlib
async def main():
    answers = []
    for module, function, keywords, wire, first in given:
        tool = getattr(importlib.import_module(f"servers.{module}"), function)
        rest = {name: value for name, value in keywords.items() if name not in first}
        in_order = await tool(*[keywords[name] for name in first], **rest)
        answers.append([await tool(**keywords), await tool(wire), in_order])
    return answers
answer = asyncio.run(main())
""",
        given,
    )
    for (tool, wire), ways in zip(cases, answers, strict=True):
        for sent in ways:
            assert sent == [tool.server, tool.name, wire]


def test_reading_a_tool_costs_at_most_three_fifths_of_its_definition(shared: Path) -> None:
    whole, read, shares = 0, 0, list[float]()
    tools = catalog_tools(shared)
    names = ApiNames.of(tools)
    definitions = [
        tool
        for path in sorted((shared / "catalogs").glob("*.json"))
        for tool in json.loads(path.read_text(encoding="utf-8"))["tools"]
    ]
    for tool, raw in zip(tools, definitions, strict=True):
        cost = tokens.count(json.dumps(raw, separators=(",", ":"), ensure_ascii=False))
        text = f"{render.import_line(names, tool)}\n{render.full(names, tool)}"
        shares.append(tokens.count(text) / cost)
        whole += cost
        read += tokens.count(text)
    assert median(shares) <= 0.6
    assert read / whole <= 0.6


def test_a_name_costs_at_most_eight_tokens(tools: list[ToolDefinition]) -> None:
    names = ApiNames.of(tools)
    listing = "".join(f"{names.server(t.server)}.{names.function(t.server, t.name)}\n" for t in tools)
    assert tokens.count(listing) / len(tools) <= 8


def test_every_real_schema_can_be_checked(tools: list[ToolDefinition]) -> None:
    validators = Validators(limit=10_000)
    for tool in tools:
        if arguments(tool).required:
            with pytest.raises(InvalidArguments) as caught:
                check_arguments(validators, tool, {})
            assert "missing required argument" in caught.value.message
            assert "Signature: " in caught.value.hint
