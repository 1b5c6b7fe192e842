"""Everything that a connected model reads before it does anything. Every word here is paid for in each request."""

from __future__ import annotations

from typing import Any

INSTRUCTIONS = "Find tools with search_tools; call many in one run_code program; print only what you need."

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
