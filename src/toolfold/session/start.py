"""From settings to sessions: the sandbox is chosen and proved, its pools are opened."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack

from toolfold.catalog.trees import ApiTrees
from toolfold.config.settings import Settings
from toolfold.guards.context import LOCAL_CALLER, RunContext
from toolfold.sandbox.choose import Choice, choose
from toolfold.sandbox.pool import Pool
from toolfold.sandbox.pools import Pools
from toolfold.sandbox.protocol import Closable
from toolfold.session.bridge import Bridge, World
from toolfold.session.homes import SessionHomes
from toolfold.session.images import Images
from toolfold.session.kept import KeptValues
from toolfold.session.output import OutputRecorder
from toolfold.session.retention import Retention
from toolfold.session.sessions import Sessions

_log = logging.getLogger("toolfold")


async def start_sessions(
    world: World, homes: SessionHomes, settings: Settings, trees: ApiTrees, stack: AsyncExitStack
) -> tuple[Sessions, Choice, Pool]:
    """The sessions, why this sandbox, and the pool of the person at this machine. All of it ends with `stack`."""
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
    own = await pools.of("")
    sessions = await stack.enter_async_context(Sessions(settings, pools, homes, bridge))
    return sessions, choice, own
