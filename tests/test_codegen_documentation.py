"""The page about the typed API shows what the code does."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from tests.typed_api import definition, simple
from toolfold.codegen import render
from toolfold.codegen.names import ApiNames
from toolfold.definitions import ToolDefinition
from toolfold.review.review import review

PAGE = (Path(__file__).parents[1] / "docs" / "typed-api.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TYPES = re.findall(r"^\| `(\{.*\})` \| `(.*)` \|$", PAGE, re.MULTILINE)
NAMES = re.findall(r"`([^`]+)` → `([^`]+)`", PAGE)


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


TOOL = definition("tracker", json.loads(blocks("json")[0]))
API = ApiNames.of([TOOL])


def lookup(server: str, tool: str) -> ToolDefinition | None:
    return TOOL if (server, tool) == ("tracker", "create-issue") else None


def test_the_definition_is_shown_as_an_agent_reads_it() -> None:
    assert f"{render.full(API, TOOL)}\n" == blocks("python")[0]


def test_the_calls_on_the_page_pass_the_review() -> None:
    assert review(blocks("python")[1], API, lookup) == []


def test_the_findings_are_those_that_the_page_shows() -> None:
    found = review(blocks("python")[2], API, lookup)
    assert [f"line {each.line}: {each.message} {each.hint}".strip() for each in found] == blocks("text")[0].splitlines()


@pytest.mark.parametrize(("schema", "python"), TYPES)
def test_the_types_are_those_of_the_table(schema: str, python: str) -> None:
    tool = simple(x_=json.loads(schema))
    signature = render.signature(ApiNames.of([tool]), tool)
    assert f"x: {python.replace(chr(92), '')})" in signature
    ast.parse(signature)


def test_the_table_is_read() -> None:
    assert len(TYPES) > 10
    assert len(NAMES) >= 3


@pytest.mark.parametrize(("name", "identifier"), NAMES)
def test_names_are_mapped_as_the_page_says(name: str, identifier: str) -> None:
    tool = simple(name, "s")
    assert ApiNames.of([tool]).function("s", name) == identifier
