"""The process's life: open the channel and the interpreter, say ready, run what the host sends until it goes away."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from toolfold.sandbox.guest.toolfold_guest.channel import open_channel
from toolfold.sandbox.monty.worker.functions import Functions
from toolfold.sandbox.monty.worker.interpreter import Interpreter
from toolfold.sandbox.monty.worker.tree import Tree

_TOO_LARGE = "(a value that is too large to be shown; print a part of it)"


def main() -> NoReturn:
    try:
        _serve(json.loads(sys.argv[1]))
    except Exception:
        traceback.print_exc(file=sys.stdout)
    finally:
        # However this ends, the interpreter beside us ends too: it may be busy and would not notice.
        sys.stdout.flush()
        os.killpg(0, signal.SIGKILL)
    raise SystemExit


def _serve(options: dict[str, object]) -> None:
    home, api = Path(str(options["home"])), Path(str(options["api"]))
    os.chdir(home)
    channel = open_channel(int(str(options["channel"])))
    channel.before_send = sys.stdout.flush
    channel.longest = int(str(options["message"]))

    def say(words: str) -> None:
        sys.stdout.write(words)
        sys.stdout.flush()

    tree = Tree(api)
    interpreter = Interpreter(
        str(options["binary"]),
        home,
        api,
        tree,
        Functions(channel, tree, say),
        memory=int(str(options["memory"])),
        disk=int(str(options["disk"])),
        shared=str(options["shared"]),
    )
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(interpreter.open())
    channel.send({"t": "ready"})
    while True:
        order = channel.next_order()
        if order["t"] != "run":
            continue
        done = loop.run_until_complete(interpreter.run(order["code"], say))
        try:
            channel.send({"t": "done", **done})
        except ValueError:  # longer than one message may be, or a number that JSON does not have
            channel.send({"t": "done", "error": done["error"], "names": done["names"], "shown": _TOO_LARGE})
