"""Plausible mistakes, one at a time: each mutant is one small change to one place of a source file."""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
}
_TWINS = {"min": "max", "max": "min", "any": "all", "all": "any", "popleft": "pop", "startswith": "endswith"}
_ORDER_IS_PLAIN = {"isinstance", "issubclass", "getattr", "setattr"}
_ORDER_IS_ALL_ONE = {"min", "max", "array_equal"}
_LOGGERS = {"_log", "log", "logger"}
_SMALL = 16
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DECLARATIONS = {"annotation", "returns", "decorator_list", "bases", "type_params"}
MODULE = "<module>"


@dataclass(frozen=True)
class Mutant:
    """Bytes `start` to `end` of a file, replaced by `text`. `place` is the function (or `<module>`) that it is in."""

    file: str
    line: int
    place: str
    kind: str
    start: int
    end: int
    text: str
    key: str
    """Stays the same while its function does, whatever happens around it."""
    offset: int
    """Lines from the first line of its function."""
    constant: str = ""
    """The module's name that it gives another value."""

    @property
    def is_of_containers(self) -> bool:
        return "/container/" in self.file

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        before, after = source.decode().splitlines(), self.apply(source).decode().splitlines()
        lines = difflib.unified_diff(before, after, lineterm="", n=0)
        return "\n".join(line for line in list(lines)[2:] if not line.startswith("@@"))


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    """Every mutant of a file, in the order of the file."""
    return list(_Finder(file, source).all())


class _Finder:
    def __init__(self, file: str, source: bytes) -> None:
        self._file = file
        self._source = source
        self._tree = ast.parse(source)
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._seen: dict[str, int] = {}

    def all(self) -> Iterator[Mutant]:
        for statement in self._tree.body:
            name = ""
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id
            yield from self._inside(statement, MODULE, None, name)

    def _inside(self, node: ast.AST, place: str, function: ast.AST | None, constant: str) -> Iterator[Mutant]:
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            place = node.name if place == MODULE else f"{place}.{node.name}"
            function = node if isinstance(node, _FUNCTIONS) else function
        if _is_left_alone(node):
            return
        for kind, target, text in _changes(node):
            if _is_plausible(kind, target, function):
                yield self._mutant(place, function, constant, kind, target, text)
        for name, value in ast.iter_fields(node):
            if name in _DECLARATIONS or (name == "keywords" and isinstance(node, ast.ClassDef)):
                continue
            for child in cast("list[Any]", value) if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._inside(child, place, function, constant)

    def _mutant(
        self, place: str, function: ast.AST | None, constant: str, kind: str, target: ast.AST, text: str
    ) -> Mutant:
        first, last = self._span(target)
        line: int = getattr(target, "lineno", 1)
        around = self._source[slice(*self._span(function or target))]
        offset = line - getattr(function, "lineno", line)
        name = f"{self._file}\0{place}\0{kind}\0{offset}\0{first}\0{text}" if function is None else ""
        name = name or f"{self._file}\0{place}\0{kind}\0{first - self._span(function or target)[0]}\0{text}"
        key = hashlib.sha256(name.encode() + around).hexdigest()[:16]
        text = text.replace("\n", "\n" + " " * getattr(target, "col_offset", 0))
        return Mutant(self._file, line, place, kind, first, last, text, key, offset, constant)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first = self._starts[node.lineno - 1] + node.col_offset
        return first, self._starts[node.end_lineno - 1] + node.end_col_offset


def _is_left_alone(node: ast.AST) -> bool:
    """What no behaviour hangs on: texts, logs, types, buffer sizes, invariants that are stated for the type checker."""
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.Import() | ast.ImportFrom() | ast.BinOp(op=ast.LShift()):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in _LOGGERS:
            return True
        case ast.Call(func=ast.Name(id="cast" | "TypeVar" | "Literal")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.keyword(arg="strict"):
            return True
        case _:
            return False


def _is_plausible(kind: str, target: ast.AST, function: ast.AST | None) -> bool:
    """What fails at the first use is no mistake that anybody would keep: such mutants only make the share look good."""
    if not isinstance(function, _FUNCTIONS):
        return True
    if function.name == "__init__" and (kind == "returns at once" or isinstance(target, ast.Assign)):
        return False
    return kind != "returns nothing" or function.returns is None or "None" in ast.unparse(function.returns)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """What kind of change, which node it replaces, and the new text."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
            yield "comparison", node, _with(node, ops=[_COMPARISONS[type(op)]()])
        case ast.BoolOp(op=op):
            yield "and/or", node, _with(node, op=ast.And() if isinstance(op, ast.Or) else ast.Or())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not removed", node, f"({ast.unparse(operand)})"
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC and not _is_text(node):
            yield "arithmetic", node, _with(node, op=_ARITHMETIC[type(op)]())
        case ast.Constant():
            yield from _constants(node)
        case ast.Call():
            yield from _calls(node)
        case ast.IfExp(test=test):
            yield "condition negated", test, f"(not ({ast.unparse(test)}))"
        case ast.stmt():
            yield from _statements(node)
        case _:
            pass


def _constants(node: ast.Constant) -> Iterator[tuple[str, ast.AST, str]]:
    match node.value:
        case bool(value):
            yield "constant", node, repr(not value)
        case int(value):
            yield "constant", node, str(value + 1 if abs(value) <= _SMALL else value * 1000)
        case float(value):
            yield "constant", node, repr(value * 1000 if value else 1.0)
        case _:
            pass


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.AST, str]]:
    match node.func:
        case ast.Name(id=name) if name in _TWINS:
            yield f"{name} swapped", node, _with(node, func=ast.Name(_TWINS[name]))
        case ast.Attribute(attr=name) if name in _TWINS:
            yield f"{name} swapped", node, _with(node, func=_renamed(node.func, _TWINS[name]))
        case ast.Attribute(attr="shield") if len(node.args) == 1:
            yield "shield removed", node, f"({ast.unparse(node.args[0])})"
        case _:
            pass
    if _takes_alike(node):
        yield "arguments swapped", node, _with(node, args=[node.args[1], node.args[0], *node.args[2:]])


def _takes_alike(node: ast.Call) -> bool:
    """Whether the first two arguments could be mistaken for each other."""
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if name in _ORDER_IS_PLAIN or name in _ORDER_IS_ALL_ONE:
        return False
    names = [arg for arg in node.args[:2] if isinstance(arg, ast.Name | ast.Attribute)]
    return len(names) == 2 and ast.dump(names[0]) != ast.dump(names[1])


def _statements(node: ast.stmt) -> Iterator[tuple[str, ast.AST, str]]:  # noqa: PLR0912 - a table
    match node:
        case ast.If(test=test) | ast.While(test=test):
            if not (isinstance(test, ast.Constant) or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))):
                yield "condition negated", test, f"(not ({ast.unparse(test)}))"
        case ast.Expr(value=ast.Await(value=call)):
            yield "statement removed", node, "pass"
            yield "await removed", node, ast.unparse(call)
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Delete() | ast.Raise():
            if not any(_is_left_alone(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.Call)):
                yield "statement removed", node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield "statement removed", node, "pass"
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "returns nothing", node, "return None"
        case ast.Break():
            yield "break/continue", node, "continue"
        case ast.Continue():
            yield "break/continue", node, "break"
        case ast.Try(finalbody=[_, *_], handlers=handlers) if handlers:
            yield "finally removed", node, _with(node, finalbody=[])
        case ast.Try(finalbody=[_, *_]):
            yield "finally removed", node, "\n".join(map(ast.unparse, node.body))
        case ast.FunctionDef(returns=ast.Constant(value=None)) | ast.AsyncFunctionDef(returns=ast.Constant(value=None)):
            if not _is_stub(node):
                first = node.body[_has_docstring(node)]
                yield "returns at once", first, f"return\n{ast.unparse(first)}"
        case _:
            pass


def _has_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return int(ast.get_docstring(node, clean=False) is not None)


def _is_stub(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    rest = node.body[_has_docstring(node) :]
    return not rest or (isinstance(rest[0], ast.Expr) and isinstance(rest[0].value, ast.Constant))


def _is_text(node: ast.BinOp) -> bool:
    """Joined strings and lists of types are not arithmetic."""
    sides = (node.left, node.right)
    if isinstance(node.op, ast.BitOr):
        return not all(isinstance(side, ast.BinOp) or _is_flag(side) for side in sides)
    return any(isinstance(side, ast.JoinedStr | ast.List) or _is_string(side) for side in sides)


def _is_flag(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr.isupper()


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _renamed(node: ast.Attribute, name: str) -> ast.Attribute:
    return ast.Attribute(node.value, name, node.ctx)


def _with(node: ast.AST, **fields: Any) -> str:
    changed = deepcopy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    text = ast.unparse(ast.fix_missing_locations(changed))
    return f"({text})" if isinstance(node, ast.expr) else text
