"""Plain data that outlives the sandbox: `keep("rows", rows)` in one run, `kept["rows"]` in any later one.

What JSON has no word for is an object with one key that begins with `$`: {"$bytes": …}. Reading one makes a value of
a type that is named here, and can never run anything.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Generator, Iterator, MutableMapping
from typing import Any, cast

from .channel import ToolError, channel
from .results import File

_DEEPEST = 100
_LONGEST_NAME = 200
_LARGEST_INTEGER = 1 << 63
_TAKES = (
    "keep() takes plain data: None, bool, int, float, str, bytes, list, tuple, dict, set, datetime, date, time, "
    "timedelta, Decimal, UUID and File"
)


class Kept(MutableMapping[str, Any]):
    """The session's kept values. Reading gives a copy: after a change, `keep` it again."""

    def __getitem__(self, name: str) -> Any:
        reply = _asked({"t": "kept", "name": _name(name)})
        if "value" not in reply:
            raise KeyError(f"nothing is kept as {name!r}; there is: {', '.join(self) or 'nothing'}")
        return from_plain(reply["value"])

    def __setitem__(self, name: str, value: Any) -> None:
        keep(name, value)

    def __delitem__(self, name: str) -> None:
        if not _asked({"t": "forget", "name": _name(name)})["found"]:
            raise KeyError(f"nothing is kept as {name!r}")

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __repr__(self) -> str:
        return f"kept({', '.join(self._names())})"

    def _names(self) -> list[str]:
        return _asked({"t": "kept_names"})["names"]


kept = Kept()


class _Acknowledged:
    """May be awaited or not."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()

    def __repr__(self) -> str:
        return f"kept[{self._name!r}]"


def keep(name: str, value: Any) -> _Acknowledged:
    """Keep plain data for later runs of this session, also after its sandbox has ended. It is on disk on return."""
    _asked({"t": "keep", "name": _name(name), "value": to_plain(value)})
    return _Acknowledged(name)


def _asked(frame: dict[str, Any]) -> dict[str, Any]:
    try:
        return channel().request_now(frame)
    except ToolError as error:
        if error.code != "value_refused":
            raise
        raise ValueError(str(error)) from None


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a kept value's name must be text, not {type(name).__name__}")
    if len(name) > _LONGEST_NAME:
        raise ValueError(f"A name has 1 to {_LONGEST_NAME} characters, not {len(name):,}.")
    return str(name)


def to_plain(value: Any, depth: int = 0) -> Any:
    """`value` as JSON can hold it. TypeError for what is not plain data."""
    if depth > _DEEPEST:
        raise ValueError(f"keep(): nested deeper than {_DEEPEST}, or inside itself")
    deeper = depth + 1
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _plain_text(str(value))
    if isinstance(value, int):
        number = int(value)
        return number if -_LARGEST_INTEGER <= number < _LARGEST_INTEGER else {"$int": hex(number)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if isinstance(value, list):
        return [to_plain(item, deeper) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return _plain_dict(cast("dict[Any, Any]", value), deeper)
    if isinstance(value, tuple | set | frozenset):
        kind = "tuple" if isinstance(value, tuple) else "set" if isinstance(value, set) else "frozenset"
        return {f"${kind}": [to_plain(item, deeper) for item in cast("tuple[Any, ...]", value)]}
    if isinstance(value, bytes | bytearray):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, File):
        return {"$file": [value.path, value.mime_type, value.size]}
    return _plain_object(value)


def _plain_text(text: str) -> Any:
    try:
        text.encode()
    except UnicodeEncodeError:
        return {"$str": base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()}
    return text


def _plain_dict(value: dict[Any, Any], deeper: int) -> Any:
    if all(isinstance(key, str) and not key.startswith("$") and key.isascii() for key in value):
        return {str(key): to_plain(item, deeper) for key, item in value.items()}
    return {"$dict": [[to_plain(key, deeper), to_plain(item, deeper)] for key, item in value.items()]}


def _plain_object(value: Any) -> Any:
    kind = cast("type[Any]", type(value))
    match f"{kind.__module__}.{kind.__qualname__}":
        case "datetime.datetime" | "datetime.date" | "datetime.time":
            # A zone by its name; every other one as the offset that it has at that moment.
            zone = getattr(getattr(value, "tzinfo", None), "key", None)
            text = (value.replace(tzinfo=None) if zone else value).isoformat()
            return {f"${kind.__name__}": [text, zone, getattr(value, "fold", 0)]}
        case "datetime.timedelta":
            return {"$timedelta": [value.days, value.seconds, value.microseconds]}
        case "decimal.Decimal":
            return {"$Decimal": str(value)}
        case "uuid.UUID":
            return {"$UUID": value.hex}
        case _:
            hint = "write anything else to a file in workspace/"
            raise TypeError(f"{_TAKES}, not {kind.__name__}; {hint}")


def from_plain(value: Any) -> Any:
    """The value again."""
    if isinstance(value, list):
        return [from_plain(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    plain = cast("dict[str, Any]", value)
    if len(plain) == 1:
        ((key, inside),) = plain.items()
        if key.startswith("$"):
            return _read(key[1:], inside)
    return {key: from_plain(item) for key, item in plain.items()}


def _read(kind: str, inside: Any) -> Any:
    match kind:
        case "dict":
            return {from_plain(key): from_plain(item) for key, item in inside}
        case "tuple":
            return tuple(map(from_plain, inside))
        case "set":
            return set(map(from_plain, inside))
        case "frozenset":
            return frozenset(map(from_plain, inside))
        case "bytes":
            return base64.b64decode(inside)
        case "str":
            return base64.b64decode(inside).decode("utf-8", "surrogatepass")
        case "int":
            return int(inside, 16)
        case "float":
            return float(inside)
        case "file":
            return File(*inside)
        case _:
            return _object(kind, inside)


def _object(kind: str, inside: Any) -> Any:
    if kind == "Decimal":
        from decimal import Decimal

        return Decimal(inside)
    if kind == "UUID":
        from uuid import UUID

        return UUID(inside)
    import datetime as dt

    if kind == "timedelta":
        return dt.timedelta(*inside)
    text, zone, fold = inside
    match kind:
        case "datetime":
            moment: Any = dt.datetime.fromisoformat(text)
        case "time":
            moment = dt.time.fromisoformat(text)
        case "date":
            return dt.date.fromisoformat(text)
        case _:
            raise ValueError(f"a kept value of an unknown kind: {kind}")
    if zone:
        from zoneinfo import ZoneInfo

        moment = moment.replace(tzinfo=ZoneInfo(zone))
    return moment.replace(fold=fold)
