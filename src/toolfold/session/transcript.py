"""What was run in a session: a line of JSON for each run, on the host's side of the session's folder.

    sessions/<id>/transcript.jsonl      the newest runs
    sessions/<id>/transcript.1.jsonl    those before them; older ones go

Private values are tokens in it, as in everything else that leaves a run.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from toolfold.guards.events import Image, RunResult, ToolCall
from toolfold.sandbox.protocol import SessionHome
from toolfold.session.output import within

NOT_KEPT = "[not kept: the run was cancelled before private values were taken out of its program]"
_CURRENT, _BEFORE = "transcript.jsonl", "transcript.1.jsonl"
_MOST_BYTES = 4_000_000
"""Of each of the two files."""
_TEXT_CHARS = 50_000
_CALLS = 100
_ARGUMENT_BYTES = 2000
_IMAGE_BYTES = 300_000
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class CallNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call to an upstream. `arguments` is None where they were long."""

    target: str
    arguments: dict[str, object] | None = None
    ok: bool | None = None
    ms: float = 0.0
    error: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run, as its caller saw it."""

    time: float
    """When it ended, in seconds since 1970."""
    run: str
    caller: str
    code: str
    output: str = ""
    error: str = ""
    notice: str = ""
    ms: float = 0.0
    calls: list[CallNote] = []
    more_calls: int = 0
    """Calls that are not in `calls`: only the first ones are kept."""
    images: list[Image] = []


def entry_of(run: str, caller: str, code: str, result: RunResult | None) -> Entry:
    """`result` is None for a run that was cancelled."""
    code = within(code, _TEXT_CHARS)
    if result is None:
        return Entry(time=time.time(), run=run, caller=caller, code=code, error="The run was cancelled.")
    return Entry(
        time=time.time(),
        run=run,
        caller=caller,
        code=code,
        output=within(result.output, _TEXT_CHARS),
        error=within(str(result.error), _TEXT_CHARS) if result.error is not None else "",
        notice=result.notice,
        ms=result.execution_time_ms,
        calls=[_noted(call) for call in result.tool_calls[:_CALLS]],
        more_calls=max(0, len(result.tool_calls) - _CALLS),
        images=[image for image in result.images if len(image.data) <= _IMAGE_BYTES],
    )


def append(home: SessionHome, entry: Entry) -> None:
    """Add a run. A full disk costs the line, not the run."""
    path = home.path / _CURRENT
    with contextlib.suppress(OSError):
        file = os.open(path, _APPEND, 0o600)
        try:
            if os.fstat(file).st_size > _MOST_BYTES:
                path.replace(home.path / _BEFORE)
                os.close(file)
                file = os.open(path, _APPEND, 0o600)
            # One write, so that lines of two processes never mix.
            os.write(file, msgspec.json.encode(entry) + b"\n")
        finally:
            os.close(file)


def entries(home: SessionHome) -> Iterator[Entry]:
    """All that is kept, the oldest first. A line that a killed process left half written is passed over."""
    for name in (_BEFORE, _CURRENT):
        for line in _lines(home.path / name):
            with contextlib.suppress(msgspec.MsgspecError):
                yield msgspec.json.decode(line, type=Entry)


def forget(home: SessionHome, before: float) -> None:
    """Remove the runs that ended before a time."""
    kept = [msgspec.json.encode(entry) + b"\n" for entry in entries(home) if entry.time >= before]
    temporary = home.path / f"{_CURRENT}.{os.getpid()}"
    temporary.write_bytes(b"".join(kept))
    temporary.replace(home.path / _CURRENT)
    (home.path / _BEFORE).unlink(missing_ok=True)


def _lines(path: Path) -> Iterator[bytes]:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        yield from file


def _noted(call: ToolCall) -> CallNote:
    arguments = call.arguments
    if arguments is not None and len(msgspec.json.encode(arguments)) > _ARGUMENT_BYTES:
        arguments = None
    return CallNote(f"{call.server}.{call.tool}", arguments, call.ok, call.ms, call.error[:_ARGUMENT_BYTES])
