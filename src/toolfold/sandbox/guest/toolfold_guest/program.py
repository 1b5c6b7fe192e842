"""Runs one program after another in one namespace, the way a notebook does."""

from __future__ import annotations

import _sitebuiltins
import ast
import asyncio
import builtins
import inspect
import io
import json
import linecache
import os
import sys
import time
import traceback
import types
import warnings
from typing import Any, cast

from .advice import advice
from .channel import ToolError

_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_VALUE_CHARS = 1_000_000
_FRAMES_SHOWN = 12


class StandardOutput(io.TextIOWrapper):
    """Standard output: each line leaves at once, unless lines come so fast that batching is kinder to everyone."""

    def __init__(self, fd: int) -> None:
        raw = io.FileIO(fd, "w", closefd=False)
        super().__init__(io.BufferedWriter(raw, 1 << 16), encoding="utf-8", errors="backslashreplace")
        self._window = 0.0
        self._flushes = 0

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
        # `site` is not imported here; these are the names from it that programs expect.
        builtins.help = _sitebuiltins._Helper()  # pyright: ignore[reportPrivateUsage]
        builtins.exit = builtins.quit = _sitebuiltins.Quitter("exit", "")  # pyright: ignore[reportArgumentType]
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._count = 0
        self._forgotten: list[str] = []
        warnings.showwarning = self._show_warning

    def run(self, code: str) -> dict[str, Any]:
        """Execute and describe how it ended: `value`, `shown`, `error`."""
        self._count += 1
        self._forgotten.clear()
        filename = "program.py" if self._count == 1 else f"program-{self._count}.py"
        linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
        sys.set_coroutine_origin_tracking_depth(3)
        value: Any = None
        error = ""
        try:
            value = self._execute(code, filename)
            if inspect.iscoroutine(value):
                self._forget(value)
                value.close()
                value = None
        except SystemExit as stop:
            if stop.code not in (None, 0):
                error = f"SystemExit: the program ended itself with {stop.code!r}"
        except BaseException as problem:  # whatever the program raised is its result
            error = describe(problem, filename)
        left = self._cancel_leftovers()
        self._find_unawaited()
        if not error and self._forgotten:
            error = "NotAwaited: " + "\n".join(dict.fromkeys(self._forgotten))
        if not error and left:
            sys.stdout.write(f"note: {left} task(s) were still running at the end and were cancelled; await them\n")
        result: dict[str, Any] = {"error": error}
        if value is not None and not error:
            self._main.__dict__["_"] = value
            result |= present(value)
        return result

    def names(self) -> list[str]:
        return sorted(name for name in self._main.__dict__ if not name.startswith("_"))

    def _execute(self, code: str, filename: str) -> Any:
        tree = ast.parse(code, filename)
        last: ast.expr | None = None
        if tree.body and isinstance(final := tree.body[-1], ast.Expr):
            last = final.value
        own_loop = _starts_a_loop(tree)
        if last is not None:
            tree.body.pop()
        parts: list[types.CodeType] = []
        if tree.body:
            parts.append(compile(tree, filename, "exec", flags=_FLAGS))
        if last is not None:
            parts.append(compile(ast.Expression(last), filename, "eval", flags=_FLAGS))
        value: Any = None
        if own_loop or not any(part.co_flags & inspect.CO_COROUTINE for part in parts):
            for part in parts:
                value = self._evaluate(part)
        else:
            value = self._loop.run_until_complete(self._together(parts))
        return value if last is not None else None

    def _evaluate(self, compiled: types.CodeType) -> Any:
        """Code with a top-level `await` runs on the loop; other code runs outside it, so that `asyncio.run` works."""
        outcome = eval(compiled, self._main.__dict__)  # noqa: S307 - running it is the job
        if compiled.co_flags & inspect.CO_COROUTINE:
            return self._loop.run_until_complete(outcome)
        return outcome

    async def _together(self, parts: list[types.CodeType]) -> Any:
        """All of a program that awaits somewhere: it may make tasks on any line, also before its first `await`."""
        value: Any = None
        for part in parts:
            value = eval(part, self._main.__dict__)  # noqa: S307 - running it is the job
            if part.co_flags & inspect.CO_COROUTINE:
                value = await value
        return value

    def _cancel_leftovers(self) -> int:
        if self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
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

    def _find_unawaited(self) -> None:
        for value in list(self._main.__dict__.values()):
            items = cast("list[Any]", value if isinstance(value, list | tuple) else [value])
            for item in items[:10_000]:
                if inspect.iscoroutine(item) and inspect.getcoroutinestate(item) == inspect.CORO_CREATED:
                    self._forget(item)
                    item.close()

    def _forget(self, coroutine: types.CoroutineType[Any, Any, Any]) -> None:
        name, origin = coroutine.__qualname__.rsplit(".", 1)[-1], coroutine.cr_origin
        where = next((f"line {line}: " for file, line, _ in origin or () if file.startswith("program")), "")
        self._forgotten.append(f"{where}{name}(...) was not awaited, so it never ran. Write `await {name}(...)`.")

    def _show_warning(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,
        line: str | None = None,
    ) -> None:
        text = str(message)
        if "was never awaited" in text and text.startswith("coroutine '"):
            name = text.split("'")[1].rsplit(".", 1)[-1]
            found = [part for part in text.splitlines() if 'File "program' in part]
            where = f"line {found[-1].split('line ')[1].split(',')[0]}: " if found else ""
            self._forgotten.append(f"{where}{name}(...) was not awaited, so it never ran. Write `await {name}(...)`.")
            return
        sys.stdout.write(f"{category.__name__}: {text}\n")


def describe(problem: BaseException, filename: str) -> str:
    """The error as an agent needs it: its own lines, then what went wrong, then what to do."""
    if isinstance(problem, SyntaxError) and (problem.filename or "").startswith("program"):
        text = (problem.text or "").rstrip("\n")
        pointer = " " * max((problem.offset or 1) - 1, 0) + "^" if text else ""
        shown = f"\n  {text}\n  {pointer}" if text else ""
        return f"{type(problem).__name__}: {problem.msg} (line {problem.lineno}){shown}{advice(problem)}"
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if _is_own(frame.filename)]
    if len(frames) > _FRAMES_SHOWN:
        half = _FRAMES_SHOWN // 2
        hidden = traceback.FrameSummary("", 0, f"… {len(frames) - _FRAMES_SHOWN} more …", lookup_line=False)
        frames = [*frames[:half], hidden, *frames[-half:]]
    lines = [_frame_line(frame, filename) for frame in frames]
    name = type(problem).__name__
    message = str(problem)
    if isinstance(problem, ToolError) and problem.server:
        named = message.startswith((f"{problem.server}.", f"{problem.server}:"))
        message = f"{problem.server}.{problem.tool}: {message}" if problem.tool and not named else message
    summary = f"{name}: {message}" if message else name
    notes = "".join(f"\n{note}" for note in getattr(problem, "__notes__", ()))
    cause = problem.__cause__
    because = f"\ncaused by {type(cause).__name__}: {cause}" if cause is not None else ""
    group = "".join(f"\n- {describe(inner, filename)}" for inner in _inner(problem)[:5])
    return "\n".join([*lines, summary]) + notes + because + group + advice(problem)


def _inner(problem: Any) -> list[BaseException]:
    return list(cast("Any", problem).exceptions) if isinstance(problem, BaseExceptionGroup) else []


def _is_own(filename: str) -> bool:
    """Frames of the guest, of generated wrappers and of the standard library only distract."""
    if filename.startswith("program"):
        return True
    here = os.getcwd()  # noqa: PTH109 - a string is all we need
    return filename.startswith((here + "/skills/", here + "/workspace/"))


def _starts_a_loop(tree: ast.Module) -> bool:
    """Whether the program itself, not only a function of it, says `asyncio.run(...)` or the like."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if node.func.attr == "run_until_complete":
                return True
            if node.func.attr == "run" and isinstance(owner, ast.Name) and owner.id == "asyncio":
                return True
        pending.extend(ast.iter_child_nodes(node))
    return False


def _frame_line(frame: traceback.FrameSummary, filename: str) -> str:
    if frame.lineno == 0:
        return f"  {frame.name}"
    where = f"line {frame.lineno}" if frame.filename == filename else f"{frame.filename}, line {frame.lineno}"
    inside = "" if frame.name == "<module>" else f", in {frame.name}"
    return f"  {where}{inside}: {(frame.line or '').strip()[:200]}"


def present(value: Any) -> dict[str, Any]:
    """The last expression: as data where it is JSON, and as the text a notebook would show."""
    try:
        shown = value if isinstance(value, str) else repr(value)
    except BaseException as problem:  # a broken __repr__ is the program's business
        shown = f"<{type(value).__name__} whose repr failed: {type(problem).__name__}>"
    result: dict[str, Any] = {"shown": shown[:_VALUE_CHARS]}
    try:
        encoded = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return result
    if len(encoded) <= _VALUE_CHARS:
        result["value"] = value
    return result
