"""What the tools of four servers cost in each client: the definitions that it really sends to its model.

`python -m tests.clients.tokens` prints the table that README.md quotes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.clients.agents import AGENTS, HOME, Agent, Desk
from tests.clients.model import Model, serving
from toolfold.telemetry.tokens import count

FOLDED = ("toolfold",)


class Sent(NamedTuple):
    """How many definitions of tools a client sent, and what they cost."""

    tools: int
    tokens: int


def sent(definitions: Iterable[Any]) -> Sent:
    found = list(definitions)
    texts = [json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in found]
    return Sent(sum("tools" not in each for each in found), sum(map(count, texts)))


def direct(agent: Agent, home: Path) -> Sent:
    """One request of the client with all servers in its own file."""
    with serving(Model([], "Done.")) as model:
        desk = Desk(agent, home, model.address, agent.direct_entry)
        done = desk.ask(*agent.direct_arguments, env=agent.direct_env)
        assert done.returncode == 0, done.stderr
        return sent(desk.owned(model.asked[0], *desk.servers))


def folded(agent: Agent, home: Path) -> Sent:
    """The same after `toolfold fold`."""
    with serving(Model([], "Done.")) as model:
        desk = Desk(agent, home, model.address)
        assert desk.toolfold("fold", agent.name, "--yes").returncode == 0
        done = desk.ask()
        assert done.returncode == 0, done.stderr
        return sent(desk.owned(model.asked[0], *FOLDED))


def version(agent: Agent) -> str:
    program = (HOME / "node_modules" / ".bin" / agent.program).resolve()
    package = next(folder / "package.json" for folder in program.parents if (folder / "package.json").exists())
    return json.loads(package.read_text())["version"]


def table(rows: Iterable[tuple[Agent, Sent, Sent]]) -> str:
    """One line for each client."""
    lines = [f"{'client':<22}{'tools':>7}{'direct tokens':>16}{'folded tokens':>16}", "─" * 61]
    lines += [
        f"{f'{agent.title} {version(agent)}':<22}{before.tools:>7}{before.tokens:>16,}{after.tokens:>16,}"
        for agent, before, after in rows
    ]
    return "\n".join(lines)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            (
                agent,
                direct(agent, Path(folder, agent.name, "direct")),
                folded(agent, Path(folder, agent.name, "folded")),
            )
            for agent in AGENTS
        ]
    sys.stdout.write(table(rows) + "\n")


if __name__ == "__main__":
    main()
