"""A server that writes every call it gets into a file, as it came over the wire. Standard library only.

Started with the file's path. What a program did is then read by the test, from outside.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

LEDGER = Path(sys.argv[1])
waiting: list[Any] = []

AWKWARD_NAMES = [
    "name",
    "args",
    "kwargs",
    "self",
    "kind",
    "class",
    "from",
    "async",
    "tool",
    "server",
    "not-legal",
    "1st",
]


def tool(name: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    properties = required | (optional or {})
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": f"Write down: {name}.", "inputSchema": schema}


TEXT = {"type": "string"}
TOOLS = [
    tool("note", {"text": TEXT}, {"tag": TEXT, "amount": {"type": "number", "default": 3}}),
    tool("note_then_die", {"text": TEXT}),
    tool("together", {"count": {"type": "integer"}}),
    tool("fail", {"text": TEXT}),
    tool("awkward", {}, dict.fromkeys(AWKWARD_NAMES, TEXT)),
    tool("echo", {"text": TEXT}),
]


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(number: Any, text: str, *, error: bool = False) -> None:
    send({"id": number, "result": {"content": [{"type": "text", "text": text}], "isError": error}})


def call(number: Any, name: str, arguments: dict[str, Any]) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(json.dumps({"tool": name, "arguments": arguments}) + "\n")
    match name:
        case "note_then_die":
            os._exit(3)
        case "together":
            # Nobody is answered before so many calls are open at the same time.
            waiting.append(number)
            if len(waiting) == arguments["count"]:
                for each in waiting:
                    answer(each, "met")
                waiting.clear()
        case "fail":
            answer(number, arguments["text"], error=True)
        case "echo":
            answer(number, arguments["text"])
        case _:
            answer(number, "noted")


def main() -> None:
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        number: Any = message.get("id")
        params: dict[str, Any] = message.get("params") or {}
        match message.get("method"):
            case "initialize":
                about: dict[str, Any] = {
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "ledger", "version": "1"},
                }
                send({"id": number, "result": {"protocolVersion": "2025-06-18", **about}})
            case "tools/list":
                send({"id": number, "result": {"tools": TOOLS}})
            case "tools/call":
                call(number, params["name"], params.get("arguments") or {})
            case _ if number is not None:
                send({"id": number, "error": {"code": -32601, "message": "Method not found"}})
            case _:
                pass


if __name__ == "__main__":
    main()
