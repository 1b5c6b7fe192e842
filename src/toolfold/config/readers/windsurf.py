"""Windsurf: `~/.codeium/windsurf/mcp_config.json`, where a remote server has a `serverUrl`."""

from __future__ import annotations

from collections.abc import Iterable

from toolfold.config.edge import Host
from toolfold.config.entries import Dialect
from toolfold.config.readers.shape import Format, Location, Scope, servers_reader


def locate(host: Host) -> Iterable[Location]:
    yield Location(host.home / ".codeium" / "windsurf" / "mcp_config.json", Scope.USER)
    yield Location(host.home / ".codeium" / "mcp_config.json", Scope.USER)


FORMAT = Format("windsurf", locate, servers_reader("mcpServers", Dialect()), tails=("mcp_config.json",))
