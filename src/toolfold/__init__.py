"""Toolfold folds any number of MCP servers into two tools. These are the names that an embedding program needs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolfold.catalog.catalog import Answer
    from toolfold.config.settings import Settings
    from toolfold.definitions import ToolResult
    from toolfold.errors import ApprovalDenied, ConfigError, LimitExceeded, PolicyDenied, ToolfoldError
    from toolfold.fold import Toolfold
    from toolfold.guards.context import RunContext
    from toolfold.guards.events import (
        ApprovalRequest,
        Event,
        Finished,
        Output,
        Progress,
        Question,
        RunError,
        RunResult,
        ToolCall,
    )
    from toolfold.guards.guard import Call, Guard, Proceed
    from toolfold.skills.logseq import LogseqSkillsIntegration

__version__ = "0.1.0"
__all__ = [
    "Answer",
    "ApprovalDenied",
    "ApprovalRequest",
    "Call",
    "ConfigError",
    "Event",
    "Finished",
    "Guard",
    "LimitExceeded",
    "LogseqSkillsIntegration",
    "Output",
    "PolicyDenied",
    "Proceed",
    "Progress",
    "Question",
    "RunContext",
    "RunError",
    "RunResult",
    "Settings",
    "ToolCall",
    "ToolResult",
    "Toolfold",
    "ToolfoldError",
    "__version__",
]

_HOMES = {
    "toolfold.fold": ["Toolfold"],
    "toolfold.config.settings": ["Settings"],
    "toolfold.catalog.catalog": ["Answer"],
    "toolfold.definitions": ["ToolResult"],
    "toolfold.errors": ["ApprovalDenied", "ConfigError", "LimitExceeded", "PolicyDenied", "ToolfoldError"],
    "toolfold.guards.context": ["RunContext"],
    "toolfold.guards.events": [
        "ApprovalRequest",
        "Event",
        "Finished",
        "Output",
        "Progress",
        "Question",
        "RunError",
        "RunResult",
        "ToolCall",
    ],
    "toolfold.guards.guard": ["Call", "Guard", "Proceed"],
    "toolfold.skills.logseq": ["LogseqSkillsIntegration"],
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # Lazy: `import toolfold` stays cheap for the command line, which needs only some of it.
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
