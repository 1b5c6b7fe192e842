"""Finds the coroutines that a run made and never awaited, and never charges one to a later run."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Iterable
from concurrent.futures import Future
from inspect import CO_COROUTINE, CORO_CREATED, getcoroutinestate
from itertools import islice
from typing import Any, TypeAlias, cast

_ORIGIN_FRAMES = 4
"""A tool's own frame, its caller, and a wrapper or two."""
_LOOKED_AT = 5_000
_LOOKED_AT_EACH = 100
_DEEPEST = 3
_LISTS = (list, tuple, set, frozenset)

Coroutine: TypeAlias = "types.CoroutineType[Any, Any, Any]"


class Unawaited:
    """What the current run forgot to await, as sentences; `line` is where the first one was made."""

    def __init__(self) -> None:
        self._filename = ""
        self._code: list[types.CodeType] = []
        self.found: list[str] = []
        self.line = 0
        # Python calls this with a coroutine that is thrown away without ever having run.
        hooks: Any = warnings
        hooks._warn_unawaited_coroutine = self._on_thrown_away

    def begin(self, filename: str) -> None:
        """A new run. What an earlier one left behind is not reported any more."""
        self._filename = filename
        self._code = []
        self.found.clear()
        self.line = 0
        sys.set_coroutine_origin_tracking_depth(_ORIGIN_FRAMES)

    def knows(self, code: list[types.CodeType]) -> None:
        """The run's own code, to tell a plain function from an async one."""
        self._code = code

    def look_through(self, values: Iterable[Any]) -> None:
        """Find coroutines that wait in variables and in what these hold, and close them."""
        left = _LOOKED_AT
        pending: list[tuple[Iterable[Any], int]] = [(values, 0)]
        while pending and left > 0:
            items, depth = pending.pop()
            for item in islice(items, _LOOKED_AT_EACH if depth else left):
                left -= 1
                kind = cast(Any, type(item))
                if kind is types.CoroutineType:
                    if depth:
                        # A list that begins with one is a list of them.
                        self._close_all(items)
                    self._close(item)
                elif depth < _DEEPEST and kind in _LISTS:
                    pending.append((item, depth + 1))
                elif depth < _DEEPEST and kind is dict:
                    pending.append((item.values(), depth + 1))
                elif depth < _DEEPEST and kind is Future:
                    # `executor.submit(tool, ...)` has made the call, and no more.
                    pending.append((cast("dict[str, Any]", vars(item)).values(), depth + 1))

    def _close_all(self, items: Iterable[Any]) -> None:
        for item in items:
            if isinstance(item, types.CoroutineType):
                self._close(cast("Coroutine", item))

    def _close(self, coroutine: Coroutine) -> None:
        if getcoroutinestate(coroutine) == CORO_CREATED and self._is_of_this_run(coroutine):
            self._report(coroutine)
            coroutine.close()

    def _on_thrown_away(self, coroutine: Coroutine) -> None:
        try:
            if self._is_of_this_run(coroutine) or _is_just_made(coroutine):
                self._report(coroutine)
        except Exception:  # noqa: S110 - called by the interpreter, which could only print it
            pass

    def _is_of_this_run(self, coroutine: Coroutine) -> bool:
        # A tool's call is named after the program that made it; a function of this program did not exist before.
        if self._filename in (coroutine.__name__, coroutine.cr_code.co_filename):
            return True
        return any(file == self._filename for file, _, _ in coroutine.cr_origin or ())

    def _report(self, coroutine: Coroutine) -> None:
        name = coroutine.__qualname__.rsplit(".", 1)[-1]
        origin = [(line, function) for file, line, function in coroutine.cr_origin or () if file == self._filename]
        line, function = origin[0] if origin else (0, "")
        self.line = self.line or line
        where = f"line {line}: " if line else ""
        text = f"{where}{name}(...) was not awaited, so it never ran. Write `await {name}(...)`."
        if _is_plain_function(self._code, function, line):
            text += f" `{function}` must be an `async def` for that, and be awaited where it is called."
        self.found.append(text)


def _is_just_made(coroutine: Coroutine) -> bool:
    """Whether the line that made it is the line that throws it away, as `tool(...)` without `await` does."""
    made = next(((file, line) for file, line, _ in coroutine.cr_origin or () if file.startswith("program")), None)
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    for _ in range(_ORIGIN_FRAMES):
        if made == (frame.f_code.co_filename, frame.f_lineno):
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def _is_plain_function(pieces: Iterable[types.CodeType], name: str, line: int) -> bool:
    """Whether `name`, which has this line, is a `def` and not an `async def`."""
    pending = list(pieces)
    found: types.CodeType | None = None
    while pending:
        code = pending.pop()
        pending += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
        nearer = found is None or code.co_firstlineno > found.co_firstlineno
        if code.co_name == name and code.co_firstlineno <= line and nearer:
            found = code
    return found is not None and name.isidentifier() and not found.co_flags & CO_COROUTINE
