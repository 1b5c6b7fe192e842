"""A run's result as it is put together: errors of the program, and lines that are added for the model."""

from __future__ import annotations

import msgspec

from toolfold.config.settings import Settings
from toolfold.guards.events import RunError, RunResult
from toolfold.sandbox.frames import Done
from toolfold.session.output import within

_PROGRAM_ERRORS = {"syntax": "syntax", "not_awaited": "not_awaited", "exit": "exit"}
"""How the guest says that a program ended → the code of the error; what it does not say is `program`."""


def program_error(done: Done, budget: int) -> RunError:
    """What the program did wrong. The guest wrote all of it, and the guest may lie; it is only ever shown."""
    code = _PROGRAM_ERRORS.get(done.kind, "program")
    if code == "program" and done.exception == "ToolError":
        code = "tool"
    return RunError(
        code=code,
        message=within(_summary(done), budget),
        line=done.line if done.line > 0 else None,
        text=within(done.error, budget),
    )


def _summary(done: Done) -> str:
    """The line that names the exception, where it is found."""
    lines = done.error.strip().splitlines()
    return next((line for line in lines if done.exception and line.startswith(done.exception)), lines[-1])


def with_text(result: RunResult, more: str) -> RunResult:
    """The result with one more line for the model in its error."""
    if not more or result.error is None:
        return result
    error = msgspec.structs.replace(result.error, text=f"{result.error}\n{more}")
    return msgspec.structs.replace(result, error=error)


def renamed(result: RunResult, session: str) -> RunResult:
    output = result.output.replace("all of it: ", f"all of it, in session {session!r}: ", 1)
    return msgspec.structs.replace(result, session=session, output=output)


def images_refused(settings: Settings) -> str:
    if settings.privacy.enabled and not settings.privacy.images:
        return "Images cannot be searched for private values; `privacy.images = true` in the settings allows them."
    return ""
