"""Real MCP clients that use the gateway all the time, and keep book of what it has acknowledged."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

from mcp import Client

APPEND = """
with open("workspace/log", "a") as log:
    log.write("{number}\\n")
count = globals().get("count", 0) + 1
print("done {number}")
"""
NOTE = """
from servers.ledger import note
await note(text="{number}")
print("done {number}")
"""
GATHER = """
import asyncio
from servers.lab import add
print(sum(each["sum"] for each in await asyncio.gather(*[add(a=n, b=1) for n in range(20)])))
"""
OTHERS = {
    "fine": "print(sum(range(1000)))",
    "long output": "print('x' * 40_000)",
    "gather": GATHER,
    "crash": "import os; os._exit(3)",
    "error": "1 / 0",
    "timeout": "while True: pass",
    "large file": "open('workspace/large', 'wb').write(b'x' * 3_000_000)",
    "search": "from toolfold import search_tools\nprint(len(search_tools('add numbers')))",
}
SLOW = "import time; time.sleep(30)"
CONNECT_TIMEOUT = 10.0
CALL_TIMEOUT = 60.0


@dataclass
class Book:
    """What the clients know."""

    appended: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """Session → numbers whose writing to a file was acknowledged."""
    noted: list[int] = field(default_factory=list[int])
    """Calls of a server that were acknowledged."""
    endings: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    """Answers that should never be given."""


class Load:
    def __init__(self, url: str, seed: int) -> None:
        self.book = Book()
        self._url = url
        self._seed = seed
        self._numbers = itertools.count(1)
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, clients: int) -> None:
        self._tasks = [asyncio.create_task(self._client(number)) for number in range(clients)]

    async def stop(self) -> None:
        """Let every client finish what it does."""
        self._stopping.set()
        await asyncio.gather(*self._tasks)

    async def _client(self, number: int) -> None:
        random_ = random.Random(f"{self._seed}-{number}")
        while not self._stopping.is_set():
            try:
                async with asyncio.timeout(CALL_TIMEOUT), Client(self._url) as client:
                    for _ in range(random_.randrange(1, 20)):
                        if self._stopping.is_set():
                            return
                        await self._act(client, number, random_)
            except Exception as error:
                # The gateway or the connection went away.
                self.book.endings[f"connection: {_named(error)}"] += 1
                await asyncio.sleep(0.05)

    async def _act(self, client: Client, owner: int, random_: random.Random) -> None:
        number = next(self._numbers)
        kind = random_.choices(["append", "note", "other", "cancel", "search"], [5, 4, 6, 1, 2])[0]
        match kind:
            case "append":
                # Each session belongs to one client, so that lost variables and files are its own.
                session = f"client-{owner}-{random_.randrange(2)}"
                if await self._run(client, APPEND.format(number=number), session) == f"done {number}":
                    self.book.appended.setdefault(session, []).append(number)
            case "note":
                if await self._run(client, NOTE.format(number=number), None) == f"done {number}":
                    self.book.noted.append(number)
            case "cancel":
                run = asyncio.create_task(self._run(client, SLOW, random_.choice([None, f"slow-{owner}"])))
                try:
                    await asyncio.wait([run], timeout=random_.uniform(0.01, 0.3))
                finally:
                    run.cancel()
                    await asyncio.gather(run, return_exceptions=True)
                self.book.endings["cancelled"] += 1
            case "search":
                answer: Any = await client.call_tool("search_tools", {"query": "add two numbers"})
                if "lab" not in answer.content[0].text:
                    self.book.endings["search without the server"] += 1
            case _:
                name = random_.choice(list(OTHERS))
                await self._run(client, OTHERS[name], random_.choice([None, None, f"other-{owner}"]))

    async def _run(self, client: Client, code: str, session: str | None) -> str:
        """The text of the answer when the program succeeded, else nothing."""
        arguments = {"code": code} if session is None else {"code": code, "session": session}
        answer: Any = await client.call_tool("run_code", arguments)
        text = "".join(part.text for part in answer.content)
        if answer.is_error:
            self.book.endings[text.strip().splitlines()[-1][:60] if text.strip() else "empty error"] += 1
            if "Traceback" in text and "toolfold/" in text:
                self.book.wrong.append(text)
            return ""
        self.book.endings["went well"] += 1
        # A notice about what was lost comes before the output.
        return text.strip().splitlines()[-1] if text.strip() else ""


def _named(error: BaseException) -> str:
    inner = cast("tuple[BaseException, ...]", getattr(error, "exceptions", ()))
    return _named(inner[0]) if inner else type(error).__name__
