"""From what a server answered to our own plain shapes. Everything here reads data that may be anything at all."""

from __future__ import annotations

import json
from typing import Any, cast

from toolfold.definitions import BlobPart, LinkPart, Part, TextPart, ToolResult

COMPLETIONS = 100


class InvalidResponseError(Exception):
    """The response does not have the shape that the protocol defines."""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: Any) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _blob(data: Any, mime_type: Any, uri: str = "") -> BlobPart:
    if not isinstance(data, str):
        raise InvalidResponseError("binary content without `data`")
    return BlobPart(data, _text(mime_type) or "application/octet-stream", uri.rstrip("/").rpartition("/")[2], uri)


def tool_result(raw: dict[str, Any], *, modern: bool) -> ToolResult:
    """The answer to `tools/call`. In the older protocol a null `structuredContent` means that there is none."""
    if raw.get("resultType", "complete") != "complete":
        raise InvalidResponseError(f"`resultType` is {raw['resultType']!r}, which Toolfold does not know")
    content = raw.get("content", [])
    if not isinstance(content, list):
        raise InvalidResponseError("`content` is not a list")
    structured = raw.get("structuredContent")
    return ToolResult(
        parts=[content_part(block) for block in cast("list[Any]", content)],
        structured=structured,
        has_structured=structured is not None or (modern and "structuredContent" in raw),
        is_error=raw.get("isError") is True,
    )


def content_part(value: Any) -> Part:
    block = _mapping(value)
    match block:
        case {"type": "text", "text": str() as text}:
            return TextPart(text)
        case {"type": "image" | "audio"}:
            return _blob(block.get("data"), block.get("mimeType"))
        case {"type": "resource", "resource": resource}:
            return resource_part(resource)
        case {"type": "resource_link", "uri": str() as uri}:
            return LinkPart(
                uri, _text(block.get("name")), _text(block.get("description")), _text(block.get("mimeType"))
            )
        case None:
            raise InvalidResponseError("`content` holds something that is no object")
        case _:
            # A kind of content that does not exist yet: the program may still make sense of it.
            return TextPart(json.dumps(block, ensure_ascii=False))


def resource_part(value: Any) -> Part:
    block = _mapping(value)
    if block is None:
        raise InvalidResponseError("a resource's content is no object")
    uri, mime_type = _text(block.get("uri")), block.get("mimeType")
    if isinstance(text := block.get("text"), str):
        return TextPart(text, uri, _text(mime_type))
    return _blob(block.get("blob"), mime_type, uri)


def resource_parts(raw: dict[str, Any]) -> list[Part]:
    """The answer to `resources/read`."""
    contents = raw.get("contents")
    if not isinstance(contents, list):
        raise InvalidResponseError("`contents` is not a list")
    return [resource_part(block) for block in cast("list[Any]", contents)]


def prompt_messages(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """The answer to `prompts/get`, as `{"role", "content"}`."""
    messages = raw.get("messages")
    if not isinstance(messages, list):
        raise InvalidResponseError("`messages` is not a list")
    read: list[dict[str, Any]] = []
    for value in cast("list[Any]", messages):
        message = _mapping(value)
        if message is None or not isinstance(message.get("role"), str):
            raise InvalidResponseError("`messages` holds something that is no message")
        read.append({"role": message["role"], "content": message.get("content")})
    return read


def completion(raw: dict[str, Any]) -> dict[str, Any]:
    """The answer to `completion/complete`, with as many values as the protocol allows."""
    found = _mapping(raw.get("completion"))
    values = found.get("values") if found is not None else None
    if found is None or not isinstance(values, list):
        raise InvalidResponseError("`completion` has no list of values")
    texts = [each for each in cast("list[Any]", values) if isinstance(each, str)]
    read: dict[str, Any] = {"values": texts[:COMPLETIONS]}
    if isinstance(total := found.get("total"), int):
        read["total"] = total
    if len(texts) > COMPLETIONS or found.get("hasMore") is True:
        read["hasMore"] = True
    return read
