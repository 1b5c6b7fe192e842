"""`/metrics`: who may read it, what it counts, and that its labels are bounded."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.asking import config
from tests.lab import LAB
from toolfold import Question, Toolfold
from toolfold.errors import ConfigError, ToolfoldError
from toolfold.gateway.connections import ConnectionLimits
from toolfold.gateway.exposition import exposition
from toolfold.gateway.http import serve_http
from toolfold.guards.events import Reply
from toolfold.telemetry.ledger_reader import LedgerReader
from toolfold.telemetry.metrics import Buckets, Metrics, TokenCounts
from toolfold.telemetry.observe import SeenCall, SeenRun
from toolfold.telemetry.totals import Totals

pytestmark = pytest.mark.anyio

TOKENS = {"prometheus": "scraper's token", "ci": "another token", "owner": "the owner's"}
CALLERS = {name: {"token_sha256": hashlib.sha256(TOKENS[name].encode()).hexdigest()} for name in ("prometheus", "ci")}


@asynccontextmanager
async def served(data: Path, **more: Any) -> AsyncGenerator[tuple[Toolfold, str]]:
    """A fold over the ledger and the lab, and the address of its `/metrics`."""
    settings = config(data)
    settings["servers"]["lab"] = LAB
    async with Toolfold.open({**settings, **more}, data_dir=data) as fold:
        addresses: list[str] = []
        imported = asyncio.Event()

        @asynccontextmanager
        async def prepared() -> AsyncGenerator[None]:
            imported.set()
            yield

        serving = asyncio.create_task(
            serve_http(fold, "127.0.0.1", 0, token=TOKENS["owner"], started=addresses.append, prepared=prepared())
        )
        await imported.wait()
        try:
            yield fold, addresses[0].removesuffix("/mcp") + "/metrics"
        finally:
            serving.cancel()
            await asyncio.wait([serving])


async def get(url: str, token: str | None, **headers: str) -> httpx2.Response:
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    async with httpx2.AsyncClient(timeout=60) as client:
        return await client.get(url, headers=headers)


def samples(text: str) -> dict[str, float]:
    """`name{label="value"}` → value, labels in alphabetical order."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


async def yes(question: Question) -> Reply:
    return "once"


async def test_what_happens_in_the_fold_is_counted(runtime_dir: Path) -> None:
    async with served(runtime_dir, metrics={"readers": ["prometheus"]}, callers=CALLERS) as (fold, url):
        both = "from servers.lab import add\nfrom servers.ledger import note\nawait add(a=1, b=2)\nawait note(text='x')"
        assert (await fold.run(both, session="s", caller="ci", ask=yes)).success
        assert not (await fold.run("from servers.ledger import note\nawait note(text='x')")).success
        assert not (await fold.run("1/0", caller="jwt:ada", session="named by ada")).success
        made_up = (
            "from toolfold import call_mcp_tool\ntry:\n    await call_mcp_tool('lab', 'made up')\nexcept Exception: 0"
        )
        await fold.run(made_up, check=False)
        await fold.call("lab", "add", {"a": 1, "b": 2}, caller="stranger")
        with pytest.raises(ToolfoldError):
            await fold.call("made up", "at all")
        await fold.search("note")
        response = await get(url, TOKENS["prometheus"])
        ledger = fold.ledger.totals()
        openmetrics = await get(url, TOKENS["prometheus"], accept="application/openmetrics-text; version=1.0.0")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")
    for text in (response.text, openmetrics.text):
        assert not [word for word in ("made up", "stranger", "named by ada", "jwt:ada") if word in text]
    seen = samples(response.text)
    expected = {
        'toolfold_runs_total{caller="ci",language="python",status="ok"}': 1,
        'toolfold_runs_total{caller="owner",language="python",status="error"}': 1,
        'toolfold_runs_total{caller="jwt",language="python",status="error"}': 1,
        'toolfold_runs_total{caller="other",language="direct",status="ok"}': 1,
        'toolfold_run_errors_total{code="program"}': 2,
        'toolfold_calls_total{kind="tool",server="lab",status="ok",tool="add"}': 2,
        'toolfold_calls_total{kind="tool",server="ledger",status="error",tool="note"}': 1,
        'toolfold_call_errors_total{code="approval_denied",server="ledger"}': 1,
        'toolfold_call_duration_seconds_count{server="lab"}': 2,
        'toolfold_call_decisions_total{decision="ask"}': 2,
        'toolfold_approvals_total{reply="once"}': 1,
        "toolfold_approvals_pending": 0,
        'toolfold_tool_combinations_total{tools="lab.add, ledger.note"}': 1,
        "toolfold_search_duration_seconds_count": 1,
        "toolfold_code_characters_count": 4,
        "toolfold_run_calls_sum": 3,
        "toolfold_runs_active": 0,
        "toolfold_sessions_live": 2,
        'toolfold_server_up{server="lab"}': 1,
    }
    assert {name: seen.get(name) for name in expected} == expected
    for way, sums in (("direct", ledger.tokens_direct), ("toolfold", ledger.tokens_sent)):
        found = [value for name, value in seen.items() if "tokens_total" in name and f'way="{way}"' in name]
        assert sum(found) == sums > 0
        assert seen[f'toolfold_cost_dollars_total{{way="{way}"}}'] == pytest.approx(ledger.cost(sums))
    assert seen["toolfold_tokens_saved"] == ledger.tokens_saved
    for name in (
        "process_resident_memory_bytes",
        "toolfold_sandbox_starts_total",
        "toolfold_sandbox_memory_bytes",
        "toolfold_sandbox_processes",
        "toolfold_sandbox_cpu_seconds_total",
        "toolfold_zygotes",
        "toolfold_zygote_memory_bytes",
        "toolfold_catalog_tools",
        "toolfold_output_characters_total",
        'toolfold_run_duration_seconds_sum{language="python"}',
    ):
        assert seen[name] > 0, name


async def test_readers_are_the_owner_unless_the_settings_name_others(runtime_dir: Path) -> None:
    async with served(runtime_dir, callers=CALLERS) as (_, url):
        assert {name: (await get(url, token)).status_code for name, token in TOKENS.items()} == {
            "owner": 200,
            "prometheus": 403,
            "ci": 403,
        }
        assert (await get(url, None)).status_code == 401
        assert (await get(url, TOKENS["owner"], host="evil.example")).status_code == 421
        async with httpx2.AsyncClient(timeout=60) as client:
            posted = await client.post(url, headers={"authorization": f"Bearer {TOKENS['owner']}"})
        assert (posted.status_code, posted.headers["allow"]) == (405, "GET, HEAD")
    async with served(runtime_dir, callers=CALLERS, metrics={"readers": ["prometheus"]}) as (_, url):
        assert (await get(url, TOKENS["prometheus"])).status_code == 200
        assert (await get(url, TOKENS["owner"])).status_code == 403
    scraper = {"prometheus": {**CALLERS["prometheus"], "scraper": True}}
    async with served(runtime_dir, callers=scraper) as (_, url):
        assert (await get(url, TOKENS["prometheus"])).status_code == 200
        assert (await get(url, TOKENS["owner"])).status_code == 200
        for path in ("/mcp", "/api/v1/runs", "/elsewhere"):
            assert (await get(url.replace("/metrics", path), TOKENS["prometheus"])).status_code == 403
    async with served(runtime_dir, metrics={"readers": "anyone"}) as (_, url):
        assert (await get(url, None)).status_code == 200
        assert (await get(url, None, host="evil.example")).status_code == 421
        assert (await get(url.replace("/metrics", "/mcp"), None)).status_code == 401
    async with served(runtime_dir, metrics=False) as (_, url):
        assert (await get(url, TOKENS["owner"])).status_code == 404


async def test_connections_of_anyone_make_room_for_others(runtime_dir: Path) -> None:
    async with served(runtime_dir, metrics={"readers": "anyone"}) as (_, url):
        host = url.removeprefix("http://").partition("/")[0]
        opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        for _ in range(ConnectionLimits.unproven + 1):
            reader, writer = await asyncio.open_connection(*host.split(":"))
            opened.append((reader, writer))
            writer.write(f"HEAD /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert b" 200 OK" in await reader.readuntil(b"\r\n\r\n")
        async with asyncio.timeout(10):
            with suppress(ConnectionError):
                assert await opened[0][0].read() == b""
        for _, writer in opened:
            writer.close()


async def test_anyone_is_refused_where_other_machines_can_ask(runtime_dir: Path) -> None:
    async with Toolfold.open({"servers": {}, "metrics": {"readers": "anyone"}}, data_dir=runtime_dir) as fold:
        with pytest.raises(ConfigError, match="only this machine"):
            await serve_http(fold, "0.0.0.0", 0, token="t", started=lambda url: None)


def test_labels_are_bounded() -> None:
    counts = Metrics(["ci"], ["lab"], lambda server, tool: True)
    run = SeenRun("1", "ci", None, "python", "")
    for number in range(3_000):
        run.calls = [SeenCall("1", "tool", "lab", f"tool{number + each}", ok=True, decision="allow") for each in (0, 1)]
        run.call_count, run.ok, run.error_code = 2, False, f"code{number}"
        counts.run_started(run)
        for call in run.calls:
            counts.call_ended(run, call)
        counts.run_ended(run)
    counts.call_ended(run, SeenCall("1", "tool", "lab", "x" * 10_000, ok=True))
    resource = SeenCall("1", "resource", "lab", "file:///anything", ok=True)
    counts.call_ended(run, resource)
    assert len(counts.calls) <= 1_002
    assert len(counts.combinations) <= 201
    assert len(counts.run_errors) <= 101
    assert counts.calls["resource", "lab", "", "ok"] == 1
    assert counts.calls["tool", "lab", "other", "ok"] == 6_001 - sum(
        count for (_, _, tool, _), count in counts.calls.items() if tool not in ("other", "")
    )
    assert counts.active == 0


def test_a_large_combination_is_told_by_its_servers() -> None:
    counts = Metrics([], [], lambda server, tool: True)
    run = SeenRun("1", "local", None, "python", "", ok=True, call_count=6)
    run.calls = [SeenCall("1", "tool", server, f"t{number}") for server in "ab" for number in range(3)]
    counts.run_ended(run)
    assert counts.combinations == {"a.*, b.*": 1}


def test_buckets_count_what_is_at_most_their_bound() -> None:
    buckets = Buckets((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        buckets.add(value)
    assert (buckets.counts, buckets.total) == ([2, 1, 1], 12.0)


def test_nothing_is_added_to_a_copy() -> None:
    counts = Metrics([], ["lab"], lambda server, tool: True)
    run = SeenRun("1", "local", None, "python", "", ok=True, ms=5.0)
    call = SeenCall("1", "tool", "lab", "add", ok=True, ms=5.0)
    counts.call_ended(run, call)
    copied = counts.copy()
    counts.call_ended(run, call)
    counts.run_ended(run)
    assert (copied.calls.total(), sum(copied.call_seconds["lab"].counts)) == (1, 1)
    assert (copied.runs.total(), sum(copied.run_seconds["python"].counts), sum(copied.run_calls.counts)) == (0, 0, 0)


class FakeLedger(LedgerReader):
    """A ledger that says what it is told to."""

    def __init__(self) -> None:
        self.days: dict[str, Totals] = {}

    def by_day(self, *, since: Any = None, caller: str | None = None, session: str | None = None) -> dict[str, Totals]:
        return {day: totals for day, totals in self.days.items() if day >= str(since)}


def test_tokens_are_counted_from_the_start_and_never_fall() -> None:
    ledger = FakeLedger()
    today = time.strftime("%Y-%m-%d", time.gmtime())
    ledger.days = {"2020-01-01": Totals(tokens_code=5), today: Totals(tokens_code=10, tokens_results=7)}
    tokens = TokenCounts(ledger)
    assert set(tokens.read().values()) == {0}
    ledger.days[today] = Totals(tokens_code=25, tokens_results=7)
    assert tokens.read()["toolfold", "code"] == 15
    ledger.days[today] = Totals(tokens_code=22, tokens_results=9)  # an estimate became exact
    assert (tokens.read()["toolfold", "code"], tokens.read()["direct", "results"]) == (15, 2)
    assert tokens.is_estimated  # 15 is what the estimate has left
    ledger.days[today] = Totals(tokens_code=25, tokens_results=9)
    assert (tokens.read()["toolfold", "code"], tokens.is_estimated) == (15, False)
    ledger.days["9000-01-01"] = Totals(tokens_code=3)
    ledger.days["9000-01-02"] = Totals(tokens_code=4)
    assert tokens.read()["toolfold", "code"] == 22
    del ledger.days[today]  # is not read again
    assert tokens.read()["toolfold", "code"] == 22


async def test_the_page_lists_every_metric_with_its_labels(runtime_dir: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(toolfold_\w+)` \| (.*?) ?\| .+ \|$", page, flags=re.MULTILINE)
    listed = {name: {*re.findall(r"`(\w+)`", labels)} for name, labels in rows}
    counts = Metrics([], ["lab"], lambda server, tool: True)
    run = SeenRun("1", "local", None, "python", "", call_count=2)
    run.calls = [SeenCall("1", "tool", "lab", name) for name in ("a", "b")]
    counts.run_started(run)
    for call in run.calls:
        counts.call_ended(run, call)
    counts.run_ended(run)
    async with Toolfold.open({"servers": {"lab": LAB}}, data_dir=runtime_dir) as fold:
        text, _ = await exposition(fold, counts, TokenCounts(fold.ledger), "")
    served: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text.decode()):
        if family.name.startswith("toolfold_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            served[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
    assert listed == served
