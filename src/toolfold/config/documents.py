"""From the bytes of a config file to a parsed document: JSON with comments, TOML, dotenv; and what is wrong in one."""

from __future__ import annotations

import difflib
import itertools
import json
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

LIMIT = 5_000_000
"""Bytes that a config may hold, unless its format says otherwise."""
DEPTH = 64
"""How deep a config may nest; what reads it after this may recurse."""

_TOML_BY_SUFFIX = {".toml": True, ".json": False, ".jsonc": False, ".json5": False}
_LONGEST_TEXT = 200
_LONGEST_PATH = 4096


# ---- problems


def one_line(text: str, longest: int = _LONGEST_TEXT) -> str:
    """`text` fit for a terminal or a log: no control, direction or invisible characters, and bounded."""
    head = text[:longest]
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in head)
    return clean if len(text) <= longest else f"{clean}…"


def nearest(key: str, known: Iterable[str], *, likeness: float = 0.5) -> str:
    """The known key that `key` most likely means; empty where none is that much alike."""
    return next(iter(difflib.get_close_matches(key[:60], sorted(known), n=1, cutoff=likeness)), "")


def known_key(key: str, known: Iterable[str]) -> str:
    """What to say about an unknown key: the nearest one that exists, or all of them."""
    names = sorted(known)
    near = nearest(key, names)
    choice = f"`{near}`, the nearest known key" if near else f"one of {', '.join(names)}"
    return f"expected {choice}; this key is ignored"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to put right: where it is and what was expected there.

    It holds names and places, never a value from the file: values are where people keep their secrets.
    """

    file: str
    key: str
    expected: str
    server: str = ""
    """The server that is left out (or got a default) because of this; empty when it is about a setting."""
    fatal: bool = False
    """Whether Toolfold must not start before this is put right: something would be open that is meant to be closed."""
    line: int = 0
    """Where in the file, as far as that is known."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", one_line(self.file, _LONGEST_PATH))
        object.__setattr__(self, "key", one_line(self.key))
        object.__setattr__(self, "server", one_line(self.server))

    def __str__(self) -> str:
        file = f"{self.file}, line {self.line}" if self.line else self.file
        where = ": ".join(part for part in (file, self.key) if part)
        return f"{where}: {self.expected}" if where else self.expected


class UnreadableError(Exception):
    """The document cannot be read. The text says what was expected, without any of the file's content."""


# ---- files


@dataclass(frozen=True, slots=True)
class Document:
    content: dict[str, Any]
    empty: bool = False
    duplicates: list[str] = field(default_factory=list[str])
    """Names that some object of the document holds more than once."""
    data: bytes = b""
    """The bytes that were parsed."""


def read(path: Path, *, limit: int = LIMIT, named: bool = False) -> Document:
    """The document in `path`; raises `UnreadableError`, or `FileNotFoundError` when nothing is there.

    `named` means that a person gave this path, so a pipe is fine; a discovered one must be a regular file, since
    reading anything else could wait for ever.
    """
    data = read_bytes(path, limit=limit, named=named)
    parsed = parse(_decode(data), toml=_TOML_BY_SUFFIX.get(path.suffix.lower()))
    return Document(parsed.content, parsed.empty, parsed.duplicates, data)


def read_text(path: Path, *, limit: int = LIMIT) -> str:
    """The text in `path`, bounded; raises `UnreadableError`, or `FileNotFoundError` when nothing is there."""
    return _decode(read_bytes(path, limit=limit))


def read_bytes(path: Path, *, limit: int = LIMIT, named: bool = False) -> bytes:
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
    return data


def _decode(data: bytes) -> str:
    encoding = "utf-16" if data[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        raise UnreadableError("expected UTF-8 text") from None


# ---- documents


def parse(text: str, *, toml: bool | None = None) -> Document:
    """The document that `text` holds: TOML, JSON or JSONC; `toml=None` tells them apart by the first sign."""
    start = text.lstrip()
    if not start:
        return Document({}, empty=True)
    if toml is None:
        toml = not start.startswith(("{", "[", "/")) or _is_table_header(start)
    duplicates: list[str] = []
    try:
        content: Any = tomllib.loads(text) if toml else parse_jsonc(text, duplicates)
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
    return Document(as_object(content), duplicates=duplicates)


def as_object(content: object) -> dict[str, Any]:
    """`content` as a JSON object of bounded depth; raises `UnreadableError` otherwise."""
    if not isinstance(content, Mapping):
        raise UnreadableError("expected an object at the top")
    level: list[Any] = [content]
    for _ in range(DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return {str(key): value for key, value in cast("Mapping[object, Any]", content).items()}
    raise UnreadableError(f"expected at most {DEPTH} levels of nesting")


def _inside(outer: Any) -> list[Any]:
    values = cast("Mapping[str, Any]", outer).values() if isinstance(outer, Mapping) else cast("list[Any]", outer)
    return [value for value in values if isinstance(value, Mapping | list)]


def _is_table_header(start: str) -> bool:
    """Whether a text that begins with `[` is TOML's `[table]` rather than a JSON array."""
    first = start.splitlines()[0].partition("#")[0].strip()
    return first.startswith("[") and first.endswith("]") and "=" in start and '":' not in first


def line_of(data: bytes, key: str) -> int:
    """The line that a dotted key stands on, or the part of it that is found; 0 where none is. TOML and JSON alike."""
    text = data.decode("utf-8", "replace")
    at, name = -1, ""
    for part in key.split("."):
        if part.isdigit() and name:
            # The first table of TOML's array of tables is found by its name, each further one by the next header.
            header, times = rf"\[\[[^\]\n]*{re.escape(name)}\s*\]\]", int(part)
        else:
            name = part
            header, times = rf"(?<![\w-]){re.escape(name)}(?![\w-])", 1
        for found in itertools.islice(re.compile(header).finditer(text, at + 1), times):
            at = found.start()
    return text.count("\n", 0, at) + 1 if at >= 0 else 0


# ---- JSON as editors write it: `//` and `/* */` comments and trailing commas, in one pass over the text

# One alternation, tried from left to right at each place: a string is taken whole, so what looks like a comment
# or a comma inside it is never seen. A string or comment that is never closed takes the rest of the text, so no
# part of it is looked at twice and the pass stays linear.
_PIECE = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*+"?)'
    r"|(?P<line>//[^\r\n]*+)"
    r"|(?P<block>/\*(?:[^*]|\*(?!/))*+(?:\*/)?)"
    r"|(?P<comma>,)"
    r"|(?P<close>[}\]])"
    r"|(?P<other>[^\"/,}\]\s]++|/)",
    re.DOTALL,
)
_NOT_BREAK = re.compile(r"[^\r\n]")


def parse_jsonc(text: str, duplicates: list[str] | None = None) -> Any:
    """The value that `text` holds; raises `ValueError` (bad syntax) or `RecursionError` (nested too deep).

    An object's repeated name keeps its last value, as in every client; `duplicates` collects such names.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items) and duplicates is not None:
            seen: set[str] = set()
            duplicates.extend(name for name, _ in items if name in seen or seen.add(name))
        return found

    try:
        return json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError:
        # Most files are plain JSON; only those that are not pay for the second pass.
        if duplicates is not None:
            duplicates.clear()
        return json.loads(strip_comments(text), object_pairs_hook=pairs)


def strip_comments(text: str) -> str:
    """`text` with comments and trailing commas blanked out. Lines and columns stay where they were.

    What is not valid JSONC (an unclosed comment, a stray slash) is left for the JSON parser to refuse.
    """
    kept: list[str] = []
    done = 0
    comma = -1
    for piece in _PIECE.finditer(text):
        kind = piece.lastgroup
        if kind == "block" and not piece[0].endswith("*/", 2):
            break
        if kind in {"line", "block"}:
            kept += (text[done : piece.start()], _NOT_BREAK.sub(" ", piece[0]))
            done = piece.end()
        elif kind == "comma":
            kept += (text[done : piece.start()], ",")
            done = piece.end()
            comma = len(kept) - 1
        else:
            if kind == "close" and comma >= 0:
                kept[comma] = " "
            comma = -1
    kept.append(text[done:])
    return "".join(kept)


# ---- the `NAME=value` files that `envFile` names

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][\w.]*)\s*=\s*(.*)", re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)"|\'([^\']*+)\'')
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def parse_dotenv(text: str) -> dict[str, str]:
    """The variables of a dotenv file. Quotes are removed, comments and lines that are no assignment are skipped."""
    assigned = (_ASSIGNMENT.fullmatch(line) for line in text.splitlines())
    return {found[1]: _dotenv_value(found[2].rstrip()) for found in assigned if found is not None}


def _dotenv_value(raw: str) -> str:
    quoted = _QUOTED.match(raw)
    if quoted is None:
        return re.split(r"\s#|^#", raw, maxsplit=1)[0].rstrip()
    if quoted[2] is not None:
        return quoted[2]
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), quoted[1])
