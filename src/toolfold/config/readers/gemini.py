"""Gemini CLI: `.gemini/settings.json` in the project and in the home folder.

`httpUrl` is streamable HTTP; a `url` without a type is SSE unless its path says otherwise; both win over a command.
`$VAR` needs no braces. `mcp.allowed` and `mcp.excluded` say which servers are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from toolfold.config.edge import Host
from toolfold.config.entries import Dialect
from toolfold.config.readers.shape import Format, Location, Reading, Scope, Source

_DIALECT = Dialect(timeout="ms", remote="sse", url_first=True)


def locate(host: Host) -> Iterable[Location]:
    yield Location(host.cwd / ".gemini" / "settings.json", Scope.PROJECT)
    yield Location(host.home / ".gemini" / "settings.json", Scope.USER)


def read(doc: Mapping[str, Any], source: Source) -> Reading:
    reading = Reading(bare_variables=True)
    reading.add(doc, "mcpServers", source, _DIALECT)
    rules = doc.get("mcp")
    if isinstance(rules, Mapping):
        allowed, excluded = (cast("Mapping[str, Any]", rules).get(key) for key in ("allowed", "excluded"))
        for entry in reading.entries:
            refused = isinstance(excluded, list) and entry.name in excluded
            if refused or (isinstance(allowed, list) and entry.name not in allowed):
                reading.skipped[entry.name] = "not among the servers that `mcp` allows"
        reading.entries = [entry for entry in reading.entries if entry.name not in reading.skipped]
    return reading


FORMAT = Format("gemini", locate, read, tails=(".gemini/settings.json",))
