"""What an entry says about itself, as weighted words.

Two weights per word: one for matching words (the more specific the field, the more a word there counts; long fields
count less per word), one for the vector that stands for the entry's meaning. Both depend on this entry alone, so that a
change elsewhere in the catalog changes nothing here and a stored row stays true.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from toolfold.catalog.entries import Entry
from toolfold.catalog.search import actions, lexicon
from toolfold.catalog.search.words import STOPWORDS, Words

ANALYSIS = "6"
"""Change it when rows made from the same entry would come out differently: stored indexes are then made anew."""


class Field(NamedTuple):
    weight: float
    """How much one occurrence in a field of typical length counts."""
    typical: float
    """Words in a usual field of this kind: what length is measured against."""
    slope: float
    """How far length matters: 0 not at all, 1 in full proportion."""
    meaning: float
    """The field's share in the entry's vector."""


FIELDS = {
    "name": Field(3.0, 3, 0.6, 1.0),
    "server": Field(2.0, 2, 0.3, 0.6),
    "title": Field(1.5, 4, 0.3, 0.0),
    "description": Field(1.0, 45, 0.6, 1.0),
    "parameters": Field(0.5, 10, 0.6, 0.3),
    "parameter docs": Field(0.4, 60, 0.6, 0.2),
    "values": Field(0.3, 15, 0.6, 0.0),
    "about": Field(0.6, 6, 0.3, 0.5),
}
"""`about` is not the entry's own: it is what its server's or its own name is known for."""

_PRODUCTS = {line[0]: line[1:] for line in lexicon.lines("products")}
_DESCRIPTION = 1500
_DOCS = 1500
_VALUES = 500
_DEPTH = 3
_PARAMETERS = 100


class Row(NamedTuple):
    """One entry's words: the spelling, its weight in matching, its weight in meaning; and what the entry does."""

    words: list[str]
    match: list[float]
    meaning: list[float]
    actions: int


def field_words(entry: Entry, words: Words) -> dict[str, list[str]]:
    """Field → its words, in order. The same in the index and in an explanation."""
    texts = {
        "name": entry.name if not entry.uri else f"{entry.name} {entry.uri}",
        "server": entry.server,
        "title": entry.title,
        "description": entry.description[:_DESCRIPTION],
    }
    names: list[str] = []
    docs: list[str] = []
    values: list[str] = []
    if entry.kind == "tool":
        _read_schema(entry.tool().input_schema, names, docs, values)
    elif entry.kind == "prompt":
        for argument in entry.prompt().arguments:
            names.append(argument.name)
            docs.append(argument.description)
    texts["parameters"] = " ".join(names)
    texts["parameter docs"] = " ".join(docs)[:_DOCS]
    texts["values"] = " ".join(values)[:_VALUES]
    found = {field: words.split(text) for field, text in texts.items() if text}
    products = dict.fromkeys(word for field in ("server", "name") for word in found.get(field, ()) if word in _PRODUCTS)
    if products:
        found["about"] = [word for product in products for word in _PRODUCTS[product]]
    return found


def row(entry: Entry, words: Words) -> Row:
    match: dict[str, float] = {}
    meaning: dict[str, float] = {}
    fields = field_words(entry, words)
    for field, found in fields.items():
        about = FIELDS[field]
        counts = Counter(found)
        unit = about.weight / (1 - about.slope + about.slope * len(found) / about.typical)
        for word, count in counts.items():
            match[word] = match.get(word, 0.0) + unit * count
        if about.meaning:
            topical = [
                (word, 1.0 if count == 1 else 1 + math.log(count))
                for word, count in counts.items()
                if word not in STOPWORDS
            ]
            share = about.meaning / math.sqrt(sum(value * value for _, value in topical) or 1.0)
            for word, value in topical:
                meaning[word] = meaning.get(word, 0.0) + share * value
    bits = actions.of_entry(fields.get("name", ()), fields.get("server", ()), fields.get("description", ()))
    return Row(list(match), list(match.values()), [meaning.get(word, 0.0) for word in match], bits)


def _read_schema(schema: Any, names: list[str], docs: list[str], values: list[str], depth: int = 0) -> None:
    """Collect parameter names, what is said about them, and the values they are limited to; odd shapes are skipped."""
    for name, about in _properties(schema):
        if len(names) >= _PARAMETERS:
            return
        names.append(name)
        if not isinstance(about, dict):
            continue
        known = cast(dict[str, Any], about)
        if isinstance(doc := known.get("description"), str):
            docs.append(doc[:_DOCS])
        options = known.get("enum")
        if isinstance(options, list):
            values += [option for option in cast(list[Any], options)[:50] if isinstance(option, str)]
        if depth < _DEPTH:
            _read_schema(known, names, docs, values, depth + 1)
            _read_schema(known.get("items"), names, docs, values, depth + 1)


def _properties(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, dict):
        properties: Any = schema.get("properties")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if isinstance(properties, dict):
            yield from properties.items()  # pyright: ignore[reportUnknownVariableType]
