"""OpenTelemetry spans of runs and calls: run → call → what the MCP SDK sends.

Only OpenTelemetry's API is used here. Without a tracer provider in this process there are no spans, at no cost. They
hold names and codes: no program, no argument, no result, no message.
"""

from __future__ import annotations

import sys
from contextvars import Token

from opentelemetry import context as otel
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    get_current_span,
    get_tracer,
    set_span_in_context,
)

from toolfold import __version__
from toolfold.telemetry.observe import Observer, SeenCall, SeenQuestion, SeenRun

_LONGEST_NAME = 200
_Open = tuple[Span, otel.Context, "Token[otel.Context]"]


class Spans(Observer):
    """A span for every run and call. That of a call is current where the call is made, so that the SDK's span for its
    request is its child, and the server is told of it."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """`provider`: other than the one of this process."""
        self._tracer = get_tracer("toolfold", __version__, provider)
        self._open: dict[int, _Open] = {}

    def run_started(self, run: SeenRun) -> None:
        span = self._tracer.start_span("run", attributes={"toolfold.run.id": run.id, "toolfold.caller": run.caller})
        if span.is_recording():
            span.set_attribute("toolfold.language", run.language)
            if run.session is not None:
                span.set_attribute("toolfold.session", run.session)
        self._begin(id(run), span)

    def run_ended(self, run: SeenRun) -> None:
        self._end(id(run), run.ok, run.error_code, {"toolfold.calls": run.call_count})

    def call_started(self, run: SeenRun, call: SeenCall) -> None:
        # The task that makes the call is the sandbox's, not the run's: its parent is named.
        parent = self._open.get(id(run))
        # The address of a resource may hold values, like arguments.
        target = call.target[:_LONGEST_NAME] if call.kind != "resource" else f"resource:{call.server}"
        attributes = {"toolfold.server": call.server, "toolfold.kind": call.kind}
        if call.kind != "resource":
            attributes["toolfold.name"] = call.name[:_LONGEST_NAME]
        context = parent[1] if parent is not None else None
        span = self._tracer.start_span(f"call {target}", context, SpanKind.INTERNAL, attributes)
        self._begin(id(call), span)

    def call_ended(self, run: SeenRun, call: SeenCall) -> None:
        self._end(id(call), call.ok, call.error_code, {"toolfold.decision": call.decision})

    def answered(self, question: SeenQuestion) -> None:
        # Asked within a call, whose span is current.
        span = get_current_span()
        if span.is_recording():
            span.add_event("approval", {"toolfold.reply": question.reply, "toolfold.wait_ms": question.ms})

    def _begin(self, key: int, span: Span) -> None:
        context = set_span_in_context(span)
        self._open[key] = span, context, otel.attach(context)

    def _end(self, key: int, ok: bool | None, code: str, attributes: dict[str, str | int]) -> None:
        span, _, token = self._open.pop(key)
        otel.detach(token)
        if span.is_recording():
            span.set_attributes({"toolfold.ok": bool(ok), **attributes})
            if not ok:
                span.set_attribute("error.type", code)
                span.set_status(Status(StatusCode.ERROR))
        span.end()


def leave_trace() -> None:
    """What this task does from now on, and the tasks that it starts, belong to no run."""
    if "opentelemetry.sdk" in sys.modules:
        otel.attach(otel.Context())
