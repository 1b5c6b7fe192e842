"""Which file wins when several give the same server, and what to tell about the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from toolfold.config.entries import Skipped
from toolfold.config.read_file import ConfigFile
from toolfold.config.readers.shape import Scope
from toolfold.config.settings import ServerConfig


@dataclass(frozen=True, slots=True)
class FileReport:
    """What one file gave. Safe to show: names and reasons only."""

    path: str
    format: str
    servers: tuple[str, ...] = ()
    """Servers that are used from this file."""
    shadowed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Servers that another file defines differently and wins: name → that file."""
    same: Mapping[str, str] = field(default_factory=dict[str, str])
    """Servers that another file defines identically: name → that file."""
    skipped: Mapping[str, str] = field(default_factory=dict[str, str])
    """Servers left out on purpose: name → why (disabled, or it is Toolfold itself)."""
    settings: tuple[str, ...] = ()
    """Settings that this file gives, by their dotted names."""


@dataclass(slots=True)
class _Fate:
    """What became of one file's servers."""

    file: ConfigFile
    used: list[str] = field(default_factory=list[str])
    shadowed: dict[str, str] = field(default_factory=dict[str, str])
    same: dict[str, str] = field(default_factory=dict[str, str])
    skipped: dict[str, str] = field(default_factory=dict[str, str])


def settle(files: Sequence[ConfigFile]) -> tuple[dict[str, ServerConfig], list[FileReport]]:
    """The servers in force, and a report for each file in the order in which files win.

    `files` come in the order that decides within one scope.
    """
    fates = [_Fate(file, skipped=dict(file.skipped)) for file in files]
    denied = {name: file.name for file in files for name in file.denied}
    offers = [(offer, fate) for fate in fates for offer in fate.file.offers]
    # The winner's file, and its server unless it switches the name off.
    winners: dict[str, tuple[str, ServerConfig | None]] = {}
    for offer, fate in sorted(offers, key=lambda pair: pair[0].scope):
        name, server, file = offer.name, offer.server, fate.file.name
        if isinstance(server, Skipped):
            fate.skipped[name] = server.reason
            if offer.scope <= Scope.OURS_USER:
                # Switched off in our own file: that is how a person turns off what another client has.
                winners.setdefault(name, (file, None))
        elif name in denied and fate.file.format == "claude-code" and offer.scope == Scope.PROJECT:
            fate.skipped[name] = f"refused in {denied[name]}"
        elif name not in winners:
            winners[name] = (file, server)
            fate.used.append(name)
        else:
            winner, chosen = winners[name]
            identical = chosen is not None and chosen.model_copy(update={"source": server.source}) == server
            (fate.same if identical else fate.shadowed)[name] = winner
    reports = [
        FileReport(
            path=fate.file.name,
            format=fate.file.format,
            servers=tuple(fate.used),
            shadowed=fate.shadowed,
            same=fate.same,
            skipped=fate.skipped,
            settings=tuple(sorted(fate.file.settings)),
        )
        for fate in sorted(fates, key=lambda fate: fate.file.scope)
    ]
    return {name: server for name, (_, server) in winners.items() if server is not None}, reports
