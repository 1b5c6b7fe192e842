"""A question on the terminal: shown on stderr, answered by one letter and Enter."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, cast

from toolfold.cli.console import note, printable
from toolfold.schema.forms import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from toolfold.guards.events import Reply
    from toolfold.schema.forms import Field, Form

_YES_NO = {"y": "once", "yes": "once", "n": "no", "no": "no"}

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


Typed = tuple["Reply", dict[str, str]]
"""An answer, and what was typed into each field of the form, if there is one."""


def typed_reply(replies: Sequence[str], waiting: int, form: Form | None, *, skip: bool) -> Typed | None:
    """Wait for the person's answer; asked again until it is one. None: no answer now."""
    forget_typed_ahead()
    dialog = _dialog(replies, waiting, form, skip=skip)
    try:
        _write(next(dialog))
        while True:
            _write(dialog.send(sys.stdin.readline()))
    except StopIteration as end:
        return end.value


async def typed_reply_later(replies: Sequence[str], waiting: int, form: Form | None) -> Typed:
    """The same without holding up the loop. Enter, and the end of the input, are a no."""
    forget_typed_ahead()
    dialog = _dialog(replies, waiting, form, skip=False)
    try:
        _write(next(dialog))
        while True:
            _write(dialog.send(await _line()))
    except StopIteration as end:
        return end.value or ("no", {})


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _dialog(
    replies: Sequence[str], waiting: int, form: Form | None, *, skip: bool
) -> Generator[str, str, Typed | None]:
    """Yields what is written, and is sent what is typed; None where no answer was given."""
    while True:
        line = yield prompt(replies, waiting, skip=skip) if form is None else form_prompt(form, skip=skip)
        if not line.strip():
            return None
        reply = understood(line, replies) if form is None else _YES_NO.get(line.strip().lower())
        if reply is not None:
            break
    typed: dict[str, str] = {}
    for field in form.fields if form is not None and reply != "no" else ():
        text = yield from _field_dialog(field)
        if text is None:
            return None
        typed[field.name] = text
    return cast("Reply", reply), typed


def _field_dialog(field: Field) -> Generator[str, str, str | None]:
    """What was typed, if the field takes it; empty for nothing (or the default); None at the end of the input."""
    before = ""
    while True:
        line = yield before + printable(field_prompt(field))
        if not line:
            return None
        text = line.rstrip("\r\n")
        if not text and (not field.required or field.default is not None):
            return ""
        try:
            if text:
                field.parse(text)
                return text
            before = f"{field.label} is required.\n"
        except InvalidValueError as error:
            before = f"{printable(str(error))}\n"


def form_prompt(form: Form, *, skip: bool) -> str:
    what = "Done? [y]es" if form.url else "Answer? [y]es" if form.fields else "Accept? [y]es"
    return f"{what}, [n]o [{'Enter: later' if skip else 'Enter: no'}] "


def field_prompt(field: Field) -> str:
    lines = [f"  {field.description}"] if field.description else []
    lines += [f"  {number}. {option.label}" for number, option in enumerate(field.options, 1)]
    facts = {"boolean": "y/n", "choice": "number", "choices": "numbers, with commas"}.get(field.kind, field.kind)
    if field.default is not None:
        shown = field.default if not isinstance(field.default, bool) else "y" if field.default else "n"
        facts += f", Enter: {shown}"
    elif not field.required:
        facts += ", Enter: none"
    return "\n".join([*lines, f"{field.label} ({facts}): "])


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
