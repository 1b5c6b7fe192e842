"""A run as a stream of its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from toolfold.guards.context import RunOptions
from toolfold.guards.events import ApprovalRequest, Event, Finished, Question, Replied, Reply, RunResult


async def streamed(run: Callable[..., Coroutine[Any, Any, RunResult]], options: RunOptions) -> AsyncGenerator[Event]:
    """The events of `run`, which is called with `options`; the last one is `Finished`. Closing this ends the run."""
    events: asyncio.Queue[Event] = asyncio.Queue()

    async def ask(question: Question) -> Reply | Replied:
        request = ApprovalRequest(question, asyncio.get_running_loop().create_future())
        events.put_nowait(request)
        return await request.reply

    options |= {"on_event": events.put_nowait, "ask": ask}
    task = asyncio.create_task(run(**options))
    task.add_done_callback(lambda _: events.put_nowait(Finished(RunResult(success=False))))
    try:
        while not isinstance(event := await events.get(), Finished):
            yield event
        yield Finished(await task)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
