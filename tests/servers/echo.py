"""A plain server written to the older protocol, in the standard library. The others here misbehave."""

from __future__ import annotations

import json
import sys
from typing import Any


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"{name} it", "inputSchema": {"type": "object"}}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    params = request.get("params", {})
    match request["method"]:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "echo", "version": "1"},
                "instructions": "Say something.",
            }
        case "tools/list":
            return {"tools": [tool("echo")]}
        case "tools/call":
            return {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}
        case _:
            raise KeyError(request["method"])


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            reply["result"] = answer(request)
        except KeyError as error:
            reply["error"] = {"code": -32601, "message": f"Method not found: {error}"}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
