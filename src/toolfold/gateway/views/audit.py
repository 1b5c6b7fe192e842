"""The audit log as views show it. Everything here blocks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from toolfold.errors import AuditUnavailable
from toolfold.gateway.views import shapes
from toolfold.gateway.views.runs import first_line
from toolfold.telemetry.activity import Before
from toolfold.telemetry.audit_reader import AuditReader, Call, Filter, Run
from toolfold.telemetry.audit_records import ToolNoted

_TIES = 20
"""Runs that may have begun in the same millisecond."""
_MOST_CALLS = 200


def audit_page(
    data_dir: Path, wanted: Filter, limit: int, before: int | None, caller: str, *, enabled: bool
) -> shapes.Audit:
    """`caller` is whose records may be seen; empty: everyone's. A log that was written earlier is shown as well."""
    try:
        with AuditReader.open(data_dir) as reader:
            page = reader.page(replace(wanted, caller=caller), limit, before)
    except AuditUnavailable:
        if enabled and (data_dir / "audit.db").exists():
            raise
        return shapes.Audit(enabled=enabled, records=[])
    return shapes.Audit(enabled=enabled, records=[_record(seq, item) for seq, item in page.items], next=page.next)


def runs_page(
    data_dir: Path, limit: int, before: Before | None, caller: str | None, session: str | None, *, failed: bool
) -> list[shapes.Run]:
    """The runs in the log that began before, the newest first."""
    until = before.time if before is not None else float("inf")
    wanted = Filter(caller=caller or "", session=session or "", failed=failed, until=until)
    try:
        with AuditReader.open(data_dir) as reader:
            items = reader.page(wanted, limit + _TIES, kinds=(Run,)).items
    except AuditUnavailable:
        return []
    runs = [_run(item) for _, item in items if isinstance(item, Run)]
    runs = [run for run in runs if before is None or (run.time, run.id) < before]
    return sorted(runs, key=lambda run: (run.time, run.id), reverse=True)[:limit]


def run_of(data_dir: Path, run: str) -> shapes.RunDetail | None:
    try:
        with AuditReader.open(data_dir) as reader:
            found = reader.run(run)
    except AuditUnavailable:
        return None
    if found is None:
        return None
    begun, calls = found
    return shapes.RunDetail(
        **structs.asdict(_run(begun)),
        code=begun.code,
        call_list=[_call(call, begun.time) for call in calls[:_MOST_CALLS]],
        source="audit",
    )


def _run(run: Run) -> shapes.Run:
    code, _, message = run.error.partition(": ")
    return shapes.Run(
        id=run.run,
        caller=run.caller,
        session=run.session,
        language=run.language,
        time=run.time,
        ms=run.ms,
        ok=run.ok,
        error_code=code,
        error=message,
        calls=run.calls,
        first_line=first_line(run.code),
    )


def _call(call: Call, begun: float) -> shapes.Call:
    kind, server, name = _split_target(call.target)
    return shapes.Call(
        id=call.call,
        kind=kind,
        server=server,
        name=name,
        after_ms=max(0.0, (call.time - begun) * 1000),
        ms=call.ms,
        ok=call.ok,
        error=call.error,
        result_size=call.result_size,
        decision=call.decision,
        approved_by=call.approved_by,
    )


def _split_target(target: str) -> tuple[Any, str, str]:
    """Kind, server and name of a target as policies write it."""
    for kind in ("resource", "prompt"):
        if target.startswith(f"{kind}:"):
            server, _, name = target.removeprefix(f"{kind}:").partition(":")
            return kind, server, name
    server, _, name = target.partition(".")
    return "tool", server, name


def _record(seq: int, item: Run | Call | ToolNoted) -> shapes.AuditRun | shapes.AuditCall | shapes.AuditTool:
    match item:
        case Run():
            return shapes.AuditRun(
                seq=seq,
                run=item.run,
                time=item.time,
                caller=item.caller,
                session=item.session,
                language=item.language,
                ok=item.ok,
                ms=item.ms,
                calls=item.calls,
                tokens=item.tokens,
                review=item.review,
                error=item.error,
                code_sha256=item.code_sha256,
            )
        case Call():
            return shapes.AuditCall(seq=seq, **structs.asdict(item))
        case ToolNoted():
            return shapes.AuditTool(
                seq=seq,
                time=item.time,
                target=item.target,
                event=item.event,
                digest=item.digest,
                before=item.before,
            )
