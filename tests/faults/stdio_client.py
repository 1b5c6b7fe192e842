"""A client of its own that starts a gateway over stdio and uses it until it is killed. Prints a line when it works."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters


async def main() -> None:
    command = ["-m", "toolfold", "serve", "--config", sys.argv[1], "--data", sys.argv[2]]
    async with Client(StdioServerParameters(command=sys.executable, args=command)) as client:
        while True:
            result: Any = await client.call_tool("run_code", {"code": "n = globals().get('n', 0) + 1\nn"})
            sys.stdout.write(f"{result.content[0].text}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
