"""A server's answer as the gateway's own answer: the other direction of `upstream/results.py`."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolfold.definitions import BlobPart, LinkPart, Part, TextPart, ToolResult


def call_result(result: ToolResult, version: str) -> types.CallToolResult:
    """For a client that speaks this version: before 2026-07-28, structured content is an object."""
    content = [content_block(part) for part in result.parts]
    structured: Any = result.structured
    if result.has_structured and (version in MODERN_PROTOCOL_VERSIONS or isinstance(structured, dict)):
        return types.CallToolResult(content=content, structured_content=structured, is_error=result.is_error)
    return types.CallToolResult(content=content, is_error=result.is_error)


def content_block(part: Part) -> types.ContentBlock:
    match part:
        case TextPart(text=text):
            return types.TextContent(text=text)
        case LinkPart():
            shown = _given(description=part.description, mime_type=part.mime_type)
            return types.ResourceLink(uri=part.uri, name=part.name or part.uri, **shown)
        case BlobPart(data=data, mime_type=kind) if kind.startswith("image/"):
            return types.ImageContent(data=data, mime_type=kind)
        case BlobPart(data=data, mime_type=kind) if kind.startswith("audio/"):
            return types.AudioContent(data=data, mime_type=kind)
        case BlobPart(data=data, mime_type=kind, name=name):
            uri = f"toolfold:///{name}"
            return types.EmbeddedResource(resource=types.BlobResourceContents(uri=uri, mime_type=kind, blob=data))


def _given(**values: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}
