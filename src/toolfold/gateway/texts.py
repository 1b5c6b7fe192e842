"""What clients are told: the instructions, and our two tools.

Names, descriptions, input schemas and the instructions are read by the model: every word of them is paid for in each
request. Titles, annotations and `_meta` are read by the client alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolfold.config.callers import Mode
    from toolfold.config.settings import Settings

INSTRUCTIONS = "Find tools with search_tools; call many in one run_code program; print only what you need."

_HYBRID = (
    "Call a listed tool directly for one or two calls. For many rows, three or more calls, or waiting in a loop:"
    " find tools with search_tools, call them in one run_code program, print only what you need."
)


def instructions(mode: Mode) -> str | None:
    """What models read of the server itself, if anything."""
    return {"code": INSTRUCTIONS, "hybrid": _HYBRID, "direct": None}[mode]


TOOLS: list[dict[str, Any]] = [
    {
        "name": "search_tools",
        "description": "Find tools to import. Empty query: list servers.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "detail": {"type": "string", "enum": ["name_only", "with_description", "full"]},
                "limit": {"type": "integer"},
            },
            "required": ["query"],
        },
    },
    {
        "name": "run_code",
        "description": (
            "Run Python: `from servers.github import create_issue; print(await create_issue(title=...))`."
            " Returns printed text. Files: workspace/"
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "session": {"type": "string", "description": "keeps state"},
            },
            "required": ["code"],
        },
    },
]
"""What models read."""


def offered_tools(*, read_only: bool) -> list[dict[str, Any]]:
    """The tools as they are listed. `read_only` says that the permission profile lets programs only read, so that
    clients may run them without asking."""
    writes = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
    reads = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": True}
    hints = {
        "search_tools": ("Search tools", {"readOnlyHint": True, "openWorldHint": False}),
        "run_code": ("Run code", reads if read_only else writes),
    }
    # Clients that search for tools themselves are to keep these two in view: they are the search.
    meta = {"anthropic/alwaysLoad": True}
    return [
        {**tool, "title": title, "annotations": annotations, "_meta": meta}
        for tool in TOOLS
        for title, annotations in [hints[tool["name"]]]
    ]


def only_reads(settings: Settings) -> bool:
    """Whether the permission profile lets programs only read."""
    return settings.policy.profile == "read_only"
