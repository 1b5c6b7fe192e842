"""Types as Python writes them, on lines of limited width.

An annotation stands where it is used as long as it fits there. What does not fit gets a name of its own, once for equal
types, so that no line has to be broken inside an annotation: that is the one place where the layouts of formatters
depend on their width.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

from toolfold.codegen.model import Choice, ListOf, MapOf, Media, OneOf, RecordOf, Scalar, TupleOf, Type, Unknown
from toolfold.codegen.names import FILE, MODULE_NAMES
from toolfold.codegen.records import free_name, type_name
from toolfold.codegen.unions import one_of
from toolfold.schema import text

WIDTH = 88
INDENT = "    "
_SCALARS = {"str": "str", "int": "int", "float": "float", "bool": "bool", "null": "None"}
_STRINGS = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")


class Annotations:
    """Writes the annotations of one module and collects the types that it had to name on the way."""

    def __init__(self, taken: Iterable[str], ahead: Set[str], *, exploded: bool, width: int) -> None:
        """Lines of `width`; where they are not `exploded` they are never broken, and that is an annotation's width."""
        self.definitions: list[str] = []
        """Named types in order, each followed by two empty lines."""
        self.imports: set[str] = set()
        """What was used from `typing`."""
        self.uses_files = False
        self._taken = {name.casefold() for name in (*taken, *ahead)}
        self._ahead = set(ahead)
        self._exploded = exploded
        self._width = width
        self._inline: dict[str, str] = {}
        self._aliases: dict[Type, str] = {}

    def write(self, type_: Type, hint: str, room: int) -> str:
        """`type_` on a line of which `room` columns are taken, quoted where it names a class that comes later."""
        return self._spent(self._fitted(type_, hint, room + 2))

    def shape(self, type_: Type) -> str:
        """`type_` in full, for prose."""
        match type_:
            case _ if type_ in self._aliases:
                return self._aliases[type_]
            case Scalar(kind):
                return _SCALARS[kind]
            case Choice(values):
                return f"Literal[{', '.join(_literal(value) for value in values)}]"
            case ListOf(item):
                return f"list[{self.shape(item)}]"
            case TupleOf(items):
                # JSON has lists only, and lists are what comes back; the places are told in the docs.
                return f"list[{self.shape(one_of(list(items)))}]"
            case MapOf(value):
                return f"dict[str, {self.shape(value)}]"
            case OneOf(members):
                return " | ".join(self.shape(member) for member in members)
            case RecordOf(record):
                return self._inline.get(record, record)
            case Media():
                self.uses_files = True
                return FILE
            case Unknown():
                return "Any"

    def inline(self, record: str, shape: str) -> None:
        """From here on `record` is written as its shape and needs no definition."""
        self._inline[record] = shape
        self._ahead.discard(record)

    def define(self, lines: list[str], *, record: str = "") -> None:
        """Adds the definition of a type; from here on `record` can be named without quotes."""
        self.definitions += [*lines, "", ""]
        self._ahead.discard(record)

    # --- fitting

    def _fitted(self, type_: Type, hint: str, room: int) -> str:
        expression = self.shape(type_)
        if not self._fits(expression, room):
            match type_:
                case OneOf(members) if members[-1] == Scalar("null"):
                    rest = members[0] if len(members) == 2 else OneOf(members[:-1])
                    expression = f"{self._fitted(rest, hint, room + len(' | None'))} | None"
                case ListOf(item):
                    expression = f"list[{self._fitted(item, hint, room + len('list[]'))}]"
                case MapOf(value):
                    expression = f"dict[str, {self._fitted(value, hint, room + len('dict[str, ]'))}]"
                case _:
                    return self._alias(type_, hint)
        return expression if self._fits(expression, room) else self._alias(type_, hint)

    def _fits(self, expression: str, room: int) -> bool:
        return (room if self._exploded else 0) + text.columns(expression) <= self._width

    def _alias(self, type_: Type, hint: str) -> str:
        """The name of a type that is too long where it is used."""
        if type_ in self._aliases:
            return self._aliases[type_]
        if isinstance(type_, RecordOf | Scalar | Media | Unknown):
            # A single word, which no formatter breaks however long the line is.
            return self.shape(type_)
        name = free_name(type_name(hint), self._taken)
        match type_:
            case Choice(values):
                self._define_alias(name, "Literal", [_literal(value) for value in values])
            case OneOf(members):
                parts = [self._spent(self._fitted(member, hint, len(INDENT) + 3)) for member in members]
                self._define_alias(name, "Union", parts)
            case ListOf(item):
                inner = self._fitted(item, hint, text.columns(f'{name}: TypeAlias = "list[]"'))
                self._define_expression(name, f"list[{inner}]")
            case MapOf(value):
                inner = self._fitted(value, hint, text.columns(f'{name}: TypeAlias = "dict[str, ]"'))
                self._define_expression(name, f"dict[str, {inner}]")
            case TupleOf(items):
                inner = self._fitted(one_of(list(items)), hint, text.columns(f'{name}: TypeAlias = "list[]"'))
                self._define_expression(name, f"list[{inner}]")
        self._aliases[type_] = name
        return name

    def _define_alias(self, name: str, of: str, parts: list[str]) -> None:
        self.imports.add(of)
        line = f"{name} = {of}[{', '.join(parts)}]"
        if text.columns(line) <= WIDTH or not self._exploded:
            self.define([line])
        else:
            # A comma after a sole member would be another member to a formatter.
            comma = "," if len(parts) > 1 else ""
            self.define([f"{name} = {of}[", *(f"{INDENT}{part}{comma}" for part in parts), "]"])

    def _define_expression(self, name: str, expression: str) -> None:
        spent = self._spent(expression)
        if spent == expression:
            self.define([f"{name} = {expression}"])
        else:
            self.imports.add("TypeAlias")
            self.define([f"{name}: TypeAlias = {spent}"])

    def _spent(self, expression: str) -> str:
        """`expression` as it is written: what it needs is imported, and it is quoted if a class in it comes later."""
        words = set(re.findall(r"\w+", _STRINGS.sub("", expression)))
        self.imports |= words & MODULE_NAMES
        return text.quote(expression) if words & self._ahead else expression


def _literal(value: str | int | bool | None) -> str:
    return text.literal(value) or "None"
