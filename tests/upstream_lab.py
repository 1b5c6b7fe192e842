"""What the tests of upstreams share: the servers in `servers/`, and waiting for what happens outside this process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import warm
from toolfold.config.settings import ServerConfig
from toolfold.definitions import TextPart, ToolResult

SERVERS = Path(__file__).parent / "servers"
AWKWARD = str(SERVERS / "awkward.py")
POLITE = str(SERVERS / "polite.py")


def awkward(*flags: str, **settings: Any) -> ServerConfig:
    """A server that misbehaves on request."""
    return ServerConfig(command=sys.executable, args=(AWKWARD, *flags), **settings)


def polite(**settings: Any) -> ServerConfig:
    """A server written with the SDK, over stdio."""
    return ServerConfig(command=warm.python(), args=(POLITE, "stdio"), **settings)


def text_of(result: ToolResult) -> str:
    (part,) = result.parts
    assert isinstance(part, TextPart)
    return part.text


async def eventually(check: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something holds that no event of this process announces."""
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.01)
