"""Changes to files as a person sees them before they are made: a diff, without secrets, and a question."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolfold.cli.console import note, printable

if TYPE_CHECKING:
    from toolfold.config.folding.journal import Change
    from toolfold.config.settings import ServerConfig

_CONTEXT = 3
_LONGEST_LINE = 400


def show(changes: Sequence[Change], servers: Sequence[ServerConfig] = ()) -> None:
    """Write the diff of all files to stdout. Secrets of `servers`, and what looks like one, are masked."""
    from toolfold.config.secrets import Redactor
    from toolfold.config.settings import ServerConfig

    maskers = [Redactor(server) for server in servers] or [Redactor(ServerConfig(command="none"))]
    colours = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"} if sys.stdout.isatty() else {}
    for change in changes:
        for written in _diff(change):
            line = written
            for masker in maskers:
                line = masker.text(line)
            colour = colours.get(line[:1], "")
            text = printable(line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…")
            sys.stdout.write(f"{colour}{text}\x1b[0m\n" if colour else f"{text}\n")
    sys.stdout.flush()


def agreed(question: str) -> bool:
    """Ask on the terminal. Without one the answer is no, with a line that says what to do."""
    if not sys.stdin.isatty():
        note("Nothing was changed: this is no terminal. --yes makes the change, --print only shows it.")
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def shown(path: str | Path) -> str:
    """A path with `~` for the home folder."""
    text, home = str(path), str(Path.home())
    return f"~{text[len(home) :]}" if text.startswith(f"{home}/") else text


def _diff(change: Change) -> Iterator[str]:
    before, after = _lines(change.before), _lines(change.after)
    # Files of megabytes differ in a few lines: what is the same at both ends is not compared.
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    start = max(head - _CONTEXT, 0)
    old, new = (lines[start : max(len(lines) - tail, head) + _CONTEXT] for lines in (before, after))
    name = shown(change.path)
    labels = ("/dev/null" if change.before is None else name, "/dev/null" if change.after is None else name)
    for line in difflib.unified_diff(old, new, *labels, lineterm="", n=_CONTEXT):
        yield line if not line.startswith("@@") else f"@@ from line {start + 1} @@"
    if change.before is None and not after:
        yield f"+++ {name} (empty)"


def _lines(data: bytes | None) -> list[str]:
    return [] if data is None else data.decode("utf-8", errors="replace").splitlines()
