"""A pool of sandboxes for each caller: what one caller's programs were cloned from never serves another."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from toolfold.sandbox.pool import Pool, PoolStatistics, shutting_down
from toolfold.sandbox.processes import Use, used_by

_MOST_POOLS = 16
"""Callers whose sandboxes are kept ready; that of the one who was idle for longest is closed first."""


class Pools:
    """An async context manager: leaving it ends every sandbox. `make` makes the pool of an owner."""

    def __init__(self, make: Callable[[str], Pool]) -> None:
        self._make = make
        self._pools: OrderedDict[str, Pool] = OrderedDict()
        self._lock = asyncio.Lock()
        self._open = True
        self._closing: dict[Pool, asyncio.Task[None]] = {}
        self._closed = PoolStatistics()
        """The sums of pools that were closed."""

    async def __aenter__(self) -> Pools:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._open = False
        async with self._lock:
            pools, self._pools = self._pools, OrderedDict()
        await asyncio.gather(*(pool.__aexit__(*exc) for pool in pools.values()), *self._closing.values())

    @property
    def statistics(self) -> PoolStatistics:
        """Those of all pools together, and of those that were closed."""
        return sum((pool.statistics for pool in (*self._pools.values(), *self._closing)), self._closed)

    async def use(self) -> Use:
        """What all sandboxes use now. Its processor time is that of those that have ended as well."""
        pids = [(pool, sandbox, pids) for pool in self._pools.values() for sandbox, pids in pool.pids().items()]
        uses = await asyncio.to_thread(lambda: [used_by(each) for *_, each in pids])
        for (pool, sandbox, _), use in zip(pids, uses, strict=True):
            pool.saw(sandbox, use.cpu)
        memory, processes = sum(use.memory for use in uses), sum(use.processes for use in uses)
        return Use(memory, self.statistics.cpu, processes)

    async def of(self, owner: str) -> Pool:
        """The owner's pool, opened when it is first asked for."""
        pool = self._pools.get(owner)
        if pool is not None:
            self._pools.move_to_end(owner)
            return pool
        async with self._lock:
            if not self._open:
                raise shutting_down()
            if owner not in self._pools:
                self._make_space()
                self._pools[owner] = await self._make(owner).__aenter__()
            return self._pools[owner]

    def _make_space(self) -> None:
        """The new caller does not wait until another's sandboxes have ended and their files are gone."""
        while len(self._pools) >= _MOST_POOLS:
            idle = next((owner for owner, pool in self._pools.items() if pool.is_idle), None)
            if idle is None:
                return
            pool = self._pools.pop(idle)
            self._closing[pool] = asyncio.create_task(self._close(pool))

    async def _close(self, pool: Pool) -> None:
        try:
            await pool.__aexit__(None, None, None)
        finally:
            del self._closing[pool]
            self._closed += pool.statistics
