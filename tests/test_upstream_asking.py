"""Servers that ask in the middle of a call: the person who approves answers, a model never does."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.upstream_lab import SERVERS
from toolfold import ApprovalRequest, Finished, Question, RunResult, Toolfold
from toolfold.guards.context import Ask
from toolfold.guards.events import Replied, Reply

pytestmark = pytest.mark.anyio

ASKS = str(SERVERS / "asks.py")
ERAS = ["older", "newer"]
FILLED = {"city": "Rome", "room": "d"}


def config(folder: Path) -> dict[str, Any]:
    servers = {era: {"command": sys.executable, "args": [ASKS, era, f"calls={folder / era}"]} for era in ERAS}
    return {"servers": servers, "sandbox": {"pool": 1}, "audit": True}


@pytest.fixture(scope="module")
async def fold(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Toolfold]:
    folder = tmp_path_factory.mktemp("asks")
    async with Toolfold.open(config(folder), data_dir=folder) as opened:
        await opened.listed()
        yield opened


def program(era: str, tool: str, **arguments: Any) -> str:
    return f"from servers.{era} import {tool}\nprint(await {tool}(**{arguments!r}))"


def answering(*replies: Reply | Replied) -> tuple[Ask, list[Question]]:
    left = list(replies)
    asked: list[Question] = []

    async def ask(question: Question) -> Reply | Replied:
        asked.append(question)
        return left.pop(0)

    return ask, asked


def printed(result: RunResult) -> Any:
    assert result.error is None, result.text
    return result.value if result.output == "" else eval(result.output)  # noqa: S307  (our own test server's dict)


@pytest.mark.parametrize("era", ERAS)
async def test_a_form_is_filled_in_by_the_person_and_labelled_with_the_server(fold: Toolfold, era: str) -> None:
    ask, asked = answering(Replied("once", "page", FILLED))
    result = await fold.run(program(era, "form"), ask=ask)
    assert printed(result) == {
        "action": "accept",
        "content": {"city": "Rome", "nights": 2, "smoking": False, "room": "d"},
    }
    [question] = asked
    assert question.text.startswith(f"The server {era} asks you, during a call of {era}.form:\n> Where do you want")
    assert question.replies == ("once", "no")
    assert question.form is not None
    assert [field.name for field in question.form.fields] == ["city", "nights", "smoking", "room"]
