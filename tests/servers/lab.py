"""A well-behaved MCP server over stdio with one tool for each kind of answer. Started by path, by tests.

Standard library only: hundreds of tests start it, and a server of the SDK takes half a second of processor to start. It
speaks both protocol eras, with the very answers of the SDK's server. The SDK's own is `polite.py`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

PIXEL = "iVBORyBub3QgcmVhbGx5IGEgcGljdHVyZQ=="
NUMBER = {"type": "number"}
STRING = {"type": "string"}
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
ABOUT = {"name": "lab", "version": "1"}
CAPABILITIES = {
    "prompts": {"listChanged": False},
    "resources": {"listChanged": False, "subscribe": False},
    "tools": {"listChanged": False},
}


def tool(name: str, properties: dict[str, Any], output: dict[str, Any] | None = None) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    made = {"name": name, "description": f"The lab's {name}.", "inputSchema": schema}
    return made if output is None else {**made, "outputSchema": output}


TOOLS = [
    tool("add", {"a": NUMBER, "b": NUMBER}, {"type": "object", "properties": {"sum": NUMBER}, "required": ["sum"]}),
    tool("fail", {"message": STRING}),
    tool("image", {}),
    tool("big", {"size": {"type": "integer"}}),
    tool("sleep", {"seconds": NUMBER}),
    tool("json-text", {}),
    tool("number_text", {}),
    tool("two_parts", {}),
    tool("nothing", {}),
    tool("lies", {}, {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}),
    tool("die", {}),
    tool("deep_text", {}),
    tool("echo", {"value": {}}),
]


TEXTS = {
    "json-text": '{"rows": [1, 2, 3]}',
    "deep_text": "[" * 100_000 + "]" * 100_000,
    "number_text": "007",
}


def texts(*values: str, error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value} for value in values], "isError": error}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    match name:
        case "add":
            total = {"sum": arguments["a"] + arguments["b"]}
            return {**texts(json.dumps(total)), "structuredContent": total}
        case "fail":
            return texts(arguments["message"], error=True)
        case "image":
            return {**texts(), "content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]}
        case "big":
            return texts("x" * arguments["size"])
        case name if name in TEXTS:
            return texts(TEXTS[name])
        case "two_parts":
            return texts("one", "[2]")
        case "lies":
            return {**texts(), "structuredContent": {"ok": "yes"}}
        case "die":
            os._exit(7)
        case "echo":
            return {**texts(), "structuredContent": {"value": arguments["value"]}}
        case _:
            return texts()


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            asked = params["protocolVersion"]
            version = asked if asked in VERSIONS else VERSIONS[0]
            return {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": ABOUT}
        case "server/discover":
            return {"supportedVersions": [MODERN], "capabilities": CAPABILITIES}
        case "tools/list":
            return {"tools": TOOLS}
        case "resources/list":
            return {"resources": [{"uri": "lab://notes", "name": "notes"}]}
        case "prompts/list":
            return {"prompts": [{"name": "greet", "arguments": [{"name": "who", "required": True}]}]}
        case "tools/call":
            return call(params["name"], params.get("arguments") or {})
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": "the lab's notes"}]}
        case "prompts/get":
            greeting = {"type": "text", "text": f"Hello {(params.get('arguments') or {})['who']}"}
            return {"messages": [{"role": "user", "content": greeting}]}
        case "ping" if not is_modern(params):
            return {}
        case _:
            return None


def is_modern(params: dict[str, Any]) -> bool:
    return f"{META}protocolVersion" in (params.get("_meta") or {})


writing = threading.Lock()
sleeping: dict[Any, threading.Timer] = {}


def send(message: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"))
    with writing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def answer(number: Any, method: str, params: dict[str, Any], found: dict[str, Any]) -> None:
    if is_modern(params):
        found = {**found, "resultType": "complete", "_meta": {f"{META}serverInfo": ABOUT}}
        if method not in ("tools/call", "prompts/get"):
            found |= {"cacheScope": "private", "ttlMs": 0}
    send({"id": number, "result": found})


def wake(number: Any, params: dict[str, Any]) -> None:
    if sleeping.pop(number, None) is not None:
        answer(number, "tools/call", params, texts("slept"))


def take(number: Any, method: str, params: dict[str, Any]) -> None:
    if method == "tools/call" and params["name"] == "sleep":
        timer = sleeping[number] = threading.Timer(params["arguments"]["seconds"], wake, (number, params))
        timer.daemon = True
        timer.start()
        return
    try:
        found = result(method, params)
    except Exception as error:
        failed = {"code": -32603, "message": "Internal server error"} if is_modern(params) else None
        send({"id": number, "error": failed or {"code": 0, "message": str(error)}})
        return
    if found is None:
        send({"id": number, "error": {"code": -32601, "message": "Method not found", "data": method}})
    else:
        answer(number, method, params, found)


def main() -> None:
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        params: dict[str, Any] = message.get("params") or {}
        if "id" in message:
            take(message["id"], message["method"], params)
        elif message["method"] == "notifications/cancelled" and (timer := sleeping.pop(params["requestId"], None)):
            timer.cancel()


if __name__ == "__main__":
    main()
