"""`call_mcp_tool(..., type=T)`: whether a result is a T, looked at from outside and not to its last leaf."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Set
from itertools import islice
from typing import Any, cast

_LOOKED_AT = 100
"""Items of a list or dict that are looked at."""
_SHOWN = 80


class Expected:
    """What a call's result must be. TypeError where `kind` is no type."""

    def __init__(self, kind: Any) -> None:
        if kind is not Any and not isinstance(kind, type) and typing.get_origin(kind) is None:
            hint = "an argument of the tool that is called `type` goes into the dict"
            raise TypeError(f"call_mcp_tool: type must be a type, not {kind!r}; {hint}")
        self._kind = kind

    def checked(self, value: Any) -> Any:
        """`value`, or an instance made of it where a dataclass is wanted. TypeError where it does not fit."""
        kind = self._kind
        problem = _problem(value, kind)
        if problem:
            raise TypeError(f"call_mcp_tool: the result is not {_named(kind)}: {problem}")
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            known = {field.name for field in dataclasses.fields(kind) if field.init}
            return kind(**{key: item for key, item in value.items() if key in known})
        return value


def _problem(value: Any, kind: Any) -> str:
    """What is wrong with `value`, or nothing."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or kind is object:
        return ""
    if kind is None or kind is types.NoneType:
        return "" if value is None else _got(value)
    if origin in (typing.Union, types.UnionType):
        return "" if any(not _problem(value, part) for part in parts) else _got(value)
    if origin is typing.Literal:
        return "" if value in parts else _got(value)
    if typing.is_typeddict(kind):
        return _keys(value, kind.__required_keys__)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _keys(value, {field.name for field in dataclasses.fields(kind) if _is_needed(field)})
    if origin is not None:
        return _problem(value, origin) or _items(value, parts)
    if kind is float:
        return "" if isinstance(value, int | float) and not isinstance(value, bool) else _got(value)
    if kind is int and isinstance(value, bool):
        return _got(value)
    try:
        return "" if isinstance(value, cast("type", kind)) else _got(value)
    except TypeError:  # a type that cannot be asked
        return ""


def _items(value: Any, parts: tuple[Any, ...]) -> str:
    """The first items of `list[T]`, or the first values of `dict[K, T]`."""
    pairs: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict) and len(parts) == 2:
        pairs = cast("dict[Any, Any]", value).items()
    elif isinstance(value, list) and len(parts) == 1:
        pairs = enumerate(cast("list[Any]", value))
    for key, item in islice(pairs, _LOOKED_AT):
        problem = _problem(item, parts[-1])
        if problem:
            return f"[{key!r}]: {problem}"
    return ""


def _keys(value: Any, required: Set[str]) -> str:
    if not isinstance(value, dict):
        return _got(value)
    missing = sorted(required - cast("dict[str, Any]", value).keys())
    return f"missing {', '.join(map(repr, missing))}" if missing else ""


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    absent = dataclasses.MISSING
    return field.init and field.default is absent and field.default_factory is absent


def _got(value: Any) -> str:
    shown = repr(value)
    return f"got {type(value).__name__} {shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + '…'}"


def _named(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and typing.get_origin(kind) is None else str(kind)
