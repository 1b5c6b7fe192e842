"""Cursor: `.cursor/mcp.json` in the project and in the home folder."""

from __future__ import annotations

from collections.abc import Iterable

from toolfold.config.edge import Host
from toolfold.config.entries import Dialect
from toolfold.config.readers.shape import Format, Location, Scope, servers_reader


def locate(host: Host) -> Iterable[Location]:
    yield Location(host.cwd / ".cursor" / "mcp.json", Scope.PROJECT)
    yield Location(host.home / ".cursor" / "mcp.json", Scope.USER)


FORMAT = Format("cursor", locate, servers_reader("mcpServers", Dialect()), tails=(".cursor/mcp.json",))
