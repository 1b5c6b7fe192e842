"""The few JSON Schema shapes that the demo's tools are written in."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def text(description: str = "", **more: Any) -> Schema:
    return _described("string", description, more)


def whole(description: str = "", **more: Any) -> Schema:
    return _described("integer", description, more)


def number(description: str = "", **more: Any) -> Schema:
    return _described("number", description, more)


def flag(description: str = "", **more: Any) -> Schema:
    return _described("boolean", description, more)


def listing(items: Schema, description: str = "", **more: Any) -> Schema:
    return _described("array", description, {"items": items, **more})


def record(fields: dict[str, Schema], *, optional: tuple[str, ...] = (), **more: Any) -> Schema:
    """An object with exactly these fields; those named in `optional` may be left out."""
    required = [name for name in fields if name not in optional]
    schema: Schema = {"type": "object", "properties": fields, "additionalProperties": False}
    return schema | ({"required": required} if required else {}) | more


def _described(kind: str, description: str, more: dict[str, Any]) -> Schema:
    return {"type": kind} | ({"description": description} if description else {}) | more
