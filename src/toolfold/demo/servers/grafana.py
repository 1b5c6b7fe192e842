"""`grafana`: one dashboard and a day of metrics for six services, at one point every five minutes."""

from __future__ import annotations

import math
import re
from typing import Any

from toolfold.demo.servers.draw import Draw
from toolfold.demo.servers.hosting import Arguments, DemoServer, DemoTool, Refusal
from toolfold.demo.servers.schema import listing, number, record, text, whole
from toolfold.demo.servers.supabase import SERVICES

DAY_START = 1_788_134_400
_DAY = 24 * 3600
_METRICS = {
    "http_requests_per_second": (40.0, 900.0),
    "http_error_ratio": (0.0005, 0.012),
    "http_latency_p95_seconds": (0.08, 0.9),
}
_SELECTOR = re.compile(r"\s*([a-z_][a-z0-9_]*)\s*(?:\{([^{}]*)\})?\s*", re.IGNORECASE)
_MATCHER = re.compile(r'\s*([a-z_]+)\s*(=~|!=|=)\s*"([^"]*)"\s*', re.IGNORECASE)


def _selected(expr: str) -> tuple[str, list[str]]:
    """The metric and the services that a plain selector names."""
    found = _SELECTOR.fullmatch(expr)
    if found is None or found[1] not in _METRICS:
        raise Refusal(f'parse error: expected METRIC or METRIC{{service="…"}}; metrics: {", ".join(_METRICS)}')
    services: list[str] = list(SERVICES)
    for part in filter(str.strip, (found[2] or "").split(",")):
        matcher = _MATCHER.fullmatch(part)
        if matcher is None or matcher[1] != "service":
            raise Refusal(f"parse error: expected service=, service!= or service=~ in {part.strip()}")
        _, operator, value = matcher.groups()
        # Only alternatives are understood: a caller's pattern must not keep this server busy for ever.
        wanted = set(value.split("|")) if operator == "=~" else {value}
        services = [service for service in services if (service in wanted) != (operator == "!=")]
    return found[1], services


def _level(metric: str, service: str, at: int) -> float:
    """The value at one moment: a daily wave around the service's own level, with a little noise."""
    low, high = _METRICS[metric]
    level = Draw(f"{metric}/{service}").money(0, 1) * (high - low) + low
    wave = 1 + 0.35 * math.sin(2 * math.pi * (at - DAY_START) / _DAY - math.pi / 2)
    return Draw(f"{metric}/{service}/{at}").near(level * wave, 0.06)


def _query(arguments: Arguments) -> dict[str, Any]:
    metric, services = _selected(arguments["expr"])
    start, end, step = arguments["start"], arguments["end"], arguments["step"]
    if end < start or (end - start) // step > 11_000:
        raise Refusal("bad range: end must not be before start, and at most 11000 points fit into one answer")
    moments = range(start, end + 1, step)
    return {
        "result_type": "matrix",
        "result": [
            {
                "metric": {"__name__": metric, "service": service},
                "values": [[at, round(_level(metric, service, at), 6)] for at in moments],
            }
            for service in services
        ],
    }


def _dashboard(arguments: Arguments) -> dict[str, Any]:
    if arguments["uid"] != "services":
        raise Refusal(f"no dashboard {arguments['uid']}; there is services")
    panels = [
        {
            "id": at,
            "title": metric.removeprefix("http_").replace("_", " "),
            "type": "timeseries",
            "expr": metric,
        }
        for at, metric in enumerate(_METRICS, 1)
    ]
    return {
        "uid": "services",
        "title": "Services at a glance",
        "tags": ["production"],
        "services": list(SERVICES),
        "data_from": DAY_START,
        "data_to": DAY_START + _DAY,
        "panels": panels,
    }


def server() -> DemoServer:
    return DemoServer(
        "grafana",
        (
            DemoTool(
                name="query_prometheus",
                title="Query Prometheus",
                description=(
                    "Run a Prometheus range query with a plain selector: one series per service. "
                    f"Metrics: {', '.join(_METRICS)}; label: service. Times are Unix seconds, "
                    "by default the last day of data."
                ),
                arguments=record(
                    {
                        "expr": text('For example http_error_ratio{service=~"payments|ledger"}'),
                        "start": whole("First moment", default=DAY_START),
                        "end": whole("Last moment", default=DAY_START + _DAY - 300),
                        "step": whole("Seconds between two points", minimum=1, default=300),
                    },
                    optional=("start", "end", "step"),
                ),
                defaults={"start": DAY_START, "end": DAY_START + _DAY - 300, "step": 300},
                output_schema=record(
                    {
                        "result_type": text(),
                        "result": listing(
                            record(
                                {
                                    "metric": record({"__name__": text(), "service": text()}),
                                    "values": listing(listing(number(), "A pair: Unix seconds, value")),
                                }
                            )
                        ),
                    }
                ),
                run=_query,
            ),
            DemoTool(
                name="get_dashboard",
                title="Read a dashboard",
                description="Read a Grafana dashboard by its uid: title, services and panels with queries.",
                arguments=record({"uid": text("The dashboard's uid, for example services")}),
                output_schema=record(
                    {
                        "uid": text(),
                        "title": text(),
                        "tags": listing(text()),
                        "services": listing(text()),
                        "data_from": whole("Unix seconds"),
                        "data_to": whole("Unix seconds"),
                        "panels": listing(record({"id": whole(), "title": text(), "type": text(), "expr": text()})),
                    }
                ),
                run=_dashboard,
            ),
        ),
    )
