"""The command line: one file per command."""

from __future__ import annotations

try:
    from toolfold.cli.main import main, serve
except KeyboardInterrupt:  # Ctrl-C before anything has begun
    raise SystemExit(130) from None

__all__ = ["main", "serve"]
