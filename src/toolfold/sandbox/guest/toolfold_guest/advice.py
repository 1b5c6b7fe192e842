"""The next step after an exception, in one line, where the sandbox is the reason for it or there is an obvious one."""

from __future__ import annotations

import errno
import sys
import types
from typing import Any

_NO_NETWORK = "There is no network in the sandbox: reach the world through tools; search_tools finds them."
_PROCESSES = "No more processes or threads. The limit is `sandbox.processes` in the settings."
_AWAIT_FIRST = "A tool call must be awaited before its result is used: `result = await tool(...)`."
_BY_NUMBER = {
    errno.EROFS: "Only workspace/ and /tmp are writable; use for example open('workspace/name', 'w').",
    errno.EDQUOT: "The workspace is full; the limit is `sandbox.disk` in the settings.",
    errno.EFBIG: "No file may be larger than `sandbox.disk` in the settings.",
    errno.ENOSPC: "/tmp and /dev/shm are small and in memory; put large files into workspace/.",  # noqa: S108 - the sandbox's own
    errno.EAGAIN: _PROCESSES,
    errno.ENETUNREACH: _NO_NETWORK,
    errno.EHOSTUNREACH: _NO_NETWORK,
    errno.ENETDOWN: _NO_NETWORK,
}
_BY_BEGINNING = (
    (RuntimeError, "no running event loop", "Await it: end with `await asyncio.gather(...)` at the top level."),
    (RuntimeError, "can't start new thread", _PROCESSES),
    (EOFError, "EOF when reading a line", "Standard input is closed: nobody can answer. Put values into the program."),
    (AttributeError, "'coroutine' object", _AWAIT_FIRST),
)
_BY_WORDS = (
    (
        RuntimeError,
        "running event loop",
        "A loop is already running here: write `await main()`, not `asyncio.run(main())`.",
    ),
    (TypeError, "'coroutine' object", _AWAIT_FIRST),
    (SyntaxError, "'await' outside", "`await` works at the top level and inside `async def`."),
)


def advice(problem: BaseException) -> str:
    """A line to put after the error, with its newline; empty when there is nothing to add."""
    step = _step(problem, str(problem))
    return f"\n{step}" if step else ""


def _step(problem: BaseException, text: str) -> str:
    if isinstance(problem, MemoryError):
        return "The memory limit is `sandbox.memory` in the settings; work on smaller pieces."
    if isinstance(problem, OSError):
        return _about_system(problem)
    if isinstance(problem, ImportError):
        return _about_import(problem, text)
    for kind, beginning, step in _BY_BEGINNING:
        if isinstance(problem, kind) and text.startswith(beginning):
            return step
    for kind, words, step in _BY_WORDS:
        if isinstance(problem, kind) and words in text:
            return step
    return ""


def _about_system(problem: OSError) -> str:
    # urllib keeps the error that matters in `reason`. A name that cannot be looked up has numbers of its own.
    inner: Any = getattr(problem, "reason", problem)
    if type(inner).__name__ == "gaierror":
        return _NO_NETWORK
    return _BY_NUMBER.get(getattr(inner, "errno", None) or 0, "")


def _about_import(problem: ImportError, text: str) -> str:
    name = problem.name or ""
    if name.startswith("servers."):
        return _near(sys.modules.get(name), text)
    if isinstance(problem, ModuleNotFoundError) and not name.startswith(("servers", "skills")):
        return "Only the standard library, servers, skills and configured packages can be imported."
    return ""


def _near(module: types.ModuleType | None, text: str) -> str:
    """The names close to one that a server does not have."""
    from difflib import get_close_matches

    wanted = text.removeprefix("cannot import name '").partition("'")[0]
    near = get_close_matches(wanted, dir(module), 3, 0.5) if module is not None else []
    return f"Did you mean {' or '.join(near)}?" if near else ""
