"""The generated API on disk, as new as the catalog: one tree for each set of tools that a caller may see."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from toolfold.catalog.catalog import Catalog
from toolfold.catalog.entries import EVERYTHING, Scope
from toolfold.config.settings import Settings


class ApiTrees:
    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        self._catalog = catalog
        # One folder per set of servers, so that a change rewrites only what changed.
        servers = sorted([*settings.servers, *map(str, settings.catalog_dirs)])
        self._name = "\0".join(servers)
        self._root = settings.data_dir / "api"
        self._written: dict[str, asyncio.Task[str]] = {}

    def folder(self, scope: Scope = EVERYTHING) -> Path:
        name = f"{self._name}\0\0{scope.key}" if scope.key else self._name
        return self._root / hashlib.sha256(name.encode()).hexdigest()[:16]

    async def fresh(self, scope: Scope = EVERYTHING) -> None:
        """When this returns, the tree is at least as new as the catalog is now. Live sandboxes see it at once."""
        asked = self._catalog.version
        # One that is under way may be of an older catalog; the next has begun later than this, whoever began it. A
        # catalog that changes all the time holds up a run for no longer than these two.
        for _ in range(2):
            writing = self._written.get(scope.key)
            if writing is None or (writing.done() and _version(writing) != self._catalog.version):
                writing = self._written[scope.key] = asyncio.create_task(self._write(scope))
            # A run that gives up does not stop the writing that others wait for.
            if await asyncio.shield(writing) in (asked, self._catalog.version):
                return

    async def close(self) -> None:
        for task in self._written.values():
            if not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=5)

    async def _write(self, scope: Scope) -> str:
        from toolfold.codegen.tree import write_tree

        version = self._catalog.version
        # What a caller does not see changes nothing about how the rest is called.
        names = None if scope.allow is None else self._catalog.names
        await asyncio.to_thread(write_tree, self._catalog.tools_in(scope), self.folder(scope), names=names)
        return version


def _version(written: asyncio.Task[str]) -> str | None:
    """What the writing was of; None where it failed."""
    return None if written.cancelled() or written.exception() is not None else written.result()
