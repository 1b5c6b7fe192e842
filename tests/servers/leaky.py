"""A server that says its secrets aloud whenever something goes wrong. Standard library only."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

KEY = os.environ.get("SERVICE_KEY", "")


def reply(number: int, **answer: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": number, **answer}), flush=True)


def main() -> None:
    if "at-start" in sys.argv:
        sys.exit(f"cannot log in: {os.environ}")
    if "cut" in sys.argv:
        # Longer than what is kept of it, which therefore begins in the middle of a secret.
        sys.exit(f"{KEY} " * 100 + "this is the end of it, after what was kept and what was not")
    for line in sys.stdin:
        message = json.loads(line)
        number, params = message.get("id"), message.get("params", {})
        match message["method"]:
            case "initialize":
                info = {"name": "leaky", "version": "1"}
                version = params["protocolVersion"]
                reply(number, result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
            case "tools/list":
                names = ("refuse", "fail", "die", "mumble")
                reply(number, result={"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]})
            case "tools/call" if params["name"] == "refuse":
                reply(number, result={"content": [{"type": "text", "text": f"bad key {KEY}"}], "isError": True})
            case "tools/call" if params["name"] == "fail":
                reply(number, error={"code": -32000, "message": f"bad key {KEY}"})
            case "tools/call" if params["name"] == "die":
                print(f"bad key {KEY}", file=sys.stderr, flush=True)
                os._exit(3)
            case "tools/call":
                print(f"now I use {KEY}", flush=True)
                reply(number, result={"content": [{"type": "text", "text": "done"}]})
            case _ if number is not None:
                reply(number, error={"code": -32601, "message": "no such method"})
            case _:
                pass


main()
