"""From an upstream's answer to the value that agent code receives."""

from __future__ import annotations

import base64
import contextlib
import itertools
import mimetypes
import os
import re
from pathlib import Path
from typing import Any

from .channel import ToolError, parse, warn

FILES = Path("workspace/files")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class File:
    """Bytes that a tool returned, kept as a file. `open(file.path, "rb")` reads them."""

    def __init__(self, path: str, mime_type: str, size: int) -> None:
        self.path = path
        self.mime_type = mime_type
        self.size = size

    def read_bytes(self) -> bytes:
        return Path(self.path).read_bytes()

    def __repr__(self) -> str:
        return f"File(path={self.path!r}, mime_type={self.mime_type!r}, size={self.size})"


def to_value(reply: dict[str, Any], server: str, tool: str) -> Any:
    """Structured data as it is; JSON text parsed; other text as `str`; bytes as `File`; several parts as a list."""
    parts: list[dict[str, Any]] = reply.get("parts") or []
    if reply.get("is_error"):
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        raise ToolError(text or "the tool reported an error without a text", server=server, tool=tool)
    if reply.get("warning"):
        warn(reply["warning"])
    if reply.get("has_structured"):
        for number, part in enumerate(parts):
            if part["type"] == "blob":
                keep(part, f"{tool}-{number}")
        return reply["structured"]
    values = [part_value(part, f"{tool}-{number}") for number, part in enumerate(parts)]
    if not values:
        return None
    return values[0] if len(values) == 1 else values


def part_value(part: dict[str, Any], stem: str) -> Any:
    if part["type"] == "text":
        return parse_text(part["text"])
    if part["type"] == "blob":
        return keep(part, stem)
    return {key: value for key, value in part.items() if key != "type" and value}


def parse_text(text: str) -> Any:
    """Objects and arrays are parsed. A bare `42` or `true` stays text: it may be a name or a code."""
    if text[:64].lstrip()[:1] in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):
            return parse(text)
    return text


def keep(part: dict[str, Any], stem: str) -> File:
    data = base64.b64decode(part["data"])
    mime_type = part.get("mime_type") or "application/octet-stream"
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", part.get("name") or stem).strip("._")[:80] or "file"
    suffix = mimetypes.guess_extension(mime_type) or ".bin"
    if not Path(name).suffix:
        name += suffix
    handle, name = _create(name)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    return File(f"{FILES}/{name}", mime_type, len(data))


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
