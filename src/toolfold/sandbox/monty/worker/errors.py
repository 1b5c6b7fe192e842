"""Monty's errors as an agent needs them: its own lines, what went wrong, and whether the subset is the reason."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterable
from typing import Protocol

from toolfold.sandbox.monty.worker.source import LOADS, STAND_IN
from toolfold.sandbox.monty.worker.tree import Tree

_FRAMES_SHOWN = 12


class Frame(Protocol):
    @property
    def filename(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def function_name(self) -> str | None: ...
    @property
    def source_line(self) -> str | None: ...


def describe(frames: Iterable[Frame], summary: str, feed: int, tool_errors: dict[str, str], tree: Tree) -> str:
    """`summary` is "Type: message"; `feed` numbers the program; `tool_errors` are the failures that tools raised."""
    lines = [_frame(frame, feed) for frame in frames if frame.filename.startswith("<python-input-")]
    if len(lines) > _FRAMES_SHOWN:
        half = _FRAMES_SHOWN // 2
        lines = [*lines[:half], f"  … {len(lines) - _FRAMES_SHOWN} more …", *lines[-half:]]
    kind, _, message = summary.partition(": ")
    if kind == STAND_IN and message in tool_errors:
        where = tool_errors[message]
        summary = f"ToolError: {f'{where}: ' if where else ''}{message}"
    return "\n".join([*lines, summary]) + _advice(kind, message, tree)


def _frame(frame: Frame, feed: int) -> str:
    number = int(re.sub(r"\D", "", frame.filename) or 0)
    where = f"line {frame.line}" if number == feed else f"program-{number + 1}.py, line {frame.line}"
    inside = "" if frame.function_name in (None, "<module>") else f", in {frame.function_name}"
    return f"  {where}{inside}: {(frame.source_line or '').strip().replace(LOADS, 'json.loads')[:200]}"


def _advice(kind: str, message: str, tree: Tree) -> str:
    if kind == "MemoryError":
        return "\nThe memory limit is `sandbox.memory` in the settings; work on smaller pieces."
    if kind == "NotImplementedError" and "not" in message and "support" in message:
        found = re.search(r"does not yet support (.+)", message)
        what = found[1].rstrip(".") if found else message.rstrip(".")
        return _subset(what)
    if found := re.search(r"cannot import name '(\w+)' from '(servers[\w.]*)'", message):
        return _near(tree, found[2], found[1])
    if found := re.fullmatch(r"No module named '([\w.]+)'.*", message):
        name = found[1]
        if name.startswith("servers"):
            return _near(tree, name.rpartition(".")[0] or name, name.rpartition(".")[2])
        if name.partition(".")[0] in sys.stdlib_module_names:
            return _subset(f"the module `{name}`")
        return "\nOnly Monty's own modules and servers can be imported."
    if found := re.fullmatch(r"module '(\w+)' has no attribute '(\w+)'", message):
        return _subset(f"`{found[1]}.{found[2]}`") if found[1] in sys.stdlib_module_names else ""
    if kind == "NameError" and (found := re.search(r"name '(\w+)' is not defined", message)):
        return _subset(f"`{found[1]}`") if hasattr(builtins, found[1]) else ""
    if kind == "PermissionError":
        return "\nOnly workspace/ is writable; use for example open('workspace/name', 'w')."
    if kind == "TypeError" and "coroutine" in message:
        return "\nA tool call must be awaited before its result is used: `result = await tool(...)`."
    return ""


def _subset(what: str) -> str:
    instead = "Write it without, or run with the bubblewrap or container backend."
    return f"\nThis sandbox is Monty, a subset of Python that does not support {what}. {instead}"


def _near(tree: Tree, path: str, name: str) -> str:
    near = tree.near(path, name)
    return f"\n{path} has no {name!r}." + (f" Did you mean {' or '.join(near)}?" if near else "")
