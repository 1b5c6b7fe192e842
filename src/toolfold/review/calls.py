"""The arguments of a call to a known tool, as far as the program spells them out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, cast

from toolfold.codegen.from_schema import Arguments
from toolfold.definitions import ToolDefinition
from toolfold.review.finding import Finding
from toolfold.schema.validation import Validators

_UNKNOWN: Any = object()
# Words of a schema that allow every value of the type.
_HARMLESS = frozenset({"type", "description", "title", "default", "examples", "format"})


def check(
    call: ast.Call, function: str, tool: ToolDefinition, taken: Arguments, validators: Validators
) -> Iterator[Finding]:
    """What the call would certainly be refused for, by the function or by the tool's schema."""
    if call.args:
        yield from _positional(call, function, tool, taken, validators)
        return
    unpacked = any(keyword.arg is None for keyword in call.keywords)
    given: set[str] = set()
    for keyword in call.keywords:
        if keyword.arg is None:
            continue
        wire = taken.keywords.get(keyword.arg, keyword.arg)
        if keyword.arg not in taken.keywords and not taken.open:
            yield _unknown(keyword, function, keyword.arg, list(taken.keywords))
        elif not _is_left_out(keyword.value):
            given.add(wire)
            yield from _value(keyword.value, wire, function, tool, validators)
    if not unpacked:
        yield from _missing(call, function, taken, given)


def _positional(
    call: ast.Call, function: str, tool: ToolDefinition, taken: Arguments, validators: Validators
) -> Iterator[Finding]:
    only = call.args[0]
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return
    if len(call.args) > 1 or call.keywords or _kind(only) not in (_UNKNOWN, dict):
        words = ", ".join(f"{word}=..." for word in list(taken.keywords)[: max(len(call.args), 1)])
        message = f"{function} takes keywords or one dict, not positional arguments."
        yield Finding(only.lineno, only.col_offset, "invalid_argument", message, f"Write {function}({words}).")
        return
    if not isinstance(only, ast.Dict) or not all(_text(key) for key in only.keys):
        return
    given: set[str] = set()
    for key, value in zip(only.keys, only.values, strict=True):
        name = _text(key)
        wire = taken.keywords.get(name, name)
        if taken.closed and wire not in taken.keywords.values():
            yield _unknown(key or value, function, name, list(taken.keywords.values()))
        elif not _is_left_out(value):
            given.add(wire)
            yield from _value(value, wire, function, tool, validators)
    yield from _missing(call, function, taken, given)


def _missing(call: ast.Call, function: str, taken: Arguments, given: set[str]) -> Iterator[Finding]:
    missing = [word for word, wire in taken.keywords.items() if wire in taken.required and wire not in given]
    if missing:
        listed = ", ".join(missing[:8])
        yield Finding(call.lineno, call.col_offset, "missing_argument", f"{function} needs {listed}.")


def _unknown(node: ast.keyword | ast.expr, function: str, name: str, known: list[str]) -> Finding:
    near = get_close_matches(name, known, 2)
    if near:
        hint = f"Did you mean {' or '.join(near)}?"
    else:
        hint = f"It takes {', '.join(known[:12])}{' …' if len(known) > 12 else ''}." if known else "It takes none."
    return Finding(node.lineno, node.col_offset, "unknown_argument", f"{function} has no argument {name!r}.", hint)


def _value(node: ast.expr, wire: str, function: str, tool: ToolDefinition, validators: Validators) -> Iterator[Finding]:
    value = _literal(node)
    kind_only = value is _UNKNOWN
    if kind_only:
        kind = _kind(node)
        if kind is _UNKNOWN:
            return
        # Some value of that type: only what is wrong with all of them counts.
        value = kind()
    if _plainly_fits(value, wire, tool):
        return
    for problem in validators.problems_with(tool, wire, value, kind_only=kind_only)[:1]:
        yield Finding(node.lineno, node.col_offset, "invalid_argument", f"{function}: {problem}.")


def _plainly_fits(value: Any, wire: str, tool: ToolDefinition) -> bool:
    """The common case, without compiling the whole schema: a simple type and a value of it."""
    properties = tool.input_schema.get("properties")
    node = cast(dict[str, Any], properties).get(wire) if isinstance(properties, dict) else None
    if not isinstance(node, dict) or not cast(dict[str, Any], node).keys() <= _HARMLESS:
        return False
    match cast(dict[str, Any], node).get("type"), value:
        case ("string", str()) | ("boolean", bool()):
            return True
        case ("integer" | "number", int()) | ("number", float()):
            return not isinstance(value, bool)
        case _:
            return False


def _literal(node: ast.expr) -> Any:
    """The value that the expression spells out, as JSON has it; `_UNKNOWN` unless all of it is there."""
    match node:
        case ast.Constant(value) if value is None or isinstance(value, str | int | float):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(value)) if isinstance(value, int | float):
            return -value
        case ast.List(elements) | ast.Tuple(elements):
            values = [_literal(element) for element in elements]
            return _UNKNOWN if any(value is _UNKNOWN for value in values) else values
        case ast.Dict(keys, values):
            items: dict[str, Any] = {}
            for key, value in zip(keys, values, strict=True):
                items[_text(key)] = _literal(value)
            return _UNKNOWN if "" in items or any(value is _UNKNOWN for value in items.values()) else items
        case _:
            return _UNKNOWN


def _kind(node: ast.expr) -> Any:
    """The type of the expression where its form alone tells it."""
    match node:
        case ast.Constant(value) if isinstance(value, str | int | float | bool):
            return type(value)
        case ast.JoinedStr():
            return str
        case ast.List() | ast.ListComp() | ast.Tuple():
            return list
        case ast.Dict() | ast.DictComp():
            return dict
        case _:
            return _UNKNOWN


def _text(key: ast.expr | None) -> str:
    """A key that is a plain string; "" for `**unpacked`, for a computed key, and for the empty string itself."""
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def _is_left_out(node: ast.expr) -> bool:
    """`...` says "not given"."""
    return isinstance(node, ast.Constant) and node.value is ...
