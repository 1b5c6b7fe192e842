"""A server whose tools are what a file says at the moment it is asked. Standard library only; started with its path."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TOOLS = Path(sys.argv[1])


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        number: Any = message.get("id")
        match message.get("method"):
            case "initialize":
                about: dict[str, Any] = {
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": "changing", "version": "1"},
                }
                send({"id": number, "result": {"protocolVersion": "2025-06-18", **about}})
            case "tools/list":
                send({"id": number, "result": {"tools": json.loads(TOOLS.read_text())}})
            case "tools/call":
                send({"id": number, "result": {"content": [{"type": "text", "text": "called"}]}})
            case _ if number is not None:
                send({"id": number, "error": {"code": -32601, "message": "Method not found"}})
            case _:
                pass


if __name__ == "__main__":
    main()
