"""VS Code: `.vscode/mcp.json` and the user's `mcp.json`, with `servers`, `inputs` and comments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from toolfold.config.edge import Host
from toolfold.config.entries import Dialect
from toolfold.config.readers.shape import Format, Location, Reading, Scope, Source, app_config

_DIALECT = Dialect()
_EDITIONS = ("Code", "Code - Insiders", "VSCodium")


def locate(host: Host) -> Iterable[Location]:
    yield Location(host.cwd / ".vscode" / "mcp.json", Scope.PROJECT)
    for edition in _EDITIONS:
        yield Location(app_config(host) / edition / "User" / "mcp.json", Scope.USER)


def fits(doc: Mapping[str, Any]) -> bool:
    return ("servers" in doc and "inputs" in doc) or "servers" in _older(doc)


def read(doc: Mapping[str, Any], source: Source) -> Reading:
    reading = Reading()
    older = _older(doc)
    for part, prefix in ((doc, ""), (older, "mcp.")):
        reading.add(part, "servers", source, _DIALECT, prefix=prefix)
        inputs = part.get("inputs")
        for declared in cast("list[object]", inputs) if isinstance(inputs, list) else []:
            if isinstance(declared, Mapping):
                known = cast("Mapping[str, Any]", declared)
                reading.inputs.setdefault(str(known.get("id")), known)
    # People paste other clients' snippets here; VS Code ignores them, but what is meant is plain.
    reading.add(doc, "mcpServers", source, _DIALECT)
    return reading


def _older(doc: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `mcp` part of a `settings.json`, where earlier versions kept the same two keys."""
    part = doc.get("mcp")
    return cast("Mapping[str, Any]", part) if isinstance(part, Mapping) else {}


FORMAT = Format("vscode", locate, read, tails=(".vscode/mcp.json", "User/mcp.json"), fits=fits)
