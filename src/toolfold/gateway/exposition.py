"""What `/metrics` says, in Prometheus' words. Imports prometheus-client, so it is imported at the first scrape."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from toolfold import __version__

if TYPE_CHECKING:
    from toolfold.fold import Toolfold
    from toolfold.session.start import Statistics
    from toolfold.telemetry.metrics import Buckets, Metrics, TokenCounts, TokenUse
    from toolfold.upstream.health import Health

Labelled = Mapping[tuple[str, ...], float]


async def exposition(fold: Toolfold, counts: Metrics, tokens: TokenCounts, accept: str) -> tuple[bytes, str]:
    """The text, and its media type, in the form that `accept` asks for."""
    statistics = await fold.statistics()
    health, tools = fold.fleet.health(), len(fold.catalog.tools)
    counted = counts.copy()

    def written() -> tuple[bytes, str]:
        used = tokens.read()
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        families = [
            *_runs(counted),
            *_calls(counted),
            *_people(counted),
            *_tokens(used, fold.settings.token_price, is_estimated=tokens.is_estimated),
            *_sandboxes(statistics),
            *_servers(health, tools),
        ]
        registry.register(_Once(families))
        encode, media_type = choose_encoder(accept)
        return encode(registry), media_type

    # With a thousand tools it is a long text: meanwhile runs go on.
    return await asyncio.to_thread(written)


class _Once(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _runs(counts: Metrics) -> Iterator[Metric]:
    yield _counter("runs", "Programs and direct calls that ended.", counts.runs, "caller", "language", "status")
    yield _counter("run_errors", "Runs that failed, by the error's code.", _single(counts.run_errors), "code")
    yield _gauge("runs_active", "Runs under way, those that wait in line included.", counts.active)
    durations = {(language,): buckets for language, buckets in counts.run_seconds.items()}
    yield _histogram("run_duration_seconds", "From request to result, waits included.", durations, "language")
    yield _histogram("run_calls", "Calls to servers that one program made.", {(): counts.run_calls})
    yield _histogram("code_characters", "Length of programs.", {(): counts.code})
    help_text = "Characters of results and search answers that models were sent."
    yield _counter("output_characters", help_text, {(): counts.output})
    help_text = "Runs that used two or more tools, by which ones."
    yield _counter("tool_combinations", help_text, _single(counts.combinations), "tools")
    yield _histogram("search_duration_seconds", "Searches of the catalog.", {(): counts.search_seconds})


def _calls(counts: Metrics) -> Iterator[Metric]:
    names = "kind", "server", "tool", "status"
    yield _counter("calls", "Calls to servers, those that were refused included.", counts.calls, *names)
    yield _counter("call_errors", "Calls that failed, by the error's code.", counts.call_errors, "server", "code")
    durations = {(server,): buckets for server, buckets in counts.call_seconds.items()}
    yield _histogram("call_duration_seconds", "Calls, a person's decision included.", durations, "server")
    yield _counter("call_result_bytes", "Size of servers' results.", _single(counts.call_bytes), "server")
    yield _counter("call_decisions", "What the policy decided on calls.", _single(counts.decisions), "decision")


def _tokens(used: Mapping[TokenUse, int], price: float, *, is_estimated: bool) -> Iterator[Metric]:
    help_text = "Tokens that models were sent (toolfold), and that the same calls would have cost otherwise (direct)."
    yield _counter("tokens", help_text, used, "way", "use")
    ways = {way: sum(number for (each, _), number in used.items() if each == way) for way, _ in used}
    yield _gauge(
        "tokens_saved", "Tokens of the direct way less those that were sent.", ways["direct"] - ways["toolfold"]
    )
    yield _gauge("tokens_estimated", "Whether some of these numbers are estimates.", is_estimated)
    costs = {(way,): number * price / 1_000_000 for way, number in ways.items()}
    yield _counter("cost_dollars", "What these tokens cost, by the setting `token_price`.", costs, "way")


def _people(counts: Metrics) -> Iterator[Metric]:
    yield _counter("approvals", "Questions to a person, by the reply.", _single(counts.approvals), "reply")
    yield _gauge("approvals_pending", "Questions that wait for a person.", counts.asking)
    yield _histogram("approval_wait_seconds", "Until a person has replied.", {(): counts.approval_seconds})


def _sandboxes(statistics: Statistics) -> Iterator[Metric]:
    pool, use = statistics.pool, statistics.use
    states = {("warm",): pool.warm, ("starting",): pool.starting, ("used",): pool.owned - pool.warm}
    yield _gauges("sandboxes", "Sandboxes by state.", states, "state")
    yield _counter("sandbox_starts", "Sandboxes that were started.", {(): pool.started})
    yield _counter("sandbox_start_failures", "Sandboxes that could not be started.", {(): pool.failed})
    yield _counter("sandbox_losses", "Sandboxes that ended before they were used.", {(): pool.lost})
    yield _counter("sandbox_takes", "Sandboxes that runs and sessions asked the pool for.", {(): pool.taken})
    yield _counter("sandbox_waits", "Those of them that were not ready at once.", {(): pool.waited})
    yield _gauge("sandbox_queue_length", "Runs that wait for a sandbox to start.", pool.waiting)
    yield _gauge("run_queue_length", "Runs without a session that wait for others to end.", statistics.queued)
    yield _gauge("sandbox_memory_bytes", "Memory of all sandboxes, shared pages counted once.", use.memory)
    yield _gauge("sandbox_processes", "Processes in all sandboxes.", use.processes)
    yield _counter("sandbox_cpu_seconds", "Processor time of all sandboxes.", {(): use.cpu})
    yield _gauge("sessions_live", "Sessions that have a sandbox.", statistics.sessions)
    yield _gauge("zygotes", "Zygotes, from which sandboxes are cloned.", statistics.zygotes.processes)
    yield _counter("zygote_starts", "Zygotes that were started.", {(): statistics.zygotes_started})
    yield _gauge("zygote_memory_bytes", "Memory of all zygotes, shared pages counted once.", statistics.zygotes.memory)


def _servers(health: Sequence[Health], tools: int) -> Iterator[Metric]:
    up = {(each.server,): float(each.state == "ready") for each in health}
    yield _gauges("server_up", "Whether the server is connected; one that is not needed is not.", up, "server")
    failing = {(each.server,): float(each.state in ("failed", "backoff")) for each in health}
    yield _gauges("server_failing", "Whether the server's last start failed.", failing, "server")
    restarts = {(each.server,): each.restarts for each in health}
    yield _counter("server_restarts", "Times that the server was started again.", restarts, "server")
    yield _gauge("catalog_tools", "Tools in the catalog.", tools)
    yield _gauges("build_info", "Which version this is.", {(__version__,): 1}, "version")


def _single(counts: Mapping[str, float]) -> Labelled:
    return {(name,): value for name, value in counts.items()}


def _counter(name: str, help_text: str, values: Labelled, *labels: str) -> Metric:
    family = CounterMetricFamily(f"toolfold_{name}", help_text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"toolfold_{name}", help_text, value=value)


def _gauges(name: str, help_text: str, values: Labelled, *labels: str) -> Metric:
    family = GaugeMetricFamily(f"toolfold_{name}", help_text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _histogram(name: str, help_text: str, values: Mapping[tuple[str, ...], Buckets], *labels: str) -> Metric:
    family = HistogramMetricFamily(f"toolfold_{name}", help_text, labels=labels)
    for key, buckets in values.items():
        bounds = [*map(str, map(float, buckets.bounds)), "+Inf"]
        counted = zip(bounds, accumulate(buckets.counts), strict=True)
        family.add_metric(key, [*counted], sum_value=buckets.total)
    return family
