"""The OpenAPI document and the page about the API: both tell what a real gateway does."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.test_gateway_http import started
from toolfold.demo.fleet import demo_servers
from toolfold.gateway.rest.endpoints import endpoints
from toolfold.gateway.rest.openapi import document

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).parents[1] / "docs" / "rest-api.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8484"


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> AsyncIterator[str]:
    """`toolfold serve --http` over the demo's github; its address."""
    data = tmp_path_factory.mktemp("document")
    (data / "runtime").symlink_to(shared_runtime)
    config = data / "config.json"
    settings = {"servers": {"github": demo_servers()["github"]}, "audit": True, "sandbox": {"pool": 1}}
    config.write_text(json.dumps(settings))
    command = ["-m", "toolfold", "serve", "--config", str(config), "--data", str(data)]
    async with started([*command, "--http", "127.0.0.1:0", "--token", "t"]) as running:
        yield running.url.removesuffix("/mcp")


def described() -> dict[str, Any]:
    views: Any = None
    return document(endpoints(views), 30.0)


def test_every_endpoint_is_in_the_document_and_on_the_page() -> None:
    operations = {f"{method.upper()} {path}" for path, methods in described()["paths"].items() for method in methods}
    table = set(re.findall(r"^\| `((?:GET|POST) \S+)` \|", PAGE, re.MULTILINE))
    assert table == operations
    views: Any = None
    assert {f"GET /api/v1{each.path}" for each in endpoints(views)} < operations


def test_every_parameter_and_status_is_on_the_page() -> None:
    words = set(re.findall(r"\w+", PAGE))
    for methods in described()["paths"].values():
        for operation in methods.values():
            names = {each["name"] for each in operation.get("parameters", [])}
            assert names - words == set()
            assert set(operation["responses"]) - words == set()


def test_the_document_refers_to_nothing_that_it_does_not_have() -> None:
    text = json.dumps(described())
    known = described()["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/(\w+)"', text)) == set(known)
    assert described()["openapi"] == "3.1.0"


async def test_what_was_served_is_that_document(gateway: str) -> None:
    async with httpx2.AsyncClient(headers={"authorization": "Bearer t"}, timeout=60) as client:
        assert (await client.get(f"{gateway}/api/v1/openapi.json")).json() == json.loads(json.dumps(described()))


async def output_of(command: list[str], folder: Path) -> str:
    """What a command prints; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env={**os.environ, "TOKEN": "t"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(110):
        printed = (await process.communicate())[0].decode()
    assert process.returncode == 0, printed[-8000:]
    return printed


async def test_the_examples_on_the_page_run(gateway: str, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    commands = [block for block in blocks if "curl" in block]
    assert len(commands) > 8
    script = 'set -eu\ncurl() { command curl --fail-with-body --max-time 60 "$@"; echo; }\n' + "".join(commands)
    printed = await output_of(["bash", "-c", script.replace(ADDRESS, gateway)], tmp_path)
    assert '"name":"create_issue"' in printed
    assert "event: finished" in printed
    assert "\ndone\n" in printed


async def test_schemathesis_finds_no_difference_between_the_document_and_the_gateway(
    gateway: str, tmp_path: Path
) -> None:
    """With all of its checks, and the same few examples each time."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{gateway}/api/v1/openapi.json"]
    command += ["--header", "Authorization: Bearer t", "--checks", "all"]
    command += ["--max-examples", "6", "--seed", "1", "--no-shrink", "--request-timeout", "30", "--warnings", "off"]
    printed = await output_of(command, tmp_path)
    assert re.search(r"(\d{3,}) passed", printed), printed[-2000:]
