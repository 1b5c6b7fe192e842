"""From settings to sessions: the sandbox is chosen and proved, its pools are opened."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from toolfold.catalog.trees import ApiTrees
from toolfold.config.settings import Settings
from toolfold.guards.context import LOCAL_CALLER, RunContext
from toolfold.sandbox.choose import Choice, choose
from toolfold.sandbox.pool import Pool, PoolStatistics
from toolfold.sandbox.pools import Pools
from toolfold.sandbox.processes import Use, used_by
from toolfold.sandbox.protocol import Closable, HasZygotes
from toolfold.session.bridge import Bridge, World
from toolfold.session.homes import SessionHomes
from toolfold.session.images import Images
from toolfold.session.kept import KeptValues
from toolfold.session.output import OutputRecorder
from toolfold.session.retention import Retention
from toolfold.session.sessions import Sessions

_log = logging.getLogger("toolfold")


@dataclass(frozen=True)
class Statistics:
    """What sandboxes and sessions do at one moment; all of it is zero before the first program."""

    pool: PoolStatistics = field(default_factory=PoolStatistics)
    """Of all callers together."""
    use: Use = field(default_factory=Use)
    """What sandboxes use now; the processor time is that of those that have ended as well."""
    zygotes: Use = field(default_factory=Use)
    """What the processes use that sandboxes are cloned from."""
    zygotes_started: int = 0
    sessions: int = 0
    """Those that have a sandbox."""
    queued: int = 0
    """Runs without a session that wait for others to end."""


@dataclass(frozen=True)
class Started:
    """What programs run in, once it is there."""

    sessions: Sessions
    choice: Choice
    """Which sandbox is used, and why."""
    pools: Pools

    async def statistics(self) -> Statistics:
        use, backend = await self.pools.use(), self.choice.backend
        zygotes, started = (backend.zygotes(), backend.zygotes_started) if isinstance(backend, HasZygotes) else ([], 0)
        used = await asyncio.to_thread(used_by, zygotes)
        return Statistics(self.pools.statistics, use, used, started, self.sessions.live(), self.sessions.queued)


async def start_sessions(
    world: World, homes: SessionHomes, settings: Settings, trees: ApiTrees, stack: AsyncExitStack
) -> Started:
    """All of it ends with `stack`."""
    choice = await choose(settings.sandbox, settings.data_dir, log=_log.info)
    await trees.fresh(world.chain.scope(LOCAL_CALLER))

    def bridge(run: RunContext, output: OutputRecorder, images: Images, kept: KeptValues | None) -> Bridge:
        return Bridge(world, run, output, images, kept)

    await stack.enter_async_context(Retention(settings.data_dir, settings.retention, homes))
    backend = choice.backend
    if isinstance(backend, Closable):
        stack.push_async_callback(backend.close)

    def pool(owner: str) -> Pool:
        folder = trees.folder(world.chain.scope(owner or LOCAL_CALLER))
        return Pool(backend, folder, homes, settings.sandbox, owner)

    pools = Pools(pool)
    await stack.enter_async_context(pools)
    await pools.of("")
    sessions = await stack.enter_async_context(Sessions(settings, pools, homes, bridge))
    return Started(sessions, choice, pools)
