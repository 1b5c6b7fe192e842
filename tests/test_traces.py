"""Spans: run → call → upstream, in the trace that the client named, carried on to servers and sent to a collector."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from tests import warm
from tests.asking import config
from tests.test_gateway_http import endpoint, started
from toolfold import Question, Toolfold
from toolfold.guards.events import Reply
from toolfold.telemetry.otel import discreet, exported, is_traced
from toolfold.telemetry.spans import Spans

pytestmark = pytest.mark.anyio

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SERVER = {"command": sys.executable, "args": [str(Path(__file__).parent / "servers" / "trace.py")]}


@dataclass
class Seen:
    name: str
    id: str
    parent: str
    trace: str
    attributes: dict[str, Any]
    message: str
    failed: bool
    service: str


@dataclass
class Collector:
    """Takes OTLP over HTTP."""

    port: int
    spans: list[Seen] = field(default_factory=list[Seen])
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def take(self, body: bytes) -> None:
        for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = {each.key: each.value.string_value for each in sent.resource.attributes}
            for span in (span for scope in sent.scope_spans for span in scope.spans):
                attributes = {each.key: _value(each.value) for each in span.attributes}
                seen = Seen(
                    span.name,
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.trace_id.hex(),
                    attributes,
                    span.status.message,
                    span.status.code == 2,
                    about["service.name"],
                )
                self.spans.append(seen)
        with self.arrived:
            self.arrived.notify_all()

    async def find(self, name: str, trace: str, count: int = 1) -> list[Seen]:
        """Wait for spans of this name."""

        def found() -> list[Seen]:
            return [span for span in self.spans if span.name == name and span.trace == trace]

        def wait() -> None:
            with self.arrived:
                assert self.arrived.wait_for(lambda: len(found()) >= count, 30), (name, self.spans)

        await asyncio.to_thread(wait)
        return found()


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


@contextmanager
def collecting() -> Generator[Collector]:
    class Take(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_request(self, code: Any = "-", size: Any = "-") -> None: ...

    with HTTPServer(("127.0.0.1", 0), Take) as server:
        collector = Collector(server.server_port)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()


@asynccontextmanager
async def web() -> AsyncGenerator[str]:
    """A server of the newer era, over HTTP, whose tool answers with the headers and the `_meta` of the call."""

    async def list_tools(ctx: ServerRequestContext[Any], params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="meta", input_schema={"type": "object"})])

    async def call_tool(ctx: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        assert ctx.request is not None
        seen = {"header": ctx.request.headers.get("traceparent"), "meta": (ctx.meta or {}).get("traceparent")}
        return types.CallToolResult(content=[types.TextContent(type="text", text=json.dumps(seen))])

    async with endpoint(Server("web", on_list_tools=list_tools, on_call_tool=call_tool)) as url:
        yield url


def environment(port: int) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_SERVICE_NAME": "a gateway",
    }


CODE = """
import asyncio
from servers.local import meta
from servers.web import meta as web_meta
print([await meta(), *await asyncio.gather(web_meta(), web_meta())])
"""


async def test_a_run_its_calls_and_what_servers_see_are_one_trace(runtime_dir: Path) -> None:
    with collecting() as collector:
        async with web() as url:
            file = runtime_dir / "mcp.json"
            file.write_text(json.dumps({"mcpServers": {"local": SERVER, "web": {"type": "http", "url": url}}}))
            command = ["-m", "toolfold", "serve", "--config", str(file), "--data", str(runtime_dir)]
            command += ["--http", "127.0.0.1:0", "--no-token"]
            async with started(command, environment(collector.port)) as gateway:
                await check_tree(collector, gateway.url, "auto", "a")
                await check_tree(collector, gateway.url, "legacy", "b")
    told = repr(collector.spans)
    assert "sk-secret" not in told
    assert "import" not in told


async def check_tree(collector: Collector, url: str, mode: str, digit: str) -> None:
    trace, parent, other = digit * 32, digit * 16, digit * 31 + "0"
    async with (
        httpx2.AsyncClient(headers={"traceparent": f"00-{trace}-{parent}-01"}, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        result: Any = await client.call_tool("run_code", {"code": CODE, "session": mode})
        local, *remote = json.loads(result.content[0].text.replace("'", '"'))
        # What a client says in the message itself counts more than the header of a proxy in between.
        meta: Any = {"traceparent": f"00-{other}-{parent}-01"}
        await client.call_tool("run_code", {"code": "from servers.local import fail\nawait fail()"}, meta=meta)
    [served] = await collector.find("tools/call run_code", trace)
    [run] = await collector.find("run", trace)
    [call] = await collector.find("call local.meta", trace)
    calls = await collector.find("call web.meta", trace, 2)
    assert (served.parent, run.parent, run.service) == (parent, served.id, "a gateway")
    assert {each.parent for each in (call, *calls)} == {run.id}
    sends = {span.id: span.parent for span in await collector.find("MCP send tools/call meta", trace, 3)}
    assert sends[local["traceparent"].split("-")[2]] == call.id
    assert {sends[each["meta"].split("-")[2]] for each in remote} == {each.id for each in calls}
    assert {each["header"].split("-")[2] for each in remote} == {each.id for each in calls}
    assert {each["header"].split("-")[1] for each in remote} == {trace}
    about = {name: run.attributes[f"toolfold.{name}"] for name in ("caller", "session", "language", "calls", "ok")}
    assert about == {"caller": "local", "session": mode, "language": "python", "calls": 3, "ok": True}
    assert (call.attributes["toolfold.server"], call.attributes["toolfold.name"]) == ("local", "meta")
    assert call.attributes["toolfold.decision"] == "allow"
    [failed] = await collector.find("run", other)
    [refused] = await collector.find("call local.fail", other)
    [sent] = await collector.find("MCP send tools/call fail", other)
    assert (failed.failed, failed.attributes["error.type"]) == (True, "tool")
    assert (refused.failed, refused.attributes["error.type"]) == (True, "upstream")
    assert (sent.failed, sent.parent) == (True, refused.id)


async def test_over_stdio_the_trace_comes_with_the_message(runtime_dir: Path) -> None:
    file = runtime_dir / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"local": SERVER}}))
    command = ["-m", "toolfold", "serve", "--config", str(file), "--data", str(runtime_dir)]
    with collecting() as collector:
        env = {**os.environ, **environment(collector.port), "OTEL_BSP_SCHEDULE_DELAY": "3600000"}
        async with Client(StdioServerParameters(command=warm.python(), args=command, env=env)) as client:
            meta: Any = {"traceparent": TRACEPARENT}
            await client.call_tool("run_code", {"code": "from servers.local import meta\nawait meta()"}, meta=meta)
            assert not collector.spans
        # What was not sent yet is sent at the end.
        [run] = await collector.find("run", TRACE)
        [call] = await collector.find("call local.meta", TRACE)
    assert call.parent == run.id


async def test_an_application_finds_approvals_and_cancelled_runs_in_its_spans(runtime_dir: Path) -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    begun = asyncio.Event()

    async def yes(question: Question) -> Reply:
        return "once"

    async with Toolfold.open(config(runtime_dir), data_dir=runtime_dir) as fold:
        fold.observers.add(Spans(provider))
        with provider.get_tracer("application").start_as_current_span("request") as outer:
            result = await fold.run("from servers.ledger import note\nawait note(text='a value')", ask=yes)
            assert result.success, result.text
        code = "import asyncio\nprint(1)\nawait asyncio.sleep(60)"
        running = asyncio.create_task(fold.run(code, on_event=lambda event: begun.set()))
        await begun.wait()
        running.cancel()
        await asyncio.wait([running])
    spans = {span.name: span for span in kept.get_finished_spans() if span.attributes}
    call, request = spans["call ledger.note"], outer.get_span_context()
    assert call.context is not None
    assert call.context.trace_id == request.trace_id
    assert call.attributes is not None
    assert call.attributes["toolfold.decision"] == "ask"
    [approval] = call.events
    assert (approval.name, (approval.attributes or {})["toolfold.reply"]) == ("approval", "once")
    first, cancelled = [span for span in kept.get_finished_spans() if span.name == "run"]
    assert first.parent is not None
    assert first.parent.span_id == request.span_id
    assert (cancelled.parent, (cancelled.attributes or {})["error.type"]) == (None, "cancelled")
    assert "a value" not in "".join(span.to_json() for span in kept.get_finished_spans())


def test_a_collector_that_is_down_is_not_waited_for(runtime_dir: Path) -> None:
    file = runtime_dir / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {}}))
    command = [warm.python(), "-m", "toolfold", "run", "--config", str(file), "--data", str(runtime_dir)]
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent:  # takes connections and never answers
        env = {**os.environ, **environment(silent.server_port), "OTEL_BSP_SCHEDULE_DELAY": "1"}
        ran = subprocess.run(
            [*command, "-c", "print(7)"], check=False, env=env, capture_output=True, text=True, timeout=60
        )
    assert (ran.returncode, ran.stdout.strip()) == (0, "7")
    assert "otel" not in ran.stderr.lower()
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, ""),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, ""),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, ""),
        ({"OTEL_TRACES_EXPORTER": "carrier-pigeon"}, "no exporter 'carrier-pigeon' is installed"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "pip install 'toolfold[otel]'"),
    ],
)
def test_what_keeps_spans_from_being_exported_is_said(env: dict[str, str], said: str) -> None:
    notes: list[str] = []
    with exported(env, notes.append):
        assert not is_traced()
    assert len(notes) == bool(said)
    assert said in "".join(notes)


def test_what_servers_wrote_is_not_exported() -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(discreet(kept)))
    for scope in ("mcp-python-sdk", "an application"):
        with provider.get_tracer(scope).start_as_current_span("sent") as span:
            span.record_exception(ValueError("sk-secret"))
            span.set_status(StatusCode.ERROR, "sk-secret")
    sdk, other = kept.get_finished_spans()
    assert "sk-secret" not in sdk.to_json()
    assert (sdk.name, sdk.status.status_code, sdk.context) == ("sent", StatusCode.ERROR, sdk.get_span_context())
    assert "sk-secret" in other.to_json()
