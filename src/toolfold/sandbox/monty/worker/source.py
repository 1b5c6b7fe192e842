"""What is read in a program's text, and what is changed in it before Monty sees it."""

from __future__ import annotations

import ast

_OURS = {"toolfold", "client"}
_ERRORS = {"ToolError", "PolicyDenied", "ApprovalDenied"}
STAND_IN = "RuntimeError"
"""Monty's programs can neither define nor be given an exception class; a tool's failure is one of theirs."""
LOADS = "(lambda data: json.loads(data) if isinstance(data, str | bytes) else data)"
"""`json.loads`, to which plain data is parsed already: results arrive so."""
_NOT_HERE = frozenset({"keep", "kept", "sessions", "show"})


def adapted(code: str, tree: ast.Module) -> str:
    """The program as Monty runs it: with a stand-in for `ToolError`, and a `json.loads` that takes results.

    Every line keeps its number.
    """
    changes: list[tuple[ast.ImportFrom | ast.Attribute, str]] = []
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=module, names=names) if module in _OURS:
                if any(alias.name in _ERRORS for alias in names):
                    changes.append((node, _import(node)))
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="json"), attr="loads") as function, args=[_], keywords=[]
            ):
                changes.append((function, LOADS))
            case _:
                pass
    lines = code.splitlines()
    # From the end, so that what is still to be changed is where the tree says.
    for node, text in sorted(changes, key=lambda change: (change[0].lineno, change[0].col_offset), reverse=True):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        head = lines[first].encode()[: node.col_offset].decode()
        tail = lines[last].encode()[node.end_col_offset :].decode()
        lines[first : last + 1] = [head + text + tail, *[""] * (last - first)]
    return "\n".join(lines)


def _import(node: ast.ImportFrom) -> str:
    """`from toolfold import ToolError` becomes `ToolError = RuntimeError`."""
    others = [ast.unparse(alias) for alias in node.names if alias.name not in _ERRORS]
    parts = [f"from {node.module} import {', '.join(others)}"] if others else []
    parts += [f"{alias.asname or alias.name} = {STAND_IN}" for alias in node.names if alias.name in _ERRORS]
    return "; ".join(parts)


def names(tree: ast.Module) -> set[str]:
    """What a program's top level binds."""
    found: set[str] = set()
    for node in _same_scope(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
    return {name for name in found if not name.startswith("_")}


def _same_scope(tree: ast.Module) -> list[ast.AST]:
    inner = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
    inner = inner | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    found: list[ast.AST] = []
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        found.append(node)
        if not isinstance(node, inner):
            todo.extend(ast.iter_child_nodes(node))
    return found


def last_call(tree: ast.Module) -> tuple[str, int] | None:
    """The name and line of the call that is the program's last expression, if that is what it is."""
    if tree.body and isinstance(final := tree.body[-1], ast.Expr) and isinstance(final.value, ast.Call):
        return ast.unparse(final.value.func), final.lineno
    return None


def not_here(tree: ast.Module) -> str:
    """An error for the first import of what only whole Pythons have; empty if there is none."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "toolfold"]
    for node in imports:
        for alias in node.names:
            if alias.name in _NOT_HERE:
                what = f"line {node.lineno}: `{alias.name}` is not available in Monty, which is a subset of Python"
                return f"ImportError: {what}; files in workspace/ stay for later runs of the session."
    return ""
