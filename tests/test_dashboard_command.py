"""`toolfold dashboard`: from a terminal into the dashboard of a gateway that a client has started."""

from __future__ import annotations

import asyncio
import errno
import os
import pty
import re
import socket
import stat
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest

from tests import warm
from tests.asking import called
from tests.test_gateway_approvals import ONE, text
from tests.test_gateway_approvals import connected as approving
from tests.test_gateway_approvals_local import on_a_terminal
from tests.test_gateway_http import started
from tests.test_gateway_stdio import connected, serve_command
from toolfold.gateway.control import FOLDER, ask_for_link, reachable, running
from toolfold.gateway.token import own_token

pytestmark = pytest.mark.anyio


async def asked_for_a_link(data: Path, *more: str) -> str:
    shown = await asyncio.to_thread(on_a_terminal, ["dashboard", "--no-open", "--data", str(data), *more], {})
    found = re.search(r"http://127\.0\.0\.1:\d+/dashboard/sign-in/\S+", shown)
    assert found, shown
    return found[0]


async def test_a_terminal_gets_into_the_dashboard_of_a_stdio_gateway(runtime_dir: Path) -> None:
    async with connected(runtime_dir) as client:
        await client.call_tool("search_tools", {"query": "add"})
        [file] = (runtime_dir / FOLDER).iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        # One that was killed is cleaned up.
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(str(file.parent / "1-dead.sock"))
        stale.close()
        link = await asked_for_a_link(runtime_dir)
        assert [each.name for each in file.parent.iterdir()] == [file.name]
        async with httpx2.AsyncClient(timeout=60, follow_redirects=True) as http:
            assert (await http.get(link)).status_code == 200
            response = await http.post(link, headers={"origin": link.partition("/dashboard")[0]})
            assert response.status_code == 200
            assert "<h1>Overview</h1>" in response.text
        # Without a person at a terminal nothing is printed.
        command = [warm.python(), "-m", "toolfold", "dashboard", "--no-open", "--data", str(runtime_dir)]
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert "needs a terminal" in ran.stderr
    assert list((runtime_dir / FOLDER).iterdir()) == []


def test_without_a_gateway_it_says_how_to_start_one(tmp_path: Path) -> None:
    command = [warm.python(), "-m", "toolfold", "dashboard", "--data", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert "No gateway runs with this data folder." in ran.stderr
    assert "toolfold serve --http" in ran.stderr


async def test_why_there_is_no_link_is_told(tmp_path: Path) -> None:
    async def make_link() -> str:
        raise OSError(errno.EADDRNOTAVAIL, "no loopback here")

    async with reachable(tmp_path, "stdio", 0, make_link):
        [found] = await asyncio.to_thread(running, tmp_path)
        with pytest.raises(ValueError, match="no loopback here"):
            await asyncio.to_thread(ask_for_link, found)


async def test_a_gateway_may_have_no_dashboard(runtime_dir: Path, tmp_path: Path) -> None:
    config = tmp_path / "toolfold.toml"
    config.write_text('dashboard = "off"\n')
    command = ["-m", "toolfold", "serve", "--http", "127.0.0.1:0", "--no-token"]
    async with started([*command, "--config", str(config), "--data", str(runtime_dir)]) as gateway:
        async with httpx2.AsyncClient(base_url=gateway.url.removesuffix("/mcp"), timeout=60) as http:
            for path in ("/", "/dashboard/runs", "/dashboard/sign-in/x"):
                assert (await http.get(path)).status_code == 404
            assert (await http.get("/api/v1/servers")).status_code == 200
        command = [warm.python(), "-m", "toolfold", "dashboard", "--data", str(runtime_dir)]
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert "No gateway runs with this data folder." in ran.stderr


async def test_an_http_gateway_shows_a_link_on_its_terminal_and_tokens_open_nothing(
    runtime_dir: Path,
) -> None:
    ours, theirs = pty.openpty()
    command = [warm.python(), *serve_command(runtime_dir, "--http", "127.0.0.1:0")]
    process = await asyncio.create_subprocess_exec(*command, stderr=theirs)
    os.close(theirs)
    try:
        shown = ""
        async with asyncio.timeout(60):
            while not (link := re.search(r"Dashboard \(once\): (http\S+)\s", shown)):
                shown += (await asyncio.to_thread(os.read, ours, 65536)).decode()
        origin = link[1].partition("/dashboard")[0]
        token = {"authorization": f"Bearer {own_token(runtime_dir)}"}
        async with httpx2.AsyncClient(base_url=origin, timeout=60) as http:
            for path in ("/", "/dashboard/runs", "/dashboard/events"):
                assert (await http.get(path, headers=token)).status_code == 401
            assert (await http.post("/dashboard/questions/x", headers={**token, "origin": origin})).status_code == 401
            assert (await http.post(link[1], headers={"origin": origin})).status_code == 303
            assert "<h1>Overview</h1>" in (await http.get("/")).text
            # Signed in, but without a token.
            assert (await http.post("/mcp", json={})).status_code == 401
            assert (await http.get("/api/v1/servers")).status_code == 401
        # A second link, from another terminal, leads to the same place.
        assert (await asked_for_a_link(runtime_dir)).startswith(f"{origin}/dashboard/sign-in/")
    finally:
        process.terminate()
        await process.wait()
        os.close(ours)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_what_the_client_asks_its_person_can_be_answered_here_first(runtime_dir: Path, mode: str) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def answer(_params: Any) -> types.ElicitResult:
        asked.set()
        await answered.wait()
        return types.ElicitResult(action="decline")

    async with approving("stdio", mode, runtime_dir, answer) as client:
        call = asyncio.create_task(text(client, ONE))
        async with asyncio.timeout(60):
            await asked.wait()
        link = await asked_for_a_link(runtime_dir)
        origin = {"origin": link.partition("/dashboard")[0]}
        async with httpx2.AsyncClient(base_url=origin["origin"], timeout=60) as http:
            await http.post(link, headers=origin)
            page = (await http.get("/dashboard/questions")).text
            form = re.search(r'action="(/dashboard/questions/\w+)".*?name="csrf" value="([^"]+)"', page, re.DOTALL)
            assert form, page
            sent = await http.post(form[1], data={"csrf": form[2], "answer": "once"}, headers=origin)
            assert sent.status_code == 303
        answered.set()
        assert await call == "noted"
    assert len(called(runtime_dir)) == 1
