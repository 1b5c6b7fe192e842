"""The Python emitter: a tool's interface as an `async def` and the named types it needs.

The text is what an agent reads, so it spends no token on ceremony: types and defaults stand in the signature, the
docstring says what they cannot, and only an annotation too long for its line gets a name of its own. A module is laid
out as `ruff format` would leave it, at its own width of 88 and at wider ones.
"""

from __future__ import annotations

import builtins
import keyword
from dataclasses import dataclass, field, replace
from typing import Any

from toolfold.codegen import brevity, schema, text
from toolfold.codegen.model import (
    ABSENT,
    Choice,
    Field,
    Interface,
    ListOf,
    MapOf,
    OneOf,
    Record,
    RecordOf,
    Scalar,
    TupleOf,
    Type,
    Unknown,
)
from toolfold.codegen.names import MODULE_NAMES, parameters
from toolfold.codegen.unions import one_of
from toolfold.definitions import ToolDefinition

WIDTH = 88
_INDENT = "    "
_RESERVED = frozenset({*MODULE_NAMES, *dir(builtins)})
_SCALARS = {"str": "str", "int": "int", "float": "float", "bool": "bool", "null": "None"}
_LONGEST_DEFAULT = 40


@dataclass(frozen=True, slots=True)
class Layout:
    """How much is written. The defaults are a module's: everything, laid out for `ruff format`."""

    exploded: bool = True
    """Whether a long line is broken; otherwise it stays one line, which costs a reader fewer tokens."""
    description: int | None = None
    """Characters of the description; None keeps it whole, 0 leaves it out. So for the next two."""
    parameter: int | None = None
    field: int | None = None
    most: int | None = None
    """Parameters shown; the rest are taken as further keywords."""


@dataclass(slots=True)
class PythonTool:
    """One tool in Python, in pieces: `render` puts them together for a reader, `tree` for a module."""

    definitions: list[str] = field(default_factory=list[str])
    """Named types, each followed by two empty lines."""
    header: list[str] = field(default_factory=list[str])
    """`async def …:`"""
    doc: list[str] = field(default_factory=list[str])
    """The docstring, if there is anything to say."""
    imports: set[str] = field(default_factory=set[str])
    """What the pieces need from `typing`."""
    renamed: dict[str, str] = field(default_factory=dict[str, str])
    """Keyword → wire name, where they differ."""


def emit(tool: ToolDefinition, function: str, layout: Layout) -> PythonTool:
    """`tool` as the function `function`."""
    try:
        interface = schema.read(tool, reserved=_RESERVED | {function})
    except RecursionError:
        # A schema that Python itself cannot walk: everything is allowed, and the server decides.
        interface = Interface(parameters=(), others=Unknown(), result=Unknown(), records=())
    if layout.most is not None and len(interface.parameters) > layout.most:
        left = f"and {len(interface.parameters) - layout.most:,} more parameters"
        interface = replace(
            interface, parameters=interface.parameters[: layout.most], others=Unknown(), notes=(*interface.notes, left)
        )
    return _Writer(interface, function, layout).write(tool)


class _Writer:
    def __init__(self, interface: Interface, function: str, layout: Layout) -> None:
        self._interface = interface
        self._function = function
        self._layout = layout
        self._out = PythonTool()
        self._taken = {name.casefold() for name in (*_RESERVED, function, *(r.name for r in interface.records))}
        self._ahead = {record.name for record in interface.records}
        self._aliases: dict[Type, str] = {}
        self._known: frozenset[str] = frozenset()

    def write(self, tool: ToolDefinition) -> PythonTool:
        if self._layout.parameter is not None:
            shown = text.opening(tool.description, self._layout.description)
            self._known = brevity.words(tool.server, tool.name, shown)
        for record in self._interface.records:
            self._record(record)
            self._ahead.discard(record.name)
        keywords = parameters(field.name for field in self._interface.parameters)
        self._out.renamed = {word: wire for wire, word in keywords.items() if word != wire}
        self._out.header = self._signature(keywords)
        self._out.doc = self._docstring(tool, keywords)
        return self._out

    # --- the function

    def _signature(self, keywords: dict[str, str]) -> list[str]:
        rows = [self._parameter(parameter, keywords[parameter.name]) for parameter in self._interface.parameters]
        if rows:
            rows.insert(0, "*")
        if self._interface.others is not None:
            word = "others"
            while word in keywords.values():
                word += "_"
            rows.append(f"**{word}: {self._fitted(self._interface.others, word, text.columns(word) + 9)}")
        start = f"async def {self._function}("
        end = f") -> {self._fitted(self._interface.result, 'result', text.columns(start) + 6)}:"
        joined = start + ", ".join(rows) + end
        if not rows or text.columns(joined) <= WIDTH or not self._layout.exploded:
            return [joined]
        return [start, *(f"{_INDENT}{row}," for row in rows), end]

    def _parameter(self, parameter: Field, word: str) -> str:
        default = "" if parameter.required else f" = {_default(parameter) or '...'}"
        room = text.columns(f"{_INDENT}{word}: {default},")
        return f"{word}: {self._fitted(parameter.type, parameter.name, room)}{default}"

    def _docstring(self, tool: ToolDefinition, keywords: dict[str, str]) -> list[str]:
        parts: list[str] = []
        if self._layout.description != 0:
            opening = text.opening(tool.description or tool.title, self._layout.description)
            parts.append(f"{_behaviour(tool)} {opening}".strip())
        lines: list[str] = []
        for parameter in self._interface.parameters:
            shown = None if parameter.required else _default(parameter)
            said = ""
            if self._layout.parameter != 0:
                said = self._said(parameter, self._layout.parameter, shown=shown is not None)
            if said:
                lines.append(f"{keywords[parameter.name]}: {said.replace(chr(10), chr(10) + '  ')}")
        parts.append("\n".join([*lines, *(f"({note})" for note in self._interface.notes)]))
        lines = text.docstring("\n\n".join(filter(None, parts)) or tool.name, _INDENT)
        if len(lines) > 1 and not self._layout.exploded and not lines[-2].endswith(("\\", '"')):
            lines[-2:] = [f'{lines[-2]}"""']
        return lines

    def _said(self, item: Field, limit: int | None, *, shown: bool) -> str:
        """What the docs say about a field: its description, its constraints, and its default unless it is `shown`."""
        places = item.type.members[0] if isinstance(item.type, OneOf) else item.type
        notes = list(item.notes)
        if isinstance(places, TupleOf):
            notes.insert(0, f"[{', '.join(self._expression(place) for place in places.items)}]")
        # A default of null is what leaving it out means anyway.
        if not shown and item.default is not ABSENT and item.default is not None:
            notes.append(_default_note(item.default))
        if limit is None:
            prose = text.clean(item.description)
        else:
            prose = brevity.worth_saying(item.description, limit, self._known | brevity.words(item.name))
            notes = brevity.telling(notes)
        told = "; ".join(filter(None, notes))
        return f"{prose} ({told})" if prose and told else prose or told

    # --- named types

    def _record(self, record: Record) -> None:
        needed = sum(item.required for item in record.fields)
        total = 2 * needed >= len(record.fields)
        rows: list[tuple[list[str], str, str]] = []
        for item in record.fields:
            wrap = "" if item.required == total else ("Required" if item.required else "NotRequired")
            room = text.columns(f"{_INDENT * 2}{text.quote(item.name)}: ,") + (len(wrap) + 2 if wrap else 0)
            annotation = self._forward(self._fitted(item.type, item.name, room + 2))
            if wrap:
                self._out.imports.add(wrap)
                annotation = self._wrapped(wrap, annotation, room - len(wrap) - 2)
            said = self._said(item, self._layout.field, shown=False) if self._layout.field != 0 else ""
            rows.append((text.comment(said) if said else [], item.name, annotation))
        self._out.imports.add("TypedDict")
        closed = "" if not record.open or self._layout.field == 0 else "  # and other keys"
        # In a class body a key called `list` would hide the type, for a checker, from the keys after it.
        used = {word for _, _, annotation in rows for word in _words(annotation)}
        if all(_is_attribute(item.name) and item.name not in used for item in record.fields):
            bases = "TypedDict" if total else "TypedDict, total=False"
            lines = [f"class {record.name}({bases}):{closed}"]
            for comment, name, annotation in rows:
                lines += _beside(comment, f"{_INDENT}{name}: {annotation}", _INDENT)
        else:
            lines = [f"{record.name} = TypedDict({closed}", f'{_INDENT}"{record.name}",', f"{_INDENT}{{"]
            for comment, name, annotation in rows:
                lines += _beside(comment, f"{_INDENT * 2}{text.quote(name)}: {annotation},", _INDENT * 2)
            lines += [f"{_INDENT}}},", *([] if total else [f"{_INDENT}total=False,"]), ")"]
        self._define(lines)

    def _wrapped(self, wrap: str, annotation: str, taken: int) -> str:
        line = f"{wrap}[{annotation}]"
        if taken + text.columns(line) <= WIDTH or not self._layout.exploded:
            return line
        # Only a very long key comes here: this is where ruff breaks its line.
        return f"{wrap}[\n{_INDENT * 3}{annotation}\n{_INDENT * 2}]"

    def _define(self, lines: list[str]) -> None:
        self._out.definitions += [*lines, "", ""]

    def _alias(self, type_: Type, hint: str) -> str:
        """A name for a type that is too long to stand where it is used; the same type gets the same name."""
        if type_ in self._aliases:
            return self._aliases[type_]
        name = self._aliases[type_] = self._free_name(hint)
        if isinstance(type_, Choice):
            self._out.imports.add("Literal")
            parts, opening = [_literal(value) for value in type_.values], "Literal["
        elif isinstance(type_, OneOf):
            self._out.imports.add("Union")
            parts = [self._forward(self._fitted(member, hint, 12)) for member in type_.members]
            opening = "Union["
        else:
            expression = self._expression(type_)
            if self._is_ahead(expression):
                self._out.imports.add("TypeAlias")
                self._define([f"{name}: TypeAlias = {text.quote(expression)}"])
            else:
                self._define([f"{name} = {expression}"])
            return name
        line = f"{name} = {opening}{', '.join(parts)}]"
        if text.columns(line) <= WIDTH or not self._layout.exploded:
            self._define([line])
        else:
            self._define([f"{name} = {opening}", *(f"{_INDENT}{part}," for part in parts), "]"])
        return name

    def _free_name(self, wish: str) -> str:
        name = candidate = schema.type_name(wish)
        number = 2
        while candidate.casefold() in self._taken:
            candidate, number = f"{name}{number}", number + 1
        self._taken.add(candidate.casefold())
        return candidate

    # --- annotations

    def _forward(self, expression: str) -> str:
        """`expression`, quoted where it names a class that comes later."""
        return text.quote(expression) if self._is_ahead(expression) else expression

    def _is_ahead(self, expression: str) -> bool:
        return bool(self._ahead) and any(word in self._ahead for word in _words(expression))

    def _fitted(self, type_: Type, hint: str, room: int) -> str:
        """`type_` on a line of which `room` columns are taken; what does not fit gets a name."""
        expression = self._expression(type_)
        if room + text.columns(expression) <= WIDTH or expression.isidentifier():
            return expression
        match type_:
            case Choice():
                return self._alias(type_, hint)
            case OneOf(members) if members[-1] == Scalar("null"):
                rest = members[0] if len(members) == 2 else OneOf(members[:-1])
                return f"{self._fitted(rest, hint, room + 7)} | None"
            case OneOf():
                return self._alias(type_, hint)
            case ListOf(item):
                expression = f"list[{self._fitted(item, hint, room + 6)}]"
            case MapOf(value):
                expression = f"dict[str, {self._fitted(value, hint, room + 11)}]"
            case _:
                pass
        return expression if room + text.columns(expression) <= WIDTH else self._alias(type_, hint)

    def _expression(self, type_: Type) -> str:
        match type_:
            case Scalar(kind):
                return _SCALARS[kind]
            case Choice(values):
                if type_ in self._aliases:
                    return self._aliases[type_]
                self._out.imports.add("Literal")
                return f"Literal[{', '.join(_literal(value) for value in values)}]"
            case ListOf(item):
                return f"list[{self._expression(item)}]"
            case TupleOf(items):
                # JSON has lists only, and lists are what comes back; the places are told in the comment.
                return f"list[{self._expression(one_of(list(items)))}]"
            case MapOf(value):
                return f"dict[str, {self._expression(value)}]"
            case OneOf(members):
                if type_ in self._aliases:
                    return self._aliases[type_]
                return " | ".join(self._expression(member) for member in members)
            case RecordOf(record):
                return record
            case Unknown():
                self._out.imports.add("Any")
                return "Any"


def _behaviour(tool: ToolDefinition) -> str:
    """What the annotations promise. It stands first, where a description cannot push it out of sight."""
    if tool.annotations.get("readOnlyHint") is True:
        return "Read-only."
    if tool.annotations.get("destructiveHint") is True:
        return "Destructive."
    return ""


def _beside(comment: list[str], line: str, indent: str) -> list[str]:
    """The comment behind its line where both fit, else above it: a long one behind would make ruff break the line."""
    if len(comment) == 1 and text.columns(f"{line}  {comment[0]}") <= WIDTH:
        return [f"{line}  {comment[0]}"]
    return [*(f"{indent}{part}" for part in comment), line]


def _default(item: Field) -> str | None:
    """The default as an expression of the field's type, or None where it is no such thing or too long to read."""
    default = item.default
    if default is ABSENT:
        return None
    members = item.type.members if isinstance(item.type, OneOf) else (item.type,)
    if isinstance(default, float) and default.is_integer() and abs(default) < 1e15 and Scalar("float") not in members:
        default = int(default)
    shown = text.literal(default)
    if shown is None or len(shown) > _LONGEST_DEFAULT:
        return None
    return shown if any(_fits(default, member) for member in members) else None


def _fits(default: Any, type_: Type) -> bool:
    match type_:
        case Unknown():
            return True
        case Choice(values):
            return any(value == default and type(value) is type(default) for value in values)
        case Scalar("null"):
            return default is None
        case Scalar("bool"):
            return isinstance(default, bool)
        case Scalar("int"):
            return isinstance(default, int) and not isinstance(default, bool)
        case Scalar("float"):
            return isinstance(default, int | float) and not isinstance(default, bool)
        case Scalar("str"):
            return isinstance(default, str)
        case ListOf() | TupleOf():
            return isinstance(default, list)
        case MapOf():
            return isinstance(default, dict)
        case _:
            return False


def _default_note(default: Any) -> str:
    shown = text.literal(default)
    if shown is None or len(shown) > 4 * _LONGEST_DEFAULT:
        try:
            shown = text.one_line(repr(default)[:1000], 4 * _LONGEST_DEFAULT)
        except RecursionError:
            return ""
    return f"default {shown}"


def _literal(value: str | int | bool | None) -> str:
    return text.literal(value) or "None"


def _is_attribute(name: str) -> bool:
    """Whether a class body can declare `name`; two leading underscores would be mangled there."""
    return (
        len(name) <= WIDTH // 2
        and name.isascii()
        and name.isidentifier()
        and not keyword.iskeyword(name)
        and not name.startswith("__")
    )


def _words(expression: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in expression).split()
