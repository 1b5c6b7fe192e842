"""Results that a server library wraps.

Structured content had to be an object until protocol 2026-07-28, so the Python SDK and FastMCP send what is not one (a
list, a text, a number) as `{"result": …}` and say so in the output schema.
"""

from __future__ import annotations

from typing import Any, Literal, cast

_KEY = "result"
_FASTMCP = "x-fastmcp-wrap-result"


def unwrapped(schema: dict[str, Any] | None) -> Any:
    """The schema of the value inside the wrapper; None where `schema` declares no wrapper.

    A wrapper is an object whose only property is a required `result`, or what FastMCP has marked as one.
    """
    if not schema:
        return None
    declared = schema.get("properties")
    properties = cast("dict[str, Any]", declared) if isinstance(declared, dict) else {}
    if schema.get(_FASTMCP) is True:
        return properties.get(_KEY, {})
    is_wrapper = (
        schema.get("type", "object") == "object"
        and list(properties) == [_KEY]
        and schema.get("required") == [_KEY]
        and schema.get("additionalProperties", False) is False
        and "patternProperties" not in schema
    )
    return properties[_KEY] if is_wrapper else None


def result_schema(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    """The schema of what a program gets: that of the value inside where `schema` declares a wrapper."""
    inner = unwrapped(schema)
    if schema is None or inner is None:
        return schema
    shared = {word: schema[word] for word in ("$schema", "$defs", "definitions") if word in schema}
    return {**shared, **cast("dict[str, Any]", inner)} if isinstance(inner, dict) else shared


def declared_kind(schema: dict[str, Any] | None) -> Literal["text", "list", "any"]:
    """What a result is certain to be, as far as the way to read it depends on that."""
    inner = unwrapped(schema)
    node = schema if inner is None else inner
    kind = cast("dict[str, Any]", node).get("type") if isinstance(node, dict) else None
    return "text" if kind == "string" else "list" if kind == "array" else "any"
