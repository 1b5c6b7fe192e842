"""The demo's servers for use elsewhere.

`python -m toolfold.demo serve NAME` runs one of them on stdin and stdout, with all of its tools or those that are named
after it; `python -m toolfold.demo config` prints a config with all of them.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

from toolfold.demo.fleet import SERVERS, build, demo_config
from toolfold.demo.servers.wire import Wire


def main(arguments: list[str]) -> int:
    match arguments:
        case ["serve", name, *tools] if name in SERVERS:
            server = build(name)
            if unknown := set(tools) - {tool.name for tool in server.tools}:
                sys.stderr.write(f"{name} has no tool {', '.join(sorted(unknown))}\n")
                return 2
            chosen = tuple(tool for tool in server.tools if not tools or tool.name in tools)
            Wire(replace(server, tools=chosen)).serve(sys.stdin.buffer, sys.stdout.buffer)
            return 0
        case ["config"]:
            sys.stdout.write(json.dumps(demo_config(), indent=2) + "\n")
            return 0
        case _:
            usage = "usage: python -m toolfold.demo serve NAME [TOOL ...] | config"
            sys.stderr.write(f"{usage}\nNAME: {', '.join(SERVERS)}\n")
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
