"""Reads a program before it runs, so that a typo on line 40 is found before line 3 has sent an e-mail.

It reports only what is certain: every finding is a mistake whatever the values turn out to be, and what the syntax does
not settle passes. It teaches early; it is no part of the security of anything.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from difflib import get_close_matches

from toolfold.codegen.from_schema import Arguments, arguments
from toolfold.codegen.names import ApiNames
from toolfold.definitions import ToolDefinition
from toolfold.review import calls
from toolfold.review.finding import Code, Finding
from toolfold.review.program import Import, Imported, Program, Scope, read
from toolfold.schema.large import uncollected
from toolfold.schema.validation import Validators

Lookup = Callable[[str, str], ToolDefinition | None]

# The sandbox's own functions that are coroutines, beside the tools.
_OWN_COROUTINES = frozenset(
    {Imported(module, name) for module in ("toolfold", "client") for name in ("call_mcp_tool",)}
    | {Imported("toolfold", name) for name in ("read_resource", "get_prompt")}
)
_MOST_FINDINGS = 20
_LONGEST = 100_000
"""Characters. A longer program is mostly data, and reading it would keep everybody else waiting."""


def review(code: str, names: ApiNames, tool: Lookup, validators: Validators | None = None) -> list[Finding]:
    """The program's certain mistakes, in the order of its lines; empty means: run it.

    `tool` gives the definition for a server's and a tool's name. `validators` that outlive the call save work.
    """
    if len(code) > _LONGEST:
        return []
    with uncollected():
        return _review(code, names, tool, validators)


def _review(code: str, names: ApiNames, tool: Lookup, validators: Validators | None) -> list[Finding]:
    try:
        with warnings.catch_warnings():
            # An odd escape in a string is the program's business.
            warnings.simplefilter("ignore")
            tree = ast.parse(code, "program.py")
            program = read(tree)
            if program.doubtful:
                # Making code is slow, and the sandbox does it anyway before it runs anything.
                compile(tree, "program.py", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        reviewer = _Reviewer(program, names, tool, validators or Validators())
        findings = list(dict.fromkeys(reviewer.findings()))
    except (SyntaxError, ValueError) as error:
        return [_syntax(error)]
    except (RecursionError, MemoryError):
        return []
    return sorted(findings, key=lambda finding: (finding.line, finding.column))[:_MOST_FINDINGS]


def _syntax(error: SyntaxError | ValueError) -> Finding:
    if not isinstance(error, SyntaxError):
        return Finding(1, 0, "syntax", f"SyntaxError: {error}.")
    text = (error.text or "").strip()
    shown = f" in `{text[:120]}`" if text else ""
    hint = "`await` works at the top level and inside `async def`." if "'await' outside" in error.msg else ""
    column = max((error.offset or 1) - 1, 0)
    return Finding(error.lineno or 1, column, "syntax", f"{type(error).__name__}: {error.msg}{shown}.", hint)


class _Reviewer:
    def __init__(self, program: Program, names: ApiNames, tool: Lookup, validators: Validators) -> None:
        self._program = program
        self._names = names
        self._tool = tool
        self._validators = validators
        self._arguments: dict[tuple[str, str], Arguments] = {}

    def findings(self) -> Iterator[Finding]:
        for item in self._program.imports:
            if not item.conditional:
                yield from self._import(item)
        if self._program.dynamic:
            return
        coroutines: dict[int, str] = {}
        for call, scope in self._program.calls:
            meant = self._meant(call.func, scope)
            if meant is None:
                continue
            if meant in _OWN_COROUTINES:
                coroutines[id(call)] = meant.name
                yield from self._awaited(call, scope, meant.name)
                continue
            found = self._names.resolve(*_module_and_name(meant))
            definition = self._tool(*found) if found else None
            if definition is not None:
                coroutines[id(call)] = meant.name
                for finding in calls.check(call, meant.name, definition, self._taken(definition), self._validators):
                    yield replace(finding, tool=found)
                yield from self._awaited(call, scope, meant.name)
        yield from self._kept(coroutines)

    def _taken(self, definition: ToolDefinition) -> Arguments:
        key = (definition.server, definition.name)
        if key not in self._arguments:
            self._arguments[key] = arguments(definition)
        return self._arguments[key]

    # --- imports

    def _import(self, item: Import) -> Iterator[Finding]:
        parts = [*item.bound.module.split("."), *([item.bound.name] if item.bound.name else [])]
        if parts[0] != "servers" or len(parts) < 2 or parts[1] == "*" or parts[1].startswith("_"):
            return
        module, function = parts[1], parts[2] if len(parts) > 2 else ""
        server = self._names.behind(module)
        if server is None:
            servers = self._names.modules()
            near = get_close_matches(module, servers, 3, 0.5)
            listed = " or ".join(near) if near else ", ".join(list(servers)[:12]) or "none"
            hint = f"Did you mean {listed}?" if near else f"There are: {listed}{' …' if len(servers) > 12 else ''}."
            yield self._at(item, "unknown_server", f"There is no server module servers.{module}.", hint)
        elif function.isidentifier() and function[0] != "_" and self._names.resolve(module, function) is None:
            hint = self._nearest(server, function)
            yield self._at(item, "unknown_tool", f"servers.{module} has no tool {function!r}.", hint)

    def _nearest(self, server: str, function: str) -> str:
        near = get_close_matches(function, self._names.functions(server), 3, 0.5)
        if near:
            return f"Did you mean {' or '.join(near)}?"
        elsewhere = self._names.named(function)[:3]
        return f"It is in {' and '.join(f'servers.{module}' for module in elsewhere)}." if elsewhere else ""

    def _at(self, item: Import, code: Code, message: str, hint: str) -> Finding:
        return Finding(item.node.lineno, item.node.col_offset, code, message, hint)

    # --- what a call calls

    def _meant(self, function: ast.expr, scope: Scope) -> Imported | None:
        """The import behind `create_issue`, `gh.create_issue` or `servers.github.create_issue`, where it is certain."""
        attributes: list[str] = []
        while isinstance(function, ast.Attribute):
            attributes.insert(0, function.attr)
            function = function.value
        if not isinstance(function, ast.Name) or self._program.stored_attributes.intersection(attributes):
            return None
        root = scope.certain(function.id)
        if root is None:
            return None
        path = [*root.module.split("."), *([root.name] if root.name else []), *attributes]
        return Imported(".".join(path[:-1]), path[-1]) if len(path) > 1 else None

    # --- coroutines that nobody awaits

    def _awaited(self, call: ast.Call, scope: Scope, name: str) -> Iterator[Finding]:
        if self._is_misused(call, scope):
            yield _not_awaited(call, name)

    def _kept(self, coroutines: dict[int, str]) -> Iterator[Finding]:
        """`issue = create_issue(...)` and then only `issue["id"]`."""
        for item in self._program.assigned:
            name = coroutines.get(id(item.call))
            if name is None or len(item.scope.names.get(item.name, ())) != 1:
                continue
            loads = self._program.loads.get(item.name, [])
            loads = [(node, scope) for node, scope in loads if scope.owner(item.name) is item.scope]
            if loads and all(self._is_misused(node, scope) for node, scope in loads):
                yield _not_awaited(item.call, name)

    def _is_misused(self, node: ast.expr, scope: Scope) -> bool:
        use = self._program.uses.get(id(node))
        if use is None or use.how == "awaited":
            return False
        if use.how == "dropped":
            return isinstance(node, ast.Call)
        return use.how == "read" or scope.owner(use.builtin) is None


def _not_awaited(call: ast.Call, name: str) -> Finding:
    message = f"{name}(...) is not awaited, so it would never run."
    return Finding(call.lineno, call.col_offset, "not_awaited", message, f"Write `await {name}(...)`.")


def _module_and_name(meant: Imported) -> tuple[str, str]:
    """(module, function) of a tool; `servers.github.create_issue.create_issue` is the same function."""
    parts = meant.module.split(".")
    if parts[0] != "servers" or not 2 <= len(parts) <= 3 or (len(parts) == 3 and parts[2] != meant.name):
        return "", ""
    return parts[1], meant.name
