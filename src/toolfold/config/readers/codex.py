"""Codex: `config.toml` in `~/.codex` (or `$CODEX_HOME`) and in a project, with `[mcp_servers.NAME]`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from toolfold.config.edge import Host
from toolfold.config.entries import Dialect
from toolfold.config.readers.shape import Format, Location, Scope, has, servers_reader


def locate(host: Host) -> Iterable[Location]:
    yield Location(host.cwd / ".codex" / "config.toml", Scope.PROJECT)
    moved = host.env.get("CODEX_HOME")
    yield Location((Path(moved) if moved else host.home / ".codex") / "config.toml", Scope.USER)


FORMAT = Format(
    "codex",
    locate,
    servers_reader("mcp_servers", Dialect(timeout="s")),
    tails=(".codex/config.toml",),
    fits=has("mcp_servers"),
)
