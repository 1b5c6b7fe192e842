"""What a tool takes and gives, as a small tree of types that no language owns.

`from_schema.py` reads JSON Schema into it and every emitter writes from it: an emitter must understand this page only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Unknown:
    """Any JSON value: what a schema leaves open, or says in a way that has no type."""


@dataclass(frozen=True, slots=True)
class Scalar:
    kind: Literal["str", "int", "float", "bool", "null"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of these values: strings, integers, booleans or null."""

    values: tuple[str | int | bool | None, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    item: Type


@dataclass(frozen=True, slots=True)
class TupleOf:
    """An array whose places have their own types."""

    items: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object whose keys are data."""

    value: Type


@dataclass(frozen=True, slots=True)
class OneOf:
    """At least two different members, none of them a OneOf; null is the last one."""

    members: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class RecordOf:
    """An object with known keys, by its name in `Interface.records`; that is how a type can hold itself."""

    record: str


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a sound or other bytes in a result: the program gets a file."""


Type = Unknown | Scalar | Choice | ListOf | TupleOf | MapOf | OneOf | RecordOf | Media


def records_in(type_: Type) -> Iterator[str]:
    """The names of the records that `type_` is made of, once for each place."""
    match type_:
        case RecordOf(record):
            yield record
        case ListOf(inner) | MapOf(inner):
            yield from records_in(inner)
        case TupleOf(inner) | OneOf(inner):
            for part in inner:
                yield from records_in(part)
        case _:
            pass


ABSENT: Any = object()
"""No default. It differs from a default of null."""


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter of a tool, or one key of a record. `notes` are constraints in words, safe by construction."""

    name: str
    type: Type
    required: bool
    description: str = ""
    notes: tuple[str, ...] = ()
    default: Any = ABSENT


@dataclass(frozen=True, slots=True)
class Record:
    name: str
    fields: tuple[Field, ...]
    open: bool = False
    """Whether the schema says that other keys are welcome."""


@dataclass(frozen=True, slots=True)
class Interface:
    """One tool: required parameters come first; a record comes after those it is made of, unless it holds itself."""

    parameters: tuple[Field, ...]
    others: Type | None
    """The type of further parameters, where the schema says that there may be any."""
    result: Type
    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
