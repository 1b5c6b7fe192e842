"""A fold as the conformance suite's client under test: the suite starts this with the address of its own server.

The suite names the scenario in the environment; what an agent would do in it is a program for `fold.run`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from toolfold import Toolfold


def program(fold: Toolfold, scenario: str, context: dict[str, Any]) -> str:
    match scenario:
        case "tools_call":
            return "from servers.site import add_numbers\nprint(await add_numbers(a=2, b=3))"
        case "sse-retry":
            return "from servers.site import test_reconnection\nprint(await test_reconnection())"
        case "http-invalid-tool-headers":
            return "import servers.site\n" + calls({tool.name: {"region": "north"} for tool in fold.catalog.tools})
        case "http-custom-headers":
            # The schemas allow no null, and a fold would refuse it: what has no value is left out.
            given = {call["name"]: call["arguments"] for call in context["toolCalls"]}
            return calls({name: {k: v for k, v in each.items() if v is not None} for name, each in given.items()})
        case "json-schema-2020-12-preservation":
            focal = fold.catalog.tool("site", "json_schema_2020_12_tool")
            assert focal is not None
            return calls({"json_schema_echo": {"schema": focal.input_schema}})
        case "http-standard-headers":
            reads = [f"await read_resource('site', {resource.uri!r})" for resource in fold.catalog.resources]
            prompts = [f"await get_prompt('site', {prompt.name!r})" for prompt in fold.catalog.prompts]
            lines = ["from toolfold import get_prompt, read_resource", *reads, *prompts]
            return calls({tool.name: {} for tool in fold.catalog.tools}) + "\n".join(lines)
        case _:
            return "print('connected')"


def calls(arguments: dict[str, Any]) -> str:
    return f"""
from toolfold import call_mcp_tool
for name, arguments in {arguments!r}.items():
    print(await call_mcp_tool("site." + name, arguments))
"""


async def main(url: str, data: Path) -> int:
    config = {"servers": {"site": {"url": url}}, "sandbox": {"pool": 1}}
    async with Toolfold.open(config, data_dir=data) as fold:
        print((await fold.search("server:site", detail="full")).text)
        if fold.unlisted:
            raise fold.unlisted["site"]
        context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
        result = await fold.run(program(fold, os.environ["MCP_CONFORMANCE_SCENARIO"], context))
        print(result.text)
        return 0 if result.success else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[2], Path(sys.argv[1]))))
