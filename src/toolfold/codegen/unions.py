"""Types that are made of others: alternatives, and the values of an enum."""

from __future__ import annotations

from typing import Any

from toolfold.codegen.model import Choice, OneOf, Scalar, Type, Unknown

_MOST_CHOICES = 200
_LONGEST_CHOICE = 200
SCALARS: dict[str, Scalar] = {
    "string": Scalar("str"),
    "integer": Scalar("int"),
    "number": Scalar("float"),
    "boolean": Scalar("bool"),
    "null": Scalar("null"),
}
_NULL = SCALARS["null"]


def one_of(members: list[Type]) -> Type:
    """The union of `members`: flat, without repetition, literals joined, null last; a sole member stands alone."""
    flat = [part for member in members for part in (member.members if isinstance(member, OneOf) else (member,))]
    if any(isinstance(part, Unknown) for part in flat) or not flat:
        return Unknown()
    values = [value for part in flat if isinstance(part, Choice) for value in part.values]
    joined = Choice(tuple(_unlike(values)))
    distinct: dict[Type, None] = dict.fromkeys(joined if isinstance(part, Choice) else part for part in flat)
    # An integer is a number to every reader, and JSON does not tell them apart.
    if SCALARS["number"] in distinct:
        distinct.pop(SCALARS["integer"], None)
    if _NULL in distinct:
        del distinct[_NULL]
        distinct[_NULL] = None
    parts = tuple(distinct)
    return parts[0] if len(parts) == 1 else OneOf(parts)


def _unlike(values: list[Any]) -> list[Any]:
    """The values without repetition, where 1 and true are two values."""
    return list({(isinstance(value, bool), value): value for value in values}.values())


def choice(values: list[Any]) -> Type:
    """One of `values`; where they are too many, too long or no literals, the type they have in common."""
    if 0 < len(values) <= _MOST_CHOICES and all(_is_choosable(value) for value in values):
        distinct = _unlike(values)
        plain = [value for value in distinct if value is not None]
        if not plain:
            return _NULL
        choice = Choice(tuple(plain))
        return choice if len(plain) == len(distinct) else OneOf((choice, _NULL))
    return one_of([_scalar(value) for value in values])


def _scalar(value: Any) -> Type:
    match value:
        case bool():
            return SCALARS["boolean"]
        case int() | float():
            return SCALARS["number"]
        case str():
            return SCALARS["string"]
        case None:
            return _NULL
        case _:
            return Unknown()


def _is_choosable(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST_CHOICE
    return value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) < 2**63)
