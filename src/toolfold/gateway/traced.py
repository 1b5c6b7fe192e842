"""The trace that a request over HTTP belongs to, by its `traceparent` header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolfold.telemetry.otel import is_traced

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_HEADERS = {b"traceparent": "traceparent", b"tracestate": "tracestate"}


def traced(app: ASGIApp) -> ASGIApp:
    """`app`, whose spans are children of the one that a client names. Where no spans are made, `app` itself."""
    if not is_traced():
        return app
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    propagator = TraceContextTextMapPropagator()

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        given = {_HEADERS[name]: value.decode("latin-1") for name, value in scope["headers"] if name in _HEADERS}
        token = context.attach(propagator.extract(given, context.Context()))
        try:
            await app(scope, receive, send)
        finally:
            context.detach(token)

    return call
