"""Schemas that nobody would write, for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Schemas = st.SearchStrategy[Any]

NAMES = st.sampled_from(
    ["a", "b", "list", "str", "Any", "class", "x-y", "self", "X", "TypedDict", "é", "@id", "__p", ""]
)
_VALUES = st.one_of(st.text(max_size=5), st.integers(), st.booleans(), st.none(), st.floats())
_DOCS = st.text(max_size=20)


def _with(inner: Schemas) -> Schemas:
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"type": st.just(["array", "null"]), "prefixItems": st.lists(inner, max_size=3)}),
        st.fixed_dictionaries(
            {"type": st.just("object"), "additionalProperties": inner}, optional={"default": _VALUES}
        ),
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=4)},
            optional={"required": st.lists(NAMES, max_size=2), "description": _DOCS, "additionalProperties": inner},
        ),
        *(
            st.fixed_dictionaries({word: st.lists(inner, max_size=3)}, optional={"default": _VALUES, "title": _DOCS})
            for word in ("anyOf", "oneOf", "allOf")
        ),
    )


_PLAIN: list[Any] = [True, False, {}, {"$ref": "#"}, {"$ref": "#/$defs/a"}, {"$ref": "http://x/y"}, 5, None, "string"]
_LEAVES: Schemas = st.one_of(
    st.sampled_from(_PLAIN),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array", "odd"])},
        optional={
            "default": _VALUES,
            "description": _DOCS,
            "minimum": st.integers(),
            "pattern": _DOCS,
            "format": _DOCS,
        },
    ),
    st.fixed_dictionaries({"enum": st.lists(_VALUES, max_size=4)}, optional={"default": _VALUES}),
    st.fixed_dictionaries({"const": _VALUES}),
)

SCHEMAS: Schemas = st.recursive(_LEAVES, _with, max_leaves=12)
