"""What an agent reads about a tool, from one line to the whole: the same text that stands in the API tree."""

from __future__ import annotations

from toolfold.codegen import text
from toolfold.codegen.names import ApiNames
from toolfold.codegen.python import emit
from toolfold.definitions import ToolDefinition

# A description is shown whole unless it is an attack on the reader's budget.
_LONGEST_DESCRIPTION = 20_000


def import_line(names: ApiNames, tool: ToolDefinition) -> str:
    """`from servers.github import create_issue`"""
    return f"from servers.{names.server(tool.server)} import {names.function(tool.server, tool.name)}"


def signature(names: ApiNames, tool: ToolDefinition) -> str:
    """The function with its types on one line, valid Python: `async def create_issue(*, title: str) -> Any: ...`"""
    return emit(tool, names.function(tool.server, tool.name), exploded=False, comments=False).header[0] + " ..."


def full(names: ApiNames, tool: ToolDefinition) -> str:
    """Everything about the tool: its named types, its signature, and what the server says of it."""
    parts = emit(tool, names.function(tool.server, tool.name), exploded=False)
    definitions = [line for line in parts.definitions if line]
    doc = text.docstring(tool.description or tool.title, "    ", limit=_LONGEST_DESCRIPTION) or ["    ..."]
    return "\n".join([*definitions, *parts.header, *doc])


def summary(tool: ToolDefinition, limit: int = 100) -> str:
    """The description's first sentence on one safe line; the title where there is no description."""
    return text.first_sentence(tool.description or tool.title or str(tool.annotations.get("title") or ""), limit)
