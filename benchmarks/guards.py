"""What the whole chain of guards costs per call, with an upstream that answers at once, and what observers add.

Processor time of all threads, so that other work on the machine does not count.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.report import Figure, median_ms
from benchmarks.runs import UPSTREAM, sdk_client
from toolfold.catalog.catalog import Catalog
from toolfold.config.load import load_here
from toolfold.config.settings import Settings
from toolfold.definitions import ToolDefinition, ToolResult
from toolfold.guards.chain import Chain
from toolfold.guards.context import Deadline, RunContext
from toolfold.guards.events import RunResult
from toolfold.guards.guard import Call
from toolfold.guards.record import Record
from toolfold.guards.watch import Watch
from toolfold.sandbox.replies import ReplyBudget
from toolfold.schema.validation import Validators
from toolfold.telemetry.ledger import Ledger
from toolfold.telemetry.metrics import Metrics
from toolfold.telemetry.observe import Observers
from toolfold.telemetry.otel import discreet
from toolfold.telemetry.spans import Spans

_BUDGET = 0.5
_OBSERVERS_BUDGET = 0.2
_ANSWER = ToolResult(structured={"number": 7, "url": "https://example.org/7"}, has_structured=True)
_CALLS = 500
_TEXT = {"type": "string"}
_TOOL = ToolDefinition(
    server="github",
    name="create_issue",
    input_schema={
        "type": "object",
        "properties": {"owner": _TEXT, "repo": _TEXT, "title": _TEXT, "user_id": {"type": "integer"}},
        "required": ["owner", "repo", "title", "user_id"],
        "additionalProperties": False,
    },
)
_ARGUMENTS = {"owner": "my-org", "repo": "toolfold", "title": "A title of usual length, and then some"}
_RULES: list[dict[str, Any]] = [
    {"match": "stripe.*", "do": "deny"},
    {"match": "github.delete_*", "do": "deny"},
    {"match": "github.*", "args": {"owner": ["evil", "bad-*"]}, "do": "deny"},
    {"match": "github.*", "session": "trial", "do": "ask"},
    {"match": "*", "caller": "ci", "do": "ask"},
    {"match": "*.create_*", "when": {"open_world": True, "read_only": True}, "do": "ask"},
    {"match": "resource:docs:file:///private/*", "do": "deny"},
    {"match": "files.write_*", "args": {"path": "/etc/*"}, "do": "deny"},
    {"match": "slack.post_*", "do": "ask"},
    {"match": "github.*", "args": {"owner": "my-org"}, "do": "allow"},
]
_EVERYTHING: dict[str, Any] = {
    "policy": {"rules": _RULES},
    "context": {"inject": {"github.*": {"user_id": "context.user_id"}}},
    "limits": {
        "calls_per_minute": 10**6,
        "concurrent_calls": 64,
        "result_bytes": "1MB",
        "tools": {"github.*": 10**6},
        "prices": {"maps.*": 0.01, "github.*": 0.001},
        "spend_per_day": 10**6,
    },
}


async def measure(home: Path, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    figures: list[Figure] = []
    for what, config in (
        ("a call through the guards as they are by default", {"context": _EVERYTHING["context"]}),
        ("with ten rules, injected values and every limit", _EVERYTHING),
        ("and with the audit log", {**_EVERYTHING, "audit": True}),
        ("and with privacy: all guards", {**_EVERYTHING, "audit": True, "privacy": True}),
    ):
        progress(what)
        figures.append(Figure(what, await _per_call(home, config, rounds), _BUDGET, "0.5 ms", budget=1.0))
    everything = figures[-1].ours
    for what, names in [*((f"observers: {name}, on top", [name]) for name in OBSERVERS), (_ALL, list(OBSERVERS))]:
        progress(what)
        with TemporaryDirectory(prefix="toolfold-guards-") as folder:
            took = await _observing(Path(folder), names, rounds)
        figures.append(Figure(what, took, _OBSERVERS_BUDGET, "0.2 ms", budget=1.0))
    progress("a call of a plain SDK client")
    async with sdk_client(sys.executable, UPSTREAM) as client:
        plain = await median_ms(lambda: client.call_tool("echo", {"text": "hi"}), rounds * 10)
    return [*figures, Figure("all guards", everything, plain, "a whole call of a plain SDK client")]


async def _observing(home: Path, names: list[str], rounds: int) -> float:
    """What observers add to a call, in milliseconds: the median of calls with and without them, taken in turns."""
    settings = load_here({"context": _EVERYTHING["context"]}, data_dir=home).settings
    observers = Observers()
    work_later = [OBSERVERS[name](settings, observers) for name in names]
    with_them, without = _Timer(settings, observers, work_later), _Timer(settings)
    for _ in range(rounds + 1):
        await with_them.round()
        await without.round()
    await with_them.close()
    await without.close()
    return with_them.median - without.median


def _ledger(settings: Settings, observers: Observers) -> Callable[[], object]:
    ledger = Ledger(settings, Catalog.open(settings))
    observers.add(ledger)
    return ledger.write


def _metrics(settings: Settings, observers: Observers) -> Callable[[], object]:
    counts = Metrics(settings.callers, settings.servers, lambda server, tool: True)
    observers.add(counts)
    return lambda: None


def _spans(settings: Settings, observers: Observers) -> Callable[[], object]:
    """With OpenTelemetry's SDK and an exporter that takes everything and sends nothing."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(discreet(_SendsNothing())))
    observers.add(Spans(provider))
    return provider.force_flush


class _SendsNothing(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


OBSERVERS: dict[str, Callable[[Settings, Observers], Callable[[], object]]] = {
    "the ledger of tokens": _ledger,
    "metrics": _metrics,
    "spans": _spans,
}
"""Each adds itself, and returns what it does later for the calls that it was told of."""
_ALL = "all observers together, on top"


async def _per_call(home: Path, config: dict[str, Any], rounds: int) -> float:
    """The median over the rounds, in milliseconds: calls one after the other, as a loop makes them."""
    timer = _Timer(load_here(config, data_dir=home).settings)
    for _ in range(rounds + 1):
        await timer.round()
    await timer.close()
    return timer.median


class _Timer:
    """Times calls through the guards of some settings, with an upstream that answers at once."""

    def __init__(
        self, settings: Settings, observers: Observers | None = None, later: Sequence[Callable[[], object]] = ()
    ) -> None:
        self._chain = Chain(settings, [], Validators())
        self._observers = observers
        self._later = later
        self._took: list[float] = []

    @property
    def median(self) -> float:
        """Milliseconds for each call; the first round warms up."""
        return statistics.median(self._took[1:])

    async def round(self) -> None:
        privacy = await self._chain.privacy_of("local", "bench")
        watch = Watch(self._observers) if self._observers is not None else None
        run = RunContext("local", "bench", Deadline(600), values={"user_id": "7"}, privacy=privacy, watch=watch)
        await self._chain.recorded("bench", run, lambda: self._work(run))
        await asyncio.sleep(0)

    async def _work(self, run: RunContext) -> RunResult:
        async def upstream(call: Call) -> ToolResult:
            return _ANSWER

        proceed = self._chain.for_run(upstream, Record(), ReplyBudget())
        begun = time.process_time()
        for number in range(_CALLS):
            await proceed(Call(f"{run.id}-{number}", "tool", "github", "create_issue", _ARGUMENTS, run, _TOOL))
        for work in self._later:
            work()
        self._took.append((time.process_time() - begun) * 1000 / _CALLS)
        return RunResult(success=True)

    async def close(self) -> None:
        await self._chain.close()
