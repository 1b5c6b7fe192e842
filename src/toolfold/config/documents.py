"""From bytes in a file to a parsed document, whatever the bytes are."""

from __future__ import annotations

import json
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from toolfold.config import jsonc

LIMIT = 5_000_000
"""Bytes that a config may hold, unless its format says otherwise."""
DEPTH = 64
"""How deep a config may nest; what reads it after this may recurse."""


_SUFFIXES = {".toml": True, ".json": False, ".jsonc": False, ".json5": False}


class UnreadableError(Exception):
    """The document cannot be had. The text says what was expected, without any of the file's content."""


@dataclass(frozen=True, slots=True)
class Document:
    content: dict[str, Any]
    empty: bool = False
    duplicates: list[str] = field(default_factory=list[str])


def read(path: Path, *, limit: int = LIMIT, named: bool = False) -> Document:
    """The document in `path`; raises `UnreadableError`, or `FileNotFoundError` when nothing is there.

    `named` means a person gave this path, so a pipe is fine; a discovered one must be a regular file, since
    reading anything else could wait for ever.
    """
    toml = _SUFFIXES.get(path.suffix.lower())
    return parse(read_text(path, limit=limit, named=named), toml=toml)


def read_text(path: Path, *, limit: int = LIMIT, named: bool = False) -> str:
    """The text in `path`, bounded; raises `UnreadableError`, or `FileNotFoundError` when nothing is there."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UnreadableError("expected a file, found a directory")
        if not named and not stat.S_ISREG(mode):
            raise UnreadableError("expected a regular file")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:
        raise FileNotFoundError(str(path)) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a usable path"
        raise UnreadableError(f"expected a readable file ({(reason or 'unreadable').lower()})") from error
    if len(data) > limit:
        raise UnreadableError(f"expected at most {limit // 1_000_000} MB")
    return _decode(data)


def parse(text: str, *, toml: bool | None = None) -> Document:
    """The document that `text` holds: TOML, JSON or JSONC; `toml=None` tells them apart by the first sign."""
    start = text.lstrip()
    if not start:
        return Document({}, empty=True)
    if toml is None:
        toml = not start.startswith(("{", "[", "/")) or _is_table_header(start)
    duplicates = jsonc.Duplicates()
    try:
        content: Any = tomllib.loads(text) if toml else jsonc.parse(text, duplicates)
    except json.JSONDecodeError as error:
        place = f"{error.msg}, line {error.lineno} column {error.colno}"
        raise UnreadableError(f"expected valid JSON ({place})") from None
    except tomllib.TOMLDecodeError as error:
        place = str(error).rpartition("(at ")[2].rstrip(")") or "at an unknown place"
        raise UnreadableError(f"expected valid TOML (error at {place})") from None
    except RecursionError:
        raise UnreadableError(f"expected at most {DEPTH} levels of nesting") from None
    except ValueError:
        raise UnreadableError("expected valid numbers and text") from None
    return Document(as_object(content), duplicates=list(duplicates))


def as_object(content: object) -> dict[str, Any]:
    """`content` as a JSON object of bounded depth; raises `UnreadableError` otherwise."""
    if not isinstance(content, Mapping):
        raise UnreadableError("expected an object at the top")
    _check_depth(cast("Mapping[str, Any]", content))
    return {str(key): value for key, value in cast("Mapping[object, Any]", content).items()}


def _is_table_header(start: str) -> bool:
    """Whether a text that begins with `[` is TOML's `[table]` rather than a JSON array."""
    first = start.splitlines()[0].partition("#")[0].strip()
    return first.startswith("[") and first.endswith("]") and "=" in start and '":' not in first


def _decode(data: bytes) -> str:
    encoding = "utf-16" if data[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        raise UnreadableError("expected UTF-8 text") from None


def _check_depth(content: Mapping[str, Any]) -> None:
    level: list[Any] = [content]
    for _ in range(DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise UnreadableError(f"expected at most {DEPTH} levels of nesting")


def _inside(outer: Any) -> Iterable[Any]:
    if isinstance(outer, Mapping):
        return [value for value in cast("Mapping[str, Any]", outer).values() if isinstance(value, Mapping | list)]
    return [value for value in cast("list[Any]", outer) if isinstance(value, Mapping | list)]
