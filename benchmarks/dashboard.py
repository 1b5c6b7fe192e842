"""The dashboard in Debian's chromium: the bytes of a first visit, and the first paint beside that of an empty page."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from starlette.responses import HTMLResponse
from tests.browsing import Browser, started_browser

from benchmarks.report import Figure
from toolfold import Toolfold
from toolfold.config.settings import Settings
from toolfold.gateway.connections import Connections
from toolfold.gateway.dashboard.door import Door
from toolfold.gateway.http import listen
from toolfold.gateway.questions import Questions
from toolfold.telemetry.activity import Activity
from toolfold.telemetry.audit import AuditLog
from toolfold.telemetry.audit_records import CallEnded, CallStarted, RunEnded, RunStarted

_RECORDS = 10_000
_MOST_BYTES = 150_000
_PAINT_BUDGET = 10.0
_EMPTY = HTMLResponse("<!doctype html><title>Empty</title><p>Empty")
_LOADED = """
const entries = [performance.getEntriesByType("navigation")[0], ...performance.getEntriesByType("resource")];
return entries.reduce((sum, entry) => sum + entry.decodedBodySize, 0);
"""
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]"


async def measure(folder: Path, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    settings = Settings.model_validate({"data_dir": folder / "data", "audit": True})
    progress(f"writing {_RECORDS:,} audit records")
    settings.data_dir.mkdir()
    await _write_records(settings)
    sock = listen("127.0.0.1", 0)
    empty = f"http://127.0.0.1:{sock.getsockname()[1]}/"
    async with (
        Connections(_EMPTY, sock),
        Toolfold.open(settings) as fold,
        Door(fold, Questions(), Activity()) as door,
        started_browser(folder / "profile") as browser,
    ):
        link = await door.make_link()
        origin = link.partition("/dashboard")[0]
        await browser.open(link)
        await browser.click("button")
        await browser.says("Overview")
        # Twice, so that what the second page shares with the first is loaded by both.
        await browser.tell("Network.setCacheDisabled", cacheDisabled=True)
        pages = {"overview": f"{origin}/", "audit": f"{origin}/dashboard/audit"}
        sizes = {name: await _size(browser, url) for name, url in pages.items()}
        await browser.tell("Network.setCacheDisabled", cacheDisabled=False)
        taken: dict[str, list[float]] = {name: [] for name in ("empty", *pages)}
        for round_ in range(rounds):
            progress(f"first paint, round {round_ + 1} of {rounds}")
            for name, url in {"empty": empty, **pages}.items():
                taken[name].append(await _paint(browser, url))
    medians = {name: statistics.median(each) for name, each in taken.items()}
    figures = [
        Figure(f"{name}, with all it loads", sizes[name] / 1000, _MOST_BYTES / 1000, "150 kB", "kB", budget=1.0)
        for name in pages
    ]
    return figures + [
        Figure(f"first paint of {name}, {_RECORDS:,} records", medians[name], medians["empty"], "an empty page",
               budget=_PAINT_BUDGET)
        for name in pages
    ]  # fmt: skip


async def _size(browser: Browser, url: str) -> float:
    await browser.open(url)
    return await browser.script(_LOADED)


async def _paint(browser: Browser, url: str) -> float:
    """Milliseconds from the start of the navigation to the first text or picture."""
    await browser.open("about:blank")
    await browser.open(url)
    await browser.until(_PAINTED)
    return await browser.script(f"return {_PAINTED}.startTime")


async def _write_records(settings: Settings) -> None:
    log = AuditLog(settings.data_dir, settings.audit, settings.retention)
    try:
        began = time.time() - _RECORDS
        for number in range(_RECORDS // 8):
            run, caller = f"{number:016x}", "ci" if number % 3 else "local"
            log.add(RunStarted(run=run, caller=caller, code_sha256="0" * 64, time=began + number * 8))
            for call in range(3):
                name, at = f"{run}-{call}", began + number * 8 + call
                log.add(CallStarted(run=run, call=name, caller=caller, target="github.create_issue", time=at))
                log.add(CallEnded(run=run, call=name, ok=call < 2, ms=12.5, decision="allow", time=at + 0.5))
            log.add(RunEnded(run=run, ok=True, ms=80.0, calls=3, time=began + number * 8 + 4))
        await log.flush()
    finally:
        log.close()
