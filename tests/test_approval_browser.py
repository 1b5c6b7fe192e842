"""The approval page in a real browser: Debian's chromium, driven by the WebDriver protocol."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.asking import GATHERED, ONE_BY_ONE, SOME_CALLS, called
from tests.test_gateway_approvals import text
from tests.test_gateway_approvals_local import Desktop, connected

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        shutil.which("chromium") is None or shutil.which("chromedriver") is None,
        reason="chromium and chromedriver are not installed: run scripts/install-browser",
    ),
]
PHONE = (360, 640)
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The key by which WebDriver names an element."""


class Browser:
    """One window of chromium."""

    def __init__(self, http: httpx2.AsyncClient, session: str) -> None:
        self._http = http
        self._session = session

    async def do(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        response = await self._http.request(method, f"/session/{self._session}{path}", json=body)
        assert response.status_code == 200, response.text
        return response.json()["value"]

    async def open(self, url: str) -> None:
        await self.do("POST", "/url", {"url": url})

    async def script(self, code: str) -> Any:
        return await self.do("POST", "/execute/sync", {"script": code, "args": []})

    async def says(self, title: str) -> None:
        """Wait for the page with this title."""
        path = f"//h1[normalize-space()='{title}']"
        await self.do("POST", "/element", {"using": "xpath", "value": path})

    async def find(self, css: str) -> str:
        return (await self.do("POST", "/element", {"using": "css selector", "value": css}))[_ELEMENT]

    async def read(self, css: str) -> str:
        return await self.do("GET", f"/element/{await self.find(css)}/text")

    async def click(self, css: str) -> None:
        await self.do("POST", f"/element/{await self.find(css)}/click", {})

    async def screenshot(self, file: Path) -> None:
        """For a person who wants to look."""
        file.write_bytes(base64.b64decode(await self.do("GET", "/screenshot")))


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncGenerator[Browser]:
    driver = await asyncio.create_subprocess_exec(
        "chromedriver", "--port=0", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert driver.stdout is not None
    try:
        async with asyncio.timeout(60):
            while b"successfully on port" not in (line := await driver.stdout.readline()):
                assert line, "chromedriver ended"
        port = int(line.split(b"port ")[1].rstrip(b".\n"))
        arguments = ["--headless=new", f"--user-data-dir={tmp_path / 'profile'}", "--disable-dev-shm-usage"]
        arguments += ["--no-sandbox"] if os.getuid() == 0 else []
        wanted = {"alwaysMatch": {"goog:chromeOptions": {"args": arguments, "mobileEmulation": _phone()}}}
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=90, trust_env=False) as http:
            made = await http.post("/session", json={"capabilities": wanted})
            assert made.status_code == 200, made.text
            session = made.json()["value"]["sessionId"]
            browser = Browser(http, session)
            await browser.do("POST", "/timeouts", {"implicit": 30_000})
            yield browser
            await http.delete(f"/session/{session}")
    finally:
        driver.terminate()
        await driver.wait()


def _phone() -> dict[str, Any]:
    return {"deviceMetrics": {"width": PHONE[0], "height": PHONE[1], "pixelRatio": 1.0}}


async def test_a_person_approves_a_loop_in_the_browser(runtime_dir: Path, browser: Browser) -> None:
    desktop = Desktop(runtime_dir)
    async with connected("stdio", "2026-07-28", runtime_dir, desktop.environment) as (client, _):
        call = asyncio.create_task(text(client, GATHERED))
        link = await desktop.link()
        await browser.open(link)
        shown = await browser.read("main")
        for expected in (
            "Allow ledger.note?",
            f"{SOME_CALLS} calls wait",
            'text="call 0"',
            "and 40 more calls",
            "Line 7",
        ):
            assert expected in shown
        assert await browser.script("return document.documentElement.scrollWidth") <= PHONE[0]
        await browser.screenshot(runtime_dir / "page.png")
        # The style is let through by the page's own policy.
        assert await browser.script("return getComputedStyle(document.querySelector('pre')).borderRadius") == "8px"
        await browser.click("button[value=run]")
        await browser.says("Allowed")
        assert await call == f"{SOME_CALLS} ['noted']"
        await browser.open(link)
        await browser.says("Nothing to decide here")
    assert len(called(runtime_dir)) == SOME_CALLS


async def test_a_person_says_no_in_the_browser(runtime_dir: Path, browser: Browser) -> None:
    desktop = Desktop(runtime_dir)
    async with connected("http", "legacy", runtime_dir, desktop.environment) as (client, _):
        call = asyncio.create_task(text(client, ONE_BY_ONE))
        await browser.open(await desktop.link())
        await browser.click("button[value=no]")
        await browser.says("Not allowed")
        assert await call == f"0 {SOME_CALLS}"
    assert called(runtime_dir) == []


async def test_a_page_of_another_site_can_neither_frame_nor_send_it(runtime_dir: Path, browser: Browser) -> None:
    desktop = Desktop(runtime_dir)
    async with connected("stdio", "legacy", runtime_dir, desktop.environment) as (client, _):
        call = asyncio.create_task(text(client, ONE_BY_ONE))
        link = await desktop.link()
        hostile = f'<form method=post action="{link}"><button name=answer value=run>Win</button></form>'
        await browser.open(f"data:text/html,{hostile}")
        await browser.click("button")
        await browser.says("Refused")
        assert called(runtime_dir) == []
        await desktop.press("no")
        assert await call == f"0 {SOME_CALLS}"
    assert called(runtime_dir) == []
