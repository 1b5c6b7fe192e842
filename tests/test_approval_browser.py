"""The approval page in a real browser: Debian's chromium, driven by the WebDriver protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.asking import GATHERED, ONE_BY_ONE, SOME_CALLS, called
from tests.browsing import Browser, needs_browser, started_browser
from tests.test_gateway_approvals import text
from tests.test_gateway_approvals_local import Desktop, connected

pytestmark = [pytest.mark.anyio, needs_browser]
PHONE = (360, 640)


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncGenerator[Browser]:
    async with started_browser(tmp_path / "profile") as browser:
        await browser.resize(*PHONE)
        yield browser


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
