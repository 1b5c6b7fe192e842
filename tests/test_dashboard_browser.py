"""The dashboard in a real browser, over the demo's servers. With TOOLFOLD_PICTURES=FOLDER it takes the screenshots."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.browsing import Browser, needs_browser, started_browser
from toolfold import Toolfold
from toolfold.demo.fleet import demo_servers
from toolfold.demo.scenarios import SCENARIOS
from toolfold.gateway.dashboard.door import Door
from toolfold.gateway.questions import Questions
from toolfold.guards.events import Question, Replied
from toolfold.schema.forms import read_form
from toolfold.telemetry import ledger
from toolfold.telemetry.activity import Activity

pytestmark = [pytest.mark.anyio, needs_browser]
PICTURES = os.environ.get("TOOLFOLD_PICTURES", "")
SERVERS = {name: each for name, each in demo_servers().items() if PICTURES or name in ("slack", "github")}
RUN = [scenario for scenario in SCENARIOS if {*scenario.servers} <= {*SERVERS}]
DESKTOP, PHONE = (1280, 800), (375, 812)
PAGES = ("/", *(f"/dashboard/{page}" for page in (
    "runs", "questions", "servers", "tools", "skills", "sessions", "audit"
)))  # fmt: skip
SLOW = """import asyncio
from servers.slack import post_message

for step in range(3):
    print("step", step)
    await asyncio.sleep(0.1)
posted = await post_message(channel="#general", text="Deployment of release 4.2 begins at noon.")
print("posted as", posted["ts"])
"""

LONG = """from servers.slack import post_message

for step in range(100):
    print("step", step)
await post_message(channel="#general", text="Done.")
"""
CUT = """return [...document.querySelectorAll('.flush')].filter(each => each.scrollWidth > each.clientWidth + 1)
    .map(each => each.innerText.slice(0, 200))"""
AT_END = (
    "[...document.querySelectorAll('{}')]"
    ".some(p => p.scrollTop > 0 && p.scrollTop + p.clientHeight >= p.scrollHeight - 8)"
)


@dataclass
class Seen:
    """A browser whose person is signed in."""

    fold: Toolfold
    door: Door
    browser: Browser
    origin: str

    async def open(self, path: str) -> None:
        await self.browser.open(f"{self.origin}{path}")

    async def run(self, code: str, session: str | None = None) -> str:
        async def ask(question: Question) -> Replied:
            with self.door.questions.waiting(question, "local", session) as waiting:
                return await waiting.answer

        return (await self.fold.run(code, session=session, ask=ask)).text

    async def run_allowed(self, code: str) -> None:
        run = asyncio.create_task(self.run(code))
        while not run.done():
            for waiting in self.door.questions:
                waiting.give("run", "dashboard")
            await asyncio.wait([run], timeout=0.05)

    async def picture(self, name: str) -> None:
        if PICTURES:
            await self.browser.screenshot(Path(PICTURES) / f"dashboard-{name}.png")


@pytest.fixture(scope="module")
async def seen(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Seen]:
    folder = tmp_path_factory.mktemp("seen")
    config = {
        "servers": {**SERVERS, "billing": {"command": "billing-mcp-server"}},
        "sandbox": {"pool": 1},
        "audit": True,
        "policy": {"rules": [{"match": "slack.post_message", "do": "ask"}]},
    }
    async with (
        Toolfold.open(config, data_dir=folder) as fold,
        Door(fold, Questions(), Activity()) as door,
        started_browser(folder / "profile") as browser,
    ):
        await fold.listed(timeout=30)
        await browser.resize(*DESKTOP)
        await browser.prefer("light")
        link = await door.make_link()
        await browser.open(link)
        await browser.click("button")
        await browser.says("Overview")
        yield Seen(fold, door, browser, link.partition("/dashboard")[0])


async def test_the_link_in_the_history_is_dead(seen: Seen) -> None:
    await seen.browser.back()
    await seen.browser.says("This link does not work any more")
    assert any("410" in each for each in await seen.browser.problems())  # the page itself, and nothing else
    await seen.open("/")
    await seen.browser.says("Overview")


async def test_a_run_appears_with_its_output_and_its_question_is_answered_here(seen: Seen) -> None:
    browser = seen.browser
    await seen.open("/dashboard/runs")
    await browser.until("document.querySelector('.empty')")
    run = asyncio.create_task(seen.run(SLOW, "release"))
    await browser.until("[...document.querySelectorAll('pre[data-run]')].some(p => p.textContent.includes('step 2'))")
    await browser.until("document.querySelector('#waiting').textContent == '1'")
    await seen.open("/dashboard/questions")
    assert "Allow slack.post_message?" in await browser.read("main")
    assert "release 4.2" in await browser.read(".question pre")
    await seen.picture("question")
    await browser.click("button[value=once]")
    assert "Allowed" in await browser.read(".notice")
    assert "posted as" in await run
    await browser.until("document.querySelector('#waiting').hidden")
    await seen.open("/dashboard/runs")
    await browser.click("tbody a")
    await browser.until("document.querySelectorAll('.timeline rect.good').length == 1")
    assert await browser.read(".code .k") == "import"
    assert await browser.problems() == []


async def test_a_run_is_followed_on_its_own_page(seen: Seen) -> None:
    browser = seen.browser
    run = asyncio.create_task(seen.run(SLOW))
    await browser.until("document.querySelector('#waiting').textContent == '1'")
    [running] = seen.door.activity.running()
    await seen.open(f"/dashboard/runs/{running.id}")
    assert await browser.read(".facts .busy") == "running"
    [waiting] = seen.door.questions
    waiting.give("no", "test")
    assert "ApprovalDenied" in await run
    # Without a reload.
    await browser.until("document.querySelector('.problem') && document.querySelector('.timeline rect.bad')")
    assert await browser.problems() == []


async def test_output_is_shown_from_its_end_also_when_the_page_fetches_it_again(seen: Seen) -> None:
    browser = seen.browser
    run = asyncio.create_task(seen.run(LONG))
    await browser.until("document.querySelector('#waiting').textContent == '1'")
    [running] = seen.door.activity.running()
    await seen.open(f"/dashboard/runs/{running.id}")
    await browser.until(AT_END.format("pre.output"))
    await seen.open("/dashboard/runs")
    await browser.until(AT_END.format("pre.live"))
    await browser.script("document.querySelector('pre.live').id = 'old'")
    await seen.run("print(1)")
    await browser.until("!document.querySelector('#old') && " + AT_END.format("pre.live"))
    [waiting] = seen.door.questions
    waiting.give("no", "test")
    await run
    assert await browser.problems() == []


async def test_what_is_being_typed_stays_when_another_question_comes(seen: Seen) -> None:
    browser = seen.browser
    asked = read_form({"properties": {"city": {"type": "string"}}})
    form = Question("Where to?", server="travel", form=asked, replies=("once", "no"))
    with seen.door.questions.waiting(form, "ada", None):
        await seen.open("/dashboard/questions")
        await browser.type("input[name=f0]", "Ro")
        with seen.door.questions.waiting(Question("Allow this?"), "ada", None):
            await browser.until("document.querySelectorAll('.question').length == 2")
            await browser.type("input[name=f0]", "me")
            assert await browser.script("return document.querySelector('input[name=f0]').value") == "Rome"
            await browser.script("document.querySelectorAll('.question')[0].querySelector('button').focus()")
        await browser.until("document.querySelectorAll('.question').length == 1")
        assert await browser.script("return document.activeElement.value") == "once"
        assert await browser.script("return document.querySelector('input[name=f0]').value") == "Rome"
    assert await browser.problems() == []


async def test_the_overview_with_the_demo_s_scenarios(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = seen.browser
    if PICTURES:
        # One day says little, so what is measured now is noted for the days before as well.
        for ago in range(12, 0, -1):
            day = str(datetime.now(UTC).date() - timedelta(days=ago))
            monkeypatch.setattr(ledger, "_day", lambda day=day: day)
            for scenario in RUN[: 1 + ago * 5 % 6]:
                await seen.run_allowed(scenario.program)
        monkeypatch.undo()
    await seen.open("/")
    for scenario in RUN:
        await seen.run_allowed(scenario.program)
    await browser.until(f"document.querySelectorAll('#recent tbody tr').length >= {len(RUN)}")
    await seen.open("/")
    await browser.until("document.querySelector('.u-over')")
    await seen.picture("overview")
    await browser.prefer("dark")
    assert await browser.script("return getComputedStyle(document.body).backgroundColor") == "rgb(14, 18, 24)"
    await seen.open("/")
    await browser.until("document.querySelector('.u-over')")
    await seen.picture("overview-dark")
    await browser.prefer("light")
    longest = max(seen.door.activity.recent(20), key=lambda run: run.call_count)
    await seen.open(f"/dashboard/runs/{longest.id}")
    await seen.picture("run")
    assert await browser.problems() == []


@pytest.mark.parametrize("width", [PHONE, DESKTOP], ids=["phone", "desktop"])
async def test_every_page_fits_and_breaks_no_policy(seen: Seen, width: tuple[int, int]) -> None:
    browser = seen.browser
    await seen.run("print(1)", "s" * 120)
    [run] = seen.door.activity.recent(1)
    await browser.resize(*width)
    for path in (*PAGES, f"/dashboard/runs/{run.id}", "/dashboard/session?name=release", "/dashboard/tools?q=issue"):
        await seen.open(path)
        assert await browser.read("h1"), path
        assert await browser.script("return document.documentElement.scrollWidth") <= width[0], path
        assert await browser.script(CUT) == [], path
        if width is DESKTOP:
            for column, least in (("wide", 300), ("who", 150)):
                wide = f"return document.querySelector('.rows .{column}')?.clientWidth ?? {least}"
                assert await browser.script(wide) >= least, (path, column)
        assert await browser.problems() == [], path
        if width is PHONE and path == "/":
            await seen.picture("phone")
    await browser.resize(*DESKTOP)


async def test_the_keyboard_reaches_search(seen: Seen) -> None:
    browser = seen.browser
    await seen.open("/dashboard/tools")
    await browser.press("/")
    assert await browser.script("return document.activeElement.name") == "q"
    await browser.type("input[name=q]", "create issue")
    await browser.until("document.querySelector('#results .name').textContent.includes('create_issue')")
    await seen.open("/")
    await browser.press("\ue004")
    assert await browser.script("return document.activeElement.className") == "skip"
    assert await browser.problems() == []
