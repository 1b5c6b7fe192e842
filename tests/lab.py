"""A fold over the lab server, for tests that run programs."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from toolfold import Guard, Toolfold

LAB: dict[str, Any] = {"command": sys.executable, "args": [str(Path(__file__).parent / "servers" / "lab.py")]}


@asynccontextmanager
async def lab_fold(data_dir: Path, *, guards: Sequence[Guard] = (), **settings: Any) -> AsyncGenerator[Toolfold]:
    sandbox = {"pool": 1, **settings.pop("sandbox", {})}
    servers = {"lab": LAB, **settings.pop("servers", {})}
    config = {"servers": servers, "sandbox": sandbox, **settings}
    async with Toolfold.open(config, data_dir=data_dir, guards=guards) as fold:
        yield fold
