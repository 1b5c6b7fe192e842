"""What a program binds and calls, read from its syntax tree in one pass.

Nothing here judges. It records, per scope, every way a name gets a value, so that `certain` can say what a name means
only where it can mean nothing else.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

ScopeKind = Literal["module", "function", "class", "comprehension"]


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import binds: `module` alone for a module, or a `name` out of it."""

    module: str
    name: str = ""


OTHER = None
"""A binding whose value is not known: an assignment, a parameter, a loop variable."""


@dataclass(slots=True, eq=False)
class Scope:
    kind: ScopeKind
    parent: Scope | None
    names: dict[str, list[Imported | None]] = field(default_factory=dict[str, "list[Imported | None]"])
    is_async: bool = False
    elsewhere: set[str] = field(default_factory=set[str])
    """Names that `global` or `nonlocal` sends to another scope."""

    def bind(self, name: str, value: Imported | None) -> None:
        if name not in self.elsewhere:
            self.names.setdefault(name, []).append(value)
            return
        # `global` or `nonlocal`: whichever scope has it, its value is no longer certain.
        outer = self.parent
        while outer is not None:
            outer.names.setdefault(name, []).append(value)
            outer = outer.parent

    def owner(self, name: str) -> Scope | None:
        """The scope whose `name` a reader here gets, by Python's rules."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names and (scope is self or scope.kind != "class"):
                return scope
            scope = scope.parent
        return None

    def certain(self, name: str) -> Imported | None:
        """What `name` is here if every binding of it is the same import."""
        owner = self.owner(name)
        if owner is None:
            return None
        first, *rest = owner.names[name]
        return first if all(other == first for other in rest) else None


@dataclass(frozen=True, slots=True)
class Import:
    node: ast.Import | ast.ImportFrom
    bound: Imported
    conditional: bool
    """Whether the program may have a plan for its failing, or for not getting here."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """`name = call(...)`: the call's coroutine waits in a variable."""

    name: str
    scope: Scope
    call: ast.Call


@dataclass(frozen=True, slots=True)
class Use:
    """How the value of an expression is used by what surrounds it."""

    how: Literal["awaited", "dropped", "read", "builtin"]
    builtin: str = ""


@dataclass(slots=True)
class Program:
    imports: list[Import] = field(default_factory=list[Import])
    calls: list[tuple[ast.Call, Scope]] = field(default_factory=list[tuple[ast.Call, Scope]])
    assigned: list[Assigned] = field(default_factory=list[Assigned])
    loads: dict[str, list[tuple[ast.Name, Scope]]] = field(default_factory=dict[str, list[tuple[ast.Name, Scope]]])
    uses: dict[int, Use] = field(default_factory=dict[int, Use])
    """By the id of an expression's node; what is not here is used in a way that says nothing."""
    stored_attributes: set[str] = field(default_factory=set[str])
    doubtful: bool = False
    """Whether there is something here that only the compiler refuses, such as `await` in a plain function."""
    dynamic: bool = False
    """Whether names may change behind the syntax: `exec`, `globals()`, a star import."""


_AWAITED, _DROPPED, _READ = Use("awaited"), Use("dropped"), Use("read")
_REBINDERS = frozenset({"exec", "eval", "globals", "locals", "vars", "setattr", "delattr", "__import__"})
# Builtins that want a value, and do nothing useful with a coroutine.
_READERS = frozenset(
    {"print", "len", "str", "repr", "list", "dict", "set", "tuple", "sorted", "sum", "min", "max", "enumerate"}
    | {"zip", "any", "all", "iter", "next", "bool", "int", "float"}
)
_COROUTINE_ATTRIBUTES = frozenset({"close", "send", "throw"})
# Most of a tree is operators, contexts and plain values; nothing in them is for us.
_LEAVES = frozenset({ast.Constant, type(None), str, int, bool})
_NO_NODES = frozenset({"op", "ops", "ctx", "id", "attr", "arg", "kind", "type_comment", "conversion", "is_async"})
_KINDS = [kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)]
_FIELDS = {kind: tuple(name for name in kind._fields if name not in _NO_NODES) for kind in _KINDS}
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def read(tree: ast.Module) -> Program:
    """Records the whole program."""
    return _Reader().read(tree)


class _Reader:
    """Walks with a stack of (node, its scope, whether it is conditional); each method handles one kind of node."""

    def __init__(self) -> None:
        self._program = Program()
        self._stack: list[tuple[ast.AST, Scope, bool]] = []

    def read(self, tree: ast.Module) -> Program:
        self._push(tree.body, Scope("module", None), False)
        stack, handlers = self._stack, _HANDLERS
        while stack:
            node, scope, conditional = stack.pop()
            handler = handlers.get(node.__class__)
            if handler is None:
                self._push_children(node, scope, conditional)
            else:
                handler(self, node, scope, conditional)
        return self._program

    def _push(self, nodes: Iterable[ast.AST | None], scope: Scope, conditional: bool) -> None:
        for node in nodes:
            if node is not None:
                self._stack.append((node, scope, conditional))

    def _push_children(self, node: ast.AST, scope: Scope, conditional: bool) -> None:
        stack = self._stack
        for name in _FIELDS[node.__class__]:
            value: Any = getattr(node, name)
            if value.__class__ is list:
                for item in value:
                    if item.__class__ not in _LEAVES:
                        stack.append((item, scope, conditional))
            elif value.__class__ not in _LEAVES:
                stack.append((value, scope, conditional))

    # Names and how values are used

    def _skip(self, node: ast.AST, scope: Scope, conditional: bool) -> None:
        pass

    def _name(self, node: ast.Name, scope: Scope, conditional: bool) -> None:
        if not isinstance(node.ctx, ast.Load):
            scope.bind(node.id, OTHER)
            return
        self._program.loads.setdefault(node.id, []).append((node, scope))
        if node.id in _REBINDERS:
            self._program.dynamic = True

    def _attribute(self, node: ast.Attribute, scope: Scope, conditional: bool) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._program.stored_attributes.add(node.attr)
        elif node.attr not in _COROUTINE_ATTRIBUTES and not node.attr.startswith("cr_"):
            self._program.uses[id(node.value)] = _READ
        self._stack.append((node.value, scope, conditional))

    def _value_is_read(self, node: ast.Subscript | ast.FormattedValue, scope: Scope, conditional: bool) -> None:
        self._program.uses[id(node.value)] = _READ
        self._push_children(node, scope, conditional)

    def _await(self, node: ast.Await, scope: Scope, conditional: bool) -> None:
        owner: Scope | None = scope
        while owner is not None and owner.kind == "comprehension":
            owner = owner.parent
        if owner is not None and owner.kind != "module" and not owner.is_async:
            self._program.doubtful = True
        self._program.uses[id(node.value)] = _AWAITED
        self._stack.append((node.value, scope, conditional))

    def _leaves(self, node: ast.Return | ast.Yield | ast.YieldFrom, scope: Scope, conditional: bool) -> None:
        if scope.kind != "function":
            self._program.doubtful = True
        self._push([node.value], scope, conditional)

    def _declared(self, node: ast.Global | ast.Nonlocal, scope: Scope, conditional: bool) -> None:
        self._program.doubtful = True

    def _statement(self, node: ast.Expr, scope: Scope, conditional: bool) -> None:
        self._program.uses[id(node.value)] = _DROPPED
        self._stack.append((node.value, scope, conditional))

    def _call(self, node: ast.Call, scope: Scope, conditional: bool) -> None:
        self._program.calls.append((node, scope))
        if isinstance(node.func, ast.Name) and node.func.id in _READERS:
            for argument in node.args:
                self._program.uses[id(argument)] = Use("builtin", node.func.id)
        self._push_children(node, scope, conditional)

    def _for(self, node: ast.For | ast.AsyncFor, scope: Scope, conditional: bool) -> None:
        self._program.uses[id(node.iter)] = _READ
        self._push_children(node, scope, conditional)

    def _assign(self, node: ast.Assign, scope: Scope, conditional: bool) -> None:
        target = node.targets[0]
        if isinstance(node.value, ast.Call) and len(node.targets) == 1 and isinstance(target, ast.Name):
            self._program.assigned.append(Assigned(target.id, scope, node.value))
        self._push_children(node, scope, conditional)

    def _walrus(self, node: ast.NamedExpr, scope: Scope, conditional: bool) -> None:
        owner = scope
        while owner.kind == "comprehension" and owner.parent is not None:
            owner = owner.parent
        owner.bind(node.target.id, OTHER)
        self._stack.append((node.value, scope, conditional))

    # Imports

    def _import(self, node: ast.Import, scope: Scope, conditional: bool) -> None:
        for alias in node.names:
            self._program.imports.append(Import(node, Imported(alias.name), conditional))
            # `import servers.github` binds `servers`; `import servers.github as gh` binds the module itself.
            top = alias.name.split(".")[0]
            scope.bind(alias.asname or top, Imported(alias.name if alias.asname else top))

    def _import_from(self, node: ast.ImportFrom, scope: Scope, conditional: bool) -> None:
        for alias in node.names:
            bound = Imported(node.module or "", alias.name) if node.level == 0 else OTHER
            if bound is not None:
                self._program.imports.append(Import(node, bound, conditional))
            if alias.name == "*":
                self._program.dynamic = True
            else:
                scope.bind(alias.asname or alias.name, bound)

    # Scopes

    def _function(self, node: _Function, scope: Scope, conditional: bool) -> None:
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        inner = Scope("function", scope, is_async=isinstance(node, ast.AsyncFunctionDef))
        for argument in named:
            if argument is not None:
                inner.bind(argument.arg, OTHER)
                self._push([argument.annotation], scope, conditional)
        # Defaults are worked out where the function is defined.
        self._push([*arguments.defaults, *arguments.kw_defaults], scope, conditional)
        if isinstance(node, ast.Lambda):
            self._push([node.body], inner, conditional)
            return
        scope.bind(node.name, OTHER)
        self._push([*node.decorator_list, node.returns], scope, conditional)
        _declare(node.body, inner)
        self._push(node.body, inner, conditional)

    def _class(self, node: ast.ClassDef, scope: Scope, conditional: bool) -> None:
        scope.bind(node.name, OTHER)
        self._push([*node.decorator_list, *node.bases, *node.keywords], scope, conditional)
        self._push(node.body, Scope("class", scope), conditional)

    def _comprehension(self, node: _Comprehension, scope: Scope, conditional: bool) -> None:
        inner = Scope("comprehension", scope)
        for number, generator in enumerate(node.generators):
            self._program.uses[id(generator.iter)] = _READ
            # The first iterable is worked out outside.
            self._push([generator.iter], inner if number else scope, conditional)
            self._push([generator.target, *generator.ifs], inner, conditional)
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._push(results, inner, conditional)

    # What may not happen

    def _if(self, node: ast.If, scope: Scope, conditional: bool) -> None:
        self._push([node.test], scope, conditional)
        left = node.test.left if isinstance(node.test, ast.Compare) else None
        is_main = isinstance(left, ast.Name) and left.id == "__name__"
        self._push([*node.body, *node.orelse], scope, conditional or not is_main)

    def _branches(self, node: ast.AST, scope: Scope, conditional: bool) -> None:
        self._push_children(node, scope, True)

    def _captured(self, node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar, scope: Scope, conditional: bool) -> None:
        if node.name:
            scope.bind(node.name, OTHER)
        self._push_children(node, scope, True)

    def _captured_rest(self, node: ast.MatchMapping, scope: Scope, conditional: bool) -> None:
        if node.rest:
            scope.bind(node.rest, OTHER)
        self._push_children(node, scope, True)

    # fmt: off
    HANDLERS: ClassVar[dict[type[ast.AST], Callable[..., None]]] = {
        ast.Constant: _skip, ast.Load: _skip, ast.Store: _skip, ast.Global: _declared, ast.Nonlocal: _declared,
        ast.Return: _leaves, ast.Yield: _leaves, ast.YieldFrom: _leaves,
        ast.Name: _name, ast.Attribute: _attribute, ast.Subscript: _value_is_read, ast.FormattedValue: _value_is_read,
        ast.Await: _await, ast.Expr: _statement, ast.Call: _call, ast.For: _for, ast.AsyncFor: _for,
        ast.Assign: _assign, ast.NamedExpr: _walrus, ast.Import: _import, ast.ImportFrom: _import_from,
        ast.FunctionDef: _function, ast.AsyncFunctionDef: _function, ast.Lambda: _function, ast.ClassDef: _class,
        ast.ListComp: _comprehension, ast.SetComp: _comprehension, ast.DictComp: _comprehension,
        ast.GeneratorExp: _comprehension, ast.If: _if, ast.Try: _branches, ast.TryStar: _branches,
        ast.Match: _branches, ast.ExceptHandler: _captured, ast.MatchAs: _captured, ast.MatchStar: _captured,
        ast.MatchMapping: _captured_rest,
    }
    # fmt: on


_HANDLERS = _Reader.HANDLERS


def _declare(body: list[ast.stmt], scope: Scope) -> None:
    """`global` and `nonlocal` hold for the whole function, also above themselves."""
    pending: list[Any] = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Global | ast.Nonlocal):
            scope.elsewhere.update(node.names)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for name in ("body", "orelse", "finalbody", "handlers", "cases"):
                pending += getattr(node, name, ())
