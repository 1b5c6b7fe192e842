"""A program as models send it, made into a syntax tree and into code. Every line keeps its number.

The review on the host uses it too: what it lets pass must be what the sandbox runs.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Iterator
from typing import Any, cast

# Annotations are not evaluated: a forgotten `from typing import List` is no reason to fail.
_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | __future__.annotations.compiler_flag
# Of a line without the space around it.
_FENCE = re.compile(r"(?:`{3,}|~{3,})[ \t]*[\w.+-]*")
_TILDES = re.compile(r"~{3,}[ \t]*(?:py\w*)?", re.IGNORECASE)
_MOST_REPAIRS = 4
# What Python before 3.12 says about quotes or a backslash inside the braces of an f-string.
_F_STRING = re.compile(r"""\b[rR]?[fF][rR]?["'].*\{""")
_NEWER_F_STRING = re.compile(r"f-string: (unmatched|expecting '}')|f-string expression part|.*line continuation")
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_COMPOUND = frozenset(
    {ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.ExceptHandler}
    | {ast.Match, ast.match_case}
)


def parse(code: str, filename: str) -> tuple[ast.Module, str]:
    """The tree, and the text that it was made from: `code` without a fence around it or a common indentation."""
    text = code.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    # `~~~python` would be an expression.
    if (begin := text.lstrip()).startswith("~~~"):
        first, newline, rest = begin.partition("\n")
        if _TILDES.fullmatch(first.strip()):
            text = f"{text[: len(text) - len(begin)]}{newline}{rest}"
    for _ in range(_MOST_REPAIRS):
        try:
            return ast.parse(text, filename), text
        except SyntaxError as error:
            repaired = _repaired(text, error)
            if repaired is None or repaired == text:
                raise
            text = repaired
    return ast.parse(text, filename), text


def _repaired(text: str, error: SyntaxError) -> str | None:
    """The text without what stopped Python, where that is no part of the program."""
    lines = text.split("\n")
    number = (error.lineno or 1) - 1
    line = lines[number] if number < len(lines) else ""
    if _FENCE.fullmatch(line.strip()):
        lines[number] = ""
    elif line.rstrip().endswith("```") and not "".join(lines[number + 1 :]).strip():
        lines[number] = line.rstrip().rstrip("`")
    elif error.msg == "unexpected indent":
        return _dedented(text, lines)
    else:
        return None
    return "\n".join(lines)


def _dedented(text: str, lines: list[str]) -> str:
    """All lines moved to the left, or the first one, or all others: whichever of these stand out."""
    moved = textwrap.dedent(text)
    if moved != text:
        return moved
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if lines[first] != lines[first].lstrip():
        lines[first] = lines[first].lstrip()
        return "\n".join(lines)
    return "\n".join([*lines[: first + 1], textwrap.dedent("\n".join(lines[first + 1 :]))])


def compiled(tree: ast.Module, filename: str) -> list[types.CodeType]:
    """Code to evaluate piece by piece in one namespace; the last piece gives the value that the program shows.

    That is its last expression, or what a `return` outside of every function returns.
    """
    body = list(tree.body)
    cut = next((number for number, statement in enumerate(body) if _returns(statement)), len(body))
    body, rest = body[:cut], body[cut:]
    last: ast.expr | None = None
    if rest and isinstance(final := rest[0], ast.Return):
        # What follows is never reached.
        last, rest = final.value or ast.copy_location(ast.Constant(None), final), []
    elif not rest and body and isinstance(final := body[-1], ast.Expr):
        last = final.value
        body.pop()
    parts: list[types.CodeType] = []
    if body:
        parts.append(_compile(ast.Module(body, tree.type_ignores), filename, "exec"))
    if last is not None:
        parts.append(_compile(ast.Expression(last), filename, "eval"))
    if rest:
        parts.append(_function(rest, filename))
    return parts


def _compile(tree: ast.Module | ast.Expression, filename: str, mode: str) -> types.CodeType:
    return cast(types.CodeType, compile(tree, filename, mode, flags=_FLAGS, dont_inherit=True))


def _function(body: list[ast.stmt], filename: str) -> types.CodeType:
    """The code of an async function with this body, in which every name is a global, as it is outside of functions."""
    if isinstance(final := body[-1], ast.Expr):
        body = [*body[:-1], ast.copy_location(ast.Return(final.value), final)]
    _drop_annotations(body)
    definition = ast.parse("async def program(): pass").body[0]
    assert isinstance(definition, ast.AsyncFunctionDef)
    definition.body = body
    code = _first_function(definition, filename)
    if names := [*code.co_varnames, *code.co_cellvars]:
        definition.body = [ast.copy_location(ast.Global(names), body[0]), *body]
        code = _first_function(definition, filename)
    return code.replace(co_name="<module>", co_qualname="<module>")


def _first_function(definition: ast.AsyncFunctionDef, filename: str) -> types.CodeType:
    module = _compile(ast.Module([definition], []), filename, "exec")
    code = next(constant for constant in module.co_consts if isinstance(constant, types.CodeType))
    if not code.co_flags & inspect.CO_COROUTINE:
        raise SyntaxError("'yield' outside function", (filename, definition.body[0].lineno, 1, None))
    return code


def _returns(statement: ast.stmt) -> bool:
    return any(isinstance(inner, ast.Return) for inner in _statements([statement]))


def _statements(body: list[ast.stmt]) -> Iterator[Any]:
    """These statements and those inside them, but not the bodies of functions and classes."""
    pending: list[Any] = list(body)
    while pending:
        node = pending.pop()
        yield node
        if node.__class__ in _COMPOUND:
            for name in _BLOCKS:
                pending += getattr(node, name, ())


def _drop_annotations(body: list[ast.stmt]) -> None:
    """`count: int = 0` becomes `count = 0`: a global cannot be annotated inside a function."""
    inside = [node for node in _statements(body) if node.__class__ in _COMPOUND]
    for block in (body, *(getattr(node, name, []) for node in inside for name in _BLOCKS)):
        for number, node in enumerate(block):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                bare = ast.Assign([node.target], node.value) if node.value else ast.Pass()
                block[number] = ast.copy_location(bare, node)


def hint(error: SyntaxError, code: str) -> str:
    """The next step after a syntax error, where one can be named."""
    line = (error.text or "").strip()
    if "'await' outside" in error.msg:
        if name := _plain_function(code, error.lineno or 0):
            return f"Write `async def {name}`, and `await {name}(...)` where it is called."
        return "`await` works at the top level and inside `async def`."
    if line.startswith(("!", "%")):
        return "There is no shell and no notebook here; write Python only."
    if sys.version_info < (3, 12) and _F_STRING.search(line) and _NEWER_F_STRING.match(error.msg):
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"Python {version} here: inside the {{}} of an f-string, use the other kind of quotes and no backslash."
    # Words before the first fence.
    begins = next((number for number, other in enumerate(code.split("\n"), 1) if _FENCE.fullmatch(other.strip())), 0)
    if (error.lineno or 1) < begins:
        return "Send only the program, without Markdown or text around it."
    return ""


def _plain_function(code: str, line: int) -> str:
    """The innermost plain `def` around a line."""
    try:
        tree, _ = parse(code, "")
    except (SyntaxError, ValueError):
        return ""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    inner = max(around, key=lambda node: node.lineno, default=None)
    return inner.name if isinstance(inner, ast.FunctionDef) else ""
