"""A fold over the office server, and what really reached that server."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from toolfold import Toolfold

SERVER = Path(__file__).parent / "servers" / "office.py"


class Office:
    def __init__(self, fold: Toolfold, ledger: Path) -> None:
        self.fold = fold
        self._ledger = ledger

    @property
    def done(self) -> list[list[Any]]:
        """What arrived: name (or URI) and arguments, in order."""
        text = self._ledger.read_text() if self._ledger.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    async def call(self, target: str, arguments: dict[str, Any] | None = None, **run: Any) -> str:
        """Call by name, whatever is in the API tree. What the program read, or the class and text of its error."""
        program = (
            "from toolfold import ToolError, call_mcp_tool\n"
            f"try: print(await call_mcp_tool({target!r}, {arguments or {}!r}))\n"
            "except ToolError as error: print(f'{type(error).__name__}({error.code}): {error}')"
        )
        result = await self.fold.run(program, **run)
        assert result.success, result.error
        return result.output.strip()


@asynccontextmanager
async def office(data_dir: Path, **settings: Any) -> AsyncGenerator[Office]:
    ledger = data_dir / "ledger.jsonl"
    server = {"command": sys.executable, "args": [str(SERVER), str(ledger)]}
    servers = {"office": server, **settings.pop("servers", {})}
    config = {"servers": servers, "sandbox": {"pool": 1}, **settings}
    async with Toolfold.open(config, data_dir=data_dir) as fold:
        await fold.listed()
        yield Office(fold, ledger)
