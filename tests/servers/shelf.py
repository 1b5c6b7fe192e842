"""A server with tools, prompts, resources and a template, which grows when it is asked to. Standard library only."""

from __future__ import annotations

import json
import sys
from typing import Any

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
SIZE: dict[str, Any] = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
ECHO: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
GROW = {
    "type": "object",
    "properties": {"kind": {"enum": ["tool", "prompt", "resource"]}, "name": {"type": "string"}},
    "required": ["kind", "name"],
}
WRAPPED = {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def tool(name: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "title": name.title(), "description": f"Shelf: {name}.", "inputSchema": schema, **more}


TOOLS = [
    tool("grow", GROW, annotations={"readOnlyHint": False, "destructiveHint": False}),
    tool("text", SIZE, annotations={"readOnlyHint": True}),
    tool("wrapped", SIZE, outputSchema=WRAPPED, annotations={"readOnlyHint": True}),
    tool("person", NOTHING, annotations={"readOnlyHint": True}),
    tool("picture", NOTHING, annotations={"readOnlyHint": True}),
    tool("echo", ECHO, annotations={"readOnlyHint": True}),
    tool("burn", NOTHING, annotations={"destructiveHint": True}),
]
PROMPTS: list[dict[str, Any]] = [
    {"name": "greet", "description": "A greeting.", "arguments": [{"name": "who", "required": True}]}
]
RESOURCES: list[dict[str, Any]] = [
    {"uri": "shelf://books/one", "name": "one", "mimeType": "text/plain", "description": "The first book."},
    {"uri": "shelf://books/cover", "name": "cover", "mimeType": "image/png"},
]
TEMPLATES = [{"uriTemplate": "shelf://books/{title}", "name": "book"}]


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def grow(kind: str, name: str) -> None:
    {"tool": TOOLS, "prompt": PROMPTS, "resource": RESOURCES}[kind].append(
        {"tool": tool(name, NOTHING), "prompt": {"name": name}, "resource": {"uri": f"shelf://{name}", "name": name}}[
            kind
        ]
    )
    send({"method": f"notifications/{kind}s/list_changed"})


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    match name:
        case "grow":
            grow(arguments["kind"], arguments["name"])
            return {"content": [{"type": "text", "text": "grown"}]}
        case "text":
            return {"content": [{"type": "text", "text": "x" * arguments["size"]}]}
        case "wrapped":
            result = {"result": "y" * arguments["size"]}
            return {"content": [{"type": "text", "text": result["result"]}], "structuredContent": result}
        case "person":
            person = {"name": "Ada", "email": "ada.l@example.org.uk"}
            return {"content": [{"type": "text", "text": json.dumps(person)}], "structuredContent": person}
        case "echo":
            given = arguments["text"]
            return {"content": [{"type": "text", "text": f"{len(given)} characters: {given}"}]}
        case "picture":
            link = {"type": "resource_link", "uri": "shelf://books/one", "name": "one"}
            return {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}, link]}
        case _:
            return {"content": [{"type": "text", "text": f"did {name}"}]}


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            changing = {"listChanged": True}
            offers: dict[str, Any] = {"tools": changing, "resources": changing, "prompts": changing}
            about = {"serverInfo": {"name": "shelf", "version": "1"}, "capabilities": offers}
            return {"protocolVersion": "2025-06-18", **about}
        case "tools/list":
            return {"tools": TOOLS}
        case "resources/list":
            return {"resources": RESOURCES}
        case "resources/templates/list":
            return {"resourceTemplates": TEMPLATES}
        case "prompts/list":
            return {"prompts": PROMPTS}
        case "tools/call":
            return called(params["name"], params.get("arguments") or {})
        case "resources/read":
            uri = params["uri"]
            if uri.endswith("cover"):
                return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PIXEL}]}
            return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": f"text of {uri}, ada@example.org"}]}
        case "prompts/get":
            who = params["arguments"]["who"]
            content = {"type": "text", "text": f"Say hello to {who}, who is ada@example.org."}
            return {"description": "A greeting.", "messages": [{"role": "user", "content": content}]}
        case _:
            return None


def main() -> None:
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        if "id" not in message:
            continue
        found = result(message["method"], message.get("params") or {})
        if found is None:
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
        else:
            send({"id": message["id"], "result": found})


if __name__ == "__main__":
    main()
