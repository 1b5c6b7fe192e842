"""What a user of `scripts/bench load` sends, and how its answers are checked. Standard library only: locust's own
environment has nothing else of ours.

A user speaks one of the two revisions of MCP over streamable HTTP and runs programs in a session of its own, one after
the other, with a pause for thinking. Every answer is compared with the one that is right, so that a program that ran in
another user's session, twice, or not at all is an error.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable
from typing import Any, NamedTuple

OLDER, NEWER = "2025-11-25", "2026-07-28"
TRIVIAL = "trivial"
_CLIENT = {"name": "load", "version": "1"}
_META = {
    f"io.modelcontextprotocol/{key}": value
    for key, value in (("protocolVersion", NEWER), ("clientCapabilities", {}), ("clientInfo", _CLIENT))
}
_ids = itertools.count(1)


class Task(NamedTuple):
    """One tool call: what is sent, and what the answer must match."""

    name: str
    tool: str
    arguments: dict[str, Any]
    expected: str


def message(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """A request, or a notification where the method is one."""
    if method.startswith("notifications/"):
        return {"jsonrpc": "2.0", "method": method}
    return {"jsonrpc": "2.0", "id": next(_ids), "method": method, "params": params or {}}


def greeting() -> list[dict[str, Any]]:
    """What opens a connection of 2025-11-25."""
    hello = {"protocolVersion": OLDER, "capabilities": {}, "clientInfo": _CLIENT}
    return [message("initialize", hello), message("notifications/initialized")]


def call(task: Task, revision: str) -> dict[str, Any]:
    params: dict[str, Any] = {"name": task.tool, "arguments": task.arguments}
    return message("tools/call", params | ({"_meta": _META} if revision == NEWER else {}))


def headers(sent: dict[str, Any], revision: str, token: str, session: str = "") -> dict[str, str]:
    """The headers of one POST; `session` is what the server named the connection of 2025-11-25."""
    made = {
        "authorization": f"Bearer {token}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
    }
    if revision == NEWER:
        return made | {"mcp-protocol-version": NEWER, "mcp-method": sent["method"], "mcp-name": sent["params"]["name"]}
    return made | ({"mcp-session-id": session, "mcp-protocol-version": OLDER} if session else {})


def answer(body: str) -> dict[str, Any]:
    """The JSON-RPC answer in a body, which is JSON or a stream of events; ValueError when there is none."""
    events = re.findall(r"^data: (.*?)\r?$", body, re.MULTILINE)
    for text in reversed(events or [body]):
        found = json.loads(text)
        if "result" in found or "error" in found:
            return found
    raise ValueError(f"no answer in {body[:200]!r}")


def problem(task: Task, sent: dict[str, Any], status: int, body: str) -> str:
    """What is wrong with the answer; empty when it is the right one."""
    if status != 200:
        return f"HTTP {status}: {body[:200]}"
    try:
        found = answer(body)
    except ValueError as error:
        return f"invalid response: {error}"
    if "error" in found:
        return f"error {found['error']}"
    if found.get("id") != sent["id"]:
        return f"the answer to another request: {found.get('id')} for {sent['id']}"
    text = "\n".join(block.get("text", "") for block in found["result"].get("content", []))
    if found["result"].get("isError"):
        return f"failed: {text[:200]}"
    if not re.search(task.expected, text):
        return f"expected {task.expected!r}, got {text[:200]!r}"
    return ""


class Script:
    """The tasks of one user, in an order that its number decides. A loaded gateway sees all kinds at any time."""

    def __init__(self, number: int) -> None:
        self.session = f"user-{number}"
        self.revision = OLDER if number % 2 else NEWER
        self._chance = random.Random(number)
        self._count = 0
        self._turn = number

    def first(self) -> Task:
        """Opens the session, and gives it a variable that only it has."""
        self._count = 0
        return self._run("first run", f"mine, count = {self.session!r}, 0\nprint(mine)", self.session)

    def trivial(self) -> Task:
        return self._run(TRIVIAL, "1", "^1$")

    def next(self) -> Task:
        kinds, weights = zip(*_MIX, strict=True)
        return self._chance.choices(kinds, weights)[0](self)

    def each(self) -> Task:
        """One kind after the other; users begin at different ones."""
        self._turn += 1
        return _MIX[self._turn % len(_MIX)][0](self)

    def variable(self) -> Task:
        self._count += 1
        return self._run("variables", "count += 1\nprint(mine, count)", f"^{self.session} {self._count}$")

    def one_call(self) -> Task:
        code = (
            "from servers.slack import post_message\n"
            f"print((await post_message(channel='#general', text='hello from {self.session}'))['ts'])"
        )
        return self._run("one call", code, r"^\d+\.\d+$")

    def gathered(self) -> Task:
        code = (
            "import asyncio\nfrom servers.slack import get_channel_history\n"
            "found = await asyncio.gather(*[get_channel_history(channel='#sales', limit=3) for _ in range(10)])\n"
            "print(len(found), {len(each['messages']) for each in found})"
        )
        return self._run("ten calls at once", code, r"^10 \{3\}$")

    def two_servers(self) -> Task:
        code = (
            "from servers.github import search_repositories\nfrom servers.supabase import execute_sql\n"
            "rows = await execute_sql(query='SELECT count(*) AS n FROM expenses')\n"
            "found = await search_repositories(query='webhook', per_page=2)\n"
            "print(rows[0]['n'] > 0, len(found['items']))"
        )
        return self._run("two servers", code, "^True 2$")

    def rows(self) -> Task:
        code = (
            "from servers.google_drive import get_sheet\nsheet = await get_sheet(sheet_id='orders-2026')\n"
            "print(sum(row['status'] == 'pending' for row in sheet['rows']), 'of', sheet['row_count'])"
        )
        return self._run("10,000 rows", code, "^701 of 10000$")

    def file(self) -> Task:
        code = "from pathlib import Path\nnote = Path('workspace/note')\nnote.write_text(mine)\nprint(note.read_text())"
        return self._run("a file", code, f"^{self.session}$")

    def search(self) -> Task:
        arguments = {"query": "post a message to a channel", "limit": 3}
        return Task("search", "search_tools", arguments, "from servers.slack import post_message")

    def fresh(self) -> Task:
        return Task("fresh sandbox", "run_code", {"code": "print(sum(range(100)))"}, "^4950$")

    def _run(self, name: str, code: str, expected: str) -> Task:
        return Task(name, "run_code", {"code": code, "session": self.session}, expected)


_MIX: list[tuple[Callable[[Script], Task], int]] = [
    (Script.trivial, 30),
    (Script.variable, 15),
    (Script.one_call, 20),
    (Script.gathered, 10),
    (Script.two_servers, 10),
    (Script.rows, 1),
    (Script.file, 6),
    (Script.search, 6),
    (Script.fresh, 2),
]
"""Kinds and how many of a hundred runs they are."""
