"""Runs that this gateway remembers, as views show them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from toolfold.gateway.views import shapes

if TYPE_CHECKING:
    from toolfold.telemetry.activity import ActiveRun
    from toolfold.telemetry.observe import SeenCall

_FIRST_LINE_CHARS = 200
_CODE_CHARS = 4000
"""Characters of a program in which its first line is looked for."""


def run_shape(run: ActiveRun) -> shapes.Run:
    return shapes.Run(**_run_fields(run))


def detail_shape(run: ActiveRun) -> shapes.RunDetail:
    return shapes.RunDetail(
        **_run_fields(run),
        code=run.code,
        code_cut=run.code_cut,
        output=run.output,
        output_cut=run.output_cut,
        call_list=[_call(call) for call in run.calls],
    )


def _call(call: SeenCall) -> shapes.Call:
    return shapes.Call(
        id=call.id,
        kind=call.kind,  # pyright: ignore[reportArgumentType] - one of the three
        server=call.server,
        name=call.name,
        line=call.line,
        after_ms=call.after_ms,
        ms=call.ms,
        ok=call.ok,
        error_code=call.error_code,
        error=call.error,
        result_size=call.result_size,
        decision=call.decision,
        approved_by=call.approved_by,
    )


def _run_fields(run: ActiveRun) -> dict[str, Any]:
    ms = run.ms if run.ok is not None else max(0.0, (time.time() - run.time) * 1000)
    return {
        "id": run.id,
        "caller": run.caller,
        "session": run.session,
        "language": run.language,
        "time": run.time,
        "ms": ms,
        "ok": run.ok,
        "error_code": run.error_code,
        "error": run.error,
        "calls": run.call_count,
        "first_line": first_line(run.code),
    }


def first_line(code: str) -> str:
    """The first line of a program that is not empty, or the beginning of it."""
    return next((line.strip() for line in code[:_CODE_CHARS].split("\n") if line.strip()), "")[:_FIRST_LINE_CHARS]
