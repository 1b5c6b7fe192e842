"""The four APIs that clients speak to models: what a request says, and a scripted reply as a client expects it.

A reply is streamed where the request asks for it, in the events that these APIs document, and no others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """The model calls the tool whose name ends in `tool`."""

    tool: str
    arguments: Json


@dataclass(frozen=True)
class Asked:
    """One request of a client."""

    tools: dict[str, Json] = field(default_factory=dict[str, Json])
    """By name, each definition as it was sent."""
    groups: dict[str, Json] = field(default_factory=dict[str, Json])
    """By name, what was sent around the tools of one server, in the API that has groups."""
    results: list[str] = field(default_factory=list[str])
    """What the tools have answered so far, the oldest first."""
    turns: list[str] = field(default_factory=list[str])
    """What the model was told after each of its own words (Chat Completions only)."""


@dataclass(frozen=True)
class Reply:
    """What the model answers: some words, or one call of a tool by its full name."""

    number: int
    text: str = ""
    tool: str = ""
    arguments: Json = field(default_factory=dict[str, Json])


@dataclass(frozen=True)
class Wire:
    """One API."""

    path: str
    """What is in the path of its requests."""
    read: Callable[[Json], Asked]
    events: Callable[[Reply, Json], list[Json]]
    """The events of a streamed reply. The last ones of an API that ends otherwise are in `ending`."""
    whole: Callable[[Reply, Json], Json]
    """The reply in one piece."""
    ending: str = ""


def _text(content: Any) -> str:
    """The text of a result, which is a string or a list of blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_text(block) for block in content)  # pyright: ignore[reportUnknownVariableType]
    if isinstance(content, dict):
        return _text(content["text"]) if "text" in content else json.dumps(content)  # pyright: ignore[reportUnknownArgumentType]
    return str(content)


def _list(value: Any) -> list[Json]:
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]


# ---- Anthropic Messages


def _read_messages(body: Json) -> Asked:
    tools = {tool["name"]: tool for tool in body.get("tools", [])}
    blocks = [
        block for message in body["messages"] if isinstance(message["content"], list) for block in message["content"]
    ]
    results = [_text(block.get("content", "")) for block in blocks if block["type"] == "tool_result"]
    return Asked(tools, results=results)


def _messages_whole(reply: Reply, body: Json) -> Json:
    block: Json = {"type": "text", "text": reply.text}
    if reply.tool:
        block = {"type": "tool_use", "id": f"toolu_{reply.number}", "name": reply.tool, "input": reply.arguments}
    return {
        "id": f"msg_{reply.number}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [block],
        "stop_reason": "tool_use" if reply.tool else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _messages_events(reply: Reply, body: Json) -> list[Json]:
    whole = _messages_whole(reply, body)
    block: Json = dict(whole["content"][0])
    if reply.tool:
        delta = {"type": "input_json_delta", "partial_json": json.dumps(reply.arguments)}
        block["input"] = {}
    else:
        delta = {"type": "text_delta", "text": reply.text}
        block["text"] = ""
    stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    return [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


# ---- OpenAI Responses


def _read_responses(body: Json) -> Asked:
    tools: dict[str, Json] = {}
    groups: dict[str, Json] = {}
    for tool in body.get("tools", []):
        name = tool.get("name", tool["type"])
        if "tools" not in tool:
            tools[name] = tool
            continue
        # Codex sends the tools of one server as a group; they are called by their own name within it.
        groups[name] = {**tool, "tools": []}
        tools |= {f"{name}/{member['name']}": member for member in tool["tools"]}
    results = [_text(item["output"]) for item in _list(body["input"]) if item.get("type") == "function_call_output"]
    return Asked(tools, groups, results)


def _responses_whole(reply: Reply, body: Json) -> Json:
    item: Json = {
        "id": f"msg_{reply.number}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": reply.text, "annotations": []}],
    }
    if reply.tool:
        group, _, name = reply.tool.rpartition("/")
        item = {
            "id": f"fc_{reply.number}",
            "type": "function_call",
            "call_id": f"call_{reply.number}",
            "name": name,
            "arguments": json.dumps(reply.arguments),
            "status": "completed",
        }
        if group:
            item["namespace"] = group
    return {
        "id": f"resp_{reply.number}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": body["model"],
        "output": [item],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 1,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 2,
        },
    }


def _responses_events(reply: Reply, body: Json) -> list[Json]:
    whole = _responses_whole(reply, body)
    (item,) = whole["output"]
    created: Json = {**whole, "status": "in_progress", "output": []}
    events: list[Json] = [
        {"type": "response.created", "response": created},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


# ---- OpenAI Chat Completions


def _read_chat(body: Json) -> Asked:
    tools = {tool["function"]["name"]: tool for tool in _list(body.get("tools"))}
    messages = body["messages"]
    results = [_text(message["content"]) for message in messages if message["role"] == "tool"]
    after = [later for message, later in pairwise(messages) if message["role"] == "assistant"]
    return Asked(tools, results=results, turns=[_text(message["content"]) for message in after])


def _chat_message(reply: Reply) -> Json:
    if not reply.tool:
        return {"role": "assistant", "content": reply.text}
    function = {"name": reply.tool, "arguments": json.dumps(reply.arguments)}
    call = {"index": 0, "id": f"call_{reply.number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _chat(reply: Reply, body: Json, kind: str, choice: Json) -> Json:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    name = f"chatcmpl_{reply.number}"
    return {"id": name, "object": kind, "created": 0, "model": body["model"], "choices": [choice], "usage": usage}


def _chat_whole(reply: Reply, body: Json) -> Json:
    ended = "tool_calls" if reply.tool else "stop"
    return _chat(reply, body, "chat.completion", {"index": 0, "message": _chat_message(reply), "finish_reason": ended})


def _chat_events(reply: Reply, body: Json) -> list[Json]:
    ended = "tool_calls" if reply.tool else "stop"
    return [
        _chat(reply, body, "chat.completion.chunk", {"index": 0, "delta": delta, "finish_reason": reason})
        for delta, reason in [(_chat_message(reply), None), ({}, ended)]
    ]


# ---- Gemini


def _read_gemini(body: Json) -> Asked:
    tools = {
        declared["name"]: declared
        for tool in body.get("tools", [])
        for declared in tool.get("functionDeclarations", tool.get("function_declarations", []))
    }
    parts = [part for content in body["contents"] for part in content.get("parts", [])]
    results = [_text(_answer(part["functionResponse"])) for part in parts if "functionResponse" in part]
    return Asked(tools, results=results)


def _answer(response: Json) -> Any:
    answer = response["response"]
    return next((answer[key] for key in ("output", "error", "result", "content") if key in answer), answer)


def _gemini_whole(reply: Reply, body: Json) -> Json:
    part: Json = {"text": reply.text}
    if reply.tool:
        part = {"functionCall": {"name": reply.tool, "args": reply.arguments}}
    return {
        "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        "modelVersion": "scripted",
        "responseId": f"r{reply.number}",
    }


def _gemini_events(reply: Reply, body: Json) -> list[Json]:
    return [_gemini_whole(reply, body)]


WIRES = (
    Wire("/messages", _read_messages, _messages_events, _messages_whole),
    Wire("/responses", _read_responses, _responses_events, _responses_whole),
    Wire("/chat/completions", _read_chat, _chat_events, _chat_whole, ending="data: [DONE]\n\n"),
    Wire("enerateContent", _read_gemini, _gemini_events, _gemini_whole),
)
