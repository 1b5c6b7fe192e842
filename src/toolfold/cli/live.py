"""A run as a person watches it: output on stdout as it comes, a line about tool calls on stderr."""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType

from rich.markup import escape

from toolfold.cli import question
from toolfold.cli.console import note, printable, stderr
from toolfold.guards.events import Event, Output, Progress, Question, Replied, RunResult, ToolCall


class Live:
    """Shows a run's events. The status line shows only on a terminal and never touches stdout."""

    def __init__(self) -> None:
        self._status = stderr().status("starting the sandbox") if stderr().is_terminal else None
        self._open: dict[str, str] = {}
        self._done = 0
        self._last = "\n"
        # A pipe gets the program's own bytes; a terminal would act on some of them.
        self._shown = printable if sys.stdout.isatty() else str
        self._asking = asyncio.Lock()
        self._held: list[str] = []
        """What the program printed while a question was open."""

    def __enter__(self) -> Live:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
        if not self._last.endswith("\n"):
            sys.stdout.write("\n")
            sys.stdout.flush()

    def on_event(self, event: Event) -> None:
        match event:
            case Output(text=text) if self._asking.locked():
                self._held.append(text)
            case Output(text=text):
                self._last = text or self._last
                sys.stdout.write(self._shown(text))
                sys.stdout.flush()
            case ToolCall(id=number, server=server, tool=tool, ok=None):
                self._open[number] = f"{server}.{tool}"
                self._show("")
            case ToolCall(id=number):
                self._open.pop(number, None)
                self._done += 1
                self._show("")
            case Progress(text=text):
                self._show(text)
            case _:
                pass

    async def ask(self, asked: Question) -> Replied:
        """Put a question to the person at the terminal. What the program prints meanwhile comes after the answer."""
        try:
            async with self._asking:
                if self._status is not None:
                    self._status.stop()
                question.show(asked.text)
                reply, typed = await question.typed_reply_later(asked.replies, asked.waiting, asked.form)
                values = asked.form.parse(typed) if asked.form is not None and reply != "no" else {}
                return Replied(reply, "terminal", values=values)
        finally:
            if not self._asking.locked():
                if self._status is not None:
                    self._status.start()
                held, self._held = self._held, []
                self.on_event(Output("".join(held)))

    def _show(self, text: str) -> None:
        if self._status is None or self._asking.locked():
            return
        calls = printable(f"{self._done} tool calls" + (f", now {list(self._open.values())[-1]}" if self._open else ""))
        # The text is a program's or a server's: it may not bring markup of its own.
        self._status.update(f"{escape(printable(text))}  [dim]{escape(calls)}[/]" if text else escape(calls))


def conclude(result: RunResult) -> None:
    """What a live watcher has not seen yet: what the session lost, or the error."""
    if result.notice:
        note(result.notice, "yellow")
    if result.error is not None:
        note(str(result.error), "red")
    if result.output_file is not None:
        note(f"The whole output is in {result.output_file} of session {result.session!r}.")
