"""A question on the terminal: shown on stderr, answered by one letter and Enter."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, cast

from toolfold.cli.console import note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolfold.guards.events import Reply

_WORDS = {
    "once": "[o]nce",
    "run": "all in this [r]un",
    "session": "all in this [s]ession",
    "no": "[n]o",
}


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def show(text: str, about: str = "") -> None:
    note(f"\n{text}", "bold")
    if about:
        note(about)


def prompt(replies: Sequence[str], waiting: int, *, skip: bool) -> str:
    words = [f"these {waiting} calls [o]nce" if reply == "once" and waiting > 1 else _WORDS[reply] for reply in replies]
    return f"Allow: {', '.join(words)}? [{'Enter: later' if skip else 'Enter: no'}] "


def understood(line: str, replies: Sequence[str]) -> Reply | None:
    """The answer that the line begins; None where it is none of them."""
    word = line.strip().lower()
    found = [reply for reply in replies if word and reply.startswith(word)]
    return cast("Reply", found[0]) if len(found) == 1 else None


def typed_reply(replies: Sequence[str], waiting: int, *, skip: bool) -> Reply | None:
    """Wait for the person's answer; asked again until it is one. None: no answer now."""
    forget_typed_ahead()
    while True:
        sys.stderr.write(prompt(replies, waiting, skip=skip))
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line.strip():
            return None
        reply = understood(line, replies)
        if reply is not None:
            return reply


async def typed_reply_later(replies: Sequence[str], waiting: int) -> Reply:
    """The same without holding up the loop. Enter, and the end of the input, are a no."""
    forget_typed_ahead()
    while True:
        sys.stderr.write(prompt(replies, waiting, skip=False))
        sys.stderr.flush()
        line = await _line()
        reply = understood(line, replies)
        if reply is not None or not line.strip():
            return reply or "no"


async def _line() -> str:
    """One line from the terminal. A terminal gives whole lines, and nothing reads it in between."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(sys.stdin, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(sys.stdin)
    return os.read(sys.stdin.fileno(), 4096).decode("utf-8", "replace")


def forget_typed_ahead() -> None:
    """What was typed before the question was shown is no answer to it."""
    import termios

    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
