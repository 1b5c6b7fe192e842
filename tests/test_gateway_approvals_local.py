"""Clients that cannot be asked: the person answers in a browser, by `toolfold approve`, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from tests import warm
from tests.asking import GATHERED, ONE_BY_ONE, SOME_CALLS, called, config
from tests.test_gateway_approvals import (
    ERAS,
    ONE,
    TRANSPORTS,
    Answer,
    Older,
    callback,
    http_client,
    text,
    write_config,
)
from tests.test_gateway_http import started
from toolfold.fold import Toolfold
from toolfold.gateway.approval_page import FOLDER
from toolfold.gateway.questions import Questions
from toolfold.gateway.server import make_server
from toolfold.guards.events import Question, Replied

pytestmark = pytest.mark.anyio


@dataclass
class Desktop:
    """A desktop whose browser writes down what it was opened with."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        script = self.folder / "browser"
        self._links.touch()
        script.write_text(f'#!/bin/sh\necho "$1" >> {self._links}\n')
        script.chmod(0o755)
        return {"DISPLAY": ":99", "BROWSER": f"{script} %s"}

    @property
    def _links(self) -> Path:
        return self.folder / "links"

    async def link(self, number: int = 1) -> str:
        """The address that the browser was opened with, when it was."""
        async with asyncio.timeout(60):
            while len(links := self._links.read_text().splitlines()) < number:
                await asyncio.sleep(0.02)  # a file has no event
        return links[number - 1]

    async def press(self, answer: str, number: int = 1) -> None:
        link = await self.link(number)
        async with httpx2.AsyncClient(timeout=60) as http:
            response = await http.post(
                link, data={"answer": answer}, headers={"origin": link.partition("/approve/")[0]}
            )
            assert response.status_code == 200


NO_DESKTOP = {"DISPLAY": "", "WAYLAND_DISPLAY": ""}


@asynccontextmanager
async def connected(
    transport: str,
    mode: str,
    folder: Path,
    env: dict[str, str],
    answer: Answer | None = None,
    **approval: Any,
) -> AsyncGenerator[tuple[Client, Path]]:
    """A client (which cannot be asked without an `answer`), and the file with all that the gateway wrote to stderr."""
    log = folder / "stderr"
    if transport == "stdio":
        # The SDK gives a server few variables of its own.
        parameters = StdioServerParameters(
            command="/bin/sh",
            args=["-c", 'exec "$@" 2> "$0"', str(log), warm.python(), *write_config(folder, **approval)],
            env={**os.environ, **env},
        )
        async with Client(parameters, mode=mode, elicitation_callback=callback(answer)) as client:
            yield client, log
    else:
        command = [*write_config(folder, **approval), "--http", "127.0.0.1:0"]
        async with started(command, env) as gateway, http_client(gateway, mode, answer) as client:
            yield client, log
            log.write_text("".join(gateway.printed))


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("mode", ERAS)
async def test_a_loop_of_fifty_is_approved_once_in_the_browser(runtime_dir: Path, transport: str, mode: str) -> None:
    desktop = Desktop(runtime_dir)
    seen: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message or "")

    async with connected(transport, mode, runtime_dir, desktop.environment) as (client, log):
        call = asyncio.create_task(client.call_tool("run_code", {"code": GATHERED}, progress_callback=on_progress))
        await desktop.press("run")
        result: Any = await call
        assert any("by `toolfold approve`" in message for message in seen)
        assert result.content[0].text == f"{SOME_CALLS} ['noted']"
        link = await desktop.link()
    assert len(called(runtime_dir)) == SOME_CALLS
    # Nothing that a model or a log gets to see has the link or its secret.
    for shown in (str(result), *seen, *(each.read_text() for each in (log, *(runtime_dir / "logs").glob("*.log")))):
        assert link.rpartition("/")[2] not in shown
    assert list((runtime_dir / FOLDER).iterdir()) == []


async def test_where_no_person_is_a_client_without_forms_is_refused_at_once(runtime_dir: Path) -> None:
    desktop = Desktop(runtime_dir)
    async with connected("stdio", "legacy", runtime_dir, desktop.environment, without_form="deny") as (client, _):
        refused = await text(client, ONE)
    assert "no way to ask one here" in refused
    assert "toolfold policy allow" in refused
    assert (runtime_dir / "links").read_text() == ""
    assert called(runtime_dir) == []


async def test_a_no_in_the_browser(runtime_dir: Path) -> None:
    desktop = Desktop(runtime_dir)
    async with connected("stdio", "legacy", runtime_dir, desktop.environment) as (client, _):
        call = asyncio.create_task(text(client, ONE_BY_ONE))
        await desktop.link()
        (file,) = (runtime_dir / FOLDER).iterdir()
        told = json.loads(file.read_text())
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {told['key']}"}) as http:
            (question,) = (await http.get(f"http://127.0.0.1:{told['port']}/questions")).json()
        assert question["session"] is None, "the name of a connection's session is ours alone"
        await desktop.press("no")
        assert await call == f"0 {SOME_CALLS}"
    assert called(runtime_dir) == []


async def test_a_question_that_the_client_shows_can_be_answered_here_as_well(runtime_dir: Path) -> None:
    class Here:
        questions = Questions()

        async def __call__(self, question: Question, caller: str, session: str | None) -> Replied:
            raise AssertionError("the client was asked")

    shown = asyncio.Event()

    async def never(_params: types.ElicitRequestFormParams) -> Any:
        shown.set()
        await asyncio.Event().wait()

    async with Toolfold.open(config(runtime_dir), data_dir=runtime_dir) as fold:
        server = make_server(fold, default_session="@connection-1", ask_locally=Here())
        async with Client(server, mode="legacy", elicitation_callback=callback(never)) as client:
            call = asyncio.create_task(text(client, ONE))
            await asyncio.wait_for(shown.wait(), 60)
            (waiting,) = Here.questions
            assert waiting.session is None, "the name of a connection's session is ours alone"
            assert waiting.give("once", "dashboard")
            await call
    assert len(called(runtime_dir)) == 1


async def test_nobody_answers_in_the_browser(runtime_dir: Path) -> None:
    desktop = Desktop(runtime_dir)
    async with connected("stdio", "legacy", runtime_dir, desktop.environment, timeout=0.5) as (client, _):
        assert await text(client, ONE_BY_ONE) == f"0 {SOME_CALLS}"
        async with httpx2.AsyncClient(timeout=60) as http:
            assert (await http.get(await desktop.link())).status_code == 410
    assert called(runtime_dir) == []


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_that_refuses_to_be_asked_or_was_asked_too_often_leaves_it_to_the_browser(
    runtime_dir: Path, mode: str
) -> None:
    """The SDK's client takes ten rounds; a program may have more to ask."""
    desktop = Desktop(runtime_dir)
    asked: list[Any] = []

    async def answer(params: types.ElicitRequestFormParams) -> Any:
        asked.append(params)
        if mode == "legacy":
            return types.ErrorData(code=types.METHOD_NOT_FOUND, message="not here")
        return types.ElicitResult(action="accept", content={"answer": "once"})

    calls = 1 if mode == "legacy" else 10
    code = f"from servers.ledger import note\nfor i in range({calls}): await note(text=str(i))\nprint('done')"
    async with connected("stdio", mode, runtime_dir, desktop.environment, answer) as (client, _):
        call = asyncio.create_task(text(client, code))
        await desktop.press("once")
        assert await call == "done"
    assert len(asked) == max(1, calls - 1)
    assert len(called(runtime_dir)) == calls


class TestWaitingForAClientThatLeft:
    """`approval.on_disconnect = "wait"`: the run goes on, and its session has what it did."""

    AFTERWARDS = f"{ONE}\nx = 5"

    async def test_a_question_that_the_client_was_asked_moves_to_the_browser(self, runtime_dir: Path) -> None:
        desktop = Desktop(runtime_dir)
        command = [*write_config(runtime_dir, on_disconnect="wait"), "--http", "127.0.0.1:0"]
        async with started(command, desktop.environment) as gateway, httpx2.AsyncClient(timeout=60) as http:
            client = await Older.connect(http, gateway, "ada")
            async with client.calling(self.AFTERWARDS, session="s") as events:
                question = await anext(events)
                assert question["method"] == "elicitation/create"
            await desktop.link()
            # It is not the client's to answer any more.
            yes = {"action": "accept", "content": {"answer": "once"}}
            await client.post({"jsonrpc": "2.0", "id": question["id"], "result": yes})
            assert called(runtime_dir) == []
            await desktop.press("once")
            assert await client.run("print(x)", session="s") == "5"
        assert len(called(runtime_dir)) == 1

    async def test_a_question_in_the_browser_stays_there(self, runtime_dir: Path) -> None:
        desktop = Desktop(runtime_dir)
        command = [*write_config(runtime_dir, on_disconnect="wait"), "--http", "127.0.0.1:0"]
        async with started(command, desktop.environment) as gateway:
            async with http_client(gateway, "2026-07-28", None) as client:
                call = asyncio.create_task(text(client, self.AFTERWARDS, session="s"))
                await desktop.link()
                call.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await call
            await desktop.press("once")
            async with http_client(gateway, "2026-07-28", None) as client:
                assert await text(client, "print(x)", session="s") == "5"
        assert len(called(runtime_dir)) == 1


async def test_without_a_desktop_the_log_points_to_the_command(runtime_dir: Path) -> None:
    async with connected("stdio", "legacy", runtime_dir, NO_DESKTOP) as (client, log):
        call = asyncio.create_task(text(client, GATHERED))
        async with asyncio.timeout(60):
            while "waits for your approval" not in log.read_text():
                await asyncio.sleep(0.02)  # a file has no event
        command = f"toolfold approve --data {runtime_dir}"
        assert f"ledger.note waits for your approval: run `{command}` in a terminal." in log.read_text()
        shown = await approve(runtime_dir, {"[Enter: later] ": "run\n"})
        assert f"{SOME_CALLS} times" in shown
        assert 'text="call 0"' in shown
        assert "Allowed." in shown
        assert await call == f"{SOME_CALLS} ['noted']"
        assert "Nothing waits for approval." in await approve(runtime_dir, {})
    assert len(called(runtime_dir)) == SOME_CALLS
    # A file that a killed gateway left behind is no trouble.
    (runtime_dir / FOLDER / "1-dead.json").write_text('{"port": 1, "key": "x"}')
    (runtime_dir / FOLDER / "2-odd.json").write_text("[]")
    assert "Nothing waits for approval." in await approve(runtime_dir, {})


def test_approve_is_for_people_at_a_terminal(tmp_path: Path) -> None:
    command = [warm.python(), "-m", "toolfold", "approve", "--data", str(tmp_path)]
    ran = subprocess.run(command, input="run\n", capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert "needs a terminal" in ran.stderr


async def approve(folder: Path, typed: dict[str, str]) -> str:
    return await asyncio.to_thread(on_a_terminal, ["approve", "--data", str(folder)], typed)


def on_a_terminal(words: list[str], typed: dict[str, str]) -> str:
    """All that `toolfold` shows on a terminal. `typed` is typed when the text before it was shown, each once."""
    ours, theirs = pty.openpty()
    command = [warm.python(), "-m", "toolfold", *words]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown, left = "", dict(typed)
    try:
        while True:
            try:
                shown += os.read(ours, 65536).decode()
            except OSError:  # the other end is closed
                break
            for prompt in [prompt for prompt in left if shown.endswith(prompt)]:
                os.write(ours, left.pop(prompt).encode())
        process.wait(timeout=60)
        return shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)


class TestOnTheTerminal:
    """`toolfold run`."""

    PROMPT = "[Enter: no] "

    def run(self, folder: Path, code: str, answer: str, *more: str) -> str:
        write_config(folder)
        words = ["run", "-c", code, "--config", str(folder / "config.json"), "--data", str(folder), *more]
        return on_a_terminal(words, {self.PROMPT: answer})

    def test_a_loop_is_approved_once(self, runtime_dir: Path) -> None:
        shown = self.run(runtime_dir, GATHERED, "r\n")
        assert f"{SOME_CALLS} times" in shown
        assert f"Allow: these {SOME_CALLS} calls [o]nce, all in this [r]un, [n]o?" in shown
        assert f"{SOME_CALLS} ['noted']" in shown
        assert len(called(runtime_dir)) == SOME_CALLS

    @pytest.mark.parametrize("answer", ["\n", "n\n", "No\n", "\x04"])
    def test_anything_like_a_no_is_one(self, runtime_dir: Path, answer: str) -> None:
        assert f"0 {SOME_CALLS}" in self.run(runtime_dir, ONE_BY_ONE, answer)
        assert called(runtime_dir) == []

    def test_what_is_not_understood_is_asked_again(self, runtime_dir: Path) -> None:
        shown = self.run(runtime_dir, ONE, "perhaps\nonce\n")
        assert shown.count(self.PROMPT) == 2
        assert "noted" in shown

    def test_values_cannot_act_on_the_terminal(self, runtime_dir: Path) -> None:
        code = "from servers.ledger import note\nprint(await note(text='\\x1b[2J\\x1b[1mAllow: yes\\u202e'))"
        shown = self.run(runtime_dir, code, "n\n")
        assert 'text="\\x1b[2J\\x1b[1mAllow: yes\\u202e"' in shown
        assert "\u202e" not in shown
        assert "\x1b[2J" not in shown

    def test_what_the_program_prints_meanwhile_comes_after_the_answer(self, runtime_dir: Path) -> None:
        code = (
            "import asyncio\nfrom servers.ledger import note, awkward\nwaiting = asyncio.create_task(note(text='x'))\n"
            "while not waiting.done():\n    await awkward()\n    print('ti' + 'ck')\nprint(await waiting)"
        )
        shown = self.run(runtime_dir, code, "perhaps\nonce\n")
        first, last = shown.index(self.PROMPT), shown.rindex(self.PROMPT)
        assert first < last
        assert "tick" not in shown[first:last]
        assert "tick" in shown[last:]

    @pytest.mark.parametrize("more", [[], ["--json"]])
    def test_without_a_terminal_it_is_denied_and_explained(self, runtime_dir: Path, more: list[str]) -> None:
        write_config(runtime_dir)
        words = ["run", "-c", ONE, "--config", str(runtime_dir / "config.json"), "--data", str(runtime_dir), *more]
        command = [warm.python(), "-m", "toolfold", *words]
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL
        )
        assert ran.returncode == 1
        assert "toolfold policy allow 'ledger.note'" in ran.stdout + ran.stderr
        assert called(runtime_dir) == []
