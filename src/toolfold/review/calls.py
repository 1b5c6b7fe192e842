"""The arguments of a call to a known tool, as far as the program spells them out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Literal, cast

from toolfold.codegen.from_schema import Arguments
from toolfold.config.privacy import KINDS as PRIVATE_KINDS
from toolfold.definitions import ToolDefinition
from toolfold.review.finding import Finding
from toolfold.schema.pointer import lookup
from toolfold.schema.validation import Validators

_UNKNOWN: Any = object()
_TOKEN = re.compile(rf"(?:{'|'.join(map(str.upper, PRIVATE_KINDS))})_[0-9]+")
"""A token of a private value: what the tool will get for it is not to be seen here."""
# Words of a schema that allow every value of the type.
_HARMLESS = frozenset({"type", "description", "title", "default", "examples", "format"})


def check(
    call: ast.Call, function: str, tool: ToolDefinition, taken: Arguments, validators: Validators
) -> Iterator[Finding]:
    """What the call would certainly be refused for, by the function or by the tool's schema."""
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return
    yield from _Check(call, function, tool, taken, validators).findings()


class _Check:
    """One call. Its positional arguments are the parameters in the order of the signature: the required ones first.

    One dict alone, perhaps with keywords, is all the arguments, unless it can only be the first of them.
    """

    def __init__(
        self, call: ast.Call, function: str, tool: ToolDefinition, taken: Arguments, validators: Validators
    ) -> None:
        self._call = call
        self._function = function
        self._tool = tool
        self._taken = taken
        self._validators = validators
        self._words = sorted(taken.keywords, key=lambda word: taken.keywords[word] not in taken.required)
        self._named: set[str] = set()
        """Wire names."""
        self._given: set[str] = set()
        """Those that were not left out with `...`."""
        self._all_known = True
        """Whether the call spells out which arguments are given."""
        self._any_key = taken.open
        """Whether the function lets further keys through, for the tool to judge."""

    def findings(self) -> Iterator[Finding]:
        args = self._call.args
        if len(args) == 1 and isinstance(args[0], ast.Dict):
            yield from self._one_dict(args[0])
        elif len(args) == 1 and not isinstance(args[0], ast.Constant) and _kind(args[0]) in (_UNKNOWN, dict):
            # It may hold all the arguments or the first one.
            self._all_known = False
            self._any_key = True
        else:
            yield from self._positional(args)
        yield from self._keywords()
        missing = [word for word in self._words if self._wire(word) in self._taken.required - self._given]
        if missing and self._all_known:
            plural = "s" if len(missing) > 1 else ""
            listed = ", ".join(map(repr, missing[:8]))
            message = f"{self._function}: missing required argument{plural} {listed}."
            yield Finding(self._call.lineno, self._call.col_offset, "missing_argument", message, raises="TypeError")

    def _positional(self, args: list[ast.expr]) -> Iterator[Finding]:
        if len(args) > len(self._words):
            extra = args[len(self._words)]
            takes = f"takes at most {len(self._words)} arguments" if self._words else "takes no arguments"
            message = f"{self._function} {takes}, not {len(args)}."
            yield Finding(extra.lineno, extra.col_offset, "invalid_argument", message, raises="TypeError")
        for word, value in zip(self._words, args, strict=False):
            yield from self._one(word, value)

    def _keywords(self) -> Iterator[Finding]:
        for keyword in self._call.keywords:
            if keyword.arg is None:
                self._all_known = False
            elif keyword.arg not in self._taken.keywords and (not self._any_key or self._taken.closed):
                if not _is_left_out(keyword.value):
                    yield self._unknown(
                        keyword, keyword.arg, self._words, "ToolError" if self._any_key else "TypeError"
                    )
            elif self._wire(keyword.arg) in self._named:
                message = f"{self._function} got multiple values for argument {keyword.arg!r}."
                yield Finding(keyword.lineno, keyword.col_offset, "invalid_argument", message, raises="TypeError")
            else:
                yield from self._one(keyword.arg, keyword.value)

    def _one_dict(self, node: ast.Dict) -> Iterator[Finding]:
        names = [_text(key) for key in node.keys]
        means = self._meaning(node, names)
        if means == "first":
            yield from self._one(self._words[0], node)
            return
        self._any_key = True
        if means != "all":
            self._all_known = False
        if means == "unclear":
            message = f"{self._function}: cannot tell whether the dict is {self._words[0]!r} or all arguments."
            hint = f"Write {self._function}({self._words[0]}=...)."
            yield Finding(node.lineno, node.col_offset, "invalid_argument", message, hint, raises="TypeError")
        if means == "all":
            for name, key, value in zip(names, node.keys, node.values, strict=True):
                if self._taken.closed and self._wire(name) not in self._taken.keywords.values():
                    yield self._unknown(key or value, name, list(self._taken.keywords.values()), "ToolError")
                else:
                    yield from self._one(name, value)

    def _meaning(self, node: ast.Dict, names: list[str]) -> Literal["all", "first", "unclear", "unknown"]:
        """What the only positional argument is; the rule is that of the generated functions."""
        wires = {self._wire(name) for name in names}
        by_keyword = {self._wire(keyword.arg) if keyword.arg else "**" for keyword in self._call.keywords}
        if not all(names) or len(wires) < len(names) or "**" in by_keyword:
            return "unknown"
        if self._is_complete(wires) or not self._words:
            return "all"
        first, *rest = (self._wire(word) for word in self._words)
        if first in by_keyword or not self._taken.required.isdisjoint({*rest} - by_keyword):
            return "all"
        schema = self._schema(first)
        if isinstance(schema.get("properties"), dict):
            fits = {*names}.issuperset(schema.get("required") or ()) and {*names} <= schema["properties"].keys()
            return "first" if fits else "all"
        if not schema.keys() <= _HARMLESS:
            return "unknown"
        kind = schema.get("type", "object")
        if "object" not in (cast(list[Any], kind) if isinstance(kind, list) else [kind]):
            return "all"
        return "first" if wires.isdisjoint(self._taken.keywords.values()) else "unclear"

    def _is_complete(self, wires: set[str]) -> bool:
        """Whether these and the keywords are exactly what the tool takes."""
        given = wires | {self._wire(keyword.arg) for keyword in self._call.keywords if keyword.arg}
        return given.issuperset(self._taken.required) and wires <= set(self._taken.keywords.values())

    def _schema(self, wire: str) -> dict[str, Any]:
        """What the tool says about an argument, through a plain reference."""
        document = self._tool.input_schema
        properties = document.get("properties")
        node: Any = cast(dict[str, Any], properties).get(wire) if isinstance(properties, dict) else None
        if isinstance(node, dict) and isinstance(target := cast(dict[str, Any], node).get("$ref"), str):
            node = lookup(target, document)
        return cast(dict[str, Any], node) if isinstance(node, dict) else {}

    def _one(self, word: str, value: ast.expr) -> Iterator[Finding]:
        self._named.add(self._wire(word))
        if not _is_left_out(value):
            self._given.add(self._wire(word))
            yield from _value(value, self._wire(word), self._function, self._tool, self._validators)

    def _wire(self, word: str) -> str:
        return self._taken.keywords.get(word, word)

    def _unknown(self, node: ast.keyword | ast.expr, name: str, known: list[str], raises: str) -> Finding:
        near = get_close_matches(name, known, 2)
        if near:
            hint = f"Did you mean {' or '.join(near)}?"
        else:
            hint = f"It takes {', '.join(known[:12])}{' …' if len(known) > 12 else ''}." if known else "It takes none."
        message = f"{self._function} has no argument {name!r}."
        return Finding(node.lineno, node.col_offset, "unknown_argument", message, hint, raises=raises)


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
        message = f"{function}: {problem}."
        yield Finding(node.lineno, node.col_offset, "invalid_argument", message, raises="ToolError")


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
        case ast.Constant(str() as value) if _TOKEN.fullmatch(value):
            return _UNKNOWN
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
        case ast.Constant(str() as value) if _TOKEN.fullmatch(value):
            return _UNKNOWN
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
