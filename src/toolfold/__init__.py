"""Toolfold folds any number of MCP servers into two tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolfold.fold import Toolfold

__version__ = "0.1.0"
__all__ = ["Toolfold", "__version__"]


def __getattr__(name: str) -> Any:
    # Lazy: `import toolfold` stays cheap for the command line, which needs only some of it.
    if name == "Toolfold":
        from toolfold.fold import Toolfold

        return Toolfold
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
