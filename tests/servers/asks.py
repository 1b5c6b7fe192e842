"""A server that asks its client things while it works on a call, in the way of 2025-11-25 or (flag `newer`) of
2026-07-28. Standard library only, so that it starts fast.

Tools that need a task (`dig`, and `dig_forever`) run as 2025-11-25 says. `calls=FILE` adds a line to FILE for each
request and notification that arrives.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

FLAGS = set(sys.argv[1:])
VALUES = dict(flag.split("=", 1) for flag in FLAGS if "=" in flag)
NEWER = "newer" in FLAGS
VERSION = "2026-07-28" if NEWER else "2025-11-25"
FORM = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "title": "City", "minLength": 2},
        "nights": {"type": "integer", "minimum": 1, "maximum": 30, "default": 2},
        "smoking": {"type": "boolean", "default": False},
        "room": {"type": "string", "enum": ["s", "d"], "enumNames": ["Single <room>", "Double"]},
    },
    "required": ["city", "room"],
}
URL = "https://pay.example/checkout?id=7&to=<x>"
lock = threading.Lock()
answers: dict[str, queue.Queue[dict[str, Any]]] = {}
tasks: dict[str, dict[str, Any]] = {}
client: dict[str, Any] = {}
opened = threading.Event()


def send(message: dict[str, Any]) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def note(line: str) -> None:
    if "calls" in VALUES:
        with lock, Path(VALUES["calls"]).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def text(value: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


class Refused(Exception):
    """An error answer."""


def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """A request of ours to the client, and its answer."""
    number = f"ask-{len(answers)}"
    answers[number] = queue.Queue()
    send({"id": number, "method": method, "params": params})
    return answers[number].get(timeout=60)


def form_params(arguments: dict[str, Any]) -> dict[str, Any]:
    message = arguments.get("message", "Where do you want to stay?")
    return {"mode": "form", "message": message, "requestedSchema": arguments.get("schema") or FORM}


def asked(request: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    """The client's answer to a request, whichever way the era asks. May raise Again."""
    if not NEWER:
        return ask(request["method"], request["params"])
    responses = params.get("inputResponses")
    if responses is None:
        raise Again(request)
    assert params["requestState"] == "state of the call"
    return {"result": responses["key"]}


class Again(Exception):
    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request


def call(name: str, arguments: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:  # noqa: PLR0912
    match name:
        case "plain":
            return text("plain")
        case "capabilities":
            return text(client | {"now": params.get("_meta", {}).get("io.modelcontextprotocol/clientCapabilities")})
        case "form":
            answer = asked({"method": "elicitation/create", "params": form_params(arguments)}, params)
            return text(answer.get("result") or answer)
        case "url":
            where = {"mode": "url", "message": "Pay here.", "url": arguments.get("url", URL), "elicitationId": "e1"}
            answer = asked({"method": "elicitation/create", "params": where}, params)
            return text(answer.get("result") or answer)
        case "many":
            found = [ask("elicitation/create", form_params(arguments)) for _ in range(arguments["times"])]
            return text([each.get("result", {}).get("action") for each in found])
        case "seat":
            if not opened.is_set():
                opened.set()
                where = {"mode": "url", "message": "Sign in first.", "url": URL, "elicitationId": "e2"}
                raise Refused({"code": -32042, "message": "sign in", "data": {"elicitations": [where]}})
            return text("seated")
        case "hold":
            note("holding")
            release.wait(60)
            return text("held")
        case "release":
            release.set()
            return text("released")
        case "sample":
            message = {"role": "user", "content": {"type": "text", "text": "hi"}}
            answer = asked(
                {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 5}}, params
            )
            return text(answer)
        case "roots":
            answer = asked({"method": "roots/list", "params": {}}, params)
            return text(answer.get("result") or answer)
        case "announce":
            for _ in range(arguments["times"]):
                send({"method": "notifications/tools/list_changed"})
                time.sleep(0.01)
            return text("announced")
        case "log":
            for number in range(arguments.get("times", 1)):
                data = {"level": "warning", "logger": "boiler", "data": f"pressure {number}"}
                send({"method": "notifications/message", "params": data})
            return text("logged")
        case _:
            raise KeyError(name)


release = threading.Event()


def task_call(name: str, arguments: dict[str, Any], token: Any) -> dict[str, Any]:
    number = f"task-{len(tasks)}"
    task: dict[str, Any] = {"taskId": number, "status": "working", "statusMessage": "started", "pollInterval": 20}
    task |= {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": 60_000}
    tasks[number] = {"task": task, "polls": 0, "name": name, "arguments": arguments, "token": token}
    return {"task": task}


def polled(state: dict[str, Any]) -> dict[str, Any]:
    task = state["task"]
    state["polls"] += 1
    if state["name"] == "dig_forever" or task["status"] == "cancelled":
        return task
    task["statusMessage"] = f"{state['polls']} metres deep"
    if state["token"] is not None:
        progress = {"progressToken": state["token"], "progress": state["polls"], "total": 3, "message": "digging"}
        send({"method": "notifications/progress", "params": progress})
    if state["name"] == "dig_and_ask" and state["polls"] == 2:
        task["status"] = "input_required"
    elif state["polls"] >= 3:
        task["status"] = "failed" if state["arguments"].get("fails") else "completed"
    return task


def task_result(state: dict[str, Any]) -> dict[str, Any]:
    if state["name"] == "dig_and_ask":
        related = {"io.modelcontextprotocol/related-task": {"taskId": state["task"]["taskId"]}}
        answer = ask("elicitation/create", {**form_params({}), "_meta": related})
        state["task"]["status"] = "completed"
        return text(answer["result"])
    if state["task"]["status"] == "failed":
        return {**text("hit a rock"), "isError": True}
    return {"content": [], "structuredContent": {"metres": state["polls"]}}


def definition(name: str) -> dict[str, Any]:
    taken: dict[str, Any] = {"schema": {"type": "object"}, "message": {"type": "string"}, "url": {"type": "string"}}
    taken |= {"times": {"type": "integer"}, "fails": {"type": "boolean"}}
    schema = {"type": "object", "properties": taken}
    found: dict[str, Any] = {"name": name, "description": f"{name} it", "inputSchema": schema}
    if name.startswith("dig"):
        found["execution"] = {"taskSupport": "required"}
    return found


TOOLS = [
    "plain",
    "capabilities",
    "form",
    "url",
    "many",
    "seat",
    "hold",
    "release",
    "sample",
    "roots",
    "log",
    "announce",
]
DIGGING = ["dig", "dig_and_ask", "dig_forever"]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "server/discover" if NEWER:
            capabilities = {"tools": {}, "logging": {}}
            info = {"name": "asks", "version": "1"}
            return {"supportedVersions": [VERSION], "capabilities": capabilities, "serverInfo": info}
        case "initialize" if not NEWER:
            client.update(params["capabilities"])
            capabilities: dict[str, Any] = {"tools": {}, "logging": {}}
            if "no-tasks" not in FLAGS:
                capabilities["tasks"] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
            info = {"name": "asks", "version": "1"}
            return {"protocolVersion": VERSION, "capabilities": capabilities, "serverInfo": info}
        case "tools/list":
            return {"tools": [definition(name) for name in (TOOLS if NEWER else [*TOOLS, *DIGGING])]}
        case "tools/call" if params["name"] in DIGGING:
            if "task" not in params:
                raise Refused({"code": -32601, "message": "this tool runs as a task only"})
            return task_call(params["name"], params["arguments"], params.get("_meta", {}).get("progressToken"))
        case "tools/call":
            try:
                return call(params["name"], params.get("arguments") or {}, params)
            except Again as again:
                return {
                    "resultType": "input_required",
                    "inputRequests": {"key": again.request},
                    "requestState": "state of the call",
                }
        case "tasks/get":
            return polled(tasks[params["taskId"]])
        case "tasks/result":
            return task_result(tasks[params["taskId"]])
        case "tasks/cancel":
            task = tasks[params["taskId"]]["task"]
            task["status"] = "cancelled"
            return task
        case _:
            raise KeyError(method)


def handle(message: dict[str, Any]) -> None:
    try:
        result = answer(message["method"], message.get("params") or {})
        if NEWER:
            result = {"resultType": "complete", **result}
        send({"id": message["id"], "result": result})
    except Refused as refused:
        send({"id": message["id"], "error": refused.args[0]})
    except KeyError as error:
        send({"id": message["id"], "error": {"code": -32601, "message": f"no {error}"}})


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            answers[message["id"]].put(message)
            continue
        note(message["method"])
        if "id" in message:
            threading.Thread(target=handle, args=(message,), daemon=True).start()


if __name__ == "__main__":
    main()
