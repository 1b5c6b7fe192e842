"""Claude Code: `.mcp.json` in the project, and `~/.claude.json` with servers for all and for single projects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from toolfold.config import code_execution
from toolfold.config.edge import Host
from toolfold.config.entries import Dialect
from toolfold.config.readers.shape import Format, Location, Reading, Scope, Source

_DIALECT = Dialect(timeout="ms")


def locate(host: Host) -> Iterable[Location]:
    yield Location(host.cwd / ".mcp.json", Scope.PROJECT)
    moved = host.env.get("CLAUDE_CONFIG_DIR")
    yield Location((Path(moved) if moved else host.home) / ".claude.json", Scope.USER)


def fits(doc: Mapping[str, Any]) -> bool:
    return isinstance(doc.get("projects"), Mapping)


def read(doc: Mapping[str, Any], source: Source) -> Reading:
    """The project's own servers, then those for every project. What the person switched off stays off."""
    reading = Reading()
    project = _project(doc, source.cwd)
    off = {str(name) for name in _list(project, "disabledMcpServers")}
    reading.denied = {str(name) for name in _list(project, "disabledMcpjsonServers")}
    prefix = "projects.(this folder)."
    reading.add(project, "mcpServers", source, _DIALECT, prefix=prefix, scope=min(source.scope, Scope.LOCAL))
    reading.add(doc, "mcpServers", source, _DIALECT)
    reading.entries = [entry for entry in reading.entries if entry.name not in off]
    reading.skipped = dict.fromkeys(sorted(off), "disabled for this project")
    reading.blocks = [project[code_execution.KEY]] if code_execution.KEY in project else []
    return reading


def _project(doc: Mapping[str, Any], cwd: Path) -> Mapping[str, Any]:
    """The entry for `cwd`, by its path as given or with links followed."""
    projects = doc.get("projects")
    if not isinstance(projects, Mapping):
        return {}
    wanted = {_plain(cwd), _plain(cwd.resolve())}
    for path, entry in cast("Mapping[object, Any]", projects).items():
        if str(path).replace("\\", "/").rstrip("/") in wanted and isinstance(entry, Mapping):
            return cast("Mapping[str, Any]", entry)
    return {}


def _plain(path: Path) -> str:
    return path.as_posix().rstrip("/")


def _list(project: Mapping[str, Any], key: str) -> list[Any]:
    found = project.get(key)
    return cast("list[Any]", found) if isinstance(found, list) else []


# `~/.claude.json` also holds the client's history, so it may be far larger than a config has a right to be.
FORMAT = Format("claude-code", locate, read, tails=(".mcp.json", ".claude.json"), fits=fits, limit=64_000_000)
