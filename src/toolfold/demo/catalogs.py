"""What a folder of real tool definitions costs a model that has all of them in its context."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from toolfold.demo.context import definition_tokens
from toolfold.errors import ConfigError


@dataclass(frozen=True)
class CatalogCost:
    folder: str
    servers: int
    tools: int
    tokens: int


def catalog_cost(folder: Path) -> CatalogCost:
    """Count every `*.json` of the form `{"server": …, "tools": [MCP tool…]}` in `folder`."""
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    if not files:
        raise ConfigError(f"{folder} holds no catalog.", hint='Expected files {"server": …, "tools": […]}.')
    listings = [_tools(file) for file in files]
    return CatalogCost(str(folder), len(listings), sum(map(len, listings)), sum(map(definition_tokens, listings)))


def _tools(file: Path) -> list[dict[str, Any]]:
    try:
        tools: Any = json.loads(file.read_bytes())["tools"]
        listed = [cast("dict[str, Any]", tool) for tool in tools]
        return [{**tool, "name": str(tool["name"]), "inputSchema": tool["inputSchema"]} for tool in listed]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise ConfigError(f"{file}: expected {{'server': …, 'tools': [MCP tool…]}}.") from problem
