"""Our own `toolfold.toml`: every setting by its own name, and the servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolfold.config import code_execution
from toolfold.config.edge import Host
from toolfold.config.entries import Dialect
from toolfold.config.readers.shape import Format, Location, Reading, Scope, Source, xdg_config
from toolfold.config.settings import Settings

_DIALECT = Dialect(timeout="s", strict=True)
_SERVER_KEYS = ("servers", "mcpServers", "mcp_servers")
_OTHER_CLIENTS = frozenset({"inputs", "context_servers", "projects"})


def locate(host: Host) -> Iterable[Location]:
    yield Location(host.cwd / "toolfold.toml", Scope.OURS_PROJECT)
    yield Location(xdg_config(host) / "toolfold" / "toolfold.toml", Scope.OURS_USER)


def fits(doc: Mapping[str, Any]) -> bool:
    """Some setting of ours is there. Servers alone do not tell: other clients call them the same."""
    return bool(doc.keys() & (Settings.model_fields.keys() - {"servers"})) and not doc.keys() & _OTHER_CLIENTS


def read(doc: Mapping[str, Any], source: Source) -> Reading:
    reading = Reading()
    for key in _SERVER_KEYS:
        reading.add(doc, key, source, _DIALECT)
    reading.settings = {key: doc[key] for key in doc if key not in {*_SERVER_KEYS, code_execution.KEY, "$schema"}}
    return reading


FORMAT = Format("toolfold", locate, read, tails=("toolfold.toml", "toolfold.json"), fits=fits)
