"""What an agent reads about a tool, from one line to the whole: the same text that stands in the API tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toolfold.codegen.annotations import WIDTH
from toolfold.codegen.names import FILE, ApiNames
from toolfold.codegen.python import Layout, emit
from toolfold.definitions import ToolDefinition
from toolfold.schema import text

# In a listing the first words of a doc decide; `help(tool)` and the module have all of them.
_SHORT = Layout(exploded=False, description=0, parameter=0, field=0, width=160, inline=120)
_FULL = Layout(exploded=False, description=300, parameter=72, field=50, width=100, inline=60)

# A tool beyond any use still has to be shown somehow.
_BARE = Layout(exploded=False, description=300, parameter=0, field=0, most=100)
_LONGEST_FULL = 80_000
_LONGEST_USAGE = 700
_INDEX_LINE = 80


def import_line(names: ApiNames, tool: ToolDefinition) -> str:
    """`from servers.github import create_issue`"""
    return f"from servers.{names.server(tool.server)} import {names.function(tool.server, tool.name)}"


def signature(names: ApiNames, tool: ToolDefinition) -> str:
    """The function with its types on one line, valid Python: `async def create_issue(title: str) -> Any: ...`"""
    return f"{emit(tool, names.function(tool.server, tool.name), _SHORT).header[0]} ..."


def usage(names: ApiNames, tool: ToolDefinition) -> str:
    """The signature as an error quotes it: `Signature: create_issue(title: str) -> Any`"""
    line = signature(names, tool).removesuffix(": ...").removeprefix("async def ")
    return f"Signature: {text.one_line(line, _LONGEST_USAGE)}"


def full(names: ApiNames, tool: ToolDefinition) -> str:
    """What it takes to call the tool: its named types, its signature, and its docs, of which the long are cut."""
    function = names.function(tool.server, tool.name)
    for layout in (_FULL, _BARE):
        parts = emit(tool, function, layout)
        definitions = [line for line in parts.definitions if line]
        shown = "\n".join([*definitions, *parts.header, *(parts.doc or ["    ..."])])
        if len(shown) <= _LONGEST_FULL:
            return shown
    return "\n".join([*parts.header, *(parts.doc or ["    ..."])])[:_LONGEST_FULL]


def module(names: ApiNames, tool: ToolDefinition) -> str:
    """The tool's module in the API tree: everything that `full` shows, nothing cut, ready to import."""
    parts = emit(tool, names.function(tool.server, tool.name), Layout())
    lines: list[str] = []
    if parts.imports:
        lines += [f"from typing import {', '.join(sorted(parts.imports))}", ""]
    shared = f"{FILE}, tool" if parts.uses_files else "tool"
    lines += [f"from servers._call import {shared}", "", "", *parts.definitions, *_decorator(tool, parts.renamed)]
    return "\n".join([*lines, *parts.header, *(parts.doc or [f"    {text.quote(tool.name)}"]), "    ...", ""])


def _decorator(tool: ToolDefinition, renamed: Mapping[str, str]) -> list[str]:
    """`@tool("github", "create-issue")`: the names that go over the wire, exactly."""
    arguments = [text.quote(tool.server), text.quote(tool.name)]
    pairs = [f"{text.quote(word)}: {text.quote(wire)}" for word, wire in renamed.items()]
    if pairs:
        arguments.append(f"{{{', '.join(pairs)}}}")
    line = f"@tool({', '.join(arguments)})"
    if text.columns(line) <= WIDTH:
        return [line]
    rows = [f"    {argument}," for argument in arguments]
    if pairs and text.columns(rows[-1]) > WIDTH:
        rows[-1:] = ["    {", *(f"        {pair}," for pair in pairs), "    },"]
    return ["@tool(", *rows, ")"]


def server_index(names: ApiNames, server: str, tools: Iterable[ToolDefinition]) -> str:
    """The docstring's lines of a server's package: one per tool."""
    rows = [f"{names.function(server, tool.name)}: {summary(tool, _INDEX_LINE)}".rstrip(": ") for tool in tools]
    head = text.one_line(server, _INDEX_LINE)
    if names.server(server) != server:
        head = f"{head}: from servers.{names.server(server)} import <tool>"
    return "\n".join([head, "", *sorted(rows)])


def catalog_index(names: ApiNames, counts: Mapping[str, int]) -> str:
    """The docstring's lines of `servers/`: one per server, with the number of its tools."""
    rows = [f"{module}: {counts[server]}" for module, server in names.modules().items()]
    return "\n".join(["MCP servers and how many tools each has: from servers.<server> import <tool>", "", *rows])


def summary(tool: ToolDefinition, limit: int = 100) -> str:
    """The description's first sentence on one safe line; the title where there is no description."""
    return text.first_sentence(tool.description or tool.title or str(tool.annotations.get("title") or ""), limit)
