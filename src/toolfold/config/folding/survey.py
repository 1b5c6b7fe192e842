"""Which clients are here, and which of them know Toolfold."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from toolfold.config import clients, documents
from toolfold.config.clients import Source
from toolfold.config.edge import Host
from toolfold.config.entries import is_toolfold
from toolfold.config.folding.targets import NAME, TARGETS, Target


@dataclass(slots=True)
class ClientHere:
    """A client that has a config file on this machine or in this project."""

    target: Target
    files: list[Path] = field(default_factory=list[Path])
    registered: list[Path] = field(default_factory=list[Path])
    """The files in which it has an entry of Toolfold."""
    servers: list[str] = field(default_factory=list[str])
    """The servers that it starts itself."""


def clients_here(host: Host) -> list[ClientHere]:
    """The clients with a file that can be read, in the order of `TARGETS`. Nothing is expanded or started."""
    found = {target.name: ClientHere(target) for target in TARGETS}
    for place in clients.locations(host):
        here = found.get(place.format.name)
        if here is None:
            continue
        try:
            content = documents.read(place.path, limit=place.format.limit).content
        except (documents.UnreadableError, FileNotFoundError):
            continue
        here.files.append(place.path)
        reading = place.format.read(content, Source(str(place.path), place.path, place.scope, host.cwd))
        for entry in reading.entries:
            if is_toolfold(entry.value) or entry.name == NAME:
                here.registered += [place.path] if place.path not in here.registered else []
            elif entry.name not in here.servers:
                here.servers.append(entry.name)
    return [here for here in found.values() if here.files]
