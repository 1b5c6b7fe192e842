"""Where in the program an exception came from: the expressions of that line, and the values of the simple ones.

Nothing of the program runs here. A value is looked up in variables, and in exact dicts and lists; what would take a
call or an attribute to find stays unknown.
"""

from __future__ import annotations

import ast
import linecache
import sys
import types
from collections.abc import Iterator
from typing import Any, TypeVar

from . import source

UNKNOWN: Any = object()
KEYS = (str, int, float, bool, types.NoneType)
"""Types of keys that are safe to compare and to show."""
_LONGEST_SOURCE = 200_000
_SHOWN = 60
_Node = TypeVar("_Node", bound=ast.AST)


class Place:
    """The innermost line that the agent wrote. `direct` is whether the exception was raised on it, not below it."""

    def __init__(self, step: types.TracebackType) -> None:
        self.frame = step.tb_frame
        self.line = step.tb_lineno
        self.direct = step.tb_next is None
        self.tree = _tree(self.frame.f_code.co_filename)
        self._span = _span(step)

    @staticmethod
    def of(problem: BaseException) -> Place | None:
        step, found = problem.__traceback__, None
        while step is not None:
            if step.tb_frame.f_code.co_filename.startswith(("program", "/agent/skills/", "/agent/workspace/")):
                found = step
            step = step.tb_next
        return Place(found) if found is not None else None

    def nodes(self, kind: type[_Node]) -> Iterator[_Node]:
        """The expressions of this kind on the line; the one that was being evaluated first."""
        around = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, kind) and _first_line(node) <= self.line <= _last_line(node)
        ]
        around.sort(key=lambda node: _position(node) != self._span)
        yield from around

    def value(self, node: ast.AST) -> Any:
        """What the expression is worth, as far as looking is enough; else `UNKNOWN`."""
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                for names in (self.frame.f_locals, self.frame.f_globals):
                    if name in names:
                        return names[name]
            case ast.Subscript(inner, index):
                return _item(self.value(inner), self.value(index))
            case _:
                pass
        return UNKNOWN


def exactly(value: Any, *kinds: type) -> bool:
    """Whether the value is of one of these types and of no class of the program, which may override anything."""
    return type(value) in kinds


def text_of(node: ast.AST) -> str:
    """The expression's source; empty where it is too long to be quoted."""
    text = ast.unparse(node)
    return text if len(text) <= _SHOWN and "\n" not in text else ""


def _item(value: Any, key: Any) -> Any:
    if exactly(value, dict) and exactly(key, *KEYS):
        return value.get(key, UNKNOWN)
    if exactly(value, list, tuple) and exactly(key, int) and -len(value) <= key < len(value):
        return value[key]
    return UNKNOWN


def _tree(filename: str) -> ast.AST:
    code = "".join(linecache.getlines(filename))
    if len(code) > _LONGEST_SOURCE:
        return ast.Module([], [])
    return source.parse(code, filename)[0]


def _span(step: types.TracebackType) -> tuple[int | None, ...]:
    """First line, last line, first column, last column of what was being evaluated."""
    instructions = step.tb_frame.f_code.co_positions()
    for number, span in enumerate(instructions):
        if number == step.tb_lasti // 2:
            return span
    return ()


def _first_line(node: ast.AST) -> int:
    return getattr(node, "lineno", sys.maxsize)


def _last_line(node: ast.AST) -> int:
    return getattr(node, "end_lineno", 0)


def _position(node: Any) -> tuple[int | None, ...]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
