"""The sandbox's first process: prepare, say ready, then run what the host sends until the host goes away."""

from __future__ import annotations

import gc
import json
import os
import resource
import sys

_HOME = "/agent"


def _limit(limits: dict[str, int]) -> None:
    """Hard limits, set before any of the agent's code exists; without capabilities they cannot be raised again."""
    for name, value in limits.items():
        which = getattr(resource, name)
        _, hard = resource.getrlimit(which)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (bound, bound))


def main() -> None:
    options = json.loads(sys.argv[1])
    sys.argv = ["program.py"]
    os.chdir(_HOME)
    sys.path[:0] = [_HOME, "/opt/toolfold"]
    sys.path.extend(options.get("paths", []))
    # asyncio only looks whether ssl exists; without a network nobody here needs it, and it costs 8 ms.
    sys.modules["ssl"] = None  # type: ignore[assignment]
    # Every program needs these: pay before the program arrives.
    from . import program
    from .api import open_channel

    del sys.modules["ssl"]

    channel = open_channel(options["channel"])
    sys.stdout = sys.stderr = output = program.Output(1)
    sys.__stdout__ = sys.__stderr__ = output
    channel.before_send = output.flush
    programs = program.Programs()
    _limit(options.get("limits", {}))
    # What is imported so far is never garbage: keep the collector, and copy-on-write pages, away from it.
    gc.collect()
    gc.freeze()
    channel.send({"t": "ready"})
    while True:
        frame = channel.receive()
        if frame.get("t") != "run":
            continue
        done = programs.run(frame["code"])
        output.flush()
        channel.send({"t": "done", **done, "names": programs.names()[:50]})
