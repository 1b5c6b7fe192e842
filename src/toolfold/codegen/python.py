"""The Python emitter: a tool's interface as an `async def` and the named types it needs.

The text is what an agent reads, so it spends no token on ceremony: types and defaults stand in the signature, the
docstring says what they cannot, and only an annotation too long for its line gets a name of its own. A module is laid
out as `ruff format` would leave it, at its own width of 88 and at wider ones.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from toolfold.codegen import brevity
from toolfold.codegen import from_schema as schema
from toolfold.codegen.annotations import INDENT, WIDTH, Annotations
from toolfold.codegen.model import (
    ABSENT,
    Choice,
    Field,
    Interface,
    ListOf,
    MapOf,
    OneOf,
    Record,
    Scalar,
    TupleOf,
    Type,
    Unknown,
    records_in,
)
from toolfold.codegen.names import MODULE_NAMES, parameters
from toolfold.definitions import ToolDefinition
from toolfold.schema import text

_RESERVED = frozenset({*MODULE_NAMES, *dir(builtins)})
_LONGEST_DEFAULT = 40
_REPEATED = 40
"""Columns of an inline object that may be written more than once."""
# The keys of an object that is written inside an annotation.
_KEYS = re.compile(r"\"(?:[^\"\\]|\\.)*\":|'(?:[^'\\]|\\.)*':")


@dataclass(frozen=True, slots=True)
class Layout:
    """How much is written. The defaults are a module's: everything, laid out for `ruff format`."""

    exploded: bool = True
    """Whether a long line is broken; otherwise it stays one line, which costs a reader fewer tokens."""
    description: int | None = None
    """Characters of the description; None keeps it whole, 0 leaves it out. So for the next two."""
    parameter: int | None = None
    field: int | None = None
    width: int = WIDTH
    """Columns of a line, or of an annotation in a line that is not broken; a longer one gets a name."""
    inline: int = 0
    """Columns of an object that is written where it is used, `{"id": int}`; longer ones get a name."""
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
    uses_files: bool = False
    """Whether the pieces name the class of files."""
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
        self._ahead = {record.name for record in interface.records}
        self._annotations = Annotations(
            {*_RESERVED, function}, self._ahead, exploded=layout.exploded, width=layout.width
        )
        types = [*(item.type for item in interface.parameters), interface.result, interface.others or Unknown()]
        types += [item.type for record in interface.records for item in record.fields]
        self._uses = Counter(name for type_ in types for name in records_in(type_))
        self._known: frozenset[str] = frozenset()

    def write(self, tool: ToolDefinition) -> PythonTool:
        if self._layout.parameter is not None:
            shown = text.opening(tool.description, self._layout.description)
            self._known = brevity.words(tool.server, tool.name, shown)
        for record in self._interface.records:
            shape = self._shape(record) if self._layout.inline else None
            if shape is None:
                self._record(record)
            else:
                self._annotations.inline(record.name, shape)
            self._ahead.discard(record.name)
        keywords = parameters(field.name for field in self._interface.parameters)
        self._out.renamed = {word: wire for wire, word in keywords.items() if word != wire}
        self._out.header = self._signature(keywords)
        self._out.doc = self._docstring(tool, keywords)
        self._out.definitions = self._annotations.definitions
        self._out.imports = self._annotations.imports
        self._out.uses_files = self._annotations.uses_files
        return self._out

    # --- the function

    def _signature(self, keywords: dict[str, str]) -> list[str]:
        rows = [self._parameter(parameter, keywords[parameter.name]) for parameter in self._interface.parameters]
        if self._interface.others is not None:
            word = "others"
            while word in keywords.values():
                word += "_"
            rows.append(f"**{word}: {self._annotations.write(self._interface.others, word, text.columns(word) + 9)}")
        start = f"async def {self._function}("
        end = f") -> {self._annotations.write(self._interface.result, 'result', text.columns(start) + 6)}:"
        joined = start + ", ".join(rows) + end
        if not rows or text.columns(joined) <= WIDTH or not self._layout.exploded:
            return [joined]
        return [start, *(f"{INDENT}{row}," for row in rows), end]

    def _parameter(self, parameter: Field, word: str) -> str:
        default = "" if parameter.required else f" = {_default(parameter) or '...'}"
        room = text.columns(f"{INDENT}{word}: {default},")
        return f"{word}: {self._annotations.write(parameter.type, parameter.name, room)}{default}"

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
        notes = list(self._interface.notes)
        if brevity.promises_json(tool.description) and self._interface.result != Scalar("str"):
            notes.append("the result arrives parsed")
        parts.append("\n".join([*lines, *(f"({note})" for note in notes)]))
        lines = text.docstring("\n\n".join(filter(None, parts)) or tool.name, INDENT)
        if len(lines) > 1 and not self._layout.exploded and not lines[-2].endswith(("\\", '"')):
            lines[-2:] = [f'{lines[-2]}"""']
        return lines

    def _said(self, item: Field, limit: int | None, *, shown: bool) -> str:
        """What the docs say about a field: its description, its constraints, and its default unless it is `shown`."""
        places = item.type.members[0] if isinstance(item.type, OneOf) else item.type
        notes = list(item.notes)
        if isinstance(places, TupleOf):
            notes.insert(0, f"[{', '.join(self._annotations.shape(place) for place in places.items)}]")
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

    def _shape(self, record: Record) -> str | None:
        """The record as it is written where it is used; None where it is too long, has docs, or is used again."""
        inside = {name for item in record.fields for name in records_in(item.type)}
        if inside & self._ahead or (record.open and self._layout.field != 0):
            return None
        most = self._layout.inline if self._uses[record.name] == 1 or self._layout.field == 0 else _REPEATED
        rows = self._rows(record, True)
        if rows is None or any(comment for comment, _, _ in rows):
            return None
        shape = f"{{{', '.join(f'{text.quote(name)}: {annotation}' for _, name, annotation in rows)}}}"
        return shape if text.columns(shape) <= most else None

    def _record(self, record: Record) -> None:
        needed = sum(item.required for item in record.fields)
        total = 2 * needed >= len(record.fields)
        rows = self._rows(record, total)
        if rows is None:
            total = False
            rows = self._rows(record, None) or []
        wrapped = {word for word in ("Required", "NotRequired") for row in rows if row[2].startswith(f"{word}[")}
        self._annotations.imports |= {"TypedDict", *wrapped}
        closed = "" if not record.open or self._layout.field == 0 else "  # and other keys"
        # In a class body a key called `list` would hide the type, for a checker, from the keys after it.
        used = {word for _, _, annotation in rows for word in re.findall(r"\w+", _KEYS.sub("", annotation))}
        if all(_is_attribute(item.name) and item.name not in used for item in record.fields):
            bases = "TypedDict" if total else "TypedDict, total=False"
            lines = [f"class {record.name}({bases}):{closed}"]
            for comment, name, annotation in rows:
                lines += _beside(comment, f"{INDENT}{name}: {annotation}", INDENT)
        else:
            lines = [f"{record.name} = TypedDict({closed}", f'{INDENT}"{record.name}",', f"{INDENT}{{"]
            for comment, name, annotation in rows:
                lines += _beside(comment, f"{INDENT * 2}{text.quote(name)}: {annotation},", INDENT * 2)
            lines += [f"{INDENT}}},", *([] if total else [f"{INDENT}total=False,"]), ")"]
        self._annotations.define(lines, record=record.name)

    def _rows(self, record: Record, total: bool | None) -> list[tuple[list[str], str, str]] | None:
        """Comment, key and annotation of each field, where `total` says what fields are without a word.

        None where a key is so long that such a word would break its line. With `total` None no word is used, and that a
        field is required is said in its comment: a wider type, and an honest one.
        """
        rows: list[tuple[list[str], str, str]] = []
        for item in record.fields:
            wrap = "" if total in (None, item.required) else ("Required" if item.required else "NotRequired")
            room = text.columns(f"{INDENT * 2}{text.quote(item.name)}: ,") + (len(wrap) + 2 if wrap else 0)
            annotation = self._annotations.write(item.type, item.name, room)
            if wrap:
                if room + text.columns(annotation) > WIDTH and self._layout.exploded:
                    return None
                annotation = f"{wrap}[{annotation}]"
            said = self._said(item, self._layout.field, shown=False) if self._layout.field != 0 else ""
            if total is None and item.required:
                said = f"{said} (required)" if said else "required"
            rows.append((text.comment(said) if said else [], item.name, annotation))
        return rows


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


def _is_attribute(name: str) -> bool:
    """Whether a class body can declare `name`; two leading underscores would be mangled there."""
    return (
        len(name) <= WIDTH // 2
        and name.isascii()
        and name.isidentifier()
        and not keyword.iskeyword(name)
        and not name.startswith("__")
    )
