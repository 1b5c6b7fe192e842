"""What a schema demands beyond the type, in a few words that stand beside the field."""

from __future__ import annotations

import json
from typing import Any, cast

from toolfold.codegen.model import Choice, ListOf, OneOf, Type
from toolfold.schema.text import one_line

_LONGEST_PATTERN = 60
_LONGEST_EXAMPLE = 60
# A pattern beside one of these only spells the format out, at great length.
_FORMATS_THAT_SAY_IT = frozenset({"date-time", "date", "time", "uuid", "email", "uri", "ipv4", "ipv6", "duration"})
_SILENT_FORMATS = frozenset({"int32", "int64", "float", "double", "enum", "string"})
_CONDITIONS = ("not", "if", "dependentRequired", "dependentSchemas", "dependencies")


def notes(node: dict[str, Any], type_: Type | None = None) -> tuple[str, ...]:
    """The node's constraints, and those of its only real variant or of its items."""
    found = [*_own(node), *rules(node)]
    variants = [
        cast(dict[str, Any], variant)
        for word in ("anyOf", "oneOf", "allOf")
        for variant in _listed(node.get(word))
        if isinstance(variant, dict) and cast(dict[str, Any], variant).get("type") != "null"
    ]
    if len(variants) == 1:
        found += _own(variants[0])
        node = {**node, **variants[0]}
    items = node.get("items")
    if isinstance(items, dict):
        found += [f"each {note}" for note in _own(cast(dict[str, Any], items), deep=False)]
    if type_ is not None:
        found += _choices(node, type_)
    return tuple(dict.fromkeys(found))


def rules(node: dict[str, Any]) -> tuple[str, ...]:
    """Conditions between keys: too much for a type, so their existence is said and the server decides."""
    if any(word in node for word in _CONDITIONS):
        return ("further conditions apply",)
    alternatives = [part for word in ("anyOf", "oneOf") for part in _listed(node.get(word))]
    required = [cast(dict[str, Any], part).get("required") for part in alternatives if isinstance(part, dict)]
    groups = [" + ".join(map(str, cast(list[Any], names))) for names in required if isinstance(names, list)]
    if not groups or len(groups) < len(alternatives) or not isinstance(node.get("properties"), dict):
        return ()
    return (one_line(f"needs {' or '.join(groups[:8])}", 160),)


def _own(node: dict[str, Any], *, deep: bool = True) -> list[str]:
    found: list[str] = []
    low, high = _bound(node, "minimum", "exclusiveMinimum", ">"), _bound(node, "maximum", "exclusiveMaximum", "<")
    if low and high and low[0] == high[0] == "":
        found.append(f"{low[1]}..{high[1]}")
    else:
        found += [f"{low[0] or '>='}{low[1]}"] if low else []
        found += [f"{high[0] or '<='}{high[1]}"] if high else []
    step = _number(node.get("multipleOf"))
    if step is not None and step != 1:
        found.append(f"multiple of {_shown(step)}")
    found += _size(node, "minLength", "maxLength", "chars")
    if deep:
        found += _size(node, "minItems", "maxItems", "items")
        found += _size(node, "minProperties", "maxProperties", "keys")
    if node.get("uniqueItems") is True:
        found.append("unique")
    format_ = node.get("format")
    if isinstance(format_, str) and format_ not in _SILENT_FORMATS:
        found.append(one_line(format_, 40))
    pattern = node.get("pattern")
    if isinstance(pattern, str) and format_ not in _FORMATS_THAT_SAY_IT:
        short = len(pattern) <= _LONGEST_PATTERN
        found.append(f"pattern {one_line(pattern)}".strip() if short else "has a pattern")
    if node.get("deprecated") is True:
        found.append("deprecated")
    return [note for note in [*found, *_examples(node)] if note.strip()]


def _choices(node: dict[str, Any], type_: Type) -> list[str]:
    """The values of an enum that is no type of its own: too many, too long, or fractions."""
    values = _listed(node.get("enum"))
    members = type_.members if isinstance(type_, OneOf) else (type_,)
    if not values or any(isinstance(member, Choice | ListOf) for member in members):
        return []
    shown = one_line(", ".join(json.dumps(value, ensure_ascii=False) for value in values[:12]), 160)
    return [f"one of {shown}" if len(values) <= 12 else f"one of {len(values):,} values: {shown}"]


def _examples(node: dict[str, Any]) -> list[str]:
    examples = _listed(node.get("examples")) or ([node["example"]] if "example" in node else [])
    for example in examples[:1]:
        try:
            text = json.dumps(example, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            continue
        if len(text) <= _LONGEST_EXAMPLE:
            return [f"e.g. {one_line(text)}"]
    return []


def _bound(node: dict[str, Any], word: str, exclusive: str, sign: str) -> tuple[str, str] | None:
    """(sign or "", number) of the tighter spelling. Numbers that only say "a 64-bit integer" say nothing."""
    beyond = _number(node.get(exclusive))
    if beyond is not None:
        return sign, _shown(beyond)
    value = _number(node.get(word))
    if value is None or abs(value) >= 2**31 - 1:
        return None
    # Draft 4 wrote `exclusiveMinimum: true` beside the number.
    return (sign if node.get(exclusive) is True else "", _shown(value))


def _size(node: dict[str, Any], least: str, most: str, unit: str) -> list[str]:
    low, high = _number(node.get(least)) or 0, _number(node.get(most))
    bounded = high is not None and high < 2**31 - 1
    if low > 0 and bounded:
        return [f"{_shown(low)} {unit}" if low == high else f"{_shown(low)}..{_shown(high or 0)} {unit}"]
    if low > 0:
        return ["not empty" if low == 1 else f">={_shown(low)} {unit}"]
    return [f"<={_shown(high or 0)} {unit}"] if bounded else []


def _number(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    return value if usable else None


def _shown(value: float) -> str:
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else repr(value)


def _listed(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []
