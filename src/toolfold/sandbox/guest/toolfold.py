"""The sandbox's own functions: find tools, call them by name, read resources, keep skills, report progress."""

from toolfold_guest.api import (
    ApprovalDenied,
    File,
    PolicyDenied,
    ToolError,
    call_mcp_tool,
    context,
    get_client,
    get_prompt,
    progress,
    read_resource,
    save_skill,
    search_tools,
)

__all__ = [
    "ApprovalDenied",
    "File",
    "PolicyDenied",
    "ToolError",
    "call_mcp_tool",
    "context",
    "get_client",
    "get_prompt",
    "progress",
    "read_resource",
    "save_skill",
    "search_tools",
]
