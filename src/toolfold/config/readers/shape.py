"""What a reader of one client's config is: where its files are, how to know one, how to read one."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from toolfold.config import documents
from toolfold.config.edge import Host
from toolfold.config.entries import Dialect
from toolfold.config.problems import Problem


class Scope(enum.IntEnum):
    """Who a file speaks for. The lower one wins when two give the same server or setting."""

    OURS_PROJECT = 0
    OURS_USER = 1
    LOCAL = 2
    """A person's own servers for this project, kept outside it."""
    PROJECT = 3
    USER = 4


@dataclass(frozen=True, slots=True)
class Location:
    path: Path
    scope: Scope


@dataclass(frozen=True, slots=True)
class Source:
    """The file that is being read, as far as a reader may care."""

    name: str
    """How messages call it."""
    path: Path | None
    """Nothing for a config given in memory."""
    scope: Scope
    cwd: Path


@dataclass(frozen=True, slots=True)
class RawEntry:
    """One server as the file has it: `key` says where."""

    name: str
    value: object
    key: str
    scope: Scope
    dialect: Dialect


@dataclass(slots=True)
class Reading:
    """What one document gives."""

    entries: list[RawEntry] = field(default_factory=list[RawEntry])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Our own settings by their own names; only our own file has them."""
    blocks: list[object] = field(default_factory=list[object])
    """Values of `mcpCodeExecution`, the one that wins first."""
    inputs: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """Servers that the client itself does not start, with the reason."""
    denied: set[str] = field(default_factory=set[str])
    """Servers of the project's shared file that this person has refused."""
    bare_variables: bool = False
    problems: list[Problem] = field(default_factory=list[Problem])

    def add(self, doc: Mapping[str, Any], key: str, source: Source, dialect: Dialect, **place: Any) -> None:
        """Takes the servers under `doc[key]`. `prefix` and `scope` may say that `doc` is only a part of the file."""
        if doc.get(key) is None:
            return
        shown = f"{place.get('prefix', '')}{key}"
        servers = doc[key]
        if not isinstance(servers, Mapping):
            self.problems.append(Problem(source.name, shown, "expected an object of servers"))
            return
        scope = place.get("scope", source.scope)
        for name, value in cast("Mapping[object, object]", servers).items():
            self.entries.append(RawEntry(str(name), value, f"{shown}.{name}", scope, dialect))


@dataclass(frozen=True, slots=True)
class Format:
    """One client: where its files are, and how to read one.

    A file that a person names is this client's when its path ends in one of `tails`, or else when `fits` knows it
    by its content alone.
    """

    name: str
    locate: Callable[[Host], Iterable[Location]]
    read: Callable[[Mapping[str, Any], Source], Reading]
    tails: tuple[str, ...] = ()
    fits: Callable[[Mapping[str, Any]], bool] = lambda doc: False
    limit: int = documents.LIMIT


def app_config(host: Host) -> Path:
    """Where desktop programs keep their settings on this system."""
    if host.platform == "darwin":
        return host.home / "Library" / "Application Support"
    if host.platform == "win32":
        roaming = host.env.get("APPDATA")
        return Path(roaming) if roaming else host.home / "AppData" / "Roaming"
    return xdg_config(host)


def xdg_config(host: Host) -> Path:
    """`$XDG_CONFIG_HOME`, else `~/.config`."""
    chosen = Path(host.env.get("XDG_CONFIG_HOME", ""))
    return chosen if chosen.is_absolute() else host.home / ".config"


def servers_reader(key: str, dialect: Dialect) -> Callable[[Mapping[str, Any], Source], Reading]:
    """A reader for clients whose whole config is one object of servers under `key`."""

    def read(doc: Mapping[str, Any], source: Source) -> Reading:
        reading = Reading()
        reading.add(doc, key, source, dialect)
        return reading

    return read


def has(key: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a document holds `key` at its top."""
    return lambda doc: key in doc
