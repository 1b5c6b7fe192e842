"""Definitions from files: `{"server": …, "tools": [MCP tool…]}`, and `resources`, `prompts`, `instructions` if any.

One bad tool costs that tool, one bad file that file; both are reported with what was expected.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from toolfold.catalog.entries import Entry, Kind, PromptBody, ResourceBody, entry
from toolfold.catalog.store import StoredListing, stored_listing
from toolfold.definitions import PromptArgument

_LARGEST = 200_000_000
"""Bytes of a catalog file; a larger one is not read."""


class _Wire(msgspec.Struct):
    server: str
    tools: list[msgspec.Raw] = []
    resources: list[msgspec.Raw] = []
    resourceTemplates: list[msgspec.Raw] = []  # noqa: N815 - MCP's spelling
    prompts: list[msgspec.Raw] = []
    instructions: str | None = None


class _Annotated(msgspec.Struct, rename="camel"):
    title: str | None = None
    description: str | None = None
    annotations: dict[str, Any] | None = None


class _WireTool(_Annotated, kw_only=True, rename="camel"):
    name: str
    input_schema: msgspec.Raw = msgspec.Raw(b"{}")
    output_schema: msgspec.Raw = msgspec.Raw(b"null")


class _WireResource(_Annotated, kw_only=True, rename="camel"):
    uri: str = ""
    uri_template: str = ""
    name: str = ""
    mime_type: str | None = None


class _WireArgument(msgspec.Struct):
    name: str
    description: str | None = None
    required: bool | None = None


class _WirePrompt(_Annotated, kw_only=True):
    name: str
    arguments: list[_WireArgument] | None = None


_decode_file = msgspec.json.Decoder(_Wire)
_decode_tool = msgspec.json.Decoder(_WireTool)
_decode_resource = msgspec.json.Decoder(_WireResource)
_decode_prompt = msgspec.json.Decoder(_WirePrompt)


def read_catalogs(places: tuple[Path, ...], problems: list[str]) -> list[StoredListing]:
    """One listing per server, in the order of the places and of the file names in each. Failures go to `problems`."""
    found: dict[str, StoredListing] = {}
    for path in _files(places, problems):
        listing = _read(path, problems)
        if listing is None:
            continue
        if listing.server in found:
            problems.append(
                f"{path}: server {listing.server!r} was already read from another file; this one is not used"
            )
        else:
            found[listing.server] = listing
    return list(found.values())


def _files(places: tuple[Path, ...], problems: list[str]) -> Iterator[Path]:
    for place in places:
        if place.is_dir():
            yield from sorted(place.glob("*.json"))
        elif place.is_file():
            yield place
        else:
            problems.append(f"{place}: no such file or folder")


def _read(path: Path, problems: list[str]) -> StoredListing | None:
    try:
        if path.stat().st_size > _LARGEST:
            problems.append(f"{path}: larger than {_LARGEST // 1_000_000} MB")
            return None
        # Bytes that are no UTF-8 become marks here, so that a schema read much later cannot fail on them.
        data = path.read_bytes().decode("utf-8-sig", "replace").encode()
        wire = _decode_file.decode(data)
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        problems.append(f'{path}: expected {{"server": …, "tools": […]}}: {error}')
        return None
    if not wire.server:
        problems.append(f"{path}: `server` is empty")
        return None
    entries: dict[tuple[Kind, str], Entry] = {}
    parts: tuple[tuple[Kind, list[msgspec.Raw]], ...] = (
        ("tool", wire.tools),
        ("resource", [*wire.resources, *wire.resourceTemplates]),
        ("prompt", wire.prompts),
    )
    for kind, raws in parts:
        for place, raw in enumerate(raws):
            try:
                one = _READERS[kind](wire.server, raw)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                problems.append(f"{path}: {kind} {place + 1} of {len(raws)} is not used: {error}")
                continue
            if (kind, one.key) in entries:
                problems.append(f"{path}: {kind} {one.key!r} is defined twice; the first one is used")
            else:
                entries[kind, one.key] = one
    return stored_listing(wire.server, wire.instructions or "", sorted(entries.values(), key=Entry.order))


def _tool(server: str, raw: msgspec.Raw) -> Entry:
    tool = _decode_tool.decode(raw)
    _named(tool.name)
    # Schemas stay as they are: decoding thousands of them to read none would be most of the start-up.
    schema = _object(tool.input_schema, "inputSchema") or b"{}"
    output = _object(tool.output_schema, "outputSchema") or b"null"
    body = b'{"input_schema":%b,"output_schema":%b}' % (schema, output)
    notes = tool.annotations or {}
    title = tool.title or notes.get("title")
    return entry(
        "tool",
        server,
        tool.name,
        title=title if isinstance(title, str) else "",
        description=tool.description or "",
        annotations=notes,
        body=body,
    )


def _resource(server: str, raw: msgspec.Raw) -> Entry:
    found = _decode_resource.decode(raw)
    uri = found.uri or found.uri_template
    _named(uri)
    body = ResourceBody(found.mime_type or "", template=not found.uri)
    return entry(
        "resource",
        server,
        found.name or uri,
        uri=uri,
        title=found.title or "",
        description=found.description or "",
        body=msgspec.json.encode(body),
    )


def _prompt(server: str, raw: msgspec.Raw) -> Entry:
    found = _decode_prompt.decode(raw)
    _named(found.name)
    arguments = [
        PromptArgument(name=one.name, description=one.description or "", required=bool(one.required))
        for one in found.arguments or []
    ]
    return entry(
        "prompt",
        server,
        found.name,
        title=found.title or "",
        description=found.description or "",
        body=msgspec.json.encode(PromptBody(arguments)),
    )


_READERS = {"tool": _tool, "resource": _resource, "prompt": _prompt}


def _named(name: str) -> None:
    if not name.strip():
        raise ValueError("it has no name")


def _object(raw: msgspec.Raw, key: str) -> bytes | None:
    """The JSON object in `raw` without its blanks; None for null."""
    text = msgspec.json.format(bytes(raw), indent=-1)
    if text == b"null":
        return None
    if not text.startswith(b"{"):
        raise ValueError(f"`{key}` is not an object")
    return text
