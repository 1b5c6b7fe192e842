"""A server's answer as the gateway's own answer: the other direction of `upstream/results.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolfold.definitions import BlobPart, LinkPart, Part, TextPart, ToolResult


def call_result(result: ToolResult, version: str, link: Callable[[str], str] = str) -> types.CallToolResult:
    """For a client that speaks this version: before 2026-07-28, structured content is an object.

    `link` makes the URI by which the client can read a resource of the server.
    """
    content = [_content_block(part, link) for part in result.parts]
    structured: Any = result.structured
    if result.has_structured and (version in MODERN_PROTOCOL_VERSIONS or isinstance(structured, dict)):
        return types.CallToolResult(content=content, structured_content=structured, is_error=result.is_error)
    return types.CallToolResult(content=content, is_error=result.is_error)


def _content_block(part: Part, link: Callable[[str], str]) -> types.ContentBlock:
    match part:
        case TextPart(text=text, uri=uri, mime_type=kind) if uri:
            contents = types.TextResourceContents(uri=link(uri), text=text, **_given(mime_type=kind))
            return types.EmbeddedResource(resource=contents)
        case TextPart(text=text):
            return types.TextContent(text=text)
        case LinkPart():
            shown = _given(description=part.description, mime_type=part.mime_type)
            return types.ResourceLink(uri=link(part.uri), name=part.name or part.uri, **shown)
        case BlobPart(data=data, mime_type=kind, uri=uri) if uri:
            contents = types.BlobResourceContents(uri=link(uri), mime_type=kind, blob=data)
            return types.EmbeddedResource(resource=contents)
        case BlobPart(data=data, mime_type=kind) if kind.startswith("audio/"):
            return types.AudioContent(data=data, mime_type=kind)
        case BlobPart(data=data, mime_type=kind):
            return types.ImageContent(data=data, mime_type=kind)


def _given(**values: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}
