"""What a schema says about one property: its own schema, and the value that stands for it when it is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from toolfold.schema.pointer import lookup

ABSENT: Any = object()
_MOST_NODES = 1_000
"""Schemas come from servers: one that branches without end is not followed without end."""


def properties_at(schema: Mapping[str, Any], path: Sequence[str]) -> Iterator[tuple[Mapping[str, Any], Sequence[str]]]:
    """Every schema on the way to `path` that may apply, with what is left of the path there."""
    pending: list[tuple[Any, Sequence[str]]] = [(schema, path)]
    for _ in range(_MOST_NODES):
        if not pending:
            return
        node, rest = pending.pop(0)
        if not isinstance(node, Mapping):
            continue
        held = cast("Mapping[str, Any]", node)
        yield held, rest
        properties: Any = held.get("properties")
        if rest and isinstance(properties, Mapping):
            inner = cast("Mapping[str, Any]", properties)
            pending.append((inner.get(rest[0]), rest[1:]))
            pending.append((inner.get(".".join(rest)), ()))
        for key in ("allOf", "anyOf", "oneOf"):
            branches: Any = held.get(key)
            if isinstance(branches, list):
                pending.extend((branch, rest) for branch in cast("list[Any]", branches))
        reference = held.get("$ref")
        if isinstance(reference, str):
            pending.append((lookup(reference, cast("dict[str, Any]", schema)), rest))


def default_at(schema: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The default for what is left out at `path`; `ABSENT` when the schema gives none."""
    for node, rest in properties_at(schema, path):
        if "default" in node:
            value = node["default"]
            for name in rest:
                value = cast("dict[str, Any]", value).get(name, ABSENT) if isinstance(value, dict) else ABSENT
            if value is not ABSENT:
                return value
    return ABSENT


def has_property(schema: Mapping[str, Any], path: Sequence[str]) -> bool:
    """Whether the schema declares something at `path`."""
    return any(not rest for _, rest in properties_at(schema, path))
