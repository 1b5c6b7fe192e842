"""A caller's own sessions, as its programs list, inspect, reset and end them: `from toolfold import sessions`.

Whose they are is what the run says, never the program. What is answered is bounded.
"""

from __future__ import annotations

from typing import Any, Literal

from toolfold.errors import InvalidRequest, PolicyDenied
from toolfold.guards.context import RunContext
from toolfold.session.output import within
from toolfold.session.store import SessionInfo, SessionStore, checked_name
from toolfold.session.transcript import Entry

Action = Literal["list", "show", "reset", "end"]
_MOST_SESSIONS = 200
_MOST_NAMES = 100
_NAME_CHARS = 200
_RUNS = 5
_TEXT_CHARS = 2000
_CALLS = 20


class OwnSessions:
    """One per fold. `only_reads`: the permission profile lets programs change nothing."""

    def __init__(self, store: SessionStore, *, only_reads: bool) -> None:
        self._store = store
        self._only_reads = only_reads

    async def answer(self, run: RunContext, action: Action, name: str) -> dict[str, Any]:
        """What the program of a run gets. Raises InvalidRequest or PolicyDenied for what it may not have."""
        try:
            if action == "list":
                return {"sessions": [_info(each) for each in await self._store.list(run.caller, most=_MOST_SESSIONS)]}
            checked_name(name)
            if action != "show":
                self._check_change(run, action, name)
            if not self._store.has(name, caller=run.caller):
                raise _missing(name)
            return await self._answer_about(action, name, run.caller)
        except OSError as error:
            raise InvalidRequest(f"sessions.{action} failed: {error.strerror}.") from None

    async def _answer_about(self, action: Action, name: str, caller: str) -> dict[str, Any]:
        try:
            if action == "show":
                info = await self._store.show(name, caller=caller)
                runs = (await self._store.transcript(name, caller=caller))[-_RUNS:]
                return {"session": {**_info(info), "runs": [_run(entry) for entry in runs]}}
            change = self._store.reset if action == "reset" else self._store.end
            await change(name, caller=caller)
        except (InvalidRequest, FileNotFoundError):
            # Somebody has just ended it. The store's own hint is for the operator, and may name other callers.
            raise _missing(name) from None
        return {}

    def _check_change(self, run: RunContext, action: Action, name: str) -> None:
        if run.read_only:
            raise PolicyDenied(f"The examples of a skill may list and show sessions, not {action} them.")
        if self._only_reads:
            raise PolicyDenied(f"The profile `read_only` lets programs list and show sessions, not {action} them.")
        if run.session is not None and run.session_key == (run.caller, name):
            raise InvalidRequest(
                f"A program cannot {action} its own session; do it from a run in another session, or without one."
            )


def _missing(name: str) -> InvalidRequest:
    return InvalidRequest(f"You have no session {name!r}.", hint="`sessions.list()` names yours.")


def _info(info: SessionInfo) -> dict[str, Any]:
    return {
        "name": info.name[:_NAME_CHARS],
        "state": info.state,
        "last_used": info.last_used,
        "size": info.size,
        "files": info.files,
        "variables": _cut(info.variables),
        "kept": _cut(info.kept),
        "shared_with": _cut(info.shared_with),
    }


def _run(entry: Entry) -> dict[str, Any]:
    return {
        "time": entry.time,
        "caller": entry.caller[:_NAME_CHARS],
        "code": within(entry.code, _TEXT_CHARS),
        "output": within(entry.output, _TEXT_CHARS),
        "error": within(entry.error, _TEXT_CHARS),
        "calls": _cut([call.target for call in entry.calls[:_CALLS]]),
    }


def _cut(names: list[str]) -> list[str]:
    return [name[:_NAME_CHARS] for name in names[:_MOST_NAMES]]
