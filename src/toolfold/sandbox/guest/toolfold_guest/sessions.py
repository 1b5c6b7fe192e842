"""The caller's own sessions: `sessions.list()`, `show(name)`, `reset(name)` and `end(name)`.

Each may be awaited or not.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from .channel import ToolError, channel

_LONGEST_NAME = 200


class SessionList(list[dict[str, Any]]):
    """May be awaited or not."""

    def __await__(self) -> Generator[Any, None, SessionList]:
        yield from ()
        return self


class SessionDetails(dict[str, Any]):
    """May be awaited or not."""

    def __await__(self) -> Generator[Any, None, SessionDetails]:
        yield from ()
        return self


class _Changed:
    """May be awaited or not."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()

    def __repr__(self) -> str:
        return self._what


class Sessions:
    """The caller's named sessions. Nobody else's can be reached."""

    def list(self) -> SessionList:
        """The sessions, the last used first, at most 200: dicts with `name`, `state` ("live" or "put away"),
        `last_used`, `size`, `files`, `variables`, `kept` and `shared_with`."""
        return SessionList(_asked("list")["sessions"])

    def show(self, name: str) -> SessionDetails:
        """One of them, with the last five `runs` of its transcript: `time`, `caller`, `code`, `output`, `error` and
        `calls`. Long texts are cut."""
        return SessionDetails(_asked("show", name)["session"])

    def reset(self, name: str) -> _Changed:
        """Forget a session's variables; its files and kept values stay. A program that runs in it is ended."""
        _asked("reset", name)
        return _Changed(f"session {name!r} was reset")

    def end(self, name: str) -> _Changed:
        """Remove a session with its files, kept values and transcript. A program that runs in it is ended."""
        _asked("end", name)
        return _Changed(f"session {name!r} was ended")

    def __repr__(self) -> str:
        return "sessions: list(), show(name), reset(name), end(name)"


sessions = Sessions()


def _asked(action: str, name: object = None) -> dict[str, Any]:
    frame = {"t": "session", "action": action}
    if action != "list":
        frame["name"] = _name(action, name)
    try:
        return channel().request_now(frame)
    except ToolError as error:
        if error.code != "invalid_request":
            raise
        raise ValueError(str(error)) from None


def _name(action: str, name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"sessions.{action}: name must be text, not {type(name).__name__}")
    if len(name) > _LONGEST_NAME:
        raise ValueError(f"A session's name has 1 to {_LONGEST_NAME} characters, not {len(name):,}.")
    return str(name)
