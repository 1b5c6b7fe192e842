"""Which servers a program names: by their modules, or in the arguments of the functions that take a name."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from toolfold.codegen.names import ApiNames
from toolfold.sandbox.guest.toolfold_guest.source import parse

_BY_NAME = frozenset({"call_mcp_tool", "call_tool", "read_resource", "get_prompt"})


def named_servers(code: str, servers: Iterable[str], names: ApiNames) -> list[str]:
    """Those of `servers` that the program names. What is only a word in a text or a comment names none."""
    candidates = list(servers)
    if not candidates:
        return []
    try:
        tree, _ = parse(code, "<program>")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # it will not run
    modules = set(_modules(tree))
    written = set(_written(tree))
    return [server for server in candidates if _is_named(server, names.coming(server), modules, written)]


def _is_named(server: str, module: str, modules: set[str], written: set[str]) -> bool:
    words = {server, module}
    starts = tuple(f"{word}{sign}" for word in words for sign in (".", "/", "__"))
    full = tuple(f"mcp__{word}__" for word in words)
    return module in modules or any(text in words or text.startswith((*starts, *full)) for text in written)


def _modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (part[1] for each in names if len(part := each.name.split(".")) > 1 and part[0] == "servers")
            case ast.ImportFrom(module="servers", names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str(module)) if module.startswith("servers."):
                yield module.split(".")[1]
            case ast.Attribute(value=ast.Name(id="servers"), attr=name):
                yield name
            case _:
                pass


def _written(tree: ast.Module) -> Iterator[str]:
    """Texts that name a tool or a server where they stand."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if text.startswith("mcp__"):
                yield text
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args, keywords=keywords) if (
                name in _BY_NAME
            ):
                for value in (*args, *(each.value for each in keywords)):
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        yield value.value
            case _:
                pass
