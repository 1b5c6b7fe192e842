"""What a program binds and calls, read from its syntax tree in one pass.

Nothing here judges. It records, per scope, every way a name gets a value, so that `certain` can say what a name means
only where it can mean nothing else.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

ScopeKind = Literal["module", "function", "class", "comprehension"]


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import binds: `module` alone for a module, or a `name` out of it."""

    module: str
    name: str = ""


CONDITION = 1
"""Set around what may not be reached, or whose failing the program has a plan for."""
CATCHES = {"TypeError": 2, "ToolError": 4, "AttributeError": 8, "ImportError": 16, "ModuleNotFoundError": 16}
"""Set around what runs inside a `try` that would catch this exception."""

OTHER = None
"""A binding whose value is not known: an assignment, a parameter, a loop variable."""


@dataclass(slots=True, eq=False)
class Scope:
    kind: ScopeKind
    parent: Scope | None
    names: dict[str, list[Imported | None]] = field(default_factory=dict[str, "list[Imported | None]"])
    name: str = ""
    """Of a function with a `def`."""
    is_async: bool = False
    is_opaque: bool = False
    """Whether it may be called from anywhere: a lambda, a method, a decorated function."""
    returns: bool = False
    """Whether a `return` in it has a value."""
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

    def functions(self) -> Iterator[Scope]:
        """The functions around, from the inside out."""
        scope: Scope | None = self
        while scope is not None:
            if scope.kind == "function":
                yield scope
            scope = scope.parent

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
    scope: Scope
    around: int


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    node: ast.Call
    scope: Scope
    around: int


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
    calls: list[Call] = field(default_factory=list[Call])
    assigned: list[Assigned] = field(default_factory=list[Assigned])
    loads: dict[str, list[tuple[ast.Name, Scope]]] = field(default_factory=dict[str, list[tuple[ast.Name, Scope]]])
    uses: dict[int, Use] = field(default_factory=dict[int, Use])
    """By the id of an expression's node; what is not here is used in a way that says nothing."""
    stored_attributes: set[str] = field(default_factory=set[str])
    functions: dict[str, list[Scope]] = field(default_factory=dict[str, list[Scope]])
    tried: set[str] = field(default_factory=set[str])
    """Names that are used inside a `try` that catches something."""
    catches: int = 0
    """All of `CATCHES` that the program catches anywhere."""
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
_ALL_CAUGHT = 2 | 4 | 8 | 16
# Context managers that swallow or expect exceptions.
_CATCHING = frozenset({"suppress", "raises", "assertRaises"})
_UNRELATED = frozenset(
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)
) - {"Exception", "BaseException"} | {"JSONDecodeError", "CancelledError"}
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
    """Walks with a stack of (node, its scope, what is around it); each method handles one kind of node."""

    def __init__(self) -> None:
        self._program = Program()
        self._stack: list[tuple[ast.AST, Scope, int]] = []

    def read(self, tree: ast.Module) -> Program:
        self._push(tree.body, Scope("module", None), 0)
        stack, handlers = self._stack, _HANDLERS
        while stack:
            node, scope, around = stack.pop()
            handler = handlers.get(node.__class__)
            if handler is None:
                self._push_children(node, scope, around)
            else:
                handler(self, node, scope, around)
        return self._program

    def _push(self, nodes: Iterable[ast.AST | None], scope: Scope, around: int) -> None:
        for node in nodes:
            if node is not None:
                self._stack.append((node, scope, around))

    def _push_children(self, node: ast.AST, scope: Scope, around: int) -> None:
        stack = self._stack
        for name in _FIELDS[node.__class__]:
            value: Any = getattr(node, name)
            if value.__class__ is list:
                for item in value:
                    if item.__class__ not in _LEAVES:
                        stack.append((item, scope, around))
            elif value.__class__ not in _LEAVES:
                stack.append((value, scope, around))

    # Names and how values are used

    def _skip(self, node: ast.AST, scope: Scope, around: int) -> None:
        pass

    def _name(self, node: ast.Name, scope: Scope, around: int) -> None:
        if not isinstance(node.ctx, ast.Load):
            scope.bind(node.id, OTHER)
            return
        self._program.loads.setdefault(node.id, []).append((node, scope))
        if around > CONDITION:
            self._program.tried.add(node.id)
        if node.id in _REBINDERS:
            self._program.dynamic = True

    def _attribute(self, node: ast.Attribute, scope: Scope, around: int) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._program.stored_attributes.add(node.attr)
        elif node.attr not in _COROUTINE_ATTRIBUTES and not node.attr.startswith("cr_"):
            self._program.uses[id(node.value)] = _READ
        self._stack.append((node.value, scope, around))

    def _value_is_read(self, node: ast.Subscript | ast.FormattedValue, scope: Scope, around: int) -> None:
        self._program.uses[id(node.value)] = _READ
        self._push_children(node, scope, around)

    def _await(self, node: ast.Await, scope: Scope, around: int) -> None:
        owner: Scope | None = scope
        while owner is not None and owner.kind == "comprehension":
            owner = owner.parent
        if owner is not None and owner.kind != "module" and not owner.is_async:
            self._program.doubtful = True
        self._program.uses[id(node.value)] = _AWAITED
        self._stack.append((node.value, scope, around))

    def _leaves(self, node: ast.Return | ast.Yield | ast.YieldFrom, scope: Scope, around: int) -> None:
        if scope.kind == "function":
            scope.returns = scope.returns or (isinstance(node, ast.Return) and node.value is not None)
        elif scope.kind != "module" or not isinstance(node, ast.Return):
            self._program.doubtful = True
        self._push([node.value], scope, around)

    def _declared(self, node: ast.Global | ast.Nonlocal, scope: Scope, around: int) -> None:
        self._program.doubtful = True

    def _statement(self, node: ast.Expr, scope: Scope, around: int) -> None:
        value = node.value
        self._program.uses[id(value)] = _DROPPED
        # `[create(x) for x in rows]` on a line of its own drops every element.
        parts = [value.elt] if isinstance(value, ast.ListComp | ast.SetComp) else getattr(value, "elts", ())
        for part in parts:
            self._program.uses[id(part)] = _DROPPED
        self._stack.append((value, scope, around))

    def _call(self, node: ast.Call, scope: Scope, around: int) -> None:
        self._program.calls.append(Call(node, scope, around))
        if isinstance(node.func, ast.Name) and node.func.id in _READERS:
            for argument in node.args:
                self._program.uses[id(argument)] = Use("builtin", node.func.id)
        if any(keyword.arg == "return_exceptions" for keyword in node.keywords):
            around |= CATCHES["ToolError"]
            self._program.catches |= around
        self._push_children(node, scope, around)

    def _for(self, node: ast.For | ast.AsyncFor, scope: Scope, around: int) -> None:
        self._program.uses[id(node.iter)] = _READ
        self._push_children(node, scope, around)

    def _assign(self, node: ast.Assign, scope: Scope, around: int) -> None:
        target = node.targets[0]
        if isinstance(node.value, ast.Call) and len(node.targets) == 1 and isinstance(target, ast.Name):
            self._program.assigned.append(Assigned(target.id, scope, node.value))
        self._push_children(node, scope, around)

    def _walrus(self, node: ast.NamedExpr, scope: Scope, around: int) -> None:
        owner = scope
        while owner.kind == "comprehension" and owner.parent is not None:
            owner = owner.parent
        owner.bind(node.target.id, OTHER)
        self._stack.append((node.value, scope, around))

    # Imports

    def _import(self, node: ast.Import, scope: Scope, around: int) -> None:
        for alias in node.names:
            self._program.imports.append(Import(node, Imported(alias.name), scope, around))
            # `import servers.github` binds `servers`; `import servers.github as gh` binds the module itself.
            top = alias.name.split(".")[0]
            scope.bind(alias.asname or top, Imported(alias.name if alias.asname else top))

    def _import_from(self, node: ast.ImportFrom, scope: Scope, around: int) -> None:
        for alias in node.names:
            bound = Imported(node.module or "", alias.name) if node.level == 0 else OTHER
            if bound is not None:
                self._program.imports.append(Import(node, bound, scope, around))
            if alias.name == "*":
                self._program.dynamic = True
            else:
                scope.bind(alias.asname or alias.name, bound)

    # Scopes

    def _function(self, node: _Function, scope: Scope, around: int) -> None:
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        is_lambda = isinstance(node, ast.Lambda)
        inner = Scope("function", scope, is_async=isinstance(node, ast.AsyncFunctionDef))
        inner.is_opaque = is_lambda or scope.kind == "class" or bool(node.decorator_list)
        for argument in named:
            if argument is not None:
                inner.bind(argument.arg, OTHER)
                self._push([argument.annotation], scope, around)
        # Defaults are worked out where the function is defined.
        self._push([*arguments.defaults, *arguments.kw_defaults], scope, around)
        if is_lambda:
            self._push([node.body], inner, around)
            return
        scope.bind(node.name, OTHER)
        inner.name = node.name
        self._program.functions.setdefault(node.name, []).append(inner)
        self._push([*node.decorator_list, node.returns], scope, around)
        _declare(node.body, inner)
        # It runs where it is called, not where it is defined.
        self._push(node.body, inner, around & CONDITION)

    def _class(self, node: ast.ClassDef, scope: Scope, around: int) -> None:
        scope.bind(node.name, OTHER)
        self._push([*node.decorator_list, *node.bases, *node.keywords], scope, around)
        self._push(node.body, Scope("class", scope), around)

    def _comprehension(self, node: _Comprehension, scope: Scope, around: int) -> None:
        inner = Scope("comprehension", scope)
        for number, generator in enumerate(node.generators):
            self._program.uses[id(generator.iter)] = _READ
            # The first iterable is worked out outside.
            self._push([generator.iter], inner if number else scope, around)
            self._push([generator.target, *generator.ifs], inner, around)
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._push(results, inner, around)

    # What may not happen

    def _if(self, node: ast.If, scope: Scope, around: int) -> None:
        self._push([node.test], scope, around)
        left = node.test.left if isinstance(node.test, ast.Compare) else None
        is_main = isinstance(left, ast.Name) and left.id == "__name__"
        self._push([*node.body, *node.orelse], scope, around if is_main else around | CONDITION)

    def _try(self, node: ast.Try | ast.TryStar, scope: Scope, around: int) -> None:
        caught = 0
        for handler in node.handlers:
            caught |= _caught(handler.type)
        self._program.catches |= caught
        self._push(node.body, scope, around | CONDITION | caught)
        self._push([*node.handlers, *node.orelse, *node.finalbody], scope, around | CONDITION)

    def _with(self, node: ast.With | ast.AsyncWith, scope: Scope, around: int) -> None:
        self._push(node.items, scope, around)
        for item in node.items:
            if isinstance(call := item.context_expr, ast.Call) and _last_name(call.func) in _CATCHING:
                around |= CONDITION
                for kind in call.args:
                    around |= _caught(kind)
        self._program.catches |= around
        self._push(node.body, scope, around)

    def _branches(self, node: ast.AST, scope: Scope, around: int) -> None:
        self._push_children(node, scope, around | CONDITION)

    def _captured(self, node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar, scope: Scope, around: int) -> None:
        if node.name:
            scope.bind(node.name, OTHER)
        self._push_children(node, scope, around | CONDITION)

    def _captured_rest(self, node: ast.MatchMapping, scope: Scope, around: int) -> None:
        if node.rest:
            scope.bind(node.rest, OTHER)
        self._push_children(node, scope, around | CONDITION)

    # fmt: off
    HANDLERS: ClassVar[dict[type[ast.AST], Callable[..., None]]] = {
        ast.Constant: _skip, ast.Load: _skip, ast.Store: _skip, ast.Global: _declared, ast.Nonlocal: _declared,
        ast.Return: _leaves, ast.Yield: _leaves, ast.YieldFrom: _leaves,
        ast.Name: _name, ast.Attribute: _attribute, ast.Subscript: _value_is_read, ast.FormattedValue: _value_is_read,
        ast.Await: _await, ast.Expr: _statement, ast.Call: _call, ast.For: _for, ast.AsyncFor: _for,
        ast.Assign: _assign, ast.NamedExpr: _walrus, ast.Import: _import, ast.ImportFrom: _import_from,
        ast.FunctionDef: _function, ast.AsyncFunctionDef: _function, ast.Lambda: _function, ast.ClassDef: _class,
        ast.ListComp: _comprehension, ast.SetComp: _comprehension, ast.DictComp: _comprehension,
        ast.GeneratorExp: _comprehension, ast.If: _if, ast.Try: _try, ast.TryStar: _try,
        ast.With: _with, ast.AsyncWith: _with,
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


def _caught(kind: ast.expr | None) -> int:
    """Which of `CATCHES` an `except` of this type catches. A class that is not known may catch anything."""
    if isinstance(kind, ast.Tuple):
        caught = 0
        for part in kind.elts:
            caught |= _caught(part)
        return caught
    name = _last_name(kind) if kind is not None else "BaseException"
    if name in CATCHES:
        return CATCHES[name]
    return 0 if name in _UNRELATED else _ALL_CAUGHT


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
