"""What an agent reads about a tool, from one line to the whole: the same text that stands in the API tree."""

from __future__ import annotations

from toolfold.codegen import text
from toolfold.codegen.names import ApiNames
from toolfold.codegen.python import Layout, emit
from toolfold.definitions import ToolDefinition

# In a listing the first words of a doc decide; `help(tool)` and the module have all of them.
_SHORT = Layout(exploded=False, description=0, parameter=0, field=0)
_FULL = Layout(exploded=False, description=320, parameter=80, field=60)


def import_line(names: ApiNames, tool: ToolDefinition) -> str:
    """`from servers.github import create_issue`"""
    return f"from servers.{names.server(tool.server)} import {names.function(tool.server, tool.name)}"


def signature(names: ApiNames, tool: ToolDefinition) -> str:
    """The function with its types on one line, valid Python: `async def create_issue(*, title: str) -> Any: ...`"""
    return f"{emit(tool, names.function(tool.server, tool.name), _SHORT).header[0]} ..."


def full(names: ApiNames, tool: ToolDefinition) -> str:
    """What it takes to call the tool: its named types, its signature, and its docs, of which the long are cut."""
    parts = emit(tool, names.function(tool.server, tool.name), _FULL)
    definitions = [line for line in parts.definitions if line]
    return "\n".join([*definitions, *parts.header, *(parts.doc or ["    ..."])])


def summary(tool: ToolDefinition, limit: int = 100) -> str:
    """The description's first sentence on one safe line; the title where there is no description."""
    return text.first_sentence(tool.description or tool.title or str(tool.annotations.get("title") or ""), limit)
