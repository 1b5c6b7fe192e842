"""One thing that can be found: a tool, a resource or a prompt, with its schema kept undecoded until it is asked for.

A catalog of thousands of tools is mostly JSON Schema that nobody reads in this process. So an entry holds the words
that people and search read, and the rest as the bytes it came in.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Literal, TypeVar

import msgspec

from toolfold.definitions import (
    Listing,
    PromptArgument,
    PromptDefinition,
    ResourceDefinition,
    ToolDefinition,
)

Kind = Literal["tool", "resource", "prompt"]
KINDS: tuple[Kind, ...] = ("tool", "resource", "prompt")
_ORDER = {kind: place for place, kind in enumerate(KINDS)}

_encode = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="sorted")


class ToolBody(msgspec.Struct, frozen=True):
    input_schema: dict[str, Any] = {}
    output_schema: dict[str, Any] | None = None


class ResourceBody(msgspec.Struct, frozen=True, omit_defaults=True):
    mime_type: str = ""
    template: bool = False


class PromptBody(msgspec.Struct, frozen=True):
    arguments: list[PromptArgument] = []


_Body = TypeVar("_Body", ToolBody, ResourceBody, PromptBody)


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """What search ranks and what a filter decides on. `uri` is set for resources only."""

    kind: Kind
    server: str
    name: str
    uri: str
    title: str
    description: str
    annotations: dict[str, Any]
    body: bytes
    digest: bytes
    """Changes if and only if the definition does; the order of keys in a schema is not part of it."""

    @property
    def key(self) -> str:
        """What names the entry among those of its kind on its server."""
        return self.uri or self.name

    def order(self) -> tuple[str, int, str]:
        return self.server, _ORDER[self.kind], self.key

    def tool(self) -> ToolDefinition:
        body = _decoded(self.body, ToolBody)
        return ToolDefinition(
            server=self.server,
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=body.input_schema,
            output_schema=body.output_schema,
            annotations=self.annotations,
        )

    def resource(self) -> ResourceDefinition:
        body = _decoded(self.body, ResourceBody)
        return ResourceDefinition(
            server=self.server,
            uri=self.uri,
            name=self.name,
            title=self.title,
            description=self.description,
            mime_type=body.mime_type,
            template=body.template,
        )

    def prompt(self) -> PromptDefinition:
        return PromptDefinition(
            server=self.server,
            name=self.name,
            title=self.title,
            description=self.description,
            arguments=_decoded(self.body, PromptBody).arguments,
        )


def entry(
    kind: Kind,
    server: str,
    name: str,
    *,
    uri: str = "",
    title: str = "",
    description: str = "",
    annotations: dict[str, Any] | None = None,
    body: bytes,
    canonical: bytes | None = None,
) -> Entry:
    """An entry with its digest; `canonical` is the body in one agreed spelling, where that differs from `body`."""
    notes = annotations or {}
    words = _canonical.encode([kind, server, name, uri, title, description, notes])
    digest = blake2b(words + (body if canonical is None else canonical), digest_size=12).digest()
    return Entry(kind, server, name, uri, title, description, notes, body, digest)


def entries_of(listing: Listing) -> list[Entry]:
    """Everything that a listing names, sorted; of two with one name the first stays."""
    listing = encodable(listing)
    found: dict[tuple[str, str], Entry] = {}

    def keep(one: Entry) -> None:
        found.setdefault((one.kind, one.key), one)

    for tool in listing.tools:
        body = ToolBody(tool.input_schema, tool.output_schema)
        keep(_from("tool", listing.server, tool.name, tool, body, annotations=tool.annotations))
    for resource in listing.resources:
        body = ResourceBody(resource.mime_type, resource.template)
        keep(_from("resource", listing.server, resource.name or resource.uri, resource, body, uri=resource.uri))
    for prompt in listing.prompts:
        keep(_from("prompt", listing.server, prompt.name, prompt, PromptBody(prompt.arguments)))
    return sorted(found.values(), key=Entry.order)


def encodable(listing: Listing) -> Listing:
    """The listing with every lone surrogate replaced: half a character can be neither stored nor shown."""
    try:
        _encode.encode(listing)
    except UnicodeEncodeError:
        plain = _without_surrogates(msgspec.to_builtins(listing))
        return msgspec.convert(plain, Listing)
    return listing


def _from(
    kind: Kind,
    server: str,
    name: str,
    definition: ToolDefinition | ResourceDefinition | PromptDefinition,
    body: ToolBody | ResourceBody | PromptBody,
    *,
    uri: str = "",
    annotations: dict[str, Any] | None = None,
) -> Entry:
    return entry(
        kind,
        server,
        name,
        uri=uri,
        title=definition.title,
        description=definition.description,
        annotations=annotations,
        body=_encode.encode(body),
        canonical=_canonical.encode(body),
    )


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value


def _decoded(body: bytes, kind: type[_Body]) -> _Body:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError):
        # A file's schema is taken over unread; one that turns out unreadable leaves a tool without declared arguments.
        return kind()
