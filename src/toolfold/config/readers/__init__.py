"""The clients whose configs are read. Adding one: a file that makes a `Format`, and a line in `FORMATS`."""

from __future__ import annotations

from toolfold.config.readers import (
    claude_code,
    claude_desktop,
    codex,
    cursor,
    gemini,
    plain,
    toolfold,
    vscode,
    windsurf,
    zed,
)
from toolfold.config.readers.shape import Format

FORMATS: tuple[Format, ...] = (
    toolfold.FORMAT,
    claude_code.FORMAT,
    claude_desktop.FORMAT,
    cursor.FORMAT,
    windsurf.FORMAT,
    gemini.FORMAT,
    vscode.FORMAT,
    codex.FORMAT,
    zed.FORMAT,
    plain.FORMAT,
)
"""In the order in which they win within one scope, and in which a named file is tried against them."""
