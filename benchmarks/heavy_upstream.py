"""An MCP server (standard library only) whose tool `lists` answers at once with 9 MB: three million empty lists."""

from __future__ import annotations

import json
import sys
from typing import Any

_LISTS = b"[" + b",".join([b"[]"] * 3_000_000) + b"]"
_TOOLS: dict[str, dict[str, Any]] = {
    "lists": {},
    "take": {"value": {}},
    "strict": {"rows": {"type": "array", "items": {"type": "string", "maxLength": 3}}},
}


def _answer(request: dict[str, Any]) -> bytes:
    match request["method"]:
        case "initialize":
            info = {"name": "heavy", "version": "1"}
            version = request["params"]["protocolVersion"]
            return json.dumps({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}).encode()
        case "tools/list":
            tools = [
                {"name": name, "inputSchema": {"type": "object", "properties": properties, "required": [*properties]}}
                for name, properties in _TOOLS.items()
            ]
            return json.dumps({"tools": tools}).encode()
        case "tools/call" if request["params"]["name"] == "lists":
            return b'{"content":[],"structuredContent":{"rows":%b}}' % _LISTS
        case _:
            return b'{"content":[]}'


def main() -> None:
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "id" not in request:
            continue
        if request["method"] in ("initialize", "tools/list", "tools/call", "ping"):
            body = b'"result":%b' % _answer(request)
        else:
            body = b'"error":{"code":-32601,"message":"Method not found"}'
        sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%d,%b}\n' % (request["id"], body))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
