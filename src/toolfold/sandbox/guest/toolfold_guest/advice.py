"""The next step after an exception, in one line, where the sandbox or a known habit is the reason for it."""

from __future__ import annotations

import errno
import json
import linecache
import os
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import Any

from . import habits, names, source
from .channel import ToolError
from .place import UNKNOWN, Place

_LONGEST = 600
_NO_NETWORK = names.NO_NETWORK
_PROCESSES = "No more processes or threads. The limit is `sandbox.processes` in the settings."
_BY_NUMBER = {
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
    (RuntimeError, "cannot reuse already awaited", "A call can be awaited once: keep its result in a variable."),
    (ValueError, "a coroutine was expected", "`asyncio.run(...)` takes a call: `asyncio.run(main())`."),
    (EOFError, "EOF when reading a line", "Standard input is closed. Put the values into the program."),
)


def advice(problem: BaseException) -> str:
    """One line to put after the error; empty when there is nothing to add."""
    for kind in type(problem).__mro__:
        if kind in _BY_KIND:
            return _BY_KIND[kind](problem, Place.of(problem))[:_LONGEST]
    for kind, beginning, step in _BY_BEGINNING:
        if isinstance(problem, kind) and str(problem).startswith(beginning):
            return step
    return ""


def _about_syntax(problem: SyntaxError, place: Place | None) -> str:
    code = "".join(linecache.getlines(problem.filename or ""))
    return names.about_syntax(problem.text or "") or source.hint(problem, code)


def _about_memory(problem: MemoryError, place: Place | None) -> str:
    return "The memory limit is `sandbox.memory` in the settings; work on smaller pieces."


def _about_attribute(problem: AttributeError, place: Place | None) -> str:
    return habits.about_attribute(problem, place) or names.about_module_attribute(problem)


def _about_type(problem: TypeError, place: Place | None) -> str:
    text = str(problem)
    if found := re.fullmatch(r"object (\w+) can't be used in 'await' expression|'(\w+)' object can't be awaited", text):
        return habits.about_await(found[1] or found[2], place)
    if text.startswith("An asyncio.Future, a coroutine"):
        return "`asyncio.gather(...)` takes the calls themselves, without `await`, and is awaited as a whole."
    if re.search(r"\bcoroutine\b", text):
        return habits.about_coroutine(UNKNOWN, place)
    if text.startswith("'Tool' object"):
        return "It is a tool: call it with `await tool(...)` and use what it returns."
    if text == "'Package' object is not callable":
        return "It is a server: call one of its tools, `await server.tool(...)`."
    if "indices must be integers" in text or "object is not subscriptable" in text:
        return habits.about_index(place)
    if text.startswith("the JSON object must be str"):
        return "It is already the data: use it without `json.loads`."
    return ""


def _about_tool(problem: ToolError, place: Place | None) -> str:
    """The signature of a tool whose complaint names one of its arguments."""
    for name, module in [*sys.modules.items()]:
        if not name.startswith("servers."):
            continue
        tool: Any = vars(module).get(name.rpartition(".")[2])
        if (getattr(tool, "server", None), getattr(tool, "name", None)) != (problem.server, problem.tool):
            continue
        words = set(re.findall(r"\w+", str(problem)[:5000]))
        shown = repr(tool).removeprefix("<tool ").removesuffix(">")
        if not words.isdisjoint(signature(tool).parameters) and "Signature" not in words:
            return f"Signature: {shown}"
        return ""
    return ""


def _about_system(problem: OSError, place: Place | None) -> str:
    # urllib keeps the error that matters in `reason`. A name that cannot be looked up has numbers of its own.
    inner: Any = getattr(problem, "reason", problem)
    if type(inner).__name__ == "gaierror":
        return _NO_NETWORK
    number = getattr(inner, "errno", None) or 0
    path = problem.filename if isinstance(problem.filename, str) else ""
    if _is_from_subprocess(problem):
        return "There are no shell commands in the sandbox: use Python, for example os.listdir, pathlib, shutil or re."
    if number == errno.EROFS or (number in (errno.EACCES, errno.EPERM) and path and not _is_writable(path)):
        name = Path(path).name or "name"
        return f"Only workspace/ and /tmp are writable; use for example open('workspace/{name[:80]}', 'w')."
    if number == errno.ENOENT and path:
        return _about_missing_file(path)
    return _BY_NUMBER.get(number, "")


def _about_missing_file(path: str) -> str:
    folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100 - a text, however odd
    if name and Path("/agent/workspace", name).exists():
        return f"It is in workspace/: 'workspace/{name[:80]}'."
    if not Path(folder).is_dir() and _is_writable(folder):
        return f"Its folder does not exist yet: os.makedirs({path.rpartition('/')[0][:80]!r}, exist_ok=True)."
    if not _is_writable(folder) and folder != "/agent":
        return "The program's files are in workspace/, and it sees no others."
    near = get_close_matches(name, [entry.name for entry in Path("/agent/workspace").iterdir()], 1)
    return f"Did you mean 'workspace/{near[0][:80]}'?" if near else ""


def _is_writable(path: str) -> bool:
    return f"{os.path.abspath(path)}/".startswith(("/agent/workspace/", "/agent/skills/", "/tmp/"))  # noqa: S108, PTH100


def _is_from_subprocess(problem: BaseException) -> bool:
    step = problem.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename.endswith("/subprocess.py"):
            return isinstance(problem, FileNotFoundError | PermissionError)
        step = step.tb_next
    return False


_BY_KIND: dict[type, Callable[[Any, Place | None], str]] = {
    SyntaxError: _about_syntax,
    MemoryError: _about_memory,
    OSError: _about_system,
    ToolError: _about_tool,
    TypeError: _about_type,
    AttributeError: _about_attribute,
    KeyError: habits.about_missing_key,
    json.JSONDecodeError: habits.about_json,
    NameError: names.about_name,
    ModuleNotFoundError: names.about_module,
    ImportError: names.about_import,
}
