"""What a server asks in the middle of a call, through the real gateway: by the client's form, `toolfold approve`, and
the terminal of `toolfold run`."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from tests import warm
from tests.test_gateway_approvals_local import NO_DESKTOP, approve, on_a_terminal
from tests.test_upstream_asking import ERAS, config, program
from toolfold.gateway.approval_page import FOLDER

pytestmark = pytest.mark.anyio
SENT = {"action": "accept", "content": {"city": "Rome", "nights": 2, "smoking": False, "room": "d"}}


def words(folder: Path) -> list[str]:
    file = folder / "config.json"
    file.write_text(json.dumps(config(folder)))
    return ["--config", str(file), "--data", str(folder)]


@asynccontextmanager
async def gateway(folder: Path, mode: str, **callbacks: Any) -> AsyncGenerator[Client]:
    parameters = StdioServerParameters(
        command=warm.python(),
        args=["-m", "toolfold", "serve", *words(folder)],
        env={**os.environ, **NO_DESKTOP},
    )
    async with Client(parameters, mode=mode, **callbacks) as client:
        yield client


async def text(client: Client, code: str) -> str:
    result = await client.call_tool("run_code", {"code": code})
    content: Any = result.content[0]
    return content.text


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_shows_the_server_s_form_in_either_era(runtime_dir: Path, mode: str) -> None:
    asked: list[types.ElicitRequestFormParams] = []

    async def elicited(_context: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        asked.append(params)
        return types.ElicitResult(action="accept", content={"city": "Rome", "room": "d"})

    async def roots(_context: Any) -> types.ListRootsResult:
        return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///work", "name": "work"}]})

    async with gateway(runtime_dir, mode, elicitation_callback=elicited, list_roots_callback=roots) as client:
        for era in ERAS:
            assert await text(client, program(era, "form")) == repr(SENT)
            assert await text(client, program(era, "url")) == repr({"action": "accept"})
            given = [{"uri": "file:///work", "name": "work"}] if mode == "legacy" else []
            assert await text(client, program(era, "roots")) == repr({"roots": given})
    form, address = asked[:2]
    assert form.message.startswith("The server older asks you, during a call of older.form:\n> Where do you want")
    assert form.requested_schema["required"] == ["city", "room"]
    assert form.requested_schema["properties"]["nights"] == {
        "type": "integer",
        "title": "nights",
        "minimum": 1,
        "maximum": 30,
        "default": 2,
    }
    assert address.message.count("https://pay.example/checkout?id=7&to=<x>") == 1
    assert address.requested_schema["properties"] == {}


async def test_toolfold_approve_asks_for_each_value(runtime_dir: Path) -> None:
    async with gateway(runtime_dir, "legacy") as client:
        call = asyncio.create_task(text(client, program("newer", "form")))
        async with asyncio.timeout(60):
            while not list((runtime_dir / FOLDER).glob("*.json")):
                await asyncio.sleep(0.02)  # a file has no event
        typed = {
            "[Enter: later] ": "y\n",
            "City (string): ": "R\n",
            "at least 2 characters.\r\nCity (string): ": "Rome\n",
            "nights (integer, Enter: 2): ": "\n",
            "smoking (y/n, Enter: n): ": "\n",
            "room (number): ": "2\n",
        }
        shown = await approve(runtime_dir, typed)
        assert "The server newer asks you, during a call of newer.form:" in shown
        assert "  1. Single <room>\r\n  2. Double\r\nroom (number): " in shown
        assert "Sent." in shown
        assert await call == repr(SENT)


def test_the_terminal_of_a_run_asks_for_each_value(runtime_dir: Path) -> None:
    typed = {
        "Answer? [y]es, [n]o [Enter: no] ": "y\n",
        "City (string): ": "Rome\n",
        "nights (integer, Enter: 2): ": "\n",
        "smoking (y/n, Enter: n): ": "\n",
        "room (number): ": "Double\n",
    }
    shown = on_a_terminal(["run", "-c", program("older", "form"), *words(runtime_dir)], typed)
    assert repr(SENT) in " ".join(shown.replace("\r\n", " ").split())
