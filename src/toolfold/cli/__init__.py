"""The command line: one file per command."""

from __future__ import annotations

from toolfold.cli.main import main, serve

__all__ = ["main", "serve"]
