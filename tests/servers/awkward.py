"""A server that does, on request, everything that servers do wrong. Standard library only.

Flags change how it starts, greets and lists; each tool is one way to misbehave. Some flags have a value: `burns=2`
uses two seconds of processor time before it reads anything, `sleeps=2` waits as long, `starts=FILE` adds a line to
FILE at each start, and `fails=3` ends with exit status 1 at the first three of those starts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

FLAGS = set(sys.argv[1:])
VALUES = dict(flag.split("=", 1) for flag in FLAGS if "=" in flag)
Reply = dict[str, Any] | None
lock = threading.Lock()
extra_tools: list[str] = []
cancelled: list[Any] = []
listings: list[int] = []


def write(data: bytes) -> None:
    with lock:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def send(message: dict[str, Any]) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def definition(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"{name} it", "inputSchema": {"type": "object"}}


def die(_: int, arguments: dict[str, Any]) -> Reply:
    print("I cannot go on", file=sys.stderr, flush=True)
    if arguments.get("signal"):
        os.kill(os.getpid(), arguments["signal"])
    os._exit(arguments.get("status", 7))


def leave_a_child_with_stdout(_: int, arguments: dict[str, Any]) -> Reply:
    """The parent dies in mid-call, and a child that inherited stdout keeps the pipe open."""
    subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL)
    os._exit(9)


def stop_reading(number: int, arguments: dict[str, Any]) -> Reply:
    """Lives on, and can be sent nothing more."""
    os.close(0)
    send({"id": number, "result": text("that is all")})
    time.sleep(600)
    return None


def hang(_: int, arguments: dict[str, Any]) -> Reply:
    return None


def late(number: int, arguments: dict[str, Any]) -> Reply:
    def answer() -> None:
        time.sleep(arguments["seconds"])
        send({"id": number, "result": text("late")})

    threading.Thread(target=answer, daemon=True).start()
    return None


def big(number: int, arguments: dict[str, Any]) -> Reply:
    """One line, written in pieces so that this process stays small."""
    with lock:
        out = sys.stdout.buffer
        out.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % number)
        piece = b"x" * 1_000_000
        for _ in range(arguments["megabytes"]):
            out.write(piece)
        out.write(b'"}]}}\n')
        out.flush()
    return None


def many(_: int, arguments: dict[str, Any]) -> Reply:
    """The same amount in lines of 100 kB that nobody asked for, then the answer."""
    line = {"method": "notifications/message", "params": {"level": "info", "data": "y" * 100_000}}
    data = json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n"
    for _ in range(arguments["megabytes"] * 10):
        write(data)
    return text("done")


def junk(number: int, arguments: dict[str, Any]) -> Reply:
    write(b'Loading...\n\n\xff\xfe\x00 not text\n{"half": \n[1, 2]\n"a string"\nnull\n{}\n')
    write(b'{"jsonrpc":"2.0","method":"unknown/thing"}\n{"jsonrpc":"2.0","id":999999,"result":{}}\n')
    write(b"no newline here> ")
    send({"id": number, "result": text("still here")})
    return None


def flood(_: int, arguments: dict[str, Any]) -> Reply:
    line = b"e" * 999 + b"\n"
    for _ in range(arguments["megabytes"] * 1000):
        sys.stderr.buffer.write(line)
    sys.stderr.buffer.flush()
    return text("flooded")


def family(_: int, arguments: dict[str, Any]) -> Reply:
    """Children that try to outlive us: a grandchild, one in a session of its own, a daemon, one that is deaf."""
    grandchild = (
        "import subprocess,time; p=subprocess.Popen(['sleep','300']); print(p.pid, flush=True); time.sleep(300)"
    )
    daemon = "import os,time\nif os.fork(): os._exit(0)\nos.setsid()\nprint(os.getpid(), flush=True)\ntime.sleep(300)"
    deaf = (
        "import signal,time\nfor s in (1,2,15): signal.signal(s, signal.SIG_IGN)\n"
        "import os; print(os.getpid(), flush=True)\ntime.sleep(300)"
    )
    bare: dict[str, str] = {}
    pids: list[int] = []
    for code, env, new in ((grandchild, None, False), (daemon, bare, True), (deaf, None, True), (deaf, bare, False)):
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=env,
            start_new_session=new,
        )
        assert child.stdout is not None
        pids.append(child.pid)
        pids.append(int(child.stdout.readline()))
    return text(json.dumps([os.getpid(), *pids]))


def change(_: int, arguments: dict[str, Any]) -> Reply:
    extra_tools.append(arguments["name"])
    for _ in range(arguments.get("times", 1)):
        send({"method": "notifications/tools/list_changed"})
    return text("changed")


def nonsense(number: int, arguments: dict[str, Any]) -> Reply:
    match arguments["kind"]:
        case "result is a list":
            write(b'{"jsonrpc":"2.0","id":%d,"result":[1,2]}\n' % number)
        case "no result":
            write(b'{"jsonrpc":"2.0","id":%d,"result":null}\n' % number)
        case "too deep":
            depth = 100_000
            body = b"[" * depth + b"]" * depth
            write(b'{"jsonrpc":"2.0","id":%d,"result":{"x":%s}}\n' % (number, body))
        case "broken text":
            write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"\xff"}]}}\n' % number)
        case "content is a number":
            return {"content": 3}
        case _:
            return {"content": [{"type": "text"}, {"type": "hologram", "depth": 3}]}
    return None


def progress(number: int, arguments: dict[str, Any]) -> Reply:
    token = arguments.get("token", number)
    for step in (1, 2):
        params = {"progressToken": token, "progress": step, "total": 2, "message": f"step {step}"}
        send({"method": "notifications/progress", "params": params})
    return text("done")


def everything(_: int, arguments: dict[str, Any]) -> Reply:
    resource = {"uri": "memo://a/b.txt", "mimeType": "text/plain", "text": "inside"}
    blob = {"uri": "memo://a/c.bin", "blob": "AAEC"}
    return {
        "content": [
            {"type": "text", "text": "plain"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": resource},
            {"type": "resource", "resource": blob},
            {"type": "resource_link", "uri": "memo://d", "name": "d", "description": "a link", "mimeType": "text/x"},
        ],
        "structuredContent": {"n": 1},
    }


TOOLS: dict[str, Callable[[int, dict[str, Any]], Reply]] = {
    "echo": lambda _, arguments: text(json.dumps(arguments)),
    "pid": lambda _, arguments: text(str(os.getpid())),
    "environment": lambda _, arguments: text(json.dumps(dict(os.environ))),
    "cancelled": lambda _, arguments: text(json.dumps(cancelled)),
    "refuse": lambda _, arguments: {**text("not today"), "isError": True},
    "null": lambda _, arguments: {**text(""), "structuredContent": None},
    "batch": lambda number, arguments: write(b'[{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}]\n' % number),
    "die": die,
    "leave_a_child_with_stdout": leave_a_child_with_stdout,
    "hang": hang,
    "stop_reading": stop_reading,
    "late": late,
    "big": big,
    "many": many,
    "junk": junk,
    "flood": flood,
    "family": family,
    "change": change,
    "nonsense": nonsense,
    "progress": progress,
    "everything": everything,
}

INVALID: list[Any] = [
    definition("good"),
    {"description": "nobody", "inputSchema": {"type": "object"}},
    {"name": 7, "inputSchema": {}},
    {"name": ""},
    "a string",
    None,
    {"name": "no_schema"},
    {"name": "list_schema", "inputSchema": [1]},
    {"name": "wrong_type", "inputSchema": {"type": "objekt", "properties": {"a": {"type": "strin"}}}},
    {"name": "wrong_details", "description": 5, "title": [], "annotations": "x", "inputSchema": {}, "outputSchema": 3},
    definition("good"),
    definition("last"),
]


def tools_page(cursor: str | None) -> dict[str, Any]:
    if "invalid-tools" in FLAGS:
        return {"tools": INVALID}
    if "same-cursor" in FLAGS:
        return {"tools": [definition("again")], "nextCursor": "same"}
    if "endless" in FLAGS:
        page = int(cursor or 0)
        return {"tools": [definition(f"t{page}")], "nextCursor": str(page + 1)}
    if "heavy-pages" in FLAGS:
        page = int(cursor or 0)
        return {"tools": [definition(f"t{page}") | {"description": "x" * 4_000_000}], "nextCursor": str(page + 1)}
    if "pages" in FLAGS:
        page = int(cursor or 0)
        found: dict[str, Any] = {"tools": [definition(f"t{page}{letter}") for letter in "ab"]}
        return found | ({"nextCursor": str(page + 1)} if page < 4 else {})
    return {"tools": [definition(name) for name in [*TOOLS, *extra_tools]]}


def listed_at_once(number: int) -> Reply:
    """The tools change before the first listing ends, and it ends after the second."""
    listings.append(number)
    if len(listings) == 1:
        return change(number, {"name": "brand_new"}) and None
    for each in reversed(listings):
        send({"id": each, "result": {"prompts": []}})
    return None


def answer(number: int, method: str, params: dict[str, Any]) -> Reply:
    match method:
        case "initialize":
            capabilities = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}
            if "no-tools" in FLAGS:
                del capabilities["tools"]
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": capabilities,
                "serverInfo": {"name": "toolfold" if "is-toolfold" in FLAGS else "awkward", "version": "1"},
                "instructions": "Be careful.",
            }
        case "tools/list" if "no-tools" not in FLAGS:
            return tools_page(params.get("cursor"))
        case "tools/call":
            return TOOLS[params["name"]](number, params.get("arguments") or {})
        case "resources/list":
            return {"resources": [{"uri": "memo://a/b.txt", "name": "b", "mimeType": "text/plain"}, {"name": "lost"}]}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": "memo://{x}", "name": "any"}]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": "read"}, {"uri": "memo://a/c.bin", "blob": "AAEC"}]}
        case "prompts/list" if "changes-while-listed" in FLAGS and len(listings) < 2:
            return listed_at_once(number)
        case "prompts/list":
            arguments = [{"name": "who", "required": True}, {"description": "nameless"}]
            return {"prompts": [{"name": "greet", "arguments": arguments}, {"arguments": []}]}
        case "prompts/get":
            who = params["arguments"]["who"]
            return {"messages": [{"role": "user", "content": {"type": "text", "text": f"Hello {who}"}}]}
        case _:
            raise KeyError(method)


def greeted(method: str) -> bool:
    """Before `initialize`, an older server may take any other method badly. False: do not answer."""
    if "never-answers" in FLAGS:
        return False
    if method != "initialize":
        if "dies-on-probe" in FLAGS:
            print("unexpected message before initialize", file=sys.stderr, flush=True)
            os._exit(1)
        if "hangs-on-probe" in FLAGS:
            time.sleep(600)
        if "silent-on-probe" in FLAGS:
            FLAGS.add("never-answers")
            return False
    return True


def start() -> None:
    if "starts" in VALUES:
        with open(VALUES["starts"], "a+", encoding="utf-8") as starts:  # noqa: PTH123
            starts.write(f"{os.getpid()}\n")
            starts.seek(0)
            number = len(starts.readlines())
        if number <= int(VALUES.get("fails", 0)):
            print(f"start number {number} fails", file=sys.stderr, flush=True)
            sys.exit(1)
    time.sleep(float(VALUES.get("sleeps", 0)))
    while time.process_time() < float(VALUES.get("burns", 0)):
        pass


def main() -> None:
    start()
    if "banner" in FLAGS:
        write(b"\x1b[32mAwkward v1\x1b[0m\nlistening on stdio\n")
    if "deaf" in FLAGS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "closes-stdout" in FLAGS:
        os.close(1)
    ready = False
    for line in sys.stdin:
        request = json.loads(line)
        method = request["method"]
        if "id" not in request:
            if method == "notifications/cancelled":
                cancelled.append(request["params"]["requestId"])
            continue
        if not ready and not greeted(method):
            continue
        ready = ready or method == "initialize"
        number = request["id"]
        try:
            params = request.get("params", {})
            if params.get("name") == "progress":
                params["arguments"] = {"token": params["_meta"]["progressToken"]}
            result = answer(number, method, params)
        except (KeyError, ValueError) as error:
            send({"id": number, "error": {"code": -32601, "message": f"Method not found: {error}"}})
            continue
        if result is not None:
            send({"id": number, "result": result})
    if "stays" in FLAGS:
        time.sleep(600)


if __name__ == "__main__":
    main()
