"""The sandbox's own functions: find tools, call them by name, read resources, keep values and skills, show images."""

from toolfold_guest.api import (
    ApprovalDenied,
    File,
    PolicyDenied,
    ToolError,
    call_mcp_tool,
    context,
    get_client,
    get_prompt,
    keep,
    kept,
    progress,
    read_resource,
    save_skill,
    search_tools,
    sessions,
    show,
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
    "keep",
    "kept",
    "progress",
    "read_resource",
    "save_skill",
    "search_tools",
    "sessions",
    "show",
]
