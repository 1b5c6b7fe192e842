"""Claude Desktop: `claude_desktop_config.json` among the desktop programs' settings."""

from __future__ import annotations

from collections.abc import Iterable

from toolfold.config.edge import Host
from toolfold.config.entries import Dialect
from toolfold.config.readers.shape import Format, Location, Scope, app_config, servers_reader


def locate(host: Host) -> Iterable[Location]:
    yield Location(app_config(host) / "Claude" / "claude_desktop_config.json", Scope.USER)


FORMAT = Format(
    "claude-desktop",
    locate,
    servers_reader("mcpServers", Dialect()),
    tails=("claude_desktop_config.json",),
)
