"""Schemas that nobody would write, for property tests."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from toolfold.definitions import ToolDefinition

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


class Awkward:
    """Tools as awkward as can be: long names in several scripts, enums, unions, records in records."""

    WORDS = (
        *(
            "alpha",
            "beta",
            "list",
            "str",
            "class",
            "x",
            "Any",
            "TypedDict",
            "id",
            "very_long_word_indeed",
            "创建",
            "été",
        ),
        *("$top", "@odata.type", "__typename", "a-b", "self", "None", "2nd", "Result", "dict", "float", "tool"),
    )
    PROSE = (
        '"quoted"',
        "it's",
        "\\d+",
        "```",
        "\n",
        "- item",
        "\n\n",
        "e.g. x.",
        "...",
        '"""',
        "\\",
        "#",
        "type: ignore",
    )
    VALUES: tuple[Any, ...] = (
        None,
        True,
        0,
        -1,
        1.5,
        1e30,
        1e-9,
        "",
        "a",
        'q"q',
        "it's",
        "x" * 50,
        [],
        {},
        [1, 2],
        {"a": 1},
        "创建",
        "\n",
    )

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def tools(self, count: int) -> list[ToolDefinition]:
        return [
            ToolDefinition(
                server=self._pick(("s", "my server", "创建")),
                name=f"{self.name()}{number}",
                description=self.text(),
                input_schema=self.root(),
                output_schema=self._pick((None, self.root(), self.schema(0))),
                annotations=self._pick(({}, {"readOnlyHint": True})),
            )
            for number in range(count)
        ]

    def _pick(self, options: Any) -> Any:
        return self._random.choice(options)

    def name(self) -> str:
        return self._pick(("", "_", "-", " ", ".")).join(
            self._pick(self.WORDS) for _ in range(self._pick((1, 1, 1, 2, 3, 5, 8)))
        )

    def text(self) -> str:
        words = (*self.WORDS, *self.PROSE)
        return " ".join(self._pick(words) for _ in range(self._pick((0, 0, 1, 3, 8, 30, 60))))

    def root(self) -> dict[str, Any]:
        open_ = (
            {"additionalProperties": self._pick((True, False, self.schema(2)))} if self._random.random() < 0.5 else {}
        )
        return {**self._object(0), "$defs": {"A": self.schema(1), "B": self.schema(1)}, **open_}

    def schema(self, depth: int) -> dict[str, Any]:
        about: dict[str, Any] = {
            "description": self.text(),
            "default": self._pick(self.VALUES),
            "title": self.name(),
            "pattern": self.text(),
            "examples": [self._pick(self.VALUES)],
        }
        kept = {word: value for word, value in about.items() if self._random.random() < 0.3}
        makers = (
            [self._scalar]
            if depth > 4
            else [self._scalar, self._choice, self._array, self._either, self._object, self._map]
        )
        return {**kept, **self._pick(makers)(depth + 1)}

    def _scalar(self, depth: int) -> dict[str, Any]:
        return {
            "type": self._pick(
                ("string", "integer", "number", "boolean", "null", ["string", "null"], ["integer", "string"])
            )
        }

    def _choice(self, depth: int) -> dict[str, Any]:
        return {
            "enum": [
                self._pick((self.name(), self._random.randint(0, 99), None, 0.5))
                for _ in range(self._pick((1, 2, 3, 10, 40)))
            ]
        }

    def _array(self, depth: int) -> dict[str, Any]:
        places = {"prefixItems": [self.schema(depth) for _ in range(self._random.randint(1, 3))], "items": False}
        return {"type": "array", **self._pick(({"items": self.schema(depth)}, places))}

    def _map(self, depth: int) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self._pick((True, False, self.schema(depth)))}

    def _either(self, depth: int) -> dict[str, Any]:
        parts = [self.schema(depth) for _ in range(self._random.randint(1, 5))]
        reference = {"$ref": self._pick(("#/$defs/A", "#/$defs/B", "#", "#/$defs/missing"))}
        return self._pick(({"anyOf": parts}, {"oneOf": parts}, {"allOf": parts[:2]}, reference))

    def _object(self, depth: int) -> dict[str, Any]:
        properties = {self.name(): self.schema(depth) for _ in range(self._random.randint(1, 7))}
        required = self._random.sample(list(properties), self._random.randint(0, len(properties)))
        return {"type": "object", "properties": properties, "required": required}
