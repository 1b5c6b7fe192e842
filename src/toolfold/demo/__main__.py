"""`python -m toolfold.demo serve NAME` runs one of the demo's MCP servers on stdin and stdout."""

from __future__ import annotations

import sys

from toolfold.demo.fleet import SERVERS, build
from toolfold.demo.servers.hosting import host


def main(arguments: list[str]) -> int:
    match arguments:
        case ["serve", name] if name in SERVERS:
            host(build(name))
            return 0
        case _:
            sys.stderr.write(f"usage: python -m toolfold.demo serve NAME, with one of {', '.join(SERVERS)}\n")
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
