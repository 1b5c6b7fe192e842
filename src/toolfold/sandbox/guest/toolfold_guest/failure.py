"""An exception as the agent that wrote the program needs it: its own lines, what went wrong, what to do."""

from __future__ import annotations

import traceback
from typing import Any, cast

from .channel import ToolError

_FRAMES_SHOWN = 12
_INNER_SHOWN = 5
_DEEPEST = 3


def describe(problem: BaseException, filename: str, depth: int = 0) -> str:
    """The lines of the program that led here, the exception, and one more line where there is a next step."""
    if kind_of(problem) == "syntax":
        return _describe_syntax(cast(SyntaxError, problem))
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if is_own(frame.filename)]
    if len(frames) > _FRAMES_SHOWN:
        half = _FRAMES_SHOWN // 2
        hidden = traceback.FrameSummary("", 0, f"… {len(frames) - _FRAMES_SHOWN} more …", lookup_line=False)
        frames = [*frames[:half], hidden, *frames[-half:]]
    lines = [_frame_line(frame, filename) for frame in frames]
    lines.append(_summary(problem))
    lines += [_text(note) for note in _notes(problem)]
    if problem.__cause__ is not None:
        lines.append(f"caused by {_summary(problem.__cause__)}")
    if depth < _DEEPEST:
        lines += [f"- {describe(inner, filename, depth + 1)}" for inner in _inner(problem)[:_INNER_SHOWN]]
    return "\n".join(lines) + _advice(problem)


def kind_of(problem: BaseException) -> str:
    own = isinstance(problem, SyntaxError) and (problem.filename or "").startswith("program")
    return "syntax" if own else "exception"


def line_of(problem: BaseException, filename: str) -> int:
    """The innermost line of this program that the exception came from; 0 where it has none."""
    if isinstance(problem, SyntaxError) and problem.filename == filename:
        return problem.lineno or 0
    line = 0
    step = problem.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == filename:
            line = step.tb_lineno
        step = step.tb_next
    inner = _inner(problem)
    return line_of(inner[0], filename) or line if inner and inner[0] is not problem else line


def is_own(filename: str) -> bool:
    """Frames of the guest, of generated wrappers and of the standard library only distract."""
    return filename.startswith(("program", "/agent/skills/", "/agent/workspace/"))


def _describe_syntax(problem: SyntaxError) -> str:
    text = (problem.text or "").rstrip("\n")
    pointer = " " * max((problem.offset or 1) - 1, 0) + "^" if text else ""
    shown = f"\n  {text}\n  {pointer}" if text else ""
    return f"{type(problem).__name__}: {problem.msg} (line {problem.lineno}){shown}{_advice(problem)}"


def _advice(problem: BaseException) -> str:
    """The next step, on a line of its own. Whatever goes wrong in finding it, the error itself is what counts."""
    try:
        # Loaded when it is needed first: most programs are right.
        from .advice import advice

        step = advice(problem)
    except BaseException:
        return ""
    return f"\n{step}" if step else ""


def _summary(problem: BaseException) -> str:
    name, message = type(problem).__name__, _text(problem)
    if isinstance(problem, ToolError) and problem.server:
        named = message.startswith((f"{problem.server}.", f"{problem.server}:"))
        message = f"{problem.server}.{problem.tool}: {message}" if problem.tool and not named else message
    return f"{name}: {message}" if message else name


def _text(value: object) -> str:
    try:
        return str(value)
    except BaseException as broken:  # the program's own `__str__`
        return f"<no text: {type(broken).__name__}>"


def _notes(problem: BaseException) -> list[Any]:
    notes = getattr(problem, "__notes__", None)
    return cast("list[Any]", notes) if isinstance(notes, list) else []


def _inner(problem: BaseException) -> list[BaseException]:
    return list(cast("Any", problem).exceptions) if isinstance(problem, BaseExceptionGroup) else []


def _frame_line(frame: traceback.FrameSummary, filename: str) -> str:
    if frame.lineno == 0:
        return f"  {frame.name}"
    where = f"line {frame.lineno}" if frame.filename == filename else f"{frame.filename}, line {frame.lineno}"
    inside = "" if frame.name == "<module>" else f", in {frame.name}"
    return f"  {where}{inside}: {(frame.line or '').strip()[:200]}"
