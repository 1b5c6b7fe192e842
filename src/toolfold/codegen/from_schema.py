"""JSON Schema, draft 7 to 2020-12 as MCP servers send it, read into the type model.

A schema is a stranger's data: it may be cyclic, enormous, or not a schema at all. Reading never fails, never fetches
and is bounded; what has no type of ours becomes a wider one with a note, never a narrower one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import msgspec

from toolfold.codegen import constraints
from toolfold.codegen.model import (
    ABSENT,
    Field,
    Interface,
    ListOf,
    MapOf,
    Media,
    OneOf,
    Record,
    RecordOf,
    TupleOf,
    Type,
    Unknown,
)
from toolfold.codegen.names import FILE, parameters
from toolfold.codegen.records import settle
from toolfold.codegen.singular import singular
from toolfold.codegen.unions import SCALARS, choice, one_of
from toolfold.definitions import ToolDefinition
from toolfold.schema import media
from toolfold.schema.pointer import lookup
from toolfold.schema.wrapper import unwrapped

Node = dict[str, Any]

# Deeper than any schema a person wrote; Python's own parser gives up at 100 nested brackets.
_DEEPEST = 24
# Nodes read of one tool: 10,000 properties fit, a bomb of references does not.
_MOST_NODES = 40_000
_MOST_MEMBERS = 40
_LONGEST_TITLE = 30
# Words about a type that do not change it: two objects that differ only here are one record.
_ABOUT = ("description", "title", "default", "examples", "example", "deprecated")
_COMPOSED = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
# What generators call a definition that has no name.
_NAMELESS = re.compile(r"_*(?:schema|def|type|anon)?_*\d+", re.IGNORECASE)
# Words that make an object or a value out of a bare condition.
_SHAPE = ("type", "properties", "items", "prefixItems", "enum", "const", "$ref", "anyOf", "oneOf", "allOf")


def read(tool: ToolDefinition, *, reserved: Set[str] = frozenset()) -> Interface:
    """The interface of `tool`. Record names are identifiers, distinct, and none is in `reserved`."""
    reader = _Reader()
    root = reader.flattened(tool.input_schema, tool.input_schema)
    fields, others, notes = reader.parameters(root, tool.input_schema)
    result = reader.result(tool.output_schema) if tool.output_schema else Unknown()
    records, settled = settle(reader.records, reserved | {FILE} if reader.found_media else reserved)
    return Interface(
        parameters=tuple(replace(field, type=settled(field.type)) for field in sorted(fields, key=_is_optional)),
        others=settled(others) if others is not None else None,
        result=settled(result),
        records=tuple(records),
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class Arguments:
    """Which arguments a tool takes, without their types."""

    keywords: dict[str, str]
    """Keyword of the function → wire name, in the order of the printed signature: the required ones first."""
    required: frozenset[str]
    """Wire names."""
    open: bool
    """Whether the function takes further keywords."""
    closed: bool
    """Whether the schema forbids further keys."""


def arguments(tool: ToolDefinition) -> Arguments:
    """What `read` would find, at a fraction of its cost."""
    try:
        root = _Reader().flattened(tool.input_schema, tool.input_schema)
    except RecursionError:
        return Arguments({}, frozenset(), open=True, closed=False)
    properties, needed = _properties(root)
    words = parameters(dict.fromkeys([*properties, *needed]))
    required = frozenset(needed)
    extra = root.get("additionalProperties")
    return Arguments(
        {words[wire]: wire for wire in sorted(words, key=lambda wire: wire not in required)},
        required,
        open=extra is True or isinstance(extra, dict),
        closed=extra is False and not root.get("patternProperties"),
    )


class _Reader:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.found_media = False
        self._reads_result = False
        self._names: dict[tuple[int, bool, bytes], str] = {}
        self._following: set[tuple[int, str]] = set()
        self._left = _MOST_NODES

    # --- the root: an object whose keys become parameters

    def parameters(self, root: Node, document: Node) -> tuple[list[Field], Type | None, tuple[str, ...]]:
        fields = self._fields(root, document, 0)
        extra = root.get("additionalProperties")
        others: Type | None = None
        if extra is True:
            others = Unknown()
        elif isinstance(extra, dict):
            others = self.type_of(cast(Node, extra), document, "Extra", 1)
        return fields, others, constraints.rules(root)

    def result(self, schema: Node) -> Type:
        """The type of what a call returns: without the wrapper of a library, and with media as files."""
        self._reads_result = True
        inner = unwrapped(schema)
        return self.type_of(schema if inner is None else inner, schema, "Result", 0)

    def flattened(self, node: Any, document: Node, depth: int = 0) -> Node:
        """`node` as one object schema: references followed, `allOf` merged, alternatives laid over each other."""
        self._left -= 1
        if isinstance(node, dict) and _COMPOSED.isdisjoint(cast(Node, node)):
            return cast(Node, node)
        node = self._resolved(node, document)
        if depth > _DEEPEST or self._left < 0:
            return node
        for part in _nodes(node.get("allOf")):
            node = _merged(node, self.flattened(part, document, depth + 1))
        for word in ("anyOf", "oneOf"):
            variants = [self.flattened(part, document, depth + 1) for part in _nodes(node.get(word))]
            variants = [variant for variant in variants if variant.get("properties")]
            if variants:
                node = _merged(node, _overlaid(variants))
        return node

    def _resolved(self, node: Any, document: Node) -> Node:
        """`node` with its own `$ref` followed to the end; words beside the reference stay."""
        seen: set[str] = set()
        while isinstance(node, dict):
            mapping = cast(Node, node)
            target = mapping.get("$ref")
            if not isinstance(target, str) or target in seen:
                return mapping
            seen.add(target)
            found = lookup(target, document)
            if found is None:
                return mapping
            beside = {key: value for key, value in mapping.items() if key != "$ref"}
            node = {**found, **beside} if beside else found
        return {}

    # --- types

    def type_of(self, node: Any, document: Node, hint: str, depth: int) -> Type:
        self._left -= 1
        if not isinstance(node, dict) or depth > _DEEPEST or self._left < 0:
            return Unknown()
        node = cast(Node, node)
        target = node.get("$ref")
        if isinstance(target, str):
            return self._referred(node, target, document, hint, depth)
        if isinstance(node.get("allOf"), list):
            node = self._all_of(node, document)
        if "const" in node:
            return choice([node["const"]])
        if isinstance(node.get("enum"), list):
            return choice(node["enum"])
        for word in ("anyOf", "oneOf"):
            variants = [part for part in _nodes(node.get(word)) if any(key in part for key in _SHAPE)]
            if variants and len(variants) == len(node[word]):
                return self._variants(node, variants, word, document, hint, depth)
        return self._typed(node, document, hint, depth)

    def _referred(self, node: Node, target: str, document: Node, hint: str, depth: int) -> Type:
        found = lookup(target, document)
        step = (id(document), target)
        if found is None or (step in self._following and not _is_record(found)):
            return Unknown()
        beside = {key: value for key, value in node.items() if key != "$ref" and key not in _ABOUT}
        if beside and not beside.keys() <= {"type", "$schema", "$defs", "definitions"}:
            found = _merged(found, beside)
        last = target.rsplit("/", 1)[-1]
        name = hint if target.count("/") < 2 or _NAMELESS.fullmatch(last) else last
        if step in self._following:
            return self.type_of(found, document, name, depth)
        self._following.add(step)
        try:
            return self.type_of(found, document, name, depth)
        finally:
            self._following.discard(step)

    def _all_of(self, node: Node, document: Node) -> Node:
        merged = {key: value for key, value in node.items() if key != "allOf"}
        for part in _nodes(node["allOf"]):
            merged = _merged(merged, self.flattened(part, document, 1) if "$ref" in part else part)
        return merged

    def _variants(self, node: Node, variants: list[Node], word: str, document: Node, hint: str, depth: int) -> Type:
        base = {key: value for key, value in node.items() if key not in (word, *_ABOUT)}
        if not base.get("properties"):
            base = {}
        if all("const" in variant for variant in variants):
            # The way to write an enum whose values have titles.
            return choice([variant["const"] for variant in variants])
        members: list[Type] = []
        for variant in variants[:_MOST_MEMBERS]:
            whole = _merged(self._resolved(variant, document), base) if base else variant
            members.append(self.type_of(whole, document, _variant_hint(variant, hint), depth + 1))
        if len(variants) > _MOST_MEMBERS:
            return Unknown()
        return one_of(members)

    def _typed(self, node: Node, document: Node, hint: str, depth: int) -> Type:
        kind = node.get("type")
        if isinstance(kind, list):
            kinds = [k for k in cast(list[Any], kind) if isinstance(k, str)]
            return one_of([self._typed({**node, "type": k}, document, hint, depth) for k in dict.fromkeys(kinds)])
        if isinstance(kind, str) and kind in SCALARS:
            return SCALARS[kind]
        if kind == "array" or (kind is None and ("items" in node or "prefixItems" in node)):
            return self._array(node, document, hint, depth)
        if kind == "object" or (kind is None and ("properties" in node or "additionalProperties" in node)):
            return self._object(node, document, hint, depth)
        return Unknown()

    def _array(self, node: Node, document: Node, hint: str, depth: int) -> Type:
        items = node.get("items")
        places = node.get("prefixItems", items)
        if isinstance(places, list) and places:
            listed = cast(list[Any], places)[:_MOST_MEMBERS]
            types = tuple(self.type_of(place, document, f"{hint}{i}", depth + 1) for i, place in enumerate(listed, 1))
            rest = node.get("additionalItems") if places is items else items
            if rest is False or (len(listed) == len(cast(list[Any], places)) and node.get("maxItems") == len(listed)):
                return TupleOf(types)
            return ListOf(Unknown())
        return ListOf(self.type_of(items, document, singular(hint), depth + 1))

    def _object(self, node: Node, document: Node, hint: str, depth: int) -> Type:
        if _is_record(node):
            files = self._files(node, document, depth) if self._reads_result else "never"
            if files == "always":
                return Media()
            record = RecordOf(self._record(node, document, hint, depth))
            return one_of([Media(), record]) if files == "sometimes" else record
        extra = node.get("additionalProperties")
        if isinstance(extra, dict) and extra:
            return MapOf(self.type_of(extra, document, singular(hint), depth + 1))
        patterns = node.get("patternProperties")
        if isinstance(patterns, dict) and patterns and extra is False:
            values = list(cast(Node, patterns).values())[:_MOST_MEMBERS]
            return MapOf(one_of([self.type_of(value, document, singular(hint), depth + 1) for value in values]))
        return MapOf(Unknown())

    def _files(self, node: Node, document: Node, depth: int) -> Literal["always", "sometimes", "never"]:
        """Whether an object of a result reaches the program as a file."""
        if media.is_media(node):
            self.found_media = True
            return "always" if media.is_always_media(node) else "sometimes"
        resource = media.embedded(node)
        if resource is None:
            return "never"
        content = self.type_of(resource, document, "resource", depth + 1)
        if isinstance(content, OneOf) and Media() in content.members:
            return "sometimes"
        return "always" if content == Media() else "never"

    # --- records

    def _record(self, node: Node, document: Node, hint: str, depth: int) -> str:
        """The name of the record for `node`; equal nodes share one, and a node inside itself finds its own."""
        shape = {key: value for key, value in node.items() if key not in _ABOUT}
        try:
            encoded = msgspec.json.encode(shape)
        except (TypeError, ValueError, RecursionError):
            encoded = repr(id(node)).encode()
        # In a result, media are files.
        key = (id(document) if b'"$ref"' in encoded else 0, self._reads_result, encoded)
        if key in self._names:
            return self._names[key]
        name = self._names[key] = f"{len(self._names)}:{hint}"
        # An empty key may be demanded without being described; no type can say it.
        fields = tuple(item for item in self._fields(node, document, depth + 1) if item.name)
        self.records.append(Record(name, fields, open=node.get("additionalProperties") is True))
        return name

    def _fields(self, node: Node, document: Node, depth: int) -> list[Field]:
        known, needed = _properties(node)
        named = dict.fromkeys([*known, *needed])
        wanted = set(needed)
        return [self._field(name, known.get(name), name in wanted, document, depth) for name in named]

    def _field(self, name: str, node: Any, required: bool, document: Node, depth: int) -> Field:
        type_ = self.type_of(node, document, name, depth + 1)
        if not isinstance(node, dict):
            return Field(name, type_, required, notes=() if node is not False else ("not allowed",))
        own = self._resolved(cast(Node, node), document)
        return Field(
            name,
            type_,
            required,
            description=_description(own),
            notes=constraints.notes(own, type_),
            default=own.get("default", ABSENT),
        )


def _is_optional(field: Field) -> bool:
    return not field.required


def _properties(node: Node) -> tuple[Node, list[str]]:
    """The properties of an object schema, and the names that are required whether or not they are among them."""
    properties, required = node.get("properties"), node.get("required")
    needed = [name for name in cast(list[Any], required) if isinstance(name, str)] if isinstance(required, list) else []
    return cast(Node, properties) if isinstance(properties, dict) else {}, needed


def _is_record(node: Node) -> bool:
    """Whether the keys are known. An empty key has no place in a typed language, so such an object is any map."""
    properties = node.get("properties")
    return isinstance(properties, dict) and len(cast(Node, properties)) > 0 and "" not in properties


def _nodes(value: Any) -> list[Node]:
    if not isinstance(value, list):
        return []
    return [cast(Node, part) for part in cast(list[Any], value) if isinstance(part, dict)]


def _merged(one: Node, other: Node) -> Node:
    """Both schemas at once: properties and required names of either, and `one`'s word where both speak."""
    merged = {**other, **one}
    for word in ("properties", "$defs", "definitions"):
        if isinstance(one.get(word), dict) and isinstance(other.get(word), dict):
            merged[word] = {**one[word], **{k: v for k, v in other[word].items() if k not in one[word]}}
    if isinstance(one.get("required"), list) and isinstance(other.get("required"), list):
        merged["required"] = [*one["required"], *(n for n in other["required"] if n not in one["required"])]
    return merged


def _overlaid(variants: list[Node]) -> Node:
    """An object that any of `variants` fits into: every property, of which only the common ones are required."""
    properties: dict[str, list[Any]] = {}
    for variant in variants:
        for name, node in cast(Node, variant["properties"]).items():
            options = properties.setdefault(name, [])
            if node not in options:
                options.append(node)
    common = set(properties)
    for variant in variants:
        required = variant.get("required")
        common &= set(map(str, cast(list[Any], required))) if isinstance(required, list) else set()
    return {
        "properties": {n: nodes[0] if len(nodes) == 1 else {"anyOf": nodes} for n, nodes in properties.items()},
        "required": [name for name in properties if name in common],
    }


def _description(node: Node) -> str:
    """What the node says of itself, or what its only real variant says."""
    for candidate in _with_variants(node):
        text = candidate.get("description")
        if isinstance(text, str) and text.strip():
            return text
    return ""


def _with_variants(node: Node) -> Iterator[Node]:
    yield node
    variants = [v for word in ("anyOf", "oneOf", "allOf") for v in _nodes(node.get(word)) if v.get("type") != "null"]
    if len(variants) == 1:
        yield variants[0]


def _variant_hint(variant: Node, hint: str) -> str:
    """A name for one of several alternatives: its title, or the constant that marks it."""
    title = variant.get("title")
    if isinstance(title, str) and 0 < len(title) <= _LONGEST_TITLE:
        return title
    properties = variant.get("properties")
    for node in cast(Node, properties).values() if isinstance(properties, dict) else ():
        mark = cast(Node, node).get("const") if isinstance(node, dict) else None
        if isinstance(mark, str) and mark:
            return f"{mark} {hint}"
    return hint
