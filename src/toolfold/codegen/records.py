"""Records of one shape become one record, and every record gets its name.

A schema that was written by hand or by a library repeats itself: what a tool takes and what it returns is often the
same object with other words about it. Two records are the same when their keys, the types of these and which of them
are required are the same; records that hold themselves or each other are compared as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from toolfold.codegen.model import ABSENT, Field, ListOf, MapOf, OneOf, Record, RecordOf, TupleOf, Type
from toolfold.codegen.names import identifier
from toolfold.codegen.unions import one_of
from toolfold.schema.text import columns

_LONGEST_NAME = 30
_MOST_ROUNDS = 30
"""A difference travels one reference further in each round, and types are not read deeper than that."""


@dataclass(slots=True)
class _Kept:
    """A record that is written, with the docs of all that it stands for."""

    wish: str
    record: Record
    name: str = ""


def settle(records: Sequence[Record], reserved: Set[str]) -> tuple[list[Record], Callable[[Type], Type]]:
    """The records to write under their final names, and a function that makes a type refer to them.

    Each of `records` is named by what it would like to be called, behind a number that tells it from the others:
    `3:entity`. No final name is in `reserved`, whatever its case.
    """
    classes = _classes(records)
    kept: list[_Kept] = []
    alike: dict[int, list[_Kept]] = {}
    stands_for: dict[str, _Kept] = {}
    for record in records:
        same = alike.setdefault(classes[record.name], [])
        wish = type_name(record.name.partition(":")[2])
        found = next((one for one in same if one.wish == wish or _agree(one.record, record)), None)
        if found is None:
            found = _Kept(wish, record)
            same.append(found)
            kept.append(found)
        else:
            found.record = _with_docs_of(found.record, record)
        stands_for[record.name] = found
    taken = {name.casefold() for name in reserved}
    # The outer record was met first and has the first choice.
    for one in sorted(kept, key=lambda one: int(one.record.name.partition(":")[0])):
        one.name = free_name(one.wish, taken)
    names = {name: one.name for name, one in stands_for.items()}
    return [_renamed_record(one.record, names) for one in kept], lambda type_: renamed(type_, names)


def type_name(wish: str) -> str:
    """`wish` as the name of a type: words run together, each with a capital."""
    name = ""
    for word in filter(None, identifier(wish, "Value", frozenset()).split("_")):
        longer = f"{name}{word[0].upper()}{word[1:]}"
        if name and columns(longer) > _LONGEST_NAME:
            break
        name = longer
    while columns(name) > _LONGEST_NAME:
        name = name[:-1]
    return name or "Value"


def free_name(wish: str, taken: set[str]) -> str:
    """`wish`, or `wish` with a number behind it: a name that is not `taken` in any case, and is from now on."""
    candidate, number = wish, 2
    while candidate.casefold() in taken:
        candidate, number = f"{wish}{number}", number + 1
    taken.add(candidate.casefold())
    return candidate


def renamed(type_: Type, names: Mapping[str, str]) -> Type:
    """`type_` with its records under other names."""
    match type_:
        case RecordOf(record):
            return RecordOf(names[record])
        case ListOf(item):
            return ListOf(renamed(item, names))
        case MapOf(value):
            return MapOf(renamed(value, names))
        case TupleOf(items):
            return TupleOf(tuple(renamed(item, names) for item in items))
        case OneOf(members):
            # Alternatives that are one record now are no alternatives.
            return one_of([renamed(member, names) for member in members])
        case _:
            return type_


def _classes(records: Sequence[Record]) -> dict[str, int]:
    """Record → the number of its shape. All of one outline are equal until a key's type tells them apart."""
    keys: dict[str, Any] = {
        record.name: (record.open, tuple((field.name, field.required) for field in record.fields)) for record in records
    }
    classes = _numbered(keys)
    for _ in range(_MOST_ROUNDS):
        before = len(set(classes.values()))
        if before == len(records):
            break
        names = {name: str(number) for name, number in classes.items()}
        classes = _numbered(
            {
                # As text, in which 1 and True are two values.
                record.name: (classes[record.name], repr([renamed(field.type, names) for field in record.fields]))
                for record in records
            }
        )
        if len(set(classes.values())) == before:
            break
    return classes


def _numbered(keys: Mapping[str, Any]) -> dict[str, int]:
    numbers: dict[Any, int] = {}
    return {name: numbers.setdefault(key, len(numbers)) for name, key in keys.items()}


def _agree(one: Record, other: Record) -> bool:
    """Whether what both say about their keys can be said once."""
    return all(
        a.description in ("", b.description) or not b.description for a, b in zip(one.fields, other.fields, strict=True)
    )


def _with_docs_of(record: Record, other: Record) -> Record:
    def told(mine: Field, theirs: Field) -> Field:
        return replace(
            mine,
            description=mine.description or theirs.description,
            notes=mine.notes or theirs.notes,
            default=theirs.default if mine.default is ABSENT else mine.default,
        )

    return replace(record, fields=tuple(map(told, record.fields, other.fields)))


def _renamed_record(record: Record, names: Mapping[str, str]) -> Record:
    fields = tuple(replace(field, type=renamed(field.type, names)) for field in record.fields)
    return replace(record, name=names[record.name], fields=fields)
