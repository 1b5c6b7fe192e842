"""An alias: `from client import call_mcp_tool, get_client`."""

from toolfold_guest.api import call_mcp_tool, get_client

__all__ = ["call_mcp_tool", "get_client"]
