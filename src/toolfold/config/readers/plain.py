"""Files that belong to no client: any JSON or TOML with servers under one of the names that clients use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolfold.config import code_execution
from toolfold.config.edge import Host
from toolfold.config.entries import Dialect
from toolfold.config.readers.shape import Format, Location, Reading, Source

KEYS = ("mcpServers", "servers", "mcp_servers", "context_servers")


def locate(host: Host) -> Iterable[Location]:
    return ()


def fits(doc: Mapping[str, Any]) -> bool:
    return bool(doc.keys() & {*KEYS, code_execution.KEY})


def read(doc: Mapping[str, Any], source: Source) -> Reading:
    reading = Reading()
    for key in KEYS:
        reading.add(doc, key, source, Dialect())
    return reading


FORMAT = Format("servers", locate, read, fits=fits)
