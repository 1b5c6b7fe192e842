"""The package `skills`, whose modules can be called: `from skills import report` gives the module and its function."""

from __future__ import annotations

import contextlib
import os
from importlib import import_module
from types import ModuleType
from typing import Any


class Skills(ModuleType):
    """Its modules are the files of the session's `skills/`."""

    def __init__(self, folder: str) -> None:
        super().__init__("skills")
        self.__path__ = [folder]

    def __getattr__(self, name: str) -> Any:
        """What an `__init__.py` of the program's own defines."""
        if not name.startswith("__") and name not in _files(self.__path__[0]):
            with contextlib.suppress(ModuleNotFoundError, AttributeError):
                return getattr(import_module("skills.__init__"), name)
        raise AttributeError(f"module 'skills' has no attribute {name!r}", name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        # This is how an import hands over a module.
        if isinstance(value, ModuleType) and callable(vars(value).get(name)):
            value.__class__ = _Skill
        super().__setattr__(name, value)


class _Skill(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function that has the module's name."""
        return vars(self)[self.__name__.rpartition(".")[2]](*args, **kwargs)


def _files(folder: str) -> list[str]:
    try:
        return [name.removesuffix(".py") for name in os.listdir(folder)]  # noqa: PTH208 - names are all we need
    except OSError:
        return []
