"""What every generated module shares: a tool as a callable, and packages that load it late.

Written into the API tree as `servers/_call.py`; it runs in the sandbox and imports only
the standard library.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, cast, overload

P = ParamSpec("P")
R = TypeVar("R")
Call: TypeAlias = Coroutine[Any, Any, R]


# A tool of a server: `await it(key=value, ...)`, or `await it({...})`. Its `__doc__`,
# which `help` shows, is its whole source: the named types, the signature, the docs.
class Tool(Generic[P, R]):
    def __init__(
        self,
        server: str,
        name: str,
        renamed: dict[str, str],
        function: Callable[P, Call[R]],
    ) -> None:
        self.server = server
        self.name = name
        self._renamed = renamed
        # `inspect.signature` and editors look through this.
        self.__wrapped__ = function
        self.__name__ = self.__qualname__ = function.__name__
        self.__module__ = function.__module__

    @overload
    def __call__(self, arguments: Mapping[str, Any], /) -> Call[R]: ...

    @overload
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]: ...

    def __call__(self, /, *args: Any, **kwargs: Any) -> Call[R]:
        given: Mapping[str, Any] = kwargs
        if args:
            given = self._only(args, kwargs)
        else:
            self._check(kwargs)
        sent = {key: value for key, value in given.items() if value is not ...}
        wire = {self._renamed.get(key, key): value for key, value in sent.items()}
        call = _call(self.server, self.name, wire)
        # So that "coroutine 'create_issue' was never awaited" names the tool.
        call.__qualname__ = self.__name__
        return call

    def _only(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The one dict of a call with a positional argument."""
        if len(args) == 1 and not kwargs and isinstance(args[0], Mapping):
            return dict(cast("Mapping[str, Any]", args[0]))
        raise TypeError(f"use keywords or one dict: {self._signature()}")

    def _check(self, given: dict[str, Any]) -> None:
        """Python's own complaints about keywords, with the signature in the message."""
        code = self.__wrapped__.__code__
        optional = self.__wrapped__.__kwdefaults__ or {}
        names = code.co_varnames[: code.co_kwonlyargcount]
        missing = [n for n in names if n not in optional and given.get(n, ...) is ...]
        # 8: the function takes `**others`.
        unknown = [] if code.co_flags & 8 else [n for n in given if n not in names]
        for problem, words in (("misses", missing), ("does not know", unknown)):
            if words:
                what = f"{problem} {', '.join(map(repr, words[:8]))}"
                raise TypeError(f"{self.__name__}() {what}: {self._signature()}")

    def _signature(self) -> str:
        from inspect import signature

        shown = str(signature(self.__wrapped__)).replace(f"{self.__module__}.", "")
        shown = shown.replace("Ellipsis", "...").replace("typing.", "")
        return f"{self.__name__}{shown}"

    def __repr__(self) -> str:
        return f"<tool {self._signature()}>"

    def __str__(self) -> str:
        from linecache import getlines

        source = "".join(getlines(self.__wrapped__.__code__.co_filename))
        named, _, function = source.partition("import tool\n")[2].rpartition("\n@tool(")
        start = function.find("\nasync def ")
        if start < 0:
            return f"async def {self._signature()}: ..."
        return (named.strip() + function[start : -len("    ...\n")]).strip()

    @property
    def __doc__(self) -> str:  # pyright: ignore
        return str(self)


def tool(
    server: str,
    name: str,
    renamed: dict[str, str] | None = None,
) -> Callable[[Callable[P, Call[R]]], Tool[P, R]]:
    """Makes a signature the tool `name` of `server`; `renamed`: keyword → wire name."""

    def bound(function: Callable[P, Call[R]]) -> Tool[P, R]:
        return Tool(server, name, renamed or {}, function)

    return bound


async def _call(server: str, name: str, arguments: dict[str, Any]) -> Any:
    # Only the sandbox has this; the tree itself can be imported anywhere.
    channel = import_module("toolfold_guest.channel")
    return await channel.call_tool(server, name, arguments)


class Package(ModuleType):
    """A package whose names are imported at their first use."""

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return self.__dir__()
        if not name.startswith("_") and name in self.__dir__():
            import_module(f"{self.__name__}.{name}")
            return self.__dict__[name]
        message = f"{self.__name__} has no {name!r}"
        if not name.startswith("_"):
            from difflib import get_close_matches

            near = get_close_matches(name, self.__dir__(), 3, 0.5)
            message += f". Did you mean {' or '.join(near)}?" if near else ""
        raise AttributeError(message, name=name, obj=self)

    def __setattr__(self, name: str, value: object) -> None:
        # Importing `servers.github.create_issue` binds that module here, under the
        # name that is the tool's.
        found = value.__dict__.get(name) if isinstance(value, ModuleType) else None
        bound = cast(object, found) if isinstance(found, Tool) else value
        super().__setattr__(name, bound)

    def __dir__(self) -> list[str]:
        with os.scandir(self.__path__[0]) as entries:
            names = {entry.name.removesuffix(".py") for entry in entries}
        return sorted(n for n in names if n.isidentifier() and n[0] != "_")


def lazy(package: str) -> None:
    """Makes the package that is being imported a lazy one."""
    sys.modules[package].__class__ = Package
