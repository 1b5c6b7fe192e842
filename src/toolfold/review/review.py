"""Reads a program before it runs, so that a typo on line 40 is found before line 3 has sent an e-mail.

It reports only what is certain: every finding is a mistake whatever the values turn out to be, and what the syntax does
not settle passes. It teaches early; it is no part of the security of anything.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property
from itertools import islice

from toolfold.codegen.from_schema import Arguments, arguments
from toolfold.codegen.names import INDEX, ApiNames
from toolfold.definitions import ToolDefinition
from toolfold.review import calls
from toolfold.review.finding import Code, Finding
from toolfold.review.program import CATCHES, CONDITION, Call, Import, Imported, Program, Scope, read
from toolfold.sandbox.guest.toolfold_guest import source
from toolfold.schema.large import uncollected
from toolfold.schema.validation import Validators

Lookup = Callable[[str, str], ToolDefinition | None]
Denied = Callable[[str, str], str]
"""Why policy denies the tool behind a module and a function; empty where it does not, or there is no such tool."""

# The sandbox's own functions that are coroutines, beside the tools.
_OWN_COROUTINES = frozenset(
    {Imported(module, name) for module in ("toolfold", "client") for name in ("call_mcp_tool",)}
    | {Imported("toolfold", name) for name in ("read_resource", "get_prompt")}
)
# What takes calls that have not been awaited.
_TAKE_CALLS = frozenset(Imported("asyncio", name) for name in ("gather", "create_task", "wait_for", "run"))
_ASKING = ("hasattr", "getattr", "dir")
_IMPORT = re.compile(
    r"from\s+servers\.(\S+)\s+import\s+(.+)|(?:import\s+servers\.|from\s+servers\s+import\s+)(\S+)(?:\s+as\s+\w+)?"
)
_MOST_FINDINGS = 20
_NAMES_SHOWN = 12
_LONGEST = 100_000
"""Characters. A longer program is mostly data, and reading it would keep everybody else waiting."""


def review(
    code: str,
    names: ApiNames,
    tool: Lookup,
    validators: Validators | None = None,
    denied: Denied = lambda module, function: "",
    absent: Mapping[str, str] | None = None,
) -> list[Finding]:
    """The program's certain mistakes, in the order of its lines; empty means: run it.

    `tool` gives the definition for a server's and a tool's name. `validators` that outlive the call save work. `absent`
    has the modules of servers that are configured and not there yet, each with the reason.
    """
    if len(code) > _LONGEST:
        return []
    with uncollected():
        return _review(code, names, tool, validators, denied, absent or {})


def _review(
    code: str,
    names: ApiNames,
    tool: Lookup,
    validators: Validators | None,
    denied: Denied,
    absent: Mapping[str, str],
) -> list[Finding]:
    try:
        with warnings.catch_warnings():
            # An odd escape in a string is the program's business.
            warnings.simplefilter("ignore")
            tree, _ = source.parse(code, "program.py")
            program = read(tree)
            if program.doubtful:
                # Making code is slow, and the sandbox does it anyway before it runs anything.
                source.compiled(tree, "program.py")
        reviewer = _Reviewer(program, names, tool, validators or Validators(), denied, absent)
        findings = list(dict.fromkeys(reviewer.findings()))
    except SyntaxError as error:
        return [_syntax(error, code, names)]
    except ValueError as error:
        return [Finding(1, 0, "syntax", f"SyntaxError: {error}.")]
    except (RecursionError, MemoryError):
        return []
    return sorted(findings, key=lambda finding: (finding.line, finding.column))[:_MOST_FINDINGS]


def _syntax(error: SyntaxError, code: str, names: ApiNames) -> Finding:
    text = (error.text or "").strip()
    shown = f" in `{text[:120]}`" if text else ""
    hint = _importable(text, names) or source.hint(error, code)
    column = max((error.offset or 1) - 1, 0)
    return Finding(error.lineno or 1, column, "syntax", f"{type(error).__name__}: {error.msg}{shown}.", hint)


def _importable(line: str, names: ApiNames) -> str:
    """For `from servers.tree-sitter import x`: the same import with the names that Python allows."""
    found = _IMPORT.fullmatch(line[:1000])
    if found is None or "-" not in line:
        return ""
    wanted = found[1] or found[3]
    modules = names.modules()
    plain = wanted.replace("-", "_")
    near = get_close_matches(plain, modules, 1)
    module = next((module for module, server in modules.items() if wanted in (server, module)), (near or [plain])[0])
    if found[2] is None:
        return f"Write `from servers import {module}`."
    functions = {tool: function for function, tool in names.functions(modules.get(module, "")).items()}
    imported = [functions.get(tool.strip(), tool.strip().replace("-", "_")) for tool in found[2].split(",")]
    return f"Write `from servers.{module} import {', '.join(imported)}`."


class _Reviewer:
    def __init__(
        self,
        program: Program,
        names: ApiNames,
        tool: Lookup,
        validators: Validators,
        denied: Denied,
        absent: Mapping[str, str],
    ) -> None:
        self._program = program
        self._denied = denied
        self._absent = absent
        self._names = names
        self._tool = tool
        self._validators = validators
        self._arguments: dict[tuple[str, str], Arguments] = {}

    def findings(self) -> Iterator[Finding]:
        """In any order, but never more of a kind than are shown: a hint may cost more than the rest of the review."""
        yield from islice(self._imports(), _MOST_FINDINGS)
        if self._program.dynamic:
            return
        tools: list[tuple[Call, Imported]] = []
        takers: list[tuple[Call, Imported]] = []
        coroutines: dict[int, str] = {}
        for call in self._program.calls:
            meant = self._meant(call.node.func, call.scope)
            if meant is None:
                continue
            if meant in _TAKE_CALLS:
                takers.append((call, meant))
            elif meant in _OWN_COROUTINES or meant.module.startswith("servers"):
                tools.append((call, meant))
                if meant in _OWN_COROUTINES or self._names.resolve(*_module_and_name(meant)):
                    coroutines[id(call.node)] = meant.name
        for kind in (self._calls(tools), self._kept(coroutines), self._taken_calls(takers, coroutines)):
            yield from islice(kind, _MOST_FINDINGS)

    def _imports(self) -> Iterator[Finding]:
        for item in sorted(self._program.imports, key=_position):
            if not item.around & CONDITION and not self._may_be_caught(item.scope, "ImportError"):
                yield from self._import(item.bound, item.node)

    def _calls(self, tools: list[tuple[Call, Imported]]) -> Iterator[Finding]:
        for call, meant in sorted(tools, key=lambda item: _position(item[0])):
            yield from self._call(call, meant)

    def _call(self, call: Call, meant: Imported) -> Iterator[Finding]:
        module, function = _module_and_name(meant)
        found = self._names.resolve(module, function)
        definition = self._tool(*found) if found else None
        if definition is not None:
            checked = calls.check(call.node, meant.name, definition, self._taken(definition), self._validators)
            yield from (replace(finding, tool=found) for finding in self._uncaught(call, checked))
        if found is not None or meant in _OWN_COROUTINES:
            if self._is_misused(call.node, call.scope):
                yield _not_awaited(call.node, meant.name, call.scope)
        elif module and function[0] != "_" and isinstance(call.node.func, ast.Attribute) and not self._asks:
            yield from self._uncaught(call, self._import(Imported(f"servers.{module}", function), call.node))

    def _uncaught(self, call: Call, findings: Iterator[Finding]) -> Iterator[Finding]:
        """Those that the program is not prepared for."""
        for finding in findings:
            caught = call.around & CATCHES[finding.raises] or self._may_be_caught(call.scope, finding.raises)
            if not caught:
                yield finding

    def _may_be_caught(self, scope: Scope, raised: str) -> bool:
        """Whether a function around may be called inside a `try` that catches this exception."""
        if not self._program.catches & CATCHES[raised]:
            return False
        return any(
            function.is_opaque or function.name in self._tried or function.name in self._passed_on
            for function in scope.functions()
        )

    @cached_property
    def _asks(self) -> bool:
        """Whether the program looks what a module has before it uses it."""
        return any(name in self._program.loads for name in _ASKING)

    @cached_property
    def _tried(self) -> set[str]:
        """Names that are used inside a `try`, and those that the functions of these names use."""
        uses: dict[str, set[str]] = {}
        for name, loads in self._program.loads.items():
            for function in {function.name for _, scope in loads for function in scope.functions()}:
                uses.setdefault(function, set()).add(name)
        tried: set[str] = set()
        pending = list(self._program.tried)
        while pending:
            name = pending.pop()
            if name not in tried:
                tried.add(name)
                pending += uses.get(name, ())
        return tried

    @cached_property
    def _passed_on(self) -> set[str]:
        """Names that are used otherwise than by calling them."""
        called = {id(call.node.func) for call in self._program.calls}
        loads = self._program.loads.items()
        return {name for name, places in loads if any(id(node) not in called for node, _ in places)}

    def _taken_calls(self, takers: list[tuple[Call, Imported]], coroutines: dict[int, str]) -> Iterator[Finding]:
        """`asyncio.gather(await tool(...))` and `await asyncio.run(...)`, which fail after the tool has run."""
        for call, meant in sorted(takers, key=lambda item: _position(item[0])):
            yield from self._uncaught(call, self._takes_calls(call, meant.name, coroutines))

    def _takes_calls(self, call: Call, name: str, coroutines: dict[int, str]) -> Iterator[Finding]:
        for part in _parts(call.node.args):
            tool = coroutines.get(id(part.value), "") if isinstance(part, ast.Await) else ""
            if tool:
                message = f"asyncio.{name}(...) takes the call itself, not its result."
                hint = f"Write `{tool}(...)` without `await` in it."
                yield _at(part, "invalid_argument", message, hint, "TypeError")
        awaited = self._program.uses.get(id(call.node))
        main = call.node.args[0].func if call.node.args and isinstance(call.node.args[0], ast.Call) else None
        own = self._program.functions.get(main.id, []) if isinstance(main, ast.Name) else []
        if name == "run" and awaited is not None and awaited.how == "awaited" and len(own) == 1 and not own[0].returns:
            message = f"asyncio.run(...) has run {own[0].name}() when it returns, so there is nothing to await."
            hint = f"Write `await {own[0].name}()` or `asyncio.run({own[0].name}())`."
            yield _at(call.node, "invalid_argument", message, hint, "TypeError")

    def _taken(self, definition: ToolDefinition) -> Arguments:
        key = (definition.server, definition.name)
        if key not in self._arguments:
            self._arguments[key] = arguments(definition)
        return self._arguments[key]

    # --- imports

    def _import(self, bound: Imported, node: ast.stmt | ast.expr) -> Iterator[Finding]:
        parts = [*bound.module.split("."), *([bound.name] if bound.name else [])]
        if parts[0] != "servers" or len(parts) < 2 or parts[1] == "*" or parts[1].startswith("_"):
            return
        if parts[2:3] == [INDEX]:
            del parts[2]
        module, function = parts[1], parts[2] if len(parts) > 2 else ""
        server = self._names.behind(module)
        if function and (denial := self._denied(module, function)):
            yield _at(node, "policy_denied", denial, "")
        elif server is None and module in self._absent:
            yield _at(node, "upstream_unavailable", f"servers.{module} is not available now:", self._absent[module])
        elif server is None:
            servers = self._names.modules()
            near = get_close_matches(module, servers, 3, 0.5)
            listed = " or ".join(near) if near else ", ".join(list(servers)[:12]) or "none"
            hint = f"Did you mean {listed}?" if near else f"There are: {listed}{' …' if len(servers) > 12 else ''}."
            yield _at(node, "unknown_server", f"There is no server module servers.{module}.", hint)
        elif function.isidentifier() and function[0] != "_" and self._names.resolve(module, function) is None:
            hint = self._nearest(server, function)
            yield _at(node, "unknown_tool", f"servers.{module} has no tool {function!r}.", hint)

    def _nearest(self, server: str, function: str) -> str:
        functions = list(self._names.functions(server))
        near = get_close_matches(function, functions, 3)
        if near:
            return f"Did you mean {' or '.join(near)}?"
        elsewhere = self._names.named(function)[:3]
        if elsewhere:
            return f"It is in {' and '.join(f'servers.{module}' for module in elsewhere)}."
        more = f" and {len(functions) - _NAMES_SHOWN} more" if len(functions) > _NAMES_SHOWN else ""
        return f"It has {', '.join(functions[:_NAMES_SHOWN])}{more}."

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

    # --- coroutines that are never awaited

    def _kept(self, coroutines: dict[int, str]) -> Iterator[Finding]:
        """`issue = create_issue(...)` and then only `issue["id"]`."""
        for item in sorted(self._program.assigned, key=lambda item: item.call.lineno):
            name = coroutines.get(id(item.call))
            if name is None or len(item.scope.names.get(item.name, ())) != 1:
                continue
            loads = self._program.loads.get(item.name, [])
            loads = [(node, scope) for node, scope in loads if scope.owner(item.name) is item.scope]
            if loads and all(self._is_misused(node, scope) for node, scope in loads):
                yield _not_awaited(item.call, name, item.scope)

    def _is_misused(self, node: ast.expr, scope: Scope) -> bool:
        use = self._program.uses.get(id(node))
        if use is None or use.how == "awaited":
            return False
        if use.how == "dropped":
            return isinstance(node, ast.Call)
        return use.how == "read" or scope.owner(use.builtin) is None


def _position(item: Import | Call) -> tuple[int, int]:
    return item.node.lineno, item.node.col_offset


def _parts(arguments: list[ast.expr]) -> Iterator[ast.expr]:
    """Each argument, or each element of one that is a list or unpacked."""
    for argument in arguments:
        inner = argument.value if isinstance(argument, ast.Starred) else argument
        if isinstance(inner, ast.ListComp | ast.GeneratorExp):
            yield inner.elt
        else:
            yield from inner.elts if isinstance(inner, ast.List | ast.Tuple) else [inner]


def _at(node: ast.stmt | ast.expr, code: Code, message: str, hint: str, raises: str = "AttributeError") -> Finding:
    return Finding(node.lineno, node.col_offset, code, message, hint, raises=raises)


def _not_awaited(call: ast.Call, name: str, scope: Scope) -> Finding:
    message = f"{name}(...) is not awaited, so it would never run."
    hint = f"Write `await {name}(...)`."
    function = next(scope.functions(), None)
    if function is not None and function.name and not function.is_async:
        own = function.name
        hint = f"Write `async def {own}`, `await {name}(...)` in it, and `await {own}(...)` where it is called."
    return Finding(call.lineno, call.col_offset, "not_awaited", message, hint)


def _module_and_name(meant: Imported) -> tuple[str, str]:
    """(module, function) of a tool; `servers.github.create_issue.create_issue` is the same function."""
    parts = meant.module.split(".")
    if parts[0] != "servers" or not 2 <= len(parts) <= 3 or (len(parts) == 3 and parts[2] != meant.name):
        return "", ""
    return parts[1], meant.name
