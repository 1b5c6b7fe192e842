"""One thing that can be found: a tool, a resource or a prompt, with its schema left undecoded until it is needed.

A catalog of thousands of tools is mostly JSON Schema that is never read in this process. So an entry holds the words
that people and search read, and the rest as the bytes it came in. A `View` is the part of the catalog that one caller
may see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, TypeVar, overload

import msgspec
from msgspec.structs import replace

from toolfold.definitions import (
    Listing,
    PromptArgument,
    PromptDefinition,
    ResourceDefinition,
    ToolDefinition,
)

Kind = Literal["tool", "resource", "prompt", "skill"]
KINDS: tuple[Kind, ...] = ("tool", "resource", "prompt", "skill")
_ORDER = {kind: place for place, kind in enumerate(KINDS)}

_encode = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="sorted")


class ToolBody(msgspec.Struct, frozen=True):
    input_schema: dict[str, Any] = {}
    output_schema: dict[str, Any] | None = None


class TaskToolBody(ToolBody, frozen=True):
    """A body of its own, so that the many tools without tasks stay as they were stored and pinned."""

    task: bool = False


class ResourceBody(msgspec.Struct, frozen=True, omit_defaults=True):
    mime_type: str = ""
    template: bool = False


class PromptBody(msgspec.Struct, frozen=True):
    arguments: list[PromptArgument] = []


_Body = TypeVar("_Body", TaskToolBody, ResourceBody, PromptBody)
_T = TypeVar("_T")


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
        body = _decoded(self.body, TaskToolBody)
        return ToolDefinition(
            server=self.server,
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=body.input_schema,
            output_schema=body.output_schema,
            annotations=self.annotations,
            task=body.task,
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


class HeldEntry(Entry, frozen=True, array_like=True):
    """The accepted definition of a tool that has changed since, or the new one where what was accepted is unknown."""


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
        schemas = tool.input_schema, tool.output_schema
        body = TaskToolBody(*schemas, task=True) if tool.task else ToolBody(*schemas)
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


class Definitions(Sequence[_T]):
    """Definitions that are decoded when they are read. Ordered by server and name."""

    def __init__(self, entries: Sequence[Entry], decode: Callable[[Entry], _T]) -> None:
        self._entries = entries
        self._decode = decode

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[_T]: ...
    def __getitem__(self, index: int | slice) -> _T | Sequence[_T]:
        if isinstance(index, slice):
            return Definitions(self._entries[index], self._decode)
        return self._decode(self._entries[index])

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[_T]:
        return map(self._decode, self._entries)


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the catalog knows of one server. `source` is `cache` (a live listing), `file`, or empty when it has none."""

    name: str
    tools: int = 0
    resources: int = 0
    prompts: int = 0
    instructions: str = ""
    source: str = ""
    missing: bool = False

    @property
    def entries(self) -> int:
        return self.tools + self.resources + self.prompts


Allow = Callable[[Entry], bool]
"""Whether a caller may know of an entry. It is asked once per entry and question."""
Knows = Callable[[str], bool]
"""Whether a caller may know of a server, by its name, before anything that it offers is known."""


@dataclass(frozen=True)
class Scope:
    """What one caller may know of. Callers with equal keys see the same entries."""

    key: str = ""
    allow: Allow | None = None
    """None: everything."""
    knows: Knows | None = None
    """None: every server."""

    def may_know(self, server: str) -> bool:
        return self.knows is None or self.knows(server)


EVERYTHING = Scope()


class View:
    """The catalog as one caller may see it: what is filtered out is in no list, count or hint made from the view.

    `mask` says of every entry whether it is seen; None when all are.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        servers: Sequence[ServerInfo],
        mask: list[bool] | None,
        knows: Knows | None = None,
    ) -> None:
        self._all = entries
        self._servers = servers
        self.mask = mask
        self._knows = knows

    @classmethod
    def of(
        cls,
        entries: Sequence[Entry],
        servers: Sequence[ServerInfo],
        allow: Allow | None,
        knows: Knows | None = None,
    ) -> View:
        return cls(entries, servers, None if allow is None else [bool(allow(entry)) for entry in entries], knows)

    @cached_property
    def entries(self) -> Sequence[Entry]:
        if self.mask is None:
            return self._all
        return [entry for entry, seen in zip(self._all, self.mask, strict=True) if seen]

    @cached_property
    def servers(self) -> Sequence[ServerInfo]:
        """The servers with what is seen of each, without those of which nothing is."""
        knows = self._knows
        known = self._servers if knows is None else [one for one in self._servers if one.entries or knows(one.name)]
        return known if self.mask is None else with_counts(known, self.entries, drop=True)

    @cached_property
    def _digests(self) -> set[bytes]:
        return {entry.digest for entry in self.entries}

    def only(self, found: Iterable[Entry]) -> list[Entry]:
        """Those of `found` that are seen."""
        return list(found) if self.mask is None else [entry for entry in found if entry.digest in self._digests]

    def within(self, server: str) -> View:
        """The same view of one server."""
        seen = self.mask or [True] * len(self._all)
        mask = [one and entry.server == server for one, entry in zip(seen, self._all, strict=True)]
        return View(self._all, self._servers, mask, self._knows)


def with_counts(servers: Sequence[ServerInfo], entries: Iterable[Entry], *, drop: bool) -> list[ServerInfo]:
    """The servers with the counts of these entries; with `drop`, without those that had entries and keep none."""
    counts = {server.name: {"tool": 0, "resource": 0, "prompt": 0} for server in servers}
    for entry in entries:
        counts[entry.server][entry.kind] += 1
    found: list[ServerInfo] = []
    for server in servers:
        mine = counts[server.name]
        if not drop or not server.entries or any(mine.values()):
            found.append(replace(server, tools=mine["tool"], resources=mine["resource"], prompts=mine["prompt"]))
    return found
