"""A real browser for tests: Debian's chromium, driven by the WebDriver protocol."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

needs_browser = pytest.mark.skipif(
    shutil.which("chromium") is None or shutil.which("chromedriver") is None,
    reason="chromium and chromedriver are not installed: run scripts/install-browser",
)
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

    async def back(self) -> None:
        """To the page before, when it has arrived."""
        await self.do("POST", "/back", {})

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
        while True:
            path = f"/session/{self._session}/element/{await self.find(css)}/click"
            response = await self._http.post(path, json={})
            if "stale element" not in response.text:  # the page has put another one in its place meanwhile
                assert response.status_code == 200, response.text
                return

    async def type(self, css: str, text: str) -> None:
        await self.do("POST", f"/element/{await self.find(css)}/value", {"text": text})

    async def press(self, key: str) -> None:
        """One key, wherever the focus is."""
        keys = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        await self.do("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": keys}]})

    async def until(self, condition: str) -> None:
        """Wait until this expression is true on the page."""
        try:
            async with asyncio.timeout(80):
                while not await self.script(f"return !!({condition})"):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            shown = await self.script("return location.href + ' ' + document.body.innerText.slice(0, 2000)")
            raise AssertionError(f"never true: {condition}\n{await self.problems()}\n{shown}") from None

    async def tell(self, command: str, **parameters: Any) -> Any:
        """A command of the browser's own protocol."""
        return await self.do("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    async def resize(self, width: int, height: int, scale: float = 1.0) -> None:
        phone = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 500}
        await self.tell("Emulation.setDeviceMetricsOverride", **phone)

    async def prefer(self, scheme: str) -> None:
        """`light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.tell("Emulation.setEmulatedMedia", features=features)

    async def problems(self) -> list[str]:
        """What the console has said since the last time: errors, and violations of the page's policy."""
        logged = await self.do("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in logged if entry["level"] in ("SEVERE", "WARNING")]

    async def screenshot(self, file: Path) -> None:
        """For a person who wants to look."""
        file.write_bytes(base64.b64decode(await self.do("GET", "/screenshot")))


@asynccontextmanager
async def started_browser(profile: Path) -> AsyncGenerator[Browser]:
    """A window of a browser that has never been used."""
    driver = await asyncio.create_subprocess_exec(
        "chromedriver", "--port=0", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert driver.stdout is not None
    try:
        async with asyncio.timeout(60):
            while b"successfully on port" not in (line := await driver.stdout.readline()):
                assert line, "chromedriver ended"
        port = int(line.split(b"port ")[1].rstrip(b".\n"))
        arguments = ["--headless=new", f"--user-data-dir={profile}", "--disable-dev-shm-usage", "--hide-scrollbars"]
        arguments += ["--no-sandbox"] if os.getuid() == 0 else []
        wanted = {"goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=90, trust_env=False) as http:
            made = await http.post("/session", json={"capabilities": {"alwaysMatch": wanted}})
            assert made.status_code == 200, made.text
            session = made.json()["value"]["sessionId"]
            browser = Browser(http, session)
            await browser.do("POST", "/timeouts", {"implicit": 80_000})
            yield browser
            await http.delete(f"/session/{session}")
    finally:
        driver.terminate()
        await driver.wait()
