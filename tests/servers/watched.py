"""A server whose resources can be subscribed to, in the way of 2025-11-25 or (flag `newer`) of 2026-07-28. It writes
what it is subscribed to into the file that it is started with; with `hasty` its streams end as soon as they are open,
with `silent` they are never acknowledged. Standard library only."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

LOG = Path(sys.argv[1])
NEWER = "newer" in sys.argv
VERSION = "2026-07-28" if NEWER else "2025-11-25"
ID = "io.modelcontextprotocol/subscriptionId"
NAMES = ("one", "two", "three", "shy")
TOUCH = {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}
TOOLS = [
    {"name": "touch", "inputSchema": TOUCH, "annotations": {"readOnlyHint": True}},
    {"name": "leave", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
]
COLOURS = ["red", "rose", "green"]
subscribed: list[str] = []
streams: dict[Any, list[str]] = {}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note() -> None:
    found = sorted(uri for stream in streams.values() for uri in stream) if NEWER else sorted(subscribed)
    whole = LOG.with_suffix(".tmp")
    whole.write_text(json.dumps(found))
    whole.replace(LOG)


def touch(uri: str) -> None:
    updated: dict[str, Any] = {"method": "notifications/resources/updated", "params": {"uri": uri}}
    if not NEWER:
        send(updated)
    for number, uris in streams.items():
        if any(uri.startswith(each) for each in uris):
            send({**updated, "params": {"uri": uri, "_meta": {ID: number}}})


def listen(number: Any, wanted: list[str]) -> None:
    streams[number] = [uri for uri in wanted if "shy" not in uri]
    note()
    if "silent" in sys.argv:
        return
    params = {"notifications": {"resourceSubscriptions": streams[number]}, "_meta": {ID: number}}
    send({"method": "notifications/subscriptions/acknowledged", "params": params})
    if "hasty" in sys.argv:
        send({"id": number, "result": {"_meta": {ID: number}}})


def completion(params: dict[str, Any]) -> dict[str, Any]:
    begun = params["argument"]["value"]
    known: dict[str, str] = params.get("context", {}).get("arguments", {})
    values = [f"{params['argument']['name']}={colour}{known.get('size', '')}" for colour in COLOURS]
    return {"completion": {"values": [each for each in values if each.partition("=")[2].startswith(begun)]}}


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    offers = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}}
    about = {"capabilities": offers, "serverInfo": {"name": "watched", "version": "1"}}
    match method:
        case "initialize" if not NEWER:
            return {"protocolVersion": VERSION, **about}
        case "server/discover" if NEWER:
            return {"supportedVersions": [VERSION], **about}
        case "tools/list":
            return {"tools": TOOLS}
        case "resources/list":
            return {"resources": [{"uri": f"w://{name}", "name": name} for name in NAMES]}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": "w://paint/{colour}", "name": "paint"}]}
        case "prompts/list":
            arguments = [{"name": "colour"}, {"name": "size"}]
            return {"prompts": [{"name": "paint", "arguments": arguments}]}
        case "completion/complete":
            return completion(params)
        case "tools/call" if params["name"] == "leave":
            os._exit(3)
        case "tools/call":
            touch(params["arguments"]["uri"])
            return {"content": [{"type": "text", "text": "touched"}]}
        case "resources/subscribe" if not NEWER and "shy" not in params["uri"]:
            subscribed.append(params["uri"])
            note()
            return {}
        case "resources/unsubscribe" if not NEWER:
            subscribed.remove(params["uri"])
            note()
            return {}
        case _:
            return None


def main() -> None:
    note()
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        params: dict[str, Any] = message.get("params") or {}
        if message["method"] == "notifications/cancelled" and params["requestId"] in streams:
            del streams[params["requestId"]]
            note()
        if "id" not in message:
            continue
        if message["method"] == "subscriptions/listen" and NEWER:
            listen(message["id"], params["notifications"].get("resourceSubscriptions", []))
            continue
        found = result(message["method"], params)
        if found is None:
            send({"id": message["id"], "error": {"code": -32602, "message": "not here"}})
        else:
            send({"id": message["id"], "result": {"resultType": "complete", **found} if NEWER else found})


if __name__ == "__main__":
    main()
