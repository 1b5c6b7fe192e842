"""From an upstream's answer to the value that a program receives. `docs/writing-programs.md` has the table of cases."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import mimetypes
import os
import re
from pathlib import Path
from typing import Any, cast

from .channel import ToolError, parse, warn

FILES = Path("workspace/files")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST_REPR = 8_000_000
_ERROR_CHARS = 4000
_MEDIA_KEYS = frozenset({"data", "blob", "resource"})
# What Python's repr writes otherwise than JSON: strings, the three constants, tuples.
# A string without an end is one as well, else the search for ends would begin anew at every quote.
_PYTHON = re.compile(r"""'(?:[^'\\]|\\.)*+'?|"(?:[^"\\]|\\.)*+"?|\b(?:None|True|False)\b|\(|,?\)""", re.DOTALL)
_JSON_WORDS = {"None": "null", "True": "true", "False": "false", "(": "[", ")": "]", ",)": "]"}
_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|U[0-9a-f]{8}|.)|\"", re.DOTALL)


class File:
    """Bytes that a tool returned, kept as a file. `open(file, "rb")` reads them."""

    def __init__(self, path: str, mime_type: str, size: int) -> None:
        self.path = path
        self.mime_type = mime_type
        self.size = size

    def read_bytes(self) -> bytes:
        return Path(self.path).read_bytes()

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"File(path={self.path!r}, mime_type={self.mime_type!r}, size={self.size})"


class Usage:
    """What tool calls have come to in this process."""

    def __init__(self) -> None:
        self.calls = 0
        self.bytes = 0
        self.files = 0
        self.tools: dict[str, None] = {}


usage = Usage()


def to_value(reply: dict[str, Any], server: str, tool: str) -> Any:
    """The data of an answer; a ToolError where the tool reported an error."""
    usage.calls += 1
    usage.bytes += reply.get("size", 0)
    usage.tools[f"{server}.{tool}"] = None
    parts: list[dict[str, Any]] = reply.get("parts") or []
    if reply.get("is_error"):
        raise ToolError(_reason(parts, reply.get("structured")), server=server, tool=tool)
    if reply.get("warning"):
        warn(reply["warning"])
    if reply.get("has_structured"):
        value = _unwrapped(reply["structured"]) if reply.get("wrapped") else reply["structured"]
        return _with_files(value, parts, tool) if reply.get("media") else value
    kind = reply.get("kind")
    if kind == "text" and all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    values = [part_value(part, f"{tool}-{number}") for number, part in enumerate(parts)]
    if kind == "list":
        return cast("Any", values[0]) if len(values) == 1 and isinstance(values[0], list) else values
    if not values:
        return None
    return values[0] if len(values) == 1 else values


def _reason(parts: list[dict[str, Any]], structured: Any) -> str:
    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    if not text.strip() and structured is not None:
        text = json.dumps(structured, ensure_ascii=False)[:_ERROR_CHARS]
    return text or "the tool reported an error without a text"


def _unwrapped(value: Any) -> Any:
    """What is inside `{"result": …}`; `value` itself where a server declares a wrapper and sends none."""
    held = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return held["result"] if list(held) == ["result"] else cast("Any", value)


def _with_files(value: Any, parts: list[dict[str, Any]], tool: str) -> Any:
    """Structured content with its media as files. Media beside it are files too, and a note says where they are."""
    media = Media(tool)
    value = media.taken_out(value)
    beside = [media.keep(part) for part in parts if part["type"] == "blob" and not media.has(part)]
    if beside:
        warn(f"{tool} also returned {', '.join(map(repr, beside))}")
    return value


def part_value(part: dict[str, Any], stem: str) -> Any:
    """The value of one block of content."""
    if part["type"] == "text":
        value = parse_text(part["text"])
        return Media(stem).taken_out(value) if value is not part["text"] and "mimeType" in part["text"] else value
    if part["type"] == "blob":
        return Media(stem).keep(part)
    return {key: value for key, value in part.items() if key != "type" and value}


def parse_text(text: str) -> Any:
    """Objects and arrays are parsed, `null` is None. A bare `42` or `true` stays text: it may be a name or a code."""
    first = text[:64].lstrip()[:1]
    if first in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):
            return parse(text)
        with contextlib.suppress(ValueError, RecursionError):
            return _parse_python(text)
    elif first == "n" and text.strip() == "null":
        return None
    return text


def _parse_python(text: str) -> Any:
    """Plain data as Python's `repr` writes it: `[{'id': 1, 'name': None}]`. ValueError for everything else."""
    if len(text) > _LONGEST_REPR or text[-64:].rstrip()[-1:] not in ("}", "]"):
        raise ValueError("not the repr of a list or a dict")
    return parse(_PYTHON.sub(_as_json, text))


def _as_json(found: re.Match[str]) -> str:
    token = found[0]
    word = _JSON_WORDS.get(token)
    if word is not None:
        return word
    if len(token) < 2 or token[-1] != token[0]:
        raise ValueError("a string without an end")
    inside = token[1:-1]
    if "\\" in inside or '"' in inside:
        inside = _ESCAPE.sub(_json_escape, inside)
    return f'"{inside}"'


def _json_escape(found: re.Match[str]) -> str:
    match found[1]:
        case None:
            return '\\"'
        case "'":
            return "'"
        case code if len(code) == 3:
            return f"\\u00{code[1:]}"
        case code if len(code) == 9:
            return json.dumps(chr(int(code[1:], 16)))[1:-1]
        case _:
            return found[0]


class Media:
    """Makes files of the media in one result. `stem` names those that have no name of their own."""

    def __init__(self, stem: str) -> None:
        self._stem = stem
        # What is in a result twice is one file.
        self._kept: dict[tuple[str, str | None], File] = {}

    def taken_out(self, value: Any) -> Any:
        """`value`, changed in place: a File stands where an object in one of MCP's shapes for media was."""
        holder = [value]
        todo: list[Any] = [holder]
        while todo:
            items = todo.pop()
            pairs = items.items() if hasattr(items, "items") else enumerate(items)
            for key, item in cast("Any", pairs):
                if type(item) is list:
                    todo.append(item)
                elif type(item) is dict:
                    file = self._file(cast("Any", item)) if not _MEDIA_KEYS.isdisjoint(cast("Any", item)) else None
                    if file is None:
                        todo.append(item)
                    else:
                        items[key] = file
        return holder[0]

    def _file(self, item: dict[str, Any]) -> File | None:
        match item:
            case {"type": "image" | "audio", "data": str(data), "mimeType": str(mime_type)}:
                return self._decoded(data, mime_type, "")
            case {"type": "resource", "resource": {"uri": str(uri), "blob": str(data)} as resource}:
                return self._decoded(data, resource.get("mimeType"), uri)
            case {"uri": str(uri), "blob": str(data)}:
                return self._decoded(data, item.get("mimeType"), uri)
            case _:
                return None

    def _decoded(self, data: str, mime_type: Any, uri: str) -> File | None:
        name = uri.rstrip("/").rpartition("/")[2]
        try:
            base64.b64decode(data.replace("\n", ""), validate=True)
        except ValueError:  # an object that only looks like one of these
            return None
        return self.keep({"data": data, "mime_type": mime_type, "name": name})

    def keep(self, part: dict[str, Any]) -> File:
        """A file with the bytes of a part."""
        key = (part["data"], part.get("mime_type"))
        if key not in self._kept:
            self._kept[key] = _written(base64.b64decode(key[0]), key[1], part.get("name") or self._stem)
        return self._kept[key]

    def has(self, part: dict[str, Any]) -> bool:
        return (part["data"], part.get("mime_type")) in self._kept


def _written(data: bytes, mime_type: str | None, wish: str) -> File:
    kind = mime_type or "application/octet-stream"
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", wish).strip("._")[:80] or "file"
    if not Path(name).suffix:
        name += mimetypes.guess_extension(kind) or _suffix(kind)
    handle, name = _create(name)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    usage.files += 1
    return File(f"{FILES}/{name}", kind, len(data))


def _suffix(mime_type: str) -> str:
    """For types that the standard library does not know: `audio/wav`, `image/webp`."""
    subtype = mime_type.partition("/")[2]
    return f".{subtype}" if re.fullmatch(r"[a-z0-9]{2,5}", subtype) else ".bin"


def _create(name: str) -> tuple[int, str]:
    """A new file in `FILES`, under this name or a similar one. No link that lies on the way is followed."""
    workspace = os.open(FILES.parent, _FOLDER)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(FILES.name, dir_fd=workspace)
        folder = os.open(FILES.name, _FOLDER, dir_fd=workspace)
    finally:
        os.close(workspace)
    try:
        stem, suffix = Path(name).stem, Path(name).suffix
        for number in itertools.count(2):
            with contextlib.suppress(FileExistsError):
                return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder), name
            name = f"{stem}-{number}{suffix}"
    finally:
        os.close(folder)
    raise AssertionError("numbers do not end")
