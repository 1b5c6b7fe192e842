"""The default backend on Linux: sandboxes that are cloned from a warm interpreter, in a few milliseconds each.

One bwrap holds the interpreter (the zygote), which never runs a program. A clone of it goes into namespaces of its own,
all of them, and from there behind the same walls as a sandbox with a bwrap of its own. SECURITY.md says what is weaker.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from pathlib import Path

from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxUnavailable
from toolfold.sandbox.bubblewrap.launcher import Launcher
from toolfold.sandbox.protocol import SessionHome
from toolfold.sandbox.runtime import Runtime
from toolfold.sandbox.walls import cgroup
from toolfold.sandbox.zygote.cell import ZygoteCell
from toolfold.sandbox.zygote.lineage import Lineage
from toolfold.sandbox.zygote.process import Clone, Zygote, ZygoteEnded

_TRIES = 3


class Zygotes:
    """Starts cells. `close` ends the zygotes; the next start makes another one."""

    name = "zygote"
    warm = 2
    """Sandboxes that are worth keeping ready: making another takes milliseconds."""

    def __init__(self, settings: SandboxSettings, runtime: Runtime, bwrap: Path, packages: Sequence[Path] = ()) -> None:
        self._settings = settings
        self._launcher = Launcher(settings, runtime, bwrap, packages)
        self._cgroups = cgroup.find_cgroups()
        if self._cgroups is not None:
            self._cgroups.sweep()
        self._lineages: dict[tuple[str, Path], Lineage] = {}
        self.zygotes_started = 0
        weakref.finalize(self, _abandon, self._lineages, self._launcher)

    @property
    def walls(self) -> dict[str, str]:
        return {"isolation": "cloned, from another zygote for each caller", **self._launcher.walls(self._cgroups)}

    async def start(self, home: SessionHome, api: Path, owner: str = "") -> ZygoteCell:
        """Sandboxes of different owners never come from the same zygote."""
        key = (owner, api)
        lineage = self._lineages.get(key)
        if lineage is None:
            lineages = self._lineages
            lineage = lineages[key] = Lineage(self._launcher, api, lambda: lineages.pop(key, None), self._on_start)
        for _ in range(_TRIES):
            zygote = await lineage.enter(home.path.parent)
            try:
                user = self._launcher.users.take(home) if self._launcher.users is not None else None
                clone = await zygote.clone(user)
            except BaseException as error:
                lineage.leave(zygote)
                if isinstance(error, ZygoteEnded):
                    continue
                raise
            return await self._enclose(clone, zygote.order(home), lineage, zygote)
        raise SandboxUnavailable("the zygote ended before it made a sandbox, several times.")

    async def _enclose(self, clone: Clone, order: bytes, lineage: Lineage, zygote: Zygote) -> ZygoteCell:
        """Let the clone prepare itself while it is put into its group; it starts nothing before it is there."""
        try:
            cell = ZygoteCell(clone, self._settings, zygote, lambda: lineage.leave(zygote))
        except OSError as error:
            clone.close()
            lineage.leave(zygote)
            raise SandboxUnavailable(f"a sandbox ended before it began: {error}.") from error
        try:
            clone.send(order)
            await cell.enclose(self._cgroups)
            clone.admit()
        except BaseException:
            cell.kill()
            await cell.wait()
            raise
        return cell

    def _on_start(self) -> None:
        self.zygotes_started += 1

    def zygotes(self) -> list[int]:
        return [pid for lineage in self._lineages.values() for pid in lineage.pids]

    async def close(self) -> None:
        lineages = [*self._lineages.values()]
        self._lineages.clear()
        await asyncio.gather(*(lineage.close() for lineage in lineages))


def _abandon(lineages: dict[tuple[str, Path], Lineage], launcher: Launcher) -> None:
    for lineage in lineages.values():
        lineage.abandon()
    launcher.close()
