"""Other people's programs, each in an environment of its own, so that a comparison runs beside us in one run."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from toolfold.errors import ToolfoldError

_INSTALL_SECONDS = 400
FASTMCP = "fastmcp[code-mode]==4.1.2"

CODE_MODE = """
import sys
from fastmcp import FastMCP, Client
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy
from fastmcp.experimental.transforms.code_mode import CodeMode
client = Client(StdioTransport(sys.argv[1], sys.argv[2:], keep_alive=True))
proxy = create_proxy(client, name="codemode")
proxy.add_transform(CodeMode(max_tool_calls=None))
proxy.run("stdio", show_banner=False)
"""

_BM25 = """
import asyncio, json, sys, time
from fastmcp.server.transforms.search.bm25 import BM25SearchTransform
from fastmcp.tools.base import Tool
given = json.load(open(sys.argv[1]))
tools = [Tool(name=one["name"], description=one["description"], parameters=one["schema"]) for one in given["tools"]]
search = BM25SearchTransform(max_results=given["depth"])
async def main():
    found, taken = [], []
    for query in given["queries"]:
        begun = time.process_time()
        found.append([tool.name for tool in await search._search(tools, query)])
        taken.append((time.process_time() - begun) * 1000)
    return {"found": found, "taken": taken}
json.dump(asyncio.run(main()), sys.stdout)
"""


def fastmcp_python(data_dir: Path) -> Path | None:
    """A Python that has FastMCP, installed on first use; None when it cannot be installed here."""
    try:
        return environment(data_dir, "fastmcp-4.1.2", FASTMCP)
    except ToolfoldError:
        return None


def environment(data_dir: Path, name: str, *packages: str) -> Path:
    """A Python with these packages (arguments of pip), in an environment of its own that is made on first use."""
    home = data_dir / "bench" / name
    python = home / "bin" / "python"
    if (home / "ready").exists():
        return python
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    try:
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, capture_output=True)
        subprocess.run(install, check=True, capture_output=True, timeout=_INSTALL_SECONDS)
    except (subprocess.SubprocessError, OSError) as error:
        raise ToolfoldError(
            f"{name} could not be installed: {error}", hint="Is a package registry reachable?"
        ) from None
    (home / "ready").touch()
    return python


def bm25(
    python: Path, servers: dict[str, list[dict[str, Any]]], queries: list[str], depth: int = 10
) -> tuple[list[list[tuple[str, str]]], list[float]]:
    """What FastMCP's search finds for each query (server and tool, best first), and its milliseconds of processor time.

    It sees each tool under its server's name, as its own mounting would write it.
    """
    names = {f"{server}_{tool['name']}": (server, tool["name"]) for server, tools in servers.items() for tool in tools}
    given: list[dict[str, Any]] = [
        {
            "name": f"{server}_{tool['name']}",
            "description": tool.get("description") or "",
            "schema": tool.get("inputSchema") or {},
        }
        for server, tools in servers.items()
        for tool in tools
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "given.json")
        file.write_text(json.dumps({"tools": given, "queries": queries, "depth": depth}), "utf-8")
        ran = subprocess.run([str(python), "-c", _BM25, str(file)], check=True, capture_output=True, timeout=600)
    answer = json.loads(ran.stdout)
    return [[names[name] for name in found] for found in answer["found"]], answer["taken"]
