"""Which objects of a result are media: MCP's own shapes of images, sounds and other bytes.

The guest makes a file of every value that has one of these shapes (`toolfold_guest/results.py`).
"""

from __future__ import annotations

from typing import Any, cast

_BLOCKS = frozenset({"image", "audio"})
_MOST_NODES = 20_000


def mentions_media(schema: Any) -> bool:
    """Whether a value of this schema may hold media anywhere; bounded, and true where the schema is endless."""
    todo: list[Any] = [schema]
    for _ in range(_MOST_NODES):
        if not todo:
            return False
        node = todo.pop()
        if isinstance(node, dict):
            if is_media(cast("dict[str, Any]", node)):
                return True
            todo += cast("dict[str, Any]", node).values()
        elif isinstance(node, list):
            todo += cast("list[Any]", node)
    return True


def is_media(node: dict[str, Any]) -> bool:
    """Whether an object can be `{"type": "image", "data": …, "mimeType": …}` or `{"uri": …, "blob": …}`."""
    declared = node.get("properties")
    properties = cast("dict[str, Any]", declared) if isinstance(declared, dict) else {}
    if "data" in properties and "mimeType" in properties:
        return not _BLOCKS.isdisjoint(_constants(properties.get("type")))
    return "blob" in properties and "uri" in properties


def is_always_media(node: dict[str, Any]) -> bool:
    """Whether it cannot be anything else."""
    required = node.get("required")
    needed = set(map(str, cast("list[Any]", required))) if isinstance(required, list) else set[str]()
    kinds = _constants(cast("dict[str, Any]", node["properties"]).get("type"))
    return {"uri", "blob"} <= needed or ({"data", "mimeType"} <= needed and kinds <= _BLOCKS)


def embedded(node: dict[str, Any]) -> Any:
    """The schema of the resource where the object is `{"type": "resource", "resource": …}`, else None."""
    declared = node.get("properties")
    properties = cast("dict[str, Any]", declared) if isinstance(declared, dict) else {}
    return properties.get("resource") if _constants(properties.get("type")) == {"resource"} else None


def _constants(node: Any) -> set[str]:
    """The strings that a `const` or an `enum` allows; empty where there is neither."""
    if not isinstance(node, dict):
        return set()
    schema = cast("dict[str, Any]", node)
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return (
        {value for value in cast("list[Any]", values) if isinstance(value, str)} if isinstance(values, list) else set()
    )
