"""A server with tools of every kind of harm, which writes each request into a file. Standard library only.

Started with the file's path. What really arrived is then read by the test, from outside.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

LEDGER = Path(sys.argv[1])
TEXT = {"type": "string"}


def tool(name: str, properties: dict[str, Any] | None = None, *, optional: str = "", **hints: bool) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": properties or {},
        "required": [one for one in properties or {} if one not in optional.split()],
        "additionalProperties": False,
    }
    return {"name": name, "description": f"Office work: {name}.", "inputSchema": schema, "annotations": hints}


TOOLS = [
    tool("read_note", {"path": TEXT}, readOnlyHint=True),
    tool("create_note", {"owner": {**TEXT, "default": "me"}, "text": TEXT}, optional="owner text"),
    tool("delete_note", {"id": {}}, optional="id"),
    tool("archive_all", destructiveHint=True),
    tool("remove_draft", destructiveHint=False, readOnlyHint=False),
    tool("send.mail", {"to": {"type": ["string", "array", "object", "null"]}}, openWorldHint=True),
    tool("send_mail", {"to": TEXT}),
    tool("rows", {"user_id": {"type": "integer"}, "table": TEXT}, readOnlyHint=True),
    tool(
        "move", {"force": {"type": "boolean", "default": True}, "filter": {"type": "object"}}, optional="force filter"
    ),
]
PROMPTS = [{"name": "letter", "arguments": [{"name": "to", "required": True}]}]
RESOURCES = [{"uri": "office://notes/a", "name": "a"}, {"uri": "office://secrets/b", "name": "b"}]


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            offers: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
            about = {"serverInfo": {"name": "office", "version": "1"}, "capabilities": offers}
            return {"protocolVersion": "2025-06-18", **about}
        case "tools/list":
            return {"tools": TOOLS}
        case "resources/list":
            return {"resources": RESOURCES}
        case "resources/templates/list":
            return {"resourceTemplates": []}
        case "prompts/list":
            return {"prompts": PROMPTS}
        case "tools/call":
            note(params["name"], params.get("arguments") or {})
            return {"content": [{"type": "text", "text": f"did {params['name']}"}]}
        case "resources/read":
            note(params["uri"], {})
            return {"contents": [{"uri": params["uri"], "text": "read"}]}
        case "prompts/get":
            note(params["name"], params.get("arguments") or {})
            return {"messages": [{"role": "user", "content": {"type": "text", "text": "written"}}]}
        case _:
            return None


def note(name: str, arguments: dict[str, Any]) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(json.dumps([name, arguments]) + "\n")


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
