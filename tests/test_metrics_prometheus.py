"""A real Prometheus scrapes a real gateway, and every query of the Grafana dashboard has an answer."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
import shutil
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
import yaml
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.asking import config
from tests.lab import LAB
from tests.test_gateway_http import started
from toolfold.gateway.http import listen

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs" / "grafana" / "toolfold.json").read_text(encoding="utf-8"))

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("promtool") is None,
        reason="prometheus and promtool are not installed: run scripts/install-prometheus",
    ),
]

PROGRAMS = [
    "from servers.lab import add\nfrom servers.ledger import note\nawait note(text=str(await add(a=1, b=2)))",
    "from servers.ledger import fail\nawait fail(text='it failed')",
    "sum(number * number for number in range(300_000))",
    "1 / 0",
]


def queries() -> Iterator[tuple[str, str]]:
    """Every query of the dashboard, with the name of its panel."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def filled_in(query: str) -> str:
    for name, value in {"$__rate_interval": "20s", "$__range": "20s", "$instance": ".*"}.items():
        query = query.replace(name, value)
    assert "$" not in query
    return query


@asynccontextmanager
async def prometheus(folder: Path, gateway: str, token: str) -> AsyncGenerator[httpx2.AsyncClient]:
    """Debian's, with the configuration of docs/metrics.md but for address, token and interval."""
    [shown] = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    settings: dict[str, Any] = yaml.safe_load(shown)
    settings["global"] = {"scrape_interval": "1s"}
    [job] = settings["scrape_configs"]
    job["static_configs"] = [{"targets": [gateway]}]
    job["authorization"]["credentials_file"] = str(folder / "token")
    (folder / "token").write_text(token)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    checked = await asyncio.create_subprocess_exec(
        "promtool", "check", "config", str(folder / "prometheus.yml"), stdout=subprocess.DEVNULL
    )
    assert await checked.wait() == 0
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    process = await asyncio.create_subprocess_exec(
        *command, f"--web.listen-address=127.0.0.1:{port}", "--log.level=error", stderr=subprocess.DEVNULL
    )
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=60) as client:
            yield client
    finally:
        process.terminate()
        async with asyncio.timeout(30):
            await process.wait()


async def asked(client: httpx2.AsyncClient, query: str) -> list[dict[str, Any]]:
    response = await client.get("/query", params={"query": query})
    body = response.json()
    assert body["status"] == "success", (query, body)
    return body["data"]["result"]


async def scraped(client: httpx2.AsyncClient, times: int) -> None:
    """Wait until the gateway was scraped so often from now on."""
    before = -1.0
    async with asyncio.timeout(60):
        while True:
            try:
                found = await asked(client, "count_over_time(toolfold_runs_active[1h])")
            except (httpx2.TransportError, ValueError):
                found = []  # it is still starting
            count = float(found[0]["value"][1]) if found else 0.0
            before = count if before < 0 else before
            if count >= before + times:
                return
            await asyncio.sleep(0.1)


async def approve(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"answer": "once"})


async def test_a_real_prometheus_answers_every_query_of_the_dashboard(runtime_dir: Path) -> None:
    token = "the scraper's own"
    settings = config(runtime_dir)
    settings["servers"]["lab"] = LAB
    digest = hashlib.sha256(token.encode()).hexdigest()
    settings["callers"] = {"prometheus": {"token_sha256": digest, "scraper": True}}
    file = runtime_dir / "toolfold.json"
    file.write_text(json.dumps(settings))
    command = ["-m", "toolfold", "serve", "--config", str(file), "--data", str(runtime_dir)]
    async with started([*command, "--http", "127.0.0.1:0", "--token", "the owner's"]) as gateway:
        address = gateway.url.removeprefix("http://").removesuffix("/mcp")
        async with (
            prometheus(runtime_dir, address, token) as client,
            httpx2.AsyncClient(headers={"authorization": "Bearer the owner's"}, timeout=60) as http,
            Client(streamable_http_client(gateway.url, http_client=http), elicitation_callback=approve) as agent,
        ):
            # What is counted between two scrapes gives every series a rate.
            for _ in range(2):
                for session, program in enumerate(PROGRAMS):
                    await agent.call_tool("run_code", {"code": program, "session": f"s{session}"})
                await agent.call_tool("run_code", {"code": "print(1)"})
                await agent.call_tool("search_tools", {"query": "write a note"})
                await scraped(client, 2)
            empty: list[str] = []
            for panel, query in queries():
                found = await asked(client, filled_in(query))
                values = [float(each["value"][1]) for each in found]
                if not any(map(math.isfinite, values)):
                    empty.append(f"{panel}: {query} → {values}")
            [variable] = [each for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
            metric, label = re.findall(r"label_values\((\w+), (\w+)\)", variable["definition"])[0]
            labels = await client.get(f"/label/{label}/values", params={"match[]": metric})
            text = await http.get(f"http://{address}/metrics", headers={"authorization": f"Bearer {token}"})
    assert empty == []
    assert labels.json()["data"] == [address]
    promtool = await asyncio.create_subprocess_exec(
        "promtool", "check", "metrics", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said, _ = await promtool.communicate(text.content)
    assert (promtool.returncode, said.decode()) == (0, "")


def test_the_dashboard_is_one_that_grafana_can_import() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert DASHBOARD["uid"] == "toolfold"
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for target in panel.get("targets", []):
            assert target["datasource"]["uid"] == "${datasource}"
            assert 'instance=~"$instance"' in target["expr"]
            assert target["legendFormat"] or panel["type"] == "stat"
