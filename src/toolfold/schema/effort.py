"""How long a schema can make its own check take.

References that meet again and again (`allOf` of two references to the same definition, thirty levels down) double the
work at each step, which is enough to hold a host for hours. The bound here is the number of visits of schema nodes, for
a value of a given depth; real schemas need hundreds.
"""

from __future__ import annotations

from typing import Any, cast

from toolfold.schema.pointer import lookup

# About half a second.
_MOST_VISITS = 10_000_000
_MOST_STEPS = 200_000
DEEPEST_VALUE = 200
_HERE_LISTS = ("allOf", "anyOf", "oneOf")
_HERE = ("not", "if", "then", "else")
_HERE_MAPS = ("dependentSchemas", "dependencies")
_BELOW = ("items", "additionalProperties", "additionalItems", "contains", "propertyNames", "unevaluatedProperties")
_BELOW_MAPS = ("properties", "patternProperties")

Node = dict[str, Any]


class Effort:
    """The bound for one schema, worked out once for each depth that values turn out to have."""

    def __init__(self, schema: Node) -> None:
        self._schema = schema
        self._bearable: dict[int, bool] = {}

    def is_bearable(self, deep: int) -> bool:
        """Whether checking a value that is nested so deep is certain to end soon."""
        if deep > DEEPEST_VALUE:
            return False
        if deep not in self._bearable:
            self._bearable[deep] = self._measured(deep)
        return self._bearable[deep]

    def _measured(self, level: int) -> bool:
        try:
            return _Visits(self._schema).of(self._schema, level) <= _MOST_VISITS
        except RecursionError:
            return False


class _Visits:
    def __init__(self, document: Node) -> None:
        self._document = document
        self._known: dict[tuple[int, int], int] = {}
        self._open: set[tuple[int, int]] = set()
        self._steps = 0

    def of(self, node: Any, level: int) -> int:
        if not isinstance(node, dict):
            return 1
        node = cast(Node, node)
        key = (id(node), level)
        if key in self._known:
            return self._known[key]
        if key in self._open:
            # The check sees that it is back at the same place of the same value, and stops.
            return 1
        self._steps += 1
        if self._steps > _MOST_STEPS:
            return _MOST_VISITS + 1
        self._open.add(key)
        total = 1
        for child, down in self._children(node):
            if not down:
                total += self.of(child, level)
            elif level > 0:
                total += self.of(child, level - 1)
            if total > _MOST_VISITS:
                break
        self._open.discard(key)
        self._known[key] = total
        return total

    def _children(self, node: Node) -> list[tuple[Any, bool]]:
        found: list[tuple[Any, bool]] = []
        target = node.get("$ref")
        if isinstance(target, str):
            found.append((lookup(target, self._document), False))
        for word in _HERE_LISTS:
            found += [(part, False) for part in _values(node.get(word))]
        for word in _HERE:
            found.append((node.get(word), False))
        for word in _HERE_MAPS:
            found += [(part, False) for part in _values(node.get(word))]
        for word in _BELOW:
            found.append((node.get(word), True))
        for word in ("prefixItems", "items", *_BELOW_MAPS):
            found += [
                (part, True) for part in (_values(node.get(word)) if word != "items" else _listed(node.get(word)))
            ]
        return [(part, down) for part, down in found if isinstance(part, dict)]


def _values(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast(Node, value).values())
    return _listed(value)


def _listed(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []
