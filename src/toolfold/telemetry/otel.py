"""Where spans go: set up by OpenTelemetry's standard environment variables, with the extra `otel`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolfold import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

INSTALL = "pip install 'toolfold[otel]'"
_FLUSH_SECONDS = 3.0
"""Seconds at the end in which what is left is sent; what a collector has not taken by then is lost."""
_SDK_SCOPE = "mcp-python-sdk"


@contextmanager
def exported(env: Mapping[str, str], note: Callable[[str], None] = lambda text: None) -> Generator[None]:
    """Meanwhile spans of this process are exported, if the environment says where to. `note` is told why they are not.

    A collector that is down costs runs nothing: what it does not take is dropped, and logged.
    """
    names = _exporters(env)
    provider: TracerProvider | None = None
    if names:
        try:
            provider = _provider(names, env)
        except ImportError as error:
            note(f"OTEL_* variables are set, but spans are not exported: {error}. For OTLP over HTTP: {INSTALL}")
        except Exception as error:
            note(f"Spans are not exported: {error}")
    try:
        yield
    finally:
        if provider is not None:
            # It waits for half a minute where nothing answers.
            flushing = threading.Thread(target=provider.shutdown, daemon=True)
            flushing.start()
            flushing.join(_FLUSH_SECONDS)


def is_traced() -> bool:
    """Whether anything in this process has set up where spans go."""
    if "opentelemetry.trace" not in sys.modules:
        return False
    from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

    return not isinstance(get_tracer_provider(), ProxyTracerProvider)


def _exporters(env: Mapping[str, str]) -> list[str]:
    """The names of exporters that the environment asks for. An endpoint alone asks for `otlp`."""
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    endpoints = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    usual = "otlp" if any(env.get(name) for name in endpoints) else "none"
    named = (env.get("OTEL_TRACES_EXPORTER") or usual).split(",")
    return [name for name in map(str.strip, named) if name not in ("", "none")]


def _provider(names: list[str], env: Mapping[str, str]) -> TracerProvider:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "toolfold", SERVICE_VERSION: __version__}))
    exporters = [_exporter(name, env) for name in names]
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(discreet(exporter)))
    trace.set_tracer_provider(provider)
    return provider


def _exporter(name: str, env: Mapping[str, str]) -> SpanExporter:
    from importlib.metadata import entry_points

    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)  # over stdio, standard output is the protocol's
    if name == "otlp":
        protocol = env.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or env.get("OTEL_EXPORTER_OTLP_PROTOCOL") or ""
        name = "otlp_proto_grpc" if protocol.strip() == "grpc" else "otlp_proto_http"
    for found in entry_points(group="opentelemetry_traces_exporter", name=name):
        return found.load()()
    raise ImportError(f"no exporter {name!r} is installed")


def discreet(exporter: SpanExporter) -> SpanExporter:
    """The same, without what servers wrote: the SDK's spans quote their errors, which may hold secrets and values."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.trace import Status

    def bare(span: ReadableSpan) -> ReadableSpan:
        scope = span.instrumentation_scope
        if scope is None or scope.name != _SDK_SCOPE or not (span.events or span.status.description):
            return span
        return ReadableSpan(
            name=span.name,
            context=span.context,
            parent=span.parent,
            resource=span.resource,
            attributes=span.attributes,
            links=span.links,
            kind=span.kind,
            status=Status(span.status.status_code),
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=scope,
        )

    class Discreet(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return exporter.export([bare(span) for span in spans])

        def shutdown(self) -> None:
            exporter.shutdown()

        def force_flush(self, timeout_millis: int = 30000) -> bool:
            return exporter.force_flush(timeout_millis)

    return Discreet()
