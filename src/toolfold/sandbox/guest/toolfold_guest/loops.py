"""Lets a program run an event loop while one is running, as in a notebook that says `asyncio.run(main())`.

Python refuses that, but it can be done soundly: the running loop and its current task are set aside while the inner
loop runs, as they would be during any other call that blocks. Where the inner loop is the same loop, its other tasks
continue. What waits for its own caller never ends, and the time limit of the run applies.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import events, tasks
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any

_events: Any = events
_tasks: Any = tasks


def allow_nesting(session_loop: asyncio.AbstractEventLoop) -> None:
    """Change `asyncio` in this process. `session_loop` is what `asyncio.get_event_loop()` gives programs."""
    runner: Any = asyncio.Runner
    base: Any = asyncio.BaseEventLoop
    base.run_until_complete = _run_until_complete(base.run_until_complete)
    base.run_forever = _set_aside_during(base.run_forever)
    runner.run = _set_aside_during(runner.run)
    runner.close = _restoring(runner.close, session_loop)
    asyncio.run = _run(_set_aside_during(asyncio.run))
    asyncio.run_coroutine_threadsafe = _run_coroutine_threadsafe(asyncio.run_coroutine_threadsafe, session_loop)
    # The session's next program needs this loop.
    session_loop.close = lambda: None


@contextmanager
def _set_aside(inner: Any = None) -> Generator[None]:
    """As if no loop, or `inner`, were running in this thread, and no task."""
    outer = _events._get_running_loop()
    if outer is None:
        yield
        return
    task = asyncio.current_task(outer)
    if task is not None:
        _tasks._leave_task(outer, task)
    _events._set_running_loop(inner)
    try:
        yield
    finally:
        _events._set_running_loop(outer)
        if task is not None:
            _tasks._enter_task(outer, task)


def _set_aside_during(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def alone(*args: Any, **kwargs: Any) -> Any:
        with _set_aside():
            return function(*args, **kwargs)

    return alone


def _restoring(close: Callable[..., Any], session_loop: asyncio.AbstractEventLoop) -> Callable[..., Any]:
    """A runner leaves no current loop behind; here there is always one."""

    @wraps(close)
    def close_and_restore(runner: Any) -> None:
        try:
            close(runner)
        finally:
            if _is_main():
                asyncio.set_event_loop(session_loop)

    return close_and_restore


def _run(run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def run_anything(main: Any, **options: Any) -> Any:
        if asyncio.isfuture(main):
            # `asyncio.run(asyncio.gather(...))`: it belongs to a loop already.
            return main.get_loop().run_until_complete(main)
        return run(main, **options)

    return run_anything


def _run_until_complete(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def run_until_complete(loop: Any, future: Any) -> Any:
        if loop._thread_id != threading.get_ident():
            with _set_aside():
                return original(loop, future)
        with _set_aside(loop):
            task = tasks.ensure_future(future, loop=loop)
            ready = len(loop._ready)
            try:
                while not task.done():
                    loop._run_once()
            finally:
                # The round that we are called from has counted what was ready, and must find as many.
                while len(loop._ready) < ready:
                    loop._ready.append(_nothing(loop))
        return task.result()

    return run_until_complete


def _nothing(loop: asyncio.AbstractEventLoop) -> asyncio.Handle:
    handle = asyncio.Handle(lambda: None, (), loop)
    handle.cancel()
    return handle


def _run_coroutine_threadsafe(
    submit: Callable[..., Any], session_loop: asyncio.AbstractEventLoop
) -> Callable[..., Any]:
    """Waiting for its result in the loop's own thread would keep the loop from ever working on it."""

    @wraps(submit)
    def run_coroutine_threadsafe(coro: Any, loop: Any) -> Any:
        future = submit(coro, loop)
        wait = future.result

        def result(timeout: float | None = None) -> Any:
            here = loop._thread_id == threading.get_ident()
            idle = loop is session_loop and not loop.is_running() and _is_main()
            if not future.done() and (here or idle):
                loop.run_until_complete(asyncio.wait({asyncio.wrap_future(future, loop=loop)}, timeout=timeout))
                timeout = 0
            return wait(timeout)

        future.result = result
        return future

    return run_coroutine_threadsafe


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
