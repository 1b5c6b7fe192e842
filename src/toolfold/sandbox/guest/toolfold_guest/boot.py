"""The guest: prepare, say ready, then run what the host sends until the host goes away.

`load` is what can be done before anything about the sandbox is known; a zygote does it once for all that it clones.
`serve` is the rest.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys

TYPE_CHECKING = False  # importing typing costs milliseconds; type checkers know the name

if TYPE_CHECKING:
    from typing import Any, NoReturn

    from .program import Programs

_HOME = "/agent"
_WAITING = 0.003
"""Seconds without a program after which there is time for a rehearsal."""
_ERROR_CHARS = 20_000
_TOO_LARGE = "<the last value is too large to be sent; the limit is `sandbox.message`>"


def _names(programs: Programs) -> list[str]:
    return [name[:200] for name in programs.names()[:50]]


def _shortened(error: str) -> str:
    """An error is for reading; one that carries a whole document is cut in its middle."""
    if len(error) <= _ERROR_CHARS:
        return error
    half = _ERROR_CHARS // 2
    return f"{error[:half]}\n[… {len(error) - _ERROR_CHARS:,} characters cut …]\n{error[-half:]}"


def keep_only(*descriptors: int) -> None:
    """Close every other descriptor that the way into the sandbox left open."""
    below = 0
    for kept in (*sorted(descriptors), 1 << 20):
        if below < kept:  # an empty range closes everything: CPython hands it on as (0, -1)
            os.closerange(below, kept)
        below = kept + 1


def load() -> None:
    """Import what every program needs: pay before the program arrives."""
    # asyncio only looks whether ssl exists; without a network it is not needed here, and it costs 8 ms.
    sys.modules["ssl"] = None  # type: ignore[assignment]
    for name in ("already_parsed", "confine", "program", "api"):
        importlib.import_module(f"{__package__}.{name}")
    del sys.modules["ssl"]


def freeze() -> None:
    """What is there by now is never garbage: keep the collector away, which writes into what it looks at."""
    gc.collect()
    gc.freeze()


def serve(options: dict[str, Any], descriptor: int, *, rehearse: bool = False) -> NoReturn:
    """Give up what is left to give up, and run programs. Ends by SystemExit when the host closes the channel.

    `rehearse` is for a process that shares its memory with others: it makes the pages that every program writes to its
    own while it waits for the first one.
    """
    from . import already_parsed, confine, program, skills
    from .channel import open_channel, warn
    from .context import set_context

    # Whatever the host ignores, for example because it was started in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    sys.argv = ["program.py"]
    os.chdir(_HOME)
    os.environ["PWD"] = _HOME
    sys.path[:0] = [_HOME, "/opt/toolfold"]
    sys.path.extend(options.get("paths", []))
    channel = open_channel(descriptor)
    sys.stdout = sys.stderr = output = program.StandardOutput(1)
    sys.__stdout__ = sys.__stderr__ = output
    channel.before_send = output.flush
    channel.longest = options.get("message", channel.longest)
    programs = program.Programs()
    already_parsed.install()
    shared = f"{_HOME}/shared"
    if os.access(shared, os.W_OK):
        os.umask(0)  # where each session is a user of its own, others could not change what it leaves there
    confine.restrict_files((f"{_HOME}/workspace", f"{_HOME}/skills", shared, "/tmp"))  # noqa: S108 - the sandbox's own
    confine.limit(options.get("limits", {}))
    channel.send({"t": "ready"}, last=True)
    if rehearse and not select.select([descriptor], [], [], _WAITING)[0]:
        programs.rehearse()
    while True:
        order = channel.next_order()
        if order["t"] != "run":
            continue
        set_context(order.get("context", {}))
        before = skills.written()
        done = programs.run(order["code"])
        for note in skills.save_written(before):
            warn(note)
        done["error"] = _shortened(done["error"])
        output.flush()
        try:
            channel.send({"t": "done", **done, "names": _names(programs)}, last=True)
        except ValueError:
            done.pop("value", None)
            channel.send({"t": "done", **done, "names": _names(programs), "shown": _TOO_LARGE}, last=True)


def main() -> None:
    options = json.loads(sys.argv[1])
    keep_only(0, 1, 2, options["channel"])
    load()
    freeze()
    serve(options, options["channel"])
