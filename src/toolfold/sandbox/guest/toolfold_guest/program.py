"""Runs one program after another in one namespace, the way a notebook does."""

from __future__ import annotations

import _sitebuiltins
import asyncio
import builtins
import inspect
import io
import json
import linecache
import os
import sys
import time
import types
import warnings
from typing import Any, NoReturn, cast

from . import source
from .failure import describe, kind_of, line_of
from .loops import allow_nesting
from .skills import Skills
from .unawaited import Unawaited

_VALUE_CHARS = 1_000_000
_NAME_CHARS = 200


class StandardOutput(io.TextIOWrapper):
    """Standard output: each line leaves at once, unless lines come so fast that batching is kinder to everyone."""

    def __init__(self, fd: int) -> None:
        raw = io.FileIO(fd, "w", closefd=False)
        super().__init__(io.BufferedWriter(raw, 1 << 16), encoding="utf-8", errors="backslashreplace")
        self._window = 0.0
        self._flushes = 0

    def close(self) -> None:
        """A program that closes it would close it for those after it."""
        self.flush()

    def write(self, text: str, /) -> int:
        written = super().write(text)
        if "\n" in text:
            now = time.monotonic()
            if now - self._window > 0.1:
                self._window, self._flushes = now, 0
            self._flushes += 1
            if self._flushes < 50:
                self.flush()
        return written


class Programs:
    """The session's namespace and loop. `run` never raises for anything the program does."""

    def __init__(self) -> None:
        self._main = types.ModuleType("__main__")
        self._main.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = self._main
        sys.modules["skills"] = Skills("/agent/skills")
        # `site` is not imported here; these are the names from it that programs expect.
        builtins.help = _sitebuiltins._Helper()  # pyright: ignore[reportPrivateUsage]
        builtins.exit = builtins.quit = _sitebuiltins.Quitter("exit", "")  # pyright: ignore[reportArgumentType]
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        allow_nesting(self._loop)
        self._filename = ""
        self._count = 0
        self._streams = sys.stdout, sys.stderr
        self._process = os.getpid()
        self._unawaited = Unawaited()
        warnings.showwarning = _show_warning
        self._note_failed_tasks()

    def run(self, code: str) -> dict[str, Any]:
        """Execute and describe how it ended.

        `error` is empty after a success, which may have a `value` and how it is `shown`. A failure has its `kind`
        (exception, syntax, not_awaited, exit), the `line` where the program failed and the type of the `exception`.
        """
        self._count += 1
        self._filename = filename = "program.py" if self._count == 1 else f"program-{self._count}.py"
        self._main.__dict__["__file__"] = filename
        self._unawaited.begin(filename)
        value: Any = None
        status = 0
        failure: dict[str, Any] = {}
        try:
            value = self._execute(code, filename)
        except SystemExit as stop:
            if stop.code not in (None, 0):
                status = stop.code if isinstance(stop.code, int) else 1
                failure = {"error": f"SystemExit: the program ended itself with {stop.code!r}", "kind": "exit"}
                failure |= {"line": line_of(stop, filename), "exception": "SystemExit"}
        except BaseException as problem:  # whatever the program raised is its result
            status = 1
            failure = {"error": describe(problem, filename), "line": line_of(problem, filename)}
            failure |= {"kind": kind_of(problem), "exception": type(problem).__name__[:_NAME_CHARS]}
        if os.getpid() != self._process:
            self._end_copy(failure.get("error", ""), status)
        left = self._cancel_leftovers()
        # A program that captures what is printed and fails must not silence those after it.
        sys.stdout, sys.stderr = self._streams
        self._unawaited.look_through([value, *self._main.__dict__.values()])
        if not failure and self._unawaited.found:
            told = "\n".join(dict.fromkeys(self._unawaited.found))
            failure = {"error": f"NotAwaited: {told}", "kind": "not_awaited", "line": self._unawaited.line}
        if failure:
            return failure
        if left:
            sys.stdout.write(f"note: {left} task(s) were still running at the end and were cancelled; await them\n")
        if value is None:
            return {"error": ""}
        self._main.__dict__["_"] = value
        return {"error": "", **present(value)}

    def _end_copy(self, error: str, status: int) -> NoReturn:
        """End a process that the program forked where any other ends; the first one alone speaks for the program."""
        try:
            self._streams[0].write(f"{error}\n" if error else "")
            self._streams[0].flush()
        finally:
            os._exit(status & 0xFF)

    def rehearse(self) -> None:
        """Run a program that does nothing and leave no trace of it, so that the first real one finds all it needs."""
        self.run("import sys\nsys.stdout.flush()")
        del self._main.__dict__["sys"]
        present([0])
        self._count = 0

    def names(self) -> list[str]:
        """What the programs have defined; not what they have imported."""
        found = list(self._main.__dict__.items())
        return sorted(name for name, value in found if not name.startswith("_") and not _is_imported(value))

    def _execute(self, code: str, filename: str) -> Any:
        try:
            tree, code = source.parse(code, filename)
        finally:
            _keep_lines(code, filename)
        parts = source.compiled(tree, filename)
        self._unawaited.knows(parts)
        # A program without a top-level `await` runs outside of the loop.
        if any(part.co_flags & inspect.CO_COROUTINE for part in parts):
            return self._loop.run_until_complete(self._together(parts))
        value: Any = None
        for part in parts:
            value = eval(part, self._main.__dict__)  # noqa: S307 - running it is the job
        return value

    async def _together(self, parts: list[types.CodeType]) -> Any:
        """All of a program that awaits somewhere: it may make tasks on any line, also before its first `await`."""
        value: Any = None
        for part in parts:
            value = eval(part, self._main.__dict__)  # noqa: S307 - running it is the job
            if part.co_flags & inspect.CO_COROUTINE:
                value = await value
        return value

    def _cancel_leftovers(self) -> int:
        asyncio.set_event_loop(self._loop)
        tasks = [task for task in asyncio.all_tasks(self._loop) if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            try:
                gathered = asyncio.wait(tasks, timeout=0.5)
                self._loop.run_until_complete(gathered)
            except BaseException:  # a task that fights its cancellation is not the program's result
                return len(tasks)
        return len(tasks)

    def _note_failed_tasks(self) -> None:
        """A task that failed and was never awaited is mentioned in the run that made it, and in no later one."""

        def on_problem(loop: Any, context: dict[str, Any]) -> None:
            problem = context.get("exception")
            if isinstance(problem, BaseException) and line_of(problem, self._filename):
                sys.stdout.write(f"note: {context.get('message')}\n{describe(problem, self._filename)}\n")

        base: Any = asyncio.BaseEventLoop
        base.default_exception_handler = on_problem


def _is_imported(value: Any) -> bool:
    kind = cast("Any", type(value))
    if kind is types.FunctionType or kind is type:
        return value.__module__ != "__main__"
    return kind is types.ModuleType or kind.__module__.startswith("toolfold_guest.")


def _keep_lines(text: str, filename: str) -> None:
    """For tracebacks and for `inspect.getsource`."""
    linecache.cache[filename] = (len(text), None, [f"{line}\n" for line in text.split("\n")], filename)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    sys.stdout.write(f"{category.__name__}: {message}\n")


def present(value: Any) -> dict[str, Any]:
    """The last expression: as data where it is JSON, and as the text a notebook would show."""
    try:
        shown = value if isinstance(value, str) else repr(value)
    except BaseException as problem:  # a broken __repr__ is the program's business
        shown = f"<{type(value).__name__} whose repr failed: {type(problem).__name__}>"
    result: dict[str, Any] = {"shown": shown[:_VALUE_CHARS]}
    try:
        encoded = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except BaseException:  # not JSON, or a class of the program's own that misbehaves
        return result
    if len(encoded) <= _VALUE_CHARS:
        result["value"] = value
    return result
