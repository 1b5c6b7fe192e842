"""What every generated module shares: a tool as a callable, and packages that load it late.

Written into the API tree as `servers/_call.py`; it runs in the sandbox and imports only
the standard library.
"""

from __future__ import annotations

import os
import re
import sys
import types
import typing
from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, cast, overload

P = ParamSpec("P")
R = TypeVar("R")
Call: TypeAlias = Coroutine[Any, Any, R]
Given: TypeAlias = "dict[str, Any]"
# Whether a parameter can be an object: one with these keys, any one, or none.
Fit: TypeAlias = typing.Literal["keys", "any", "no"]


class File(typing.Protocol):
    """An image, a sound or other bytes in a result: a file in the workspace."""

    path: str
    mime_type: str
    size: int

    def read_bytes(self) -> bytes: ...


# The parameters of a tool, and the rule by which a call fills them.
class Parameters:
    def __init__(
        self,
        names: tuple[str, ...],
        required: tuple[str, ...],
        others: bool,
        wire: Mapping[str, str],
        fits_first: Callable[[Given], Fit],
    ) -> None:
        self.names = names
        self.required = required
        self.others = others
        self.wire = wire
        self.fits_first = fits_first
        self._known = frozenset(names)

    def fill(self, args: tuple[Any, ...], kwargs: Given) -> Given:
        """The arguments under their wire names; TypeError where they do not fit."""
        given, any_key = kwargs, self.others
        if args:
            whole = self._whole(args, kwargs)
            any_key = any_key or whole is not None
            given = _joined(self._in_order(args) if whole is None else whole, kwargs)
        # `...` says "not given", as in the signature.
        given = {key: value for key, value in given.items() if value is not ...}
        missing = [name for name in self.required if name not in given]
        if missing:
            raise TypeError(f"missing required {_arguments(missing)}")
        if not any_key and not given.keys() <= self._known:
            unknown = [name for name in given if name not in self._known]
            near = self._near(unknown[0])
            raise TypeError(f"got an unexpected {_arguments(unknown)}{near}")
        if self.wire:
            return {self.wire.get(key, key): value for key, value in given.items()}
        return given

    def _whole(self, args: tuple[Any, ...], kwargs: Given) -> Given | None:
        """The dict that holds all arguments; None where it is the first of them.

        A sole dict holds all arguments, unless its keys do not fit as arguments and do
        fit the first parameter, which is an object.
        """
        candidate, *others = args
        if others or not isinstance(candidate, Mapping):
            return None
        only = cast("Mapping[str, Any]", candidate)
        words = {wire: word for word, wire in self.wire.items() if word not in only}
        whole = {words.get(key, key): value for key, value in only.items()}
        first, *rest = self.names or ("",)
        given = whole.keys() | kwargs.keys()
        if whole.keys() <= self._known and given.issuperset(self.required):
            return whole
        needed = [name for name in self.required if name in rest and name not in kwargs]
        if needed or first in kwargs or not first:
            return whole
        fit = self.fits_first({**only})
        if fit == "any" and not self._known.isdisjoint(whole):
            problem = f"cannot tell whether the dict is {first!r} or all arguments"
            raise TypeError(f"{problem}: write {first}=...")
        return whole if fit == "no" else None

    def _in_order(self, args: tuple[Any, ...]) -> Given:
        if len(args) > len(self.names):
            most = f"{len(self.names)} argument{'s' * (len(self.names) != 1)}"
            raise TypeError(f"takes at most {most}, not {len(args)}")
        return dict(zip(self.names, args, strict=False))

    def _near(self, name: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(name, self.names, 1)
        return f" (did you mean {near[0]!r}?)" if near else ""


def _joined(one: Given, other: Given) -> Given:
    for name in one:
        if name in other:
            raise TypeError(f"got multiple values for argument {name!r}")
    return {**one, **other}


def _arguments(names: list[str]) -> str:
    return f"argument{'s' * (len(names) > 1)} {', '.join(map(repr, names[:8]))}"


# A tool of a server: `await it(value, key=value)`, or `await it({...})`. Its `__doc__`,
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
        # `inspect.signature` and editors look through this.
        self.__wrapped__ = function
        self.__name__ = self.__qualname__ = function.__name__
        self.__module__ = function.__module__
        code = function.__code__
        names = code.co_varnames[: code.co_argcount]
        required = names[: len(names) - len(function.__defaults__ or ())]
        # 8: the function takes `**others`.
        others = bool(code.co_flags & 8)
        self._parameters = Parameters(names, required, others, renamed, self._fits)

    @overload
    def __call__(self, arguments: Mapping[str, Any], /) -> Call[R]: ...

    @overload
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]: ...

    def __call__(self, /, *args: Any, **kwargs: Any) -> Call[R]:
        try:
            arguments = self._parameters.fill(args, kwargs)
        except TypeError as error:
            problem = f"{self.__name__}() {error}. Signature: {self._signature()}"
            raise TypeError(problem) from None
        call = _call(self.server, self.name, arguments)
        # So that "create_issue(...) was not awaited" names the tool, and is said in the
        # run that made the call.
        call.__qualname__ = self.__name__
        call.__name__ = getattr(sys.modules.get("__main__"), "__file__", None) or ""
        return call

    def _fits(self, value: Given) -> Fit:
        """Whether the first parameter can be this object."""
        name = self._parameters.names[0]
        try:
            return _fit(typing.get_type_hints(self.__wrapped__)[name], value)
        except (NameError, TypeError):
            return "no"

    def _signature(self) -> str:
        from inspect import signature

        shown = self._plain(str(signature(self.__wrapped__)))
        named = [*self.__wrapped__.__globals__.items()]
        for name, kind in reversed(named):
            shape = self._shape(kind) if typing.is_typeddict(kind) else name
            # What is short says more than its name.
            if len(shape) <= 80 and "ForwardRef" not in shape:
                whole = rf'(?<!")\b{name}\b(?!")'
                shown = re.sub(whole, lambda _, shape=shape: shape, shown)
        return f"{self.__name__}{shown}"

    def _shape(self, kind: Any) -> str:
        from inspect import formatannotation

        keys = kind.__annotations__
        rows = [f'"{key}": {formatannotation(keys[key])}' for key in keys]
        return f"{{{self._plain(', '.join(rows))}}}"

    def _plain(self, shown: str) -> str:
        for noise in (f"{self.__module__}.", "servers._call.", "typing."):
            shown = shown.replace(noise, "")
        return shown.replace("Ellipsis", "...")

    # Helpers that take any function ask whether they have to await what it returns.
    @property
    def _is_coroutine(self) -> object:
        return getattr(import_module("asyncio.coroutines"), "_is_coroutine", None)

    @property
    def _is_coroutine_marker(self) -> object:
        return getattr(import_module("inspect"), "_is_coroutine_mark", None)

    def __repr__(self) -> str:
        return f"<tool {self._signature()}>"

    def __str__(self) -> str:
        from linecache import getlines

        source = "".join(getlines(self.__wrapped__.__code__.co_filename))
        named, _, function = source.partition("tool\n")[2].rpartition("\n@tool(")
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


async def _call(server: str, name: str, arguments: Given) -> Any:
    # Only the sandbox has this; the tree itself can be imported anywhere.
    channel = import_module("toolfold_guest.channel")
    return await channel.call_tool(server, name, arguments)


def _fit(annotation: Any, value: Given) -> Fit:
    """Whether a parameter of this type can be the object `value`."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        fits = [_fit(part, value) for part in typing.get_args(annotation)]
        return "keys" if "keys" in fits else "any" if "any" in fits else "no"
    if typing.is_typeddict(annotation):
        keys = annotation.__annotations__.keys()
        return "keys" if annotation.__required_keys__ <= value.keys() <= keys else "no"
    return "any" if annotation is Any or origin is dict else "no"


class Package(types.ModuleType):
    """A package whose names are imported at their first use."""

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return self.__dir__()
        if not name.startswith("_") and self._has(name):
            import_module(f"{self.__name__}.{name}")
            return self.__dict__[name]
        message = f"{self.__name__} has no {name!r}"
        if not name.startswith("_"):
            message += f". {_instead(name, self.__dir__())}"
        raise AttributeError(message, name=name, obj=self)

    def _has(self, name: str) -> bool:
        place = f"{self.__path__[0]}/{name}"
        return os.access(f"{place}.py", os.F_OK) or os.access(place, os.F_OK)

    def __setattr__(self, name: str, value: object) -> None:
        # Importing `servers.github.create_issue` binds that module here, under the
        # name that is the tool's.
        found = vars(value).get(name) if isinstance(value, types.ModuleType) else None
        bound = cast(object, found) if isinstance(found, Tool) else value
        super().__setattr__(name, bound)

    def __dir__(self) -> list[str]:
        with os.scandir(self.__path__[0]) as entries:
            names = {entry.name.removesuffix(".py") for entry in entries}
        # `index` is another name of the package itself.
        names.discard("index")
        return sorted(n for n in names if n.isidentifier() and n[0] != "_")


def _instead(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, 3, 0.5)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"It has {', '.join(known[:20])}{', …' * (len(known) > 20)}."


def lazy(package: str) -> None:
    """Makes the package that is being imported a lazy one."""
    sys.modules[package].__class__ = Package
