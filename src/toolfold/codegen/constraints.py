"""What a schema demands beyond the type, in a few words that stand beside the field."""

from __future__ import annotations

import json
from typing import Any, cast

from toolfold.codegen.model import Choice, ListOf, OneOf, Type
from toolfold.codegen.text import one_line

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
    if required and len(required) == len(alternatives) and all(isinstance(names, list) for names in required):
        if isinstance(node.get("properties"), dict):
            groups = [" + ".join(str(name) for name in cast(list[Any], names)) for names in required[:8]]
            return (one_line(f"needs {' or '.join(groups)}", 160),)
    return ()


def _own(node: dict[str, Any], *, deep: bool = True) -> list[str]:
    found: list[str] = []
    low, high = _bound(node, "minimum", "exclusiveMinimum", ">"), _bound(node, "maximum", "exclusiveMaximum", "<")
    if low and high and low[0] == high[0] == "":
        found.append(f"{low[1]}..{high[1]}")
    else:
        found += [f"{low[0] or '>='}{low[1]}"] if low else []
        found += [f"{high[0] or '<='}{high[1]}"] if high else []
    if _is_number(node.get("multipleOf")) and node["multipleOf"] != 1:
        found.append(f"multiple of {_number(node['multipleOf'])}")
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
        found.append(f"pattern {one_line(pattern)}" if short else "has a pattern")
    if node.get("deprecated") is True:
        found.append("deprecated")
    return [*found, *_examples(node)]


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
    beyond = node.get(exclusive)
    if _is_number(beyond):
        return sign, _number(beyond)
    value = node.get(word)
    if not _is_number(value) or abs(value) >= 2**31 - 1:
        return None
    return (sign if beyond is True else "", _number(value))


def _size(node: dict[str, Any], least: str, most: str, unit: str) -> list[str]:
    low, high = node.get(least), node.get(most)
    low = int(low) if _is_number(low) and low > 0 else None
    high = int(high) if _is_number(high) and high < 2**31 - 1 else None
    if low is not None and high is not None:
        return [f"{low} {unit}" if low == high else f"{low}..{high} {unit}"]
    if low == 1:
        return ["not empty"]
    if low is not None:
        return [f">={low} {unit}"]
    return [f"<={high} {unit}"] if high is not None else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _listed(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []
