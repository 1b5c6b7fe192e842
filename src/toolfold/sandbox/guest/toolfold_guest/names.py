"""Names that a program uses and does not have: what to import for them, found in the API tree."""

from __future__ import annotations

import ast
import re
import sys
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from .place import Place

_SERVERS = Path("/agent/servers")
_OWN = frozenset(
    {"call_mcp_tool", "search_tools", "read_resource", "get_prompt", "save_skill", "progress", "get_client"}
    | {"ToolError", "PolicyDenied", "ApprovalDenied", "keep", "kept", "sessions", "show", "context"}
)
# What other ways to run code with tools call the object that has them.
_CLIENTS = frozenset({"tools", "tool", "client", "mcp", "mcp_client", "session", "api", "functions", "toolbox"})
_CALLERS = frozenset({"call_tool", "call", "run_tool", "use_tool", "invoke_tool", "execute_tool", "invoke", "mcp_call"})
_ANSWERS = frozenset({"final_answer", "submit", "finish", "display", "answer", "output", "respond"})
_NETWORK = frozenset(
    {"requests", "httpx", "aiohttp", "urllib3", "websockets", "websocket", "boto3", "botocore", "openai", "anthropic"}
    | {"pycurl", "paramiko", "grpc", "selenium", "playwright", "psycopg2", "pymysql", "redis", "httpx2", "slack_sdk"}
)
_PROTOCOL = frozenset({"mcp", "fastmcp", "mcp_use", "langchain_mcp_adapters", "tools"})
NO_NETWORK = "There is no network in the sandbox: reach the world through tools; search_tools finds them."
_MOST_MODULES = 2_000
_SHOWN = 12
_LONGEST_NAME = 200


def about_name(problem: NameError, place: Place | None) -> str:
    """A name that is not defined."""
    name = problem.name or ""
    if name in _OWN:
        return f"Write `from toolfold import {name}` first."
    if name in _modules():
        return f"Write `from servers import {name}` first."
    if found := _imports_of(name):
        return f"Write `{found}` first."
    used = _Use(name, place)
    if name in sys.stdlib_module_names and used.attribute:
        return f"Write `import {name}` first."
    if (name in _CLIENTS and used.attribute) or (name in _CALLERS and used.called) or name.startswith("mcp_"):
        return _about_client(name, used.tool)
    if name in _ANSWERS and used.called:
        return f"There is no `{name}` here: `print(...)` what you want to see, or make it the last line."
    near = get_close_matches(name, _defined(place), 2) if len(name) <= 100 else []
    return f"Did you mean {' or '.join(f'`{other}`' for other in near)}?" if near else ""


def about_module(problem: ModuleNotFoundError, place: Place | None) -> str:
    """A module that cannot be imported."""
    name = problem.name or ""
    top, _, rest = name.partition(".")
    if top == "servers":
        return _about_server(rest.split(".", 1)[0])
    if top == "skills":
        return ""
    if top in _modules():
        return f"Write `from servers.{top} import ...`."
    if top in _NETWORK:
        return NO_NETWORK
    if top in _PROTOCOL:
        return "Tools are functions here: `from servers.<server> import <tool>`; `search_tools(...)` finds them."
    if top == "nest_asyncio":
        return "It is not needed: `await` works at the top level, and `asyncio.run(...)` works anywhere. Drop it."
    return (
        f"`{top}` is not installed. `sandbox.packages` in the settings adds packages; "
        "the standard library is here (csv, json, sqlite3, statistics)."
    )


def about_import(problem: ImportError, place: Place | None) -> str:
    """A name that a server's module does not have."""
    module = problem.name or ""
    if not module.startswith("servers."):
        return ""
    wanted = str(problem).removeprefix("cannot import name '").partition("'")[0]
    return _about_tools(module.removeprefix("servers."), wanted)


def about_module_attribute(problem: AttributeError) -> str:
    """`shop.list_order`, where `shop` is a server's module; its own message has the nearest names."""
    if not issubclass(type(problem.obj), ModuleType):
        return ""
    module = str(vars(problem.obj).get("__name__", ""))
    if not module.startswith("servers.") or "Did you mean" in str(problem):
        return ""
    return _about_tools(module.removeprefix("servers."), problem.name or "")


def about_syntax(text: str) -> str:
    """`from servers.tree-sitter import x`, with the names that can be imported."""
    if not re.match(r"\s*(from|import)\s+servers\b", text) or "-" not in text:
        return ""
    fixed = re.sub(r"(?<=\w)-(?=\w)", "_", text.strip())
    return f"Write `{fixed}`."


def _about_client(name: str, wanted: str) -> str:
    for word in (wanted, wanted.rpartition(".")[2], wanted.rpartition("__")[2]):
        if word and (found := _imports_of(word)):
            return f"There is no `{name}` here. Tools are functions: `{found}`, then `await {word}(...)`."
    return (
        f"There is no `{name}` here. Tools are functions: `from servers.<server> import <tool>`; "
        "`from toolfold import call_mcp_tool` calls one by its name."
    )


class _Use:
    """How the line uses a name: `tools.get(...)`, `mcp.call("shop.get")`, `call_tool("get")`."""

    def __init__(self, name: str, place: Place | None) -> None:
        self.called = False
        self.attribute = ""
        self.tool = ""
        for node in place.nodes(ast.Attribute) if place is not None else ():
            if isinstance(node.value, ast.Name) and node.value.id == name:
                self.attribute = self.tool = node.attr[:_LONGEST_NAME]
        for call in place.nodes(ast.Call) if place is not None else ():
            first = call.args[0] if call.args else None
            text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
            function: Any = call.func
            if isinstance(function, ast.Name) and function.id == name:
                self.called, self.tool = True, text[:_LONGEST_NAME]
            elif isinstance(function, ast.Attribute) and function.attr == self.attribute and self.attribute in _CALLERS:
                self.tool = text[:_LONGEST_NAME]


def _about_server(wanted: str) -> str:
    modules = _modules()
    near = get_close_matches(wanted, modules, 3, 0.5)
    if near:
        return f"Did you mean {' or '.join(f'servers.{name}' for name in near)}?"
    return f"There are: {', '.join(f'servers.{name}' for name in modules[:_SHOWN])}." if modules else ""


def _about_tools(module: str, wanted: str) -> str:
    tools = _tools(module.split(".", 1)[0])
    near = get_close_matches(wanted, tools, 3)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    if found := _imports_of(wanted):
        return f"Write `{found}`."
    more = " …" if len(tools) > _SHOWN else ""
    return f"It has {', '.join(tools[:_SHOWN])}{more}." if tools else ""


def _modules() -> list[str]:
    return _public(_SERVERS)


def _tools(module: str) -> list[str]:
    return _public(_SERVERS / module) if module.isidentifier() else []


def _public(folder: Path) -> list[str]:
    try:
        names = {entry.name.removesuffix(".py") for entry in folder.iterdir()}
    except OSError:
        return []
    return sorted(name for name in names if name.isidentifier() and name[0] != "_" and name != "index")


def _imports_of(tool: str) -> str:
    """The line that imports a tool of this name."""
    if not tool.isidentifier():
        tool = re.sub(r"\W+", "_", tool)
    found = [m for m in _modules()[:_MOST_MODULES] if tool and (_SERVERS / m / f"{tool}.py").is_file()]
    return f"from servers.{found[0]} import {tool}" if found else ""


def _defined(place: Place | None) -> list[str]:
    if place is None:
        return []
    names = {*place.frame.f_locals, *place.frame.f_globals}
    return [name for name in names if not name.startswith("_")][:2000]
