"""What upstreams offer and answer, as plain data: the shapes that every package shares.

They carry no behaviour and know nothing of the SDK, so the catalog can keep them on disk and the generator can
read them without importing a protocol library.
"""

from __future__ import annotations

from typing import Any

import msgspec

OWN_NAME = "toolfold"
"""What our own MCP server calls itself; a server of this name is never folded."""


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tool of one upstream, exactly as the upstream names it."""

    server: str
    name: str
    title: str = ""
    description: str = ""
    input_schema: dict[str, Any] = {}
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] = {}
    """MCP's hints as sent: readOnlyHint, destructiveHint, idempotentHint, openWorldHint, title."""
    task: bool = False
    """Whether the server runs it only as a task (2025-11-25)."""


class ResourceDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource, or a template of resources when `template` is true (then `uri` has `{placeholders}`)."""

    server: str
    uri: str
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str = ""
    template: bool = False


class PromptArgument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    description: str = ""
    required: bool = False


class PromptDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    server: str
    name: str
    title: str = ""
    description: str = ""
    arguments: list[PromptArgument] = []


class Listing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything one upstream offers at one moment."""

    server: str
    instructions: str = ""
    tools: list[ToolDefinition] = []
    resources: list[ResourceDefinition] = []
    prompts: list[PromptDefinition] = []


class TextPart(msgspec.Struct, frozen=True, tag="text", omit_defaults=True):
    """`uri` and `mime_type` are those of a resource whose text it is."""

    text: str
    uri: str = ""
    mime_type: str = ""


class BlobPart(msgspec.Struct, frozen=True, tag="blob"):
    """An image, a sound or other bytes; `data` is base64 as it came over the wire. `uri` is that of a resource."""

    data: str
    mime_type: str = "application/octet-stream"
    name: str = ""
    uri: str = ""


class LinkPart(msgspec.Struct, frozen=True, tag="link"):
    uri: str
    name: str = ""
    description: str = ""
    mime_type: str = ""


Part = TextPart | BlobPart | LinkPart


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream's answer. `has_structured` tells a structured null from no structured content.

    Large structured content may be `msgspec.Raw`, JSON that only the program will decode; guards get it decoded.
    """

    parts: list[Part] = []
    structured: Any = None
    has_structured: bool = False
    is_error: bool = False
