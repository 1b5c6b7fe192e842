"""Two agents, one gateway: a planner hands work to a worker through a session that it shares, and reads what came back.

Run it: python examples/planner_and_worker.py
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

TOKENS = {name: secrets.token_urlsafe(32) for name in ("planner", "worker")}

PLANS = """
from toolfold import keep
tasks = [{"text": "the fold is thin"}, {"text": "two tools"}]
open("workspace/brief.md", "w").write("Count the words of every task.")
keep("tasks", tasks)
print(len(tasks), "tasks")
"""
WORKS = """
from toolfold import keep, kept
print(open("workspace/brief.md").read())
done = [{**task, "words": len(task["text"].split())} for task in kept["tasks"]]
keep("done", done)
print("counted", len(done))
"""
READS = """
from toolfold import kept
print([task["words"] for task in kept["done"]])
"""


async def main() -> None:
    with TemporaryDirectory() as folder:
        data = Path(folder)
        callers = {name: {"token_sha256": hashlib.sha256(token.encode()).hexdigest()} for name, token in TOKENS.items()}
        (data / "toolfold.json").write_text(json.dumps({"servers": {}, "callers": callers}))
        async with gateway(data) as url, agent(url, "planner") as planner, agent(url, "worker") as worker:
            print("planner:", await ran(planner, PLANS, "plan"))
            print("worker:", await ran(worker, WORKS, "@planner/plan"))
            handle = toolfold(data, "sessions", "share", "plan", "--with", "worker", "--caller", "planner")
            print("shared as", handle)
            print("worker:", await ran(worker, WORKS, handle))
            print("planner:", await ran(planner, READS, "plan"))
            shown = json.loads(toolfold(data, "sessions", "show", "plan", "--caller", "planner", "--json"))
            print("who ran what:", ", ".join(run["caller"] for run in shown["runs"]))


@asynccontextmanager
async def gateway(data: Path) -> AsyncGenerator[str]:
    """`toolfold serve --http`, until the block ends; its address."""
    command = ["-m", "toolfold", "serve", "--http", "127.0.0.1:0", *_where(data)]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        async for line in process.stderr:
            if b"http://" in line:
                yield line.decode().split()[-1]
                break
    finally:
        process.terminate()
        await process.communicate()


@asynccontextmanager
async def agent(url: str, name: str) -> AsyncGenerator[Client]:
    """An MCP client with a token of its own."""
    headers = {"Authorization": f"Bearer {TOKENS[name]}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def ran(client: Client, code: str, session: str) -> str:
    result = await client.call_tool("run_code", {"code": code, "session": session})
    return getattr(result.content[0], "text", "")


def toolfold(data: Path, *words: str) -> str:
    """A command, as the owner of the gateway types it."""
    command = [sys.executable, "-m", "toolfold", *words, *_where(data)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _where(data: Path) -> list[str]:
    return ["--config", str(data / "toolfold.json"), "--data", str(data)]


if __name__ == "__main__":
    asyncio.run(main())
