"""A server of the older era that answers with the `_meta` of the call. Standard library only."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOLS = [
    {"name": "meta", "description": "What came with this call.", "inputSchema": {"type": "object"}},
    {"name": "fail", "description": "Answer with an error.", "inputSchema": {"type": "object"}},
]


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    message: dict[str, Any] = json.loads(line)
    number: Any = message.get("id")
    params: dict[str, Any] = message.get("params") or {}
    match message.get("method"), params.get("name"):
        case "initialize", _:
            about: dict[str, Any] = {"capabilities": {"tools": {}}, "serverInfo": {"name": "trace", "version": "1"}}
            send({"id": number, "result": {"protocolVersion": "2025-11-25", **about}})
        case "tools/list", _:
            send({"id": number, "result": {"tools": TOOLS}})
        case "tools/call", "meta":
            text = json.dumps(params.get("_meta") or {})
            send({"id": number, "result": {"content": [{"type": "text", "text": text}]}})
        case "tools/call", _:
            send({"id": number, "error": {"code": -32000, "message": "the key sk-secret was refused"}})
        case _ if number is not None:
            send({"id": number, "error": {"code": -32601, "message": "Method not found"}})
        case _:
            pass
