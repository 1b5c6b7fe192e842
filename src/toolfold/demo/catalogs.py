"""What a folder of real tool definitions costs a model that has all of them in its context."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from toolfold.errors import ConfigError
from toolfold.telemetry.savings import definition_tokens


@dataclass(frozen=True)
class CatalogCost:
    folder: str
    servers: int
    tools: int
    tokens: int
    problems: tuple[str, ...]
    """What could not be read, and is therefore not counted."""


def catalog_cost(folder: Path, data_dir: Path) -> CatalogCost:
    """Count the definitions that `--catalog FOLDER` would add. `data_dir` is where the catalog may keep its index."""
    from toolfold.catalog.catalog import Catalog
    from toolfold.config.settings import Settings

    catalog = Catalog.open(Settings(catalog_dirs=(folder,), data_dir=data_dir))
    if not catalog.tools:
        reason = catalog.problems[0] if catalog.problems else f"{folder} holds no catalog."
        raise ConfigError(reason, hint='Expected files of the form {"server": …, "tools": [MCP tool…]}.')
    tokens = definition_tokens((tool.name, tool.description, tool.input_schema) for tool in catalog.tools)
    servers = len({tool.server for tool in catalog.tools})
    return CatalogCost(str(folder), servers, len(catalog.tools), tokens, tuple(catalog.problems))
