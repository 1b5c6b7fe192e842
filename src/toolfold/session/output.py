"""What a program printed, within a budget: head and tail for the model, the whole of it in a file."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolfold.privacy.stream import StreamTokeniser

OUTPUTS = "outputs"
OUTPUT_NAME = re.compile(r"[0-9a-f]{6}-\d+\.txt")
"""Which of the files there are ours: the process and the run, as `Sessions` names them."""
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OutputRecorder:
    """Collects bytes as they come. Nothing is kept twice; over the budget they go to a file in the workspace.

    `workspace` is asked for only then. `private` takes personal values out of what is printed.
    """

    def __init__(
        self,
        workspace: Callable[[], Path],
        name: str,
        budget: int,
        on_text: Callable[[str], None] | None,
        private: StreamTokeniser | None = None,
    ) -> None:
        self._workspace = workspace
        self._name = name
        self._budget = budget
        self._on_text = on_text
        self._private = private
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        self._length = 0
        self._head = ""
        self._tail = ""
        self._file: int | None = None
        self._closing: weakref.finalize[..., OutputRecorder] | None = None
        self._failed = ""

    def add(self, data: bytes) -> None:
        text = self._decoder.decode(data)
        self._take(text if self._private is None else self._private.feed(text))

    def _take(self, text: str) -> None:
        if not text:
            return
        if self._on_text is not None:
            self._on_text(text)
        self._length += len(text)
        self._pieces.append(text)
        if self._length > self._budget:
            self._spill()

    def finish(self, tail: str = "") -> tuple[str, str | None]:
        """The text for the model, and the file with all of it when that text was cut. `tail` is shown last."""
        text = self._decoder.decode(b"", final=True)
        self._take(text if self._private is None else self._private.feed(text) + self._private.end())
        if tail:
            joined = "".join(self._pieces[-1:])
            self._take(tail if not joined or joined.endswith("\n") else f"\n{tail}")
        if self._length <= self._budget:
            return "".join(self._pieces), None
        self._spill()
        if self._closing is not None:
            self._closing()
            self._file = None
        path = f"workspace/{OUTPUTS}/{self._name}"
        where = self._failed or f"all of it: {path}"
        head, rest = self._head, self._tail
        cut = self._length - len(head) - len(rest)
        return f"{head}\n[… {cut:,} characters cut; {where} …]\n{rest}", None if self._failed else path

    def _spill(self) -> None:
        """Move what is held to the file, keeping only the head and the tail in memory."""
        text = "".join(self._pieces)
        self._pieces.clear()
        half = self._budget // 2
        if not self._head:
            self._head, after = text[:half], text[half:]
        else:
            after = text
        self._tail = (self._tail + after)[-half:]
        if self._failed:
            return
        try:
            if self._file is None:
                self._file = _create(self._workspace(), self._name)
                # A run that is cancelled never finishes its output.
                self._closing = weakref.finalize(self, os.close, self._file)
            _write_all(self._file, text.encode("utf-8", "replace"))
        except OSError as error:
            # A full disk or a hostile folder costs the copy, not the run.
            self._failed = f"the rest could not be kept: {error.strerror}"


def within(text: str, budget: int) -> str:
    """A text that is kept nowhere else, cut in the middle when it is over the budget."""
    if len(text) <= budget:
        return text
    half = budget // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters cut …]\n{text[-half:]}"


def _create(workspace: Path, name: str) -> int:
    """Open a new file under `workspace/outputs` without following any link that the program may have laid there."""
    folder = os.open(workspace, _FOLDER)
    try:
        owner = os.fstat(folder)
        with contextlib.suppress(FileExistsError):
            os.mkdir(OUTPUTS, 0o755, dir_fd=folder)
        inner = os.open(OUTPUTS, _FOLDER, dir_fd=folder)
        try:
            file = os.open(name, _FLAGS, 0o644, dir_fd=inner)
            _give(owner, inner, file)
            return file
        finally:
            os.close(inner)
    finally:
        os.close(folder)


def _give(owner: os.stat_result, *descriptors: int) -> None:
    """The workspace may be another user's than ours; what we add to it is for that user to read and to delete."""
    if owner.st_uid != os.geteuid():
        for descriptor in descriptors:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
