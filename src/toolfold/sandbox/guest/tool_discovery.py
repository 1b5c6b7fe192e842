"""An alias: `from tool_discovery import search_tools`."""

from toolfold_guest.api import search_tools

__all__ = ["search_tools"]
