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
        """The tree is as new as the catalog when this returns. Live sandboxes see the new tree at once."""
        wanted = self._catalog.version
        while True:
            writing = self._written.get(scope.key)
            if writing is not None and writing.done() and not writing.cancelled() and writing.exception() is None:
                if writing.result() == wanted:
                    return
                writing = None
            if writing is None or writing.done():
                writing = self._written[scope.key] = asyncio.create_task(self._write(scope))
            # A run that gives up does not stop the writing that others wait for.
            await asyncio.shield(writing)

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
