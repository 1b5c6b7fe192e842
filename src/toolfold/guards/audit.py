"""Every run and every call is in the audit log before it happens, and again with how it ended."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from toolfold.config.settings import Settings
from toolfold.definitions import ToolResult
from toolfold.errors import AuditUnavailable
from toolfold.guards.context import RunContext
from toolfold.guards.events import RunResult
from toolfold.guards.guard import Call, Proceed
from toolfold.guards.record import coded, is_small, size_of
from toolfold.telemetry import tokens
from toolfold.telemetry.audit import AuditLog
from toolfold.telemetry.audit_records import CallEnded, CallStarted, RunEnded, RunStarted

Tokenise = Callable[[RunContext, Any], Any]
"""Puts tokens in place of the personal values in a text or in plain data, as the run's session knows them."""

_LONGEST_CODE = 64 * 1024
_LONGEST_TEXT = 500
_LONGEST_KEY = 60
_SHAPES = 100
"""Values whose shapes are recorded of one call; the rest is counted."""


class Audit:
    """One per fold: a guard for calls, and `run` around runs. What cannot be recorded is refused."""

    def __init__(self, settings: Settings, tokenise: Tokenise | None = None) -> None:
        self.log = AuditLog(settings.data_dir, settings.audit, settings.retention)
        self._limits = settings.sandbox
        self._values = settings.audit.values
        self._tokenise = tokenise or _as_it_is

    async def run(self, code: str, run: RunContext, work: Callable[[], Awaitable[RunResult]]) -> RunResult:
        """`work`, recorded. Its result is given when everything about it is stored."""
        limits = self._limits
        await self.log.append(
            RunStarted(
                run=run.id,
                caller=run.caller,
                session=run.shown_session,
                language=run.language,
                code=self._tokenise(run, code[:_LONGEST_CODE]),
                code_sha256=hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest(),
                limits={
                    "timeout": run.deadline.seconds,
                    "memory": limits.memory,
                    "cpu": limits.cpu,
                    "tool_calls": limits.tool_calls,
                },
            )
        )
        begun = time.perf_counter()
        result: RunResult | None = None
        error = ""
        try:
            result = await work()
            error = f"{result.error.code}: {result.error.message}" if result.error is not None else ""
            return result
        except BaseException as problem:
            error = ": ".join(coded(problem))
            raise
        finally:
            self.log.add(
                RunEnded(
                    run=run.id,
                    ok=not error,
                    ms=_since(begun),
                    review=run.notes.review,
                    error=self._text(run, error),
                    calls=len(result.tool_calls) if result is not None else 0,
                    tokens=tokens.estimate(result.text) if result is not None else 0,
                )
            )
            if result is not None:
                await self._stored()

    async def _stored(self) -> None:
        try:
            await self.log.flush()
        except AuditUnavailable:
            # It has happened, and its beginning is recorded. The end is kept, and the next run is refused.
            return

    async def __call__(self, call: Call, proceed: Proceed) -> ToolResult:
        run = call.run
        arguments = call.arguments if self._values and is_small(call.arguments) else shape(call.arguments)
        started = CallStarted(
            run=run.id,
            call=call.id,
            caller=run.caller,
            session=run.shown_session,
            target=self._text(run, call.target),
            arguments=self._tokenise(run, arguments),
        )
        await self.log.append(started)
        begun = time.perf_counter()
        size = 0
        error = ""
        try:
            result = await proceed(call)
            size = size_of(result)
            error = "tool: the tool reported an error" if result.is_error else ""
            return result
        except BaseException as problem:
            error = ": ".join(coded(problem))
            raise
        finally:
            notes = call.notes
            self.log.add(
                CallEnded(
                    run=run.id,
                    call=call.id,
                    ok=not error,
                    ms=_since(begun),
                    decision=notes.decision,
                    rule=notes.rule,
                    approved_by=notes.approved_by,
                    asked=self._text(run, "; ".join(notes.asked)),
                    result_size=size,
                    error=self._text(run, error),
                )
            )

    async def close(self) -> None:
        await asyncio.to_thread(self.log.close)

    def _text(self, run: RunContext, text: str) -> str:
        return self._tokenise(run, text[:_LONGEST_TEXT]) if text else ""


def _as_it_is(_run: RunContext, value: Any) -> Any:
    return value


def _since(begun: float) -> float:
    return round((time.perf_counter() - begun) * 1000, 3)


def shape(arguments: dict[str, Any]) -> dict[str, Any]:
    """The names of arguments with the kinds and lengths of their values: `{"title": "text(12)", "labels": […]}`."""
    left = [_SHAPES]
    return cast("dict[str, Any]", _shape(arguments, left))


def _shape(value: Any, left: list[int]) -> Any:
    left[0] -= 1
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return f"text({len(value)})"
        case None:
            return "null"
        case dict():
            shapes: dict[str, Any] = {}
            items = cast("dict[str, Any]", value)
            for key, inner in items.items():
                if left[0] <= 0:
                    shapes["…"] = f"{len(items) - len(shapes)} more"
                    break
                shapes[key[:_LONGEST_KEY]] = _shape(inner, left)
            return shapes
        case list():
            entries = cast("list[Any]", value)
            # Entries of a list are mostly alike.
            more = [f"{len(entries) - 1} more"] if len(entries) > 1 else []
            return [*(_shape(each, left) for each in entries[:1] if left[0] > 0), *more]
        case _:
            return type(value).__name__
