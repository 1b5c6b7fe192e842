"""Tools that a server runs as tasks (2025-11-25): started, polled until they end, and cancelled when nobody waits.

A task's time is the call's: it ends with the server's `call_timeout`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, cast

from toolfold.upstream.asking import Flight, OnProgress
from toolfold.upstream.results import InvalidResponseError

POLL = 1.0
"""Seconds between two looks at a task whose server names no interval."""
SHORTEST_POLL = 0.02
LONGEST_POLL = 30.0
CANCEL_TIMEOUT = 5.0

Send = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class Tasks:
    """The tasks of one connection."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._tokens = itertools.count(1)
        self._listeners: dict[str | int, OnProgress] = {}
        self._cancelling: set[asyncio.Task[None]] = set()

    def report(self, token: str | int, done: float, total: float | None, message: str | None) -> None:
        if (listener := self._listeners.get(token)) is not None:
            listener(done, total, message)

    async def run(self, params: dict[str, Any], flight: Flight, on_progress: OnProgress | None) -> dict[str, Any]:
        """The result of `tools/call` with these parameters. Cancelling this cancels the task at the server."""
        token = f"task-{next(self._tokens)}"
        request: dict[str, Any] = {**params, "task": {}}
        if on_progress is not None:
            # A token of our own: progress goes on after the request was answered.
            self._listeners[token] = on_progress
            request["_meta"] = {"progressToken": token}
        try:
            created = await self._send("tools/call", request)
            if "task" not in created:
                return created  # the server has answered at once
            task = _task(created["task"])
            flight.task = task["taskId"]
            try:
                return await self._ended(task, on_progress)
            except asyncio.CancelledError:
                self._cancel(task["taskId"])
                raise
        finally:
            self._listeners.pop(token, None)

    async def _ended(self, task: dict[str, Any], on_progress: OnProgress | None) -> dict[str, Any]:
        name = {"taskId": task["taskId"]}
        told = ""
        for looks in itertools.count(1):
            if task["status"] == "cancelled":
                raise InvalidResponseError("the server cancelled the task")
            if task["status"] != "working":
                # The server asks what it must know while the result is waited for.
                return await self._send("tasks/result", name)
            message = task.get("statusMessage")
            if on_progress is not None and isinstance(message, str) and message != told:
                on_progress(looks, None, message)
                told = message
            await asyncio.sleep(_interval(task))
            task = _task(await self._send("tasks/get", name))
        raise AssertionError

    def _cancel(self, task: str) -> None:
        cancelling = asyncio.create_task(self._send_cancel(task))
        self._cancelling.add(cancelling)
        cancelling.add_done_callback(self._cancelling.discard)

    async def _send_cancel(self, task: str) -> None:
        # It may have ended meanwhile, or its server: then there is nothing to cancel.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CANCEL_TIMEOUT):
                await self._send("tasks/cancel", {"taskId": task})


def _task(value: Any) -> dict[str, Any]:
    task = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if not isinstance(task.get("taskId"), str) or not isinstance(task.get("status"), str):
        raise InvalidResponseError("it describes a task without `taskId` or `status`")
    return task


def _interval(task: dict[str, Any]) -> float:
    given = task.get("pollInterval")
    if isinstance(given, bool) or not isinstance(given, int | float) or not given > 0:
        return POLL
    return max(min(given, LONGEST_POLL * 1000) / 1000, SHORTEST_POLL)
