"""The package `skills`, whose modules can be called: `from skills import report` gives the module and its function.

A module is a file of the session's own `skills/`, or comes from the host: a skill that was saved before.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from . import frames
from .channel import ToolError, channel

_NAME = re.compile(r"[A-Za-z]\w{0,200}", re.ASCII)


class Skills(ModuleType):
    """The package. A module that it has no file for is asked of the host."""

    def __init__(self, folder: str) -> None:
        super().__init__("skills")
        self.__path__ = [folder]
        sys.meta_path.append(_Saved())

    def __getattr__(self, name: str) -> Any:
        """What an `__init__.py` of the program's own defines."""
        if not name.startswith("__") and name not in _files(self.__path__[0]):
            with contextlib.suppress(ModuleNotFoundError, AttributeError):
                return getattr(import_module("skills.__init__"), name)
        raise AttributeError(f"module 'skills' has no attribute {name!r}", name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        # This is how an import hands over a module.
        if isinstance(value, ModuleType) and callable(function := vars(value).get(name)):
            value.__class__ = _Skill
            value.__doc__ = value.__doc__ or function.__doc__
            vars(value)["__wrapped__"] = function  # what `inspect.signature` looks at
        super().__setattr__(name, value)


class _Skill(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function that has the module's name."""
        return vars(self)[self.__name__.rpartition(".")[2]](*args, **kwargs)


class _Saved:
    """Finds and loads the skills that the host has."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if package != "skills" or not _NAME.fullmatch(name):
            return None
        try:
            source = channel().request_now(frames.skill(name))["source"]
        except ToolError as error:
            if error.code != "skill" or "Did you mean" not in str(error):
                return None
            # Not `name=fullname`: `from skills import x` would drop this error for one of its own.
            raise ModuleNotFoundError(f"No module named {fullname!r}: {error}", name="skills") from None
        return ModuleSpec(fullname, self, origin=f"/agent/skills/{name}.py", loader_state=source)  # pyright: ignore[reportArgumentType]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        assert spec.origin is not None
        source, module.__file__ = str(spec.loader_state), spec.origin
        linecache.cache[spec.origin] = (len(source), None, source.splitlines(keepends=True), spec.origin)
        exec(compile(source, spec.origin, "exec", dont_inherit=True), vars(module))  # noqa: S102 - it is imported


def forget(name: str) -> None:
    """The next import of a skill gets it anew."""
    sys.modules.pop(f"skills.{name}", None)
    vars(sys.modules["skills"]).pop(name, None)


def _files(folder: str) -> list[str]:
    try:
        return [name.removesuffix(".py") for name in os.listdir(folder)]  # noqa: PTH208 - names are all we need
    except OSError:
        return []


# Files that a program writes are saved for later sessions as well

_MOST = 100
_LARGEST = 1_000_000
Files = dict[str, tuple[int, int]]


def written(folder: str = "/agent/skills") -> Files:
    """The modules in the session's folder, each with what changes when it is written again."""
    found: Files = {}
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if len(found) < _MOST and entry.name.endswith(".py") and _NAME.fullmatch(entry.name[:-3]):
                status = entry.stat(follow_symlinks=False)
                found[entry.name] = status.st_mtime_ns, status.st_size
    return found


def save_written(before: Files, folder: str = "/agent/skills") -> list[str]:
    """Save what was written since; a note for each that cannot be. One may import another, in any order."""
    waiting = [name for name, status in written(folder).items() if before.get(name) != status]
    notes: dict[str, str] = {}
    while waiting:
        left = [name for name in waiting if not _save(folder, name, notes)]
        if len(left) == len(waiting):
            break
        waiting = left
    return [f"skills/{name} is kept for this session only. {notes[name]}" for name in waiting]


def _save(folder: str, name: str, notes: dict[str, str]) -> bool:
    title = name.removesuffix(".py")
    try:
        source = _read(f"{folder}/{name}")
        if not re.search(rf"^(?:async )?def {title}\b", source, re.MULTILINE):
            return True  # a module of the program's own, and no skill
        documents = {file.lower(): file for file in os.listdir(folder)}  # noqa: PTH208 - names are all we need
        beside = documents.get(f"{title.lower()}.md")
        document = _read(f"{folder}/{beside}") if beside else ""
        channel().request_now(frames.save_skill(title, source, "", (), document))
    except (ToolError, OSError, ValueError) as error:
        notes[name] = str(error)
        return False
    return True


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - a path of ours
        text = file.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise ValueError(f"It has more than {_LARGEST:,} characters.")
    return text
