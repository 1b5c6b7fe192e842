"""How often each tool was used, kept across processes: `uses.jsonl` in the data folder.

Every line adds to a count, so several gateways write to one file without reading it. When it has grown, it is written
anew with one line for each tool.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from pathlib import Path

import msgspec

from toolfold.locks import locked

FILE = "uses.jsonl"
_PAUSE = 1.0
"""Seconds for which uses are gathered before they are written."""
_LARGE = 256 * 1024
_MOST_BYTES = 16 * 1024 * 1024
_Line = tuple[str, str, int]

_decoder = msgspec.json.Decoder(_Line)


class Uses:
    """One per fold. What cannot be read or written is not counted: that costs a suggestion, and no call."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE
        self._new: Counter[tuple[str, str]] = Counter()
        self._writing: asyncio.Task[None] | None = None

    def add(self, server: str, tool: str) -> None:
        """A server has answered a call of this tool."""
        self._new[server, tool] += 1
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_soon())

    def counts(self) -> dict[tuple[str, str], int]:
        """What the file says."""
        try:
            with locked(self._path, os.O_RDONLY, shared=True) as file:
                return _read(file)
        except OSError:
            return {}

    async def close(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])
        await asyncio.to_thread(self._write)

    async def _write_soon(self) -> None:
        await asyncio.sleep(_PAUSE)
        await asyncio.to_thread(self._write)

    def _write(self) -> None:
        new, self._new = self._new, Counter()
        if not new:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND) as file:
                os.write(file, _lines(new))
                if os.fstat(file).st_size > _LARGE:
                    whole = _lines(Counter(_read(file)))
                    if len(whole) < _LARGE // 2:
                        os.ftruncate(file, 0)
                        os.write(file, whole)


def _lines(counts: Counter[tuple[str, str]]) -> bytes:
    return b"".join(msgspec.json.encode([*key, number]) + b"\n" for key, number in counts.items())


def _read(file: int) -> dict[tuple[str, str], int]:
    counts: Counter[tuple[str, str]] = Counter()
    for line in os.pread(file, _MOST_BYTES, 0).splitlines():
        with contextlib.suppress(msgspec.MsgspecError):  # a line that was cut off
            server, tool, number = _decoder.decode(line)
            counts[server, tool] += number
    return counts
