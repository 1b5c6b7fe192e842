"""Telling the person at this machine that a question waits: in their browser, by a notification, or on stderr."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import webbrowser
from typing import TYPE_CHECKING

from toolfold.cli.console import note
from toolfold.schema.text import one_line

if TYPE_CHECKING:
    from toolfold.guards.events import Question

_NAME_CHARS = 100
_NOTIFY_TIMEOUT = 10


def announce(command: str, question: Question, link: str) -> None:
    """Tell the person. Only a browser is given the link: a log or a notification may be read by an agent.

    `command` shows the question on a terminal.
    """
    threading.Thread(target=_announce, args=(command, question, link), daemon=True).start()


def _announce(command: str, question: Question, link: str) -> None:
    if has_display() and opened(link):
        return
    what = f"{one_line(question.server, _NAME_CHARS)}.{one_line(question.tool, _NAME_CHARS)}"
    name = what if question.tool else "A program"
    wanted = "approval" if question.form is None else "answer"
    text = f"{name} waits for your {wanted}: run `{command}` in a terminal."
    if has_display() and _notified(text):
        return
    note(text)


def has_display() -> bool:
    """Whether a browser would be seen by the person here."""
    if sys.platform == "darwin":
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def opened(link: str) -> bool:
    """Open the person's browser; False where there is none."""
    try:
        return webbrowser.open(link)
    except (webbrowser.Error, OSError):
        return False


def _notified(text: str) -> bool:
    command = shutil.which("notify-send")
    if command is None:
        return False
    words = [command, "--app-name=toolfold", "--", "Toolfold", text]
    try:
        return subprocess.run(words, capture_output=True, timeout=_NOTIFY_TIMEOUT, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
