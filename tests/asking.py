"""A server whose calls need a person's approval, and what it was really called with."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mcp_types import ElicitRequestFormParams

SERVER = Path(__file__).parent / "servers" / "ledger.py"
SOME_CALLS = 50
GATHERED = f"""
import asyncio
from servers.ledger import note
from toolfold import ApprovalDenied
async def one(number):
    try:
        return await note(text=f"call {{number}}")
    except ApprovalDenied as denied:
        return f"denied: {{denied}}"
answers = await asyncio.gather(*(one(number) for number in range({SOME_CALLS})))
print(len(answers), sorted(set(answers)))
"""
"""Fifty calls at once."""
ONE_BY_ONE = f"""
from servers.ledger import note
from toolfold import ApprovalDenied
done = []
for number in range({SOME_CALLS}):
    try:
        done.append(await note(text=f"call {{number}}"))
    except ApprovalDenied:
        done.append("denied")
print(done.count("noted"), done.count("denied"))
"""
"""Fifty calls, one after the other."""


def config(folder: Path, **approval: Any) -> dict[str, Any]:
    """A fold over the ledger, whose `note` and `echo` must be asked for."""
    return {
        "servers": {"ledger": {"command": sys.executable, "args": [str(SERVER), str(folder / "ledger.jsonl")]}},
        "sandbox": {"pool": 1},
        "policy": {"rules": [{"match": f"ledger.{tool}", "do": "ask"} for tool in ("note", "echo")]},
        "approval": approval,
    }


def called(folder: Path) -> list[dict[str, Any]]:
    """What reached the server."""
    file = folder / "ledger.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def choices(params: ElicitRequestFormParams) -> list[str]:
    return params.requested_schema["properties"]["answer"]["enum"]
