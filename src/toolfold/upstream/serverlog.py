"""One log file per server: its stderr (written by the process supervisor) and our own notes about it."""

from __future__ import annotations

import contextlib
import os
import re
import time
import zlib
from pathlib import Path
from typing import Any

from toolfold.config.secrets import Redactor

NOTES = 200
"""Notes per connection. A server that misbehaves without end must not fill the disk."""
MESSAGES = 2000
"""Log messages per connection that a server sends by the protocol."""
NOTE_CHARS = 500
LOG_BYTES = 2_000_000
DOCTOR = "`toolfold doctor` names its log and its config file."
"""The end of a hint that a model reads, where a person would be told the paths."""
_MORE = 4_000
"""Characters beyond those that are shown in which a secret may begin or end."""

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def readable(text: str, limit: int) -> str:
    """A server's text without control characters and escape sequences, cut to the last `limit` characters."""
    text = _CONTROL.sub("", text).strip()
    return text if len(text) <= limit else "…" + text[-limit:]


_PART = r"[^\s:'\"`“”/\\]*"
_FOLDERS = re.compile(
    rf"(?<![\w:/\\.])(?:(?:file://)?/{_PART}/|~/|[A-Za-z]:\\)(?:{_PART}[/\\])*",
)


def without_paths(text: str) -> str:
    """The text with each absolute path cut to its last part: a model need not know the folders of this machine."""
    return _FOLDERS.sub("", text)


class ServerLog:
    """What we noticed about one server, and how its words are quoted: without its secrets."""

    def __init__(self, folder: Path, server: str, redactor: Redactor) -> None:
        # A server's name is the person's, not ours: it may hold a slash.
        name = re.sub(r"[^\w.-]", "_", server)
        if name != server or name.startswith("."):
            name = f"{name.strip('.')}-{zlib.crc32(server.encode('utf-8', 'replace')):08x}"
        self.path = folder / f"{name}.log"
        self.redactor = redactor
        self._notes = 0
        self._messages = 0

    def quoted(self, text: str, limit: int) -> str:
        """`readable` without secrets. They are masked before the text is cut, so that none is cut in two."""
        return readable(self.redactor.text(readable(text, limit + _MORE)), limit)

    def begin(self, text: str) -> None:
        """A new connection: notes count from zero again."""
        self._notes = self._messages = 0
        with contextlib.suppress(OSError):
            if self.path.stat().st_size > LOG_BYTES:
                self.path.replace(f"{self.path}.1")
        self.note(text)

    def note(self, text: str) -> None:
        self._notes += 1
        if self._notes > NOTES:
            return
        if self._notes == NOTES:
            text = "more of the same is not recorded"
        self._write(text, NOTE_CHARS)

    def _write(self, text: str, limit: int) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        line = f"[toolfold {stamp}] {self.quoted(text, limit)}\n"
        # A log that cannot be written is no reason to lose the server.
        with contextlib.suppress(OSError):
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, line.encode("utf-8", "replace"))
            finally:
                os.close(fd)

    def message(self, level: str, logger: str, data: Any) -> None:
        """A log message that the server sent by the protocol."""
        self._messages += 1
        if self._messages > MESSAGES:
            return
        text = data[:_MORE] if isinstance(data, str) else repr(data)[:_MORE]
        self._write(f"{level}{f' {logger[:100]}' if logger else ''}: {text}", NOTE_CHARS)
        if self._messages == MESSAGES:
            self._write("more messages of this connection are not recorded", NOTE_CHARS)

    def junk(self, line: bytes) -> None:
        shown = self.redactor.text(line[:_MORE].decode("utf-8", "backslashreplace"))[:200]
        self.note(f"ignored {len(line)} bytes on stdout that are no message: {shown}")
