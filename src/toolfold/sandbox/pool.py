"""Sandboxes that wait, already started: a program meets a warm interpreter, uses it once, and it is thrown away."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from pathlib import Path
from typing import Protocol

from toolfold.errors import ToolfoldError
from toolfold.sandbox.protocol import Backend, Room
from toolfold.sandbox.sandbox import Sandbox


class RoomKeeper(Protocol):
    def new(self) -> Room: ...

    def remove(self, room: Room) -> None: ...


class Pool:
    """Keeps `size` sandboxes warm on the current API tree. An async context manager: leaving it ends all of them."""

    def __init__(self, backend: Backend, api: Path, rooms: RoomKeeper, *, size: int, output_limit: int) -> None:
        self._backend = backend
        self._api = api
        self._rooms = rooms
        self._size = size
        self._output_limit = output_limit
        self._warm: deque[Sandbox] = deque()
        self._wanted = asyncio.Event()
        # More starts at once than cores only make each of them slower; waiters are served in their order.
        self._starts = asyncio.Semaphore(max(2, os.cpu_count() or 2))
        self._closing: set[asyncio.Task[None]] = set()
        self._refill: asyncio.Task[None] | None = None
        self.waiting = 0
        """Runs that found the pool empty and wait for a cold start."""

    async def __aenter__(self) -> Pool:
        self._wanted.set()
        self._refill = asyncio.create_task(self._keep_full())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._refill is not None:
            self._refill.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._refill
        for sandbox in self._warm:
            self.discard(sandbox)
        self._warm.clear()
        if self._closing:
            await asyncio.wait(self._closing, timeout=10)

    async def take(self) -> Sandbox:
        """A sandbox nobody has used, with an empty room of its own."""
        while self._warm:
            sandbox = self._warm.popleft()
            self._wanted.set()
            if sandbox.alive:
                return sandbox
            self.discard(sandbox)
        self.waiting += 1
        try:
            return await self.start_in(self._rooms.new())
        finally:
            self.waiting -= 1

    async def start_in(self, room: Room) -> Sandbox:
        """A sandbox around a room that exists already: a session that comes back."""
        async with self._starts:
            starting = self._backend.start(room, self._api)
            return await Sandbox.start(starting, room, output_limit=self._output_limit)

    def discard(self, sandbox: Sandbox, *, keep_room: bool = False) -> None:
        """End a sandbox in the background, and remove its room."""
        task = asyncio.create_task(self._end(sandbox, keep_room=keep_room))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _end(self, sandbox: Sandbox, *, keep_room: bool) -> None:
        await sandbox.close()
        if not keep_room:
            await asyncio.to_thread(self._rooms.remove, sandbox.room)

    async def _keep_full(self) -> None:
        failures = 0
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            # A moment's grace: the run that just took a sandbox has the processor first.
            await asyncio.sleep(0.005)
            while len(self._warm) < self._size:
                try:
                    sandbox = await self.start_in(self._rooms.new())
                except ToolfoldError:
                    failures += 1
                    await asyncio.sleep(min(30.0, 0.1 * 2**failures))
                    continue
                failures = 0
                self._warm.append(sandbox)
