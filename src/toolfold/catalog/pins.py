"""A tool stays as it was when it was first seen, until a person accepts its change.

A server could pass every look at first and change a description, a schema or an annotation later, when programs rely on
it. So the first definition of each tool is kept here, whole, one file per server. A definition that differs from it is
held back: programs and models go on seeing the accepted one, and the tool is not called.

A file is named by what is started or connected to; other variables or headers for it, such as a new token, are no new
server. It is changed under a lock, so that two gateways that list a server at once agree on what came first.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Container, Generator, Iterable
from dataclasses import dataclass, field
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from toolfold.catalog.entries import Entry, HeldEntry
from toolfold.catalog.store import StoredListing, replace_file, stored_listing
from toolfold.config.settings import ServerConfig, Settings
from toolfold.errors import ConfigError
from toolfold.locks import locked
from toolfold.telemetry.audit_records import ToolNoted

_FORMAT = 1
_LOCK_SECONDS = 5.0
"""How long another process is waited for. One that takes longer has been suspended; files are replaced as a whole, so
both can go on, and what has changed is held back all the same."""
_canonical = msgspec.json.Encoder(order="sorted")


class _File(msgspec.Struct, frozen=True, array_like=True):
    format: int
    server: str
    accepted: list[Entry]
    lost: list[str] = []
    """Tools that were accepted once, when this file could not be read, and not again since."""


_decode = msgspec.msgpack.Decoder(_File)


@dataclass(frozen=True)
class Change:
    """A tool whose definition is held back. `before` is None where what was accepted cannot be read any more."""

    server: str
    tool: str
    before: Entry | None
    after: Entry

    @property
    def target(self) -> str:
        return f"{self.server}.{self.tool}"

    @property
    def diff(self) -> str:
        """Line by line, from the accepted definition to the new one."""
        before = _lines(self.before) if self.before is not None else []
        return "\n".join(unified_diff(before, _lines(self.after), "accepted", "now", lineterm=""))


@dataclass
class Examined:
    """What a server offers, as it may be used."""

    listing: StoredListing
    """With the accepted definition in place of each one that is held back."""
    changes: list[Change] = field(default_factory=list[Change])
    new: list[Entry] = field(default_factory=list[Entry])
    """Tools that were not there before."""
    accepted: list[Change] = field(default_factory=list[Change])
    """Changes that count at once, since the server is trusted."""
    first: bool = False
    """Whether nothing was known of the server before."""
    problem: str = ""


class Pins:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def examine(self, listing: StoredListing, config: ServerConfig, *, trusted: bool) -> Examined:
        """Compare a listing with what was accepted, and accept what is new."""
        with self._locked():
            known = self._read(listing.server, config)
            if known is None:
                return _all_held(listing, f"{self._path(listing.server, config)} cannot be read")
            tools = [entry for entry in listing.entries if entry.kind == "tool"]
            found = Examined(listing, first=not known)
            for tool in tools:
                before = known.get(tool.name)
                if tool.name not in known:
                    found.new.append(tool)
                elif before is None or fingerprint(before) != fingerprint(tool):
                    change = Change(listing.server, tool.name, before, tool)
                    (found.accepted if trusted else found.changes).append(change)
            fresh = {tool.name: tool for tool in [*found.new, *(change.after for change in found.accepted)]}
            try:
                if fresh:
                    self._write(listing.server, config, {**known, **fresh})
            except OSError as error:
                found.problem = f"{self._path(listing.server, config)} could not be stored: {error}"
        held = {change.tool: change.before for change in found.changes}
        found.listing = _with_held(listing, held)
        return found

    def accept(self, changes: Iterable[Change], config: ServerConfig, *, held: Iterable[str] = ()) -> None:
        """Changed definitions of one server are the accepted ones from now on. OSError where that cannot be kept.

        `held` are all its tools that are held back: where the file cannot be read, the others stay so.
        """
        with self._locked():
            for change in changes:
                known = self._read(change.server, config)
                if known is None:
                    known = dict.fromkeys(held)
                self._write(change.server, config, {**known, change.tool: change.after})

    def version(self, server: str, config: ServerConfig) -> int:
        """Changes when something is accepted, by any process."""
        try:
            return self._path(server, config).stat().st_mtime_ns
        except OSError:
            return 0

    def _read(self, server: str, config: ServerConfig) -> dict[str, Entry | None] | None:
        """By name, None for what was lost; empty for a server that was never seen, None for a file that cannot be
        read."""
        try:
            file = _decode.decode(self._path(server, config).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, msgspec.MsgspecError, RecursionError):
            return None
        if file.format != _FORMAT or file.server != server:
            return None
        return {**dict.fromkeys(file.lost), **{entry.name: entry for entry in file.accepted}}

    def _write(self, server: str, config: ServerConfig, accepted: dict[str, Entry | None]) -> None:
        entries = [entry for _, entry in sorted(accepted.items()) if entry is not None]
        lost = sorted(name for name, entry in accepted.items() if entry is None)
        file = _File(_FORMAT, server, entries, lost)
        replace_file(self._path(server, config), msgspec.msgpack.encode(file))

    def _path(self, server: str, config: ServerConfig) -> Path:
        readable = re.sub(r"[^a-z0-9]+", "-", server.lower())[:40].strip("-") or "server"
        identity = _canonical.encode([server, config.transport, config.command, config.args, config.url])
        return self._folder / f"{readable}-{sha256(identity).hexdigest()[:24]}.pins"

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        """Alone among all processes, as far as that can be had: without it, what was accepted counts all the same."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                stack.enter_context(locked(self._folder / "lock", seconds=_LOCK_SECONDS))
            yield


class Acceptance:
    """Which definitions of a catalog's servers count, which are held back, and who is told."""

    def __init__(self, folder: Path, settings: Settings, problems: list[str]) -> None:
        self._pins = Pins(folder)
        self._servers = settings.servers
        self._trusted = settings.trusted_servers
        self._problems = problems
        self._held: dict[str, list[Change]] = {}
        self._seen: dict[str, int] = {}
        self.on_noted: Callable[[ToolNoted], None] = lambda _: None
        """Called with each definition that is new, has changed, or counts from now on."""

    @property
    def changes(self) -> list[Change]:
        """Tools whose definitions have changed and wait for a person to accept them."""
        return [change for server in sorted(self._held) for change in self._held[server]]

    def usable(self, offered: StoredListing, *, announce: bool = False) -> StoredListing:
        """A listing with the accepted definition in place of each one that is held back."""
        server = offered.server
        config = self._servers.get(server)
        if offered.settled or config is None:
            return offered
        self._seen[server] = self._pins.version(server, config)
        found = self._pins.examine(offered, config, trusted="*" in self._trusted or server in self._trusted)
        if found.problem:
            self._problems.append(found.problem)
        before, self._held[server] = self._held.get(server, []), found.changes
        if announce:
            known = {(change.tool, fingerprint(change.after)) for change in before}
            for note in _notes(found, known):
                self.on_noted(note)
        return found.listing

    def is_settled(self, server: str) -> bool:
        return not self._held.get(server)

    def accept(self, changes: Iterable[Change]) -> list[str]:
        """Accept changes; the servers that they are of. Raises ConfigError where that cannot be kept."""
        by_server: dict[str, list[Change]] = {}
        for change in changes:
            by_server.setdefault(change.server, []).append(change)
        for server, of_server in by_server.items():
            try:
                held = [change.tool for change in self._held.get(server, [])]
                self._pins.accept(of_server, self._servers[server], held=held)
            except OSError as error:
                raise ConfigError(f"What was accepted cannot be stored: {error}.") from None
        return list(by_server)

    def outdated(self) -> list[str]:
        """Servers with something held back here of which another process has accepted something."""
        held = [server for server, changes in list(self._held.items()) if changes]
        return [server for server in held if self._pins.version(server, self._servers[server]) != self._seen[server]]


def _notes(found: Examined, known: Container[tuple[str, str]]) -> list[ToolNoted]:
    """What is told of it, without changes that are `known` already."""
    if found.first and found.new:
        return [ToolNoted(server=found.listing.server, tool="*", event="new", digest=found.listing.digest.hex())]
    notes = [note_of("new", tool) for tool in found.new]
    notes += [note_of("trusted", change.after, change.before) for change in found.accepted]
    changed = (change for change in found.changes if (change.tool, fingerprint(change.after)) not in known)
    return notes + [note_of("changed", change.after, change.before) for change in changed]


def note_of(event: str, tool: Entry, before: Entry | None = None) -> ToolNoted:
    old = fingerprint(before) if before is not None else ""
    return ToolNoted(server=tool.server, tool=tool.name, event=event, digest=fingerprint(tool), before=old)


def fingerprint(tool: Entry) -> str:
    """Of everything in a definition; the order of keys in a schema is not part of it, `1` is not `true`."""
    return sha256(_canonical.encode(_plain(tool))).hexdigest()


def _plain(tool: Entry) -> dict[str, Any]:
    body = msgspec.json.decode(tool.body)
    shown = {"name": tool.name, "title": tool.title, "description": tool.description, "annotations": tool.annotations}
    return {**shown, **body}


def _lines(tool: Entry) -> list[str]:
    return json.dumps(_plain(tool), indent=2, sort_keys=True).splitlines()


def _all_held(listing: StoredListing, problem: str) -> Examined:
    tools = [entry for entry in listing.entries if entry.kind == "tool"]
    held: dict[str, Entry | None] = {tool.name: None for tool in tools}
    changes = [Change(listing.server, tool.name, None, tool) for tool in tools]
    return Examined(_with_held(listing, held), changes, problem=problem)


def _with_held(listing: StoredListing, held: dict[str, Entry | None]) -> StoredListing:
    """The listing, examined; for each held tool with the definition that was accepted."""
    entries = [
        HeldEntry(*_fields(held[entry.name] or entry)) if entry.kind == "tool" and entry.name in held else entry
        for entry in listing.entries
    ]
    shown = stored_listing(listing.server, listing.instructions, entries)
    # A change that is held back leaves the definitions as they were, but search must show that it is.
    digest = sha256(shown.digest + _canonical.encode(sorted(held))).digest()[:16] if held else shown.digest
    return msgspec.structs.replace(shown, digest=digest)


def _fields(entry: Entry) -> tuple[Any, ...]:
    return msgspec.structs.astuple(entry)
