"""Real sandboxes for hostile programs, kept warm for a whole test session on a loop of their own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.backends.available import candidate
from toolfold.codegen.tree import write_tree
from toolfold.config.settings import SandboxSettings
from toolfold.definitions import ToolDefinition
from toolfold.errors import LimitExceeded, SandboxDied, UnknownTool
from toolfold.sandbox.frames import Call, Request
from toolfold.sandbox.pool import Pool
from toolfold.sandbox.protocol import Closable, Supervised
from toolfold.sandbox.replies import ReplyBudget
from toolfold.sandbox.sandbox import Sandbox
from toolfold.session.homes import SessionHomes

TOOLS = [ToolDefinition(server="lab", name=name, description=f"{name}.") for name in ("one", "two", "three")]
"""What is in the API tree that the sandboxes see."""


@dataclass
class Outcome:
    """How a run ended: its value, or the error that the program or the host ended it with."""

    value: Any = None
    error: str = ""
    limit: str = ""
    printed: bytes = b""
    progress: list[str] = field(default_factory=list[str])


class Listener:
    """The host's side of a run, as far as these programs need one."""

    def __init__(self, *, slow: bool) -> None:
        self._slow = slow
        self.replies = ReplyBudget()
        self.printed_bytes = bytearray()
        self.texts: list[str] = []

    async def answer(self, request: Request) -> Any:
        if self._slow:
            await asyncio.sleep(60)
        if isinstance(request, Call) and request.server == "root":
            raise UnknownTool("There is no such tool.")
        large = isinstance(request, Call) and request.tool == "large"
        async with self.replies.fetching():
            return {"parts": [{"type": "text", "text": "x" * (1_000_000 if large else 10)}]}

    def printed(self, data: bytes) -> None:
        self.printed_bytes += data

    def progress(self, text: str, fraction: float | None) -> None:
        self.texts.append(text)


class Arena:
    """A pool on one backend. `run` is synchronous: the tests are not interested in loops."""

    def __init__(self, backend: str, data_dir: Path, settings: SandboxSettings) -> None:
        self.backend = backend
        self.data_dir = data_dir
        self.settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stack = contextlib.AsyncExitStack()
        self.api = data_dir / "api"
        self._homes: SessionHomes | None = None
        self._pool: Pool | None = None

    def open(self) -> None:
        self._thread.start()
        self.wait_for(self._open(), 120)

    async def _open(self) -> None:
        write_tree(TOOLS, self.api)
        found = await candidate(self.backend, self.data_dir, self.settings)
        if isinstance(found.backend, Closable):
            self._stack.push_async_callback(found.backend.close)
        self._homes = SessionHomes(self.data_dir)
        self._stack.callback(self._homes.close)
        self._pool = await self._stack.enter_async_context(Pool(found.backend, self.api, self._homes, self.settings))

    def close(self) -> None:
        self.wait_for(self._stack.aclose(), 60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def wait_for(self, work: Coroutine[Any, Any, Any], seconds: float) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def run(
        self,
        code: str,
        *,
        timeout: float = 20.0,
        slow: bool = False,
        before: Callable[[Sandbox], None] | None = None,
        after: Callable[[Sandbox], None] | None = None,
    ) -> Outcome:
        """One program in a sandbox of its own. `after` sees the home once every process of the sandbox is gone."""
        return self.wait_for(self._run(code, timeout, slow, before, after), timeout + 60)

    async def _run(
        self,
        code: str,
        timeout: float,
        slow: bool,
        before: Callable[[Sandbox], None] | None,
        after: Callable[[Sandbox], None] | None,
    ) -> Outcome:
        assert self._pool is not None
        sandbox = await self._pool.take()
        try:
            if before is not None:
                before(sandbox)
            outcome = await _outcome(sandbox, code, timeout, slow=slow)
        finally:
            await sandbox.close()
            if after is not None:
                await asyncio.to_thread(after, sandbox)
            self._pool.discard(sandbox)
        return outcome

    @contextlib.contextmanager
    def session(self, name: str = "") -> Generator[Session]:
        """A sandbox that stays, for several programs. With a `name` its home is renamed like that of a real session."""
        assert self._pool is not None
        assert self._homes is not None
        sandbox: Sandbox = self.wait_for(self._pool.take(), 60)
        if name:
            home = self._homes.adopt(sandbox.home, "arena", name)
            assert home is not None
            sandbox.home = home
        try:
            yield Session(self, sandbox)
        finally:
            self.wait_for(sandbox.close(), 60)


@dataclass
class Session:
    arena: Arena
    sandbox: Sandbox

    def run(self, code: str, timeout: float = 20.0) -> Outcome:
        return self.arena.wait_for(_outcome(self.sandbox, code, timeout), timeout + 60)

    def fall_asleep(self) -> None:
        """Wait until nothing in it works any more, or it was ended."""
        self.arena.wait_for(_asleep(self.sandbox), 30)


async def _asleep(sandbox: Sandbox) -> None:
    cell = sandbox.cell
    assert isinstance(cell, Supervised)
    while sandbox.alive and not cell.still():
        await asyncio.sleep(0.005)


async def _outcome(sandbox: Sandbox, code: str, timeout: float, *, slow: bool = False) -> Outcome:
    host = Listener(slow=slow)
    outcome = Outcome()
    try:
        done = await sandbox.run(code, host, timeout, host.replies)
        outcome.value, outcome.error = done.value, done.error
    except LimitExceeded as error:
        outcome.error, outcome.limit = str(error), error.limit
    except SandboxDied as error:
        outcome.error = str(error)
    outcome.printed, outcome.progress = bytes(host.printed_bytes), host.texts
    return outcome
