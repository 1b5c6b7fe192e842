"""What one caller may know of: the one place where a policy narrows the catalog.

The filter is asked once per entry and question. What it refuses is not in any list, count or hint made from the view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from toolfold.catalog.browse import ServerInfo
from toolfold.catalog.entries import Entry

Allow = Callable[[Entry], bool]


class View:
    """The catalog as one caller sees it. `mask` says of every entry whether it is seen; None when all are."""

    def __init__(self, entries: Sequence[Entry], servers: Sequence[ServerInfo], mask: list[bool] | None) -> None:
        self._all = entries
        self._servers = servers
        self.mask = mask

    @classmethod
    def of(cls, entries: Sequence[Entry], servers: Sequence[ServerInfo], allow: Allow | None) -> View:
        return cls(entries, servers, None if allow is None else [bool(allow(entry)) for entry in entries])

    @cached_property
    def entries(self) -> Sequence[Entry]:
        if self.mask is None:
            return self._all
        return [entry for entry, seen in zip(self._all, self.mask, strict=True) if seen]

    @cached_property
    def servers(self) -> Sequence[ServerInfo]:
        """The servers with what is seen of each, without those of which nothing is."""
        return self._servers if self.mask is None else counted(self._servers, self.entries, drop=True)

    @cached_property
    def _digests(self) -> set[bytes]:
        return {entry.digest for entry in self.entries}

    def only(self, found: Iterable[Entry]) -> list[Entry]:
        """Those of `found` that are seen."""
        return list(found) if self.mask is None else [entry for entry in found if entry.digest in self._digests]

    def within(self, server: str) -> View:
        """The same view of one server."""
        seen = self.mask or [True] * len(self._all)
        mask = [one and entry.server == server for one, entry in zip(seen, self._all, strict=True)]
        return View(self._all, self._servers, mask)


def counted(servers: Sequence[ServerInfo], entries: Iterable[Entry], *, drop: bool) -> list[ServerInfo]:
    """The servers with the counts of these entries; with `drop`, without those that had entries and keep none."""
    counts = {server.name: {"tool": 0, "resource": 0, "prompt": 0} for server in servers}
    for entry in entries:
        counts[entry.server][entry.kind] += 1
    found: list[ServerInfo] = []
    for server in servers:
        mine = counts[server.name]
        had = server.tools + server.resources + server.prompts
        if drop and had and not any(mine.values()):
            continue
        found.append(
            ServerInfo(
                name=server.name,
                tools=mine["tool"],
                resources=mine["resource"],
                prompts=mine["prompt"],
                instructions=server.instructions,
                source=server.source,
                missing=server.missing,
            )
        )
    return found
