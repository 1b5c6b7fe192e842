"""The host's side of the channel, word by word, with a guest that says exactly what a test lets it say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.scripted_guest import Guest
from tests.upstream_lab import eventually
from toolfold.config.settings import SandboxSettings
from toolfold.errors import LimitExceeded, SandboxDied, ToolfoldError
from toolfold.sandbox import run as running
from toolfold.sandbox import sandbox as module
from toolfold.sandbox.costs import Costs
from toolfold.sandbox.exits import in_words
from toolfold.sandbox.frames import Call, Request
from toolfold.sandbox.protocol import Cell, SessionHome
from toolfold.sandbox.replies import ReplyBudget
from toolfold.sandbox.run import Run
from toolfold.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.anyio

DONE: dict[str, Any] = {"t": "done", "error": "", "names": [], "value": 1}


def call(number: int, **arguments: Any) -> dict[str, Any]:
    return {"t": "call", "id": number, "server": "lab", "tool": "echo", "arguments": arguments}


class Host:
    def __init__(self) -> None:
        self.asked: list[int] = []
        self.cancelled: list[int] = []
        self.heard = b""
        self.reports: list[tuple[str, float | None]] = []
        self.hold: asyncio.Event | None = None
        self.problem: Exception | None = None

    async def answer(self, request: Request) -> Any:
        self.asked.append(request.id)
        if self.problem is not None:
            raise self.problem
        if self.hold is not None:
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.cancelled.append(request.id)
                raise
        assert isinstance(request, Call)
        return request.arguments

    def printed(self, data: bytes) -> None:
        self.heard += data

    def progress(self, text: str, fraction: float | None) -> None:
        self.reports.append((text, fraction))


@asynccontextmanager
async def _sandbox(
    tmp_path: Any, guest: Guest | None = None, more: dict[str, Any] | None = None, **settings: Any
) -> AsyncGenerator[tuple[Sandbox, Guest, Host]]:
    guest = guest or Guest()
    home = SessionHome(tmp_path)
    home.workspace.mkdir()
    home.skills.mkdir()

    async def start() -> Cell:
        guest.say({"t": "ready"}, *([more] if more else []))
        return guest

    sandbox = await Sandbox.start(start(), home, SandboxSettings(**settings), empty=True)
    try:
        yield sandbox, guest, Host()
    finally:
        await sandbox.close()
        guest.close()


async def _begun(sandbox: Sandbox, guest: Guest, host: Host, seconds: float = 60) -> asyncio.Task[Any]:
    run = asyncio.create_task(sandbox.run("code", host, seconds))
    assert await guest.hear() == {"t": "run", "code": "code"}
    return run


async def _dies(run: asyncio.Task[Any], sandbox: Sandbox, words: str) -> None:
    with pytest.raises(SandboxDied, match=words):
        await run
    assert not sandbox.alive


class TestStart:
    async def _fails(self, tmp_path: Any, guest: Guest) -> SandboxDied:
        async def start() -> Cell:
            return guest

        with pytest.raises(SandboxDied) as died:
            await Sandbox.start(start(), SessionHome(tmp_path), SandboxSettings())
        assert guest.kills >= 1
        guest.close()
        return died.value

    async def test_one_that_ends_before_it_is_ready_is_quoted(self, tmp_path: Any) -> None:
        guest = Guest("exit code 3")
        guest.print(b"no such thing\n")
        guest.end()
        assert (await self._fails(tmp_path, guest)).message == (
            "The sandbox did not start (exit code 3): no such thing"
        )

    async def test_only_the_end_of_what_it_said_is_quoted(self, tmp_path: Any) -> None:
        guest = Guest()
        guest.print(b"a" + b"b" * 2000)
        guest.end()
        assert "a" not in (await self._fails(tmp_path, guest)).message.partition(": ")[2]

    async def test_one_that_is_not_ready_in_time_is_ended(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_START_TIMEOUT", 0.05)
        assert "was not ready within" in (await self._fails(tmp_path, Guest())).message

    async def test_one_that_says_something_else_is_ended(self, tmp_path: Any) -> None:
        guest = Guest()
        guest.say(call(1))
        assert "a message outside of a run" in (await self._fails(tmp_path, guest)).message

    async def test_one_that_is_ready_and_ends_at_once_runs_nothing(self, tmp_path: Any) -> None:
        async with _sandbox(tmp_path, more={"t": "ready"}) as (sandbox, guest, host):
            assert not sandbox.alive
            with pytest.raises(SandboxDied, match="a second ready message"):
                await sandbox.run("code", host, 10)
            assert guest.kills >= 1


class TestRun:
    async def test_requests_are_answered_and_the_end_is_the_result(self, tmp_path: Any) -> None:
        async with _sandbox(tmp_path) as (sandbox, guest, host):
            run = await _begun(sandbox, guest, host)
            guest.say(call(1, a=1), {"t": "progress", "text": "half", "fraction": 0.5}, call(2, a=2))
            assert [await guest.hear(), await guest.hear()] == [{"id": 1, "ok": {"a": 1}}, {"id": 2, "ok": {"a": 2}}]
            guest.print(b"printed")
            guest.say(DONE)
            assert (await run).value == 1
            assert (host.heard, host.reports) == (b"printed", [("half", 0.5)])
            again = await _begun(sandbox, guest, host)
            guest.say(DONE)
            assert (await again).value == 1
            assert sandbox.alive

    async def test_an_error_of_ours_is_a_reply_and_any_other_ends_the_run(self, tmp_path: Any) -> None:
        async with _sandbox(tmp_path) as (sandbox, guest, host):
            run = await _begun(sandbox, guest, host)
            host.problem = ToolfoldError("Not today.", hint="Tomorrow.")
            guest.say(call(1))
            error = {"message": "Not today. Tomorrow.", "code": host.problem.code, "server": "lab", "tool": "echo"}
            assert await guest.hear() == {"id": 1, "error": error}
            host.problem = RuntimeError("a bug")
            guest.say(call(2))
            with pytest.raises(RuntimeError, match="a bug"):
                await run
            assert not sandbox.alive

    async def test_half_a_character_in_a_program_is_replaced(self, tmp_path: Any) -> None:
        async with _sandbox(tmp_path) as (sandbox, guest, host):
            run = asyncio.create_task(sandbox.run("'\ud800'", host, 10))
            assert (await guest.hear())["code"] == "'?'"
            guest.say(DONE)
            await run

    async def test_what_is_open_at_the_end_is_cancelled(self, tmp_path: Any) -> None:
        async with _sandbox(tmp_path) as (sandbox, guest, host):
            run = await _begun(sandbox, guest, host)
            host.hold = asyncio.Event()
            guest.say(call(1), call(2))
            async with asyncio.timeout(60):
                while len(host.asked) < 2:
                    await asyncio.sleep(0.01)
            guest.say(DONE)
            await run
            assert sorted(host.cancelled) == [1, 2]
            assert sandbox.alive

    async def test_time_that_is_over_ends_it(self, tmp_path: Any) -> None:
        async with _sandbox(tmp_path) as (sandbox, guest, host):
            host.hold = asyncio.Event()
            run = await _begun(sandbox, guest, host, 0.2)
            guest.say(call(1))
            with pytest.raises(LimitExceeded, match=r"stopped after 0\.2 s"):
                await run
            assert host.cancelled == [1]
            assert not sandbox.alive
            assert guest.kills >= 1

    async def test_cancelling_ends_it_and_keeps_what_was_printed(self, tmp_path: Any) -> None:
        async with _sandbox(tmp_path) as (sandbox, guest, host):
            run = await _begun(sandbox, guest, host)
            guest.print(b"before")
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            assert host.heard == b"before"
            assert not sandbox.alive

    async def test_how_it_ended_is_told(self, tmp_path: Any) -> None:
        async with _sandbox(tmp_path, Guest("killed by SIGSEGV")) as (sandbox, guest, host):
            run = await _begun(sandbox, guest, host)
            guest.print(b"last words")
            guest.end()
            with pytest.raises(SandboxDied, match="ended its interpreter") as died:
                await run
            assert died.value.message == "The program ended its interpreter (killed by SIGSEGV)."
            assert died.value.hint == "Perhaps it recursed too deeply."
            assert host.heard == b"last words"


class TestProtocol:
    @pytest.mark.parametrize(
        ("messages", "more", "words"),
        [
            ([call(1), call(1)], b"", "request 1 is open already"),
            ([DONE, DONE], b"", "a message outside of a run"),
            ([DONE, call(1)], b"", "a message outside of a run"),
            ([DONE], b"\0", "a message outside of a run"),
            ([{"t": "ready"}], b"", "a second ready message"),
            ([{"t": "nonsense"}], b"", "not a message of ours"),
        ],
    )
    async def test_what_breaks_it_ends_the_sandbox(
        self, tmp_path: Any, messages: list[dict[str, Any]], more: bytes, words: str
    ) -> None:
        async with _sandbox(tmp_path) as (sandbox, guest, host):
            host.hold = asyncio.Event()
            run = await _begun(sandbox, guest, host)
            guest.say(*messages, more=more)
            await _dies(run, sandbox, words)
            assert guest.kills >= 1

    async def test_a_word_between_two_runs_ends_it_and_is_told_once(self, tmp_path: Any) -> None:
        async with _sandbox(tmp_path) as (sandbox, guest, host):
            ended: list[str] = []
            sandbox.on_end = lambda: ended.append("once")
            run = await _begun(sandbox, guest, host)
            guest.say(DONE)
            await run
            guest.say(call(1))
            await eventually(lambda: not sandbox.alive)
            await sandbox.close()
            assert ended == ["once"]
            assert host.asked == []

    async def test_output_between_two_runs_belongs_to_none(self, tmp_path: Any) -> None:
        async with _sandbox(tmp_path) as (sandbox, guest, host):
            run = await _begun(sandbox, guest, host)
            guest.say(DONE)
            await run
            guest.print(b"late")
            await asyncio.sleep(0.05)
            again = await _begun(sandbox, guest, host)
            guest.say(DONE)
            await again
            assert host.heard == b""


class TestLimits:
    @pytest.mark.parametrize(("count", "fine"), [(98, True), (99, False)])
    async def test_messages_in_a_second(self, tmp_path: Any, count: int, fine: bool) -> None:
        """With the one that said `ready`, and the one that ends the run."""
        async with _sandbox(tmp_path, messages=100) as (sandbox, guest, host):
            sandbox._second = float("inf")  # pyright: ignore[reportPrivateUsage]  # the second never ends
            run = await _begun(sandbox, guest, host)
            guest.say(*({"t": "progress", "text": str(n)} for n in range(count)), DONE)
            if fine:
                await run
            else:
                with pytest.raises(LimitExceeded, match="more than 100 messages in a second") as broken:
                    await run
                assert broken.value.limit == "sandbox.messages"

    @pytest.mark.parametrize(("size", "fine"), [(1000, True), (1001, False)])
    async def test_bytes_of_output(self, tmp_path: Any, size: int, fine: bool) -> None:
        async with _sandbox(tmp_path, output=1000) as (sandbox, guest, host):
            run = await _begun(sandbox, guest, host)
            guest.print(b"x" * size)
            if fine:
                guest.say(DONE)
                await run
                assert len(host.heard) == 1000
            else:
                with pytest.raises(LimitExceeded, match="printed more than 1,000 bytes") as broken:
                    await run
                assert broken.value.limit == "sandbox.output"

    async def test_no_more_is_read_while_too_much_is_open(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(running, "_OPEN_REQUESTS", 4)
        async with _sandbox(tmp_path) as (sandbox, guest, host):
            host.hold = asyncio.Event()
            run = await _begun(sandbox, guest, host)
            # Each fills more than what is read at once.
            guest.say(*(call(number, text="x" * 10_000) for number in range(8)))
            await eventually(lambda: len(host.asked) == 4)
            await asyncio.sleep(0.05)
            assert len(host.asked) == 4
            host.hold.set()
            for _ in range(8):
                await guest.hear()
            guest.say(DONE)
            await run
            assert host.asked == list(range(8))

    async def test_book_is_kept_of_what_is_open(self) -> None:
        run = Run(Host(), asyncio.get_running_loop().create_future(), ReplyBudget(), Costs())
        task = asyncio.create_task(asyncio.sleep(0))
        for number, too_much, little in ((999, False, True), (1000, False, False), (1999, False, False)):
            run.requests = dict.fromkeys(range(number), task)
            assert (run.has_too_much_open, run.has_little_open) == (too_much, little)
        run.requests = dict.fromkeys(range(2000), task)
        assert run.has_too_much_open
        run.requests = {}
        half = 32 * 1024 * 1024
        for size, too_much, little in ((half - 1, False, True), (half, False, False), (2 * half, True, False)):
            run.open_bytes = size
            assert (run.has_too_much_open, run.has_little_open) == (too_much, little)
        await task


class TestReplies:
    async def test_a_result_is_fetched_while_there_is_space_for_one_like_the_last(self) -> None:
        budget = ReplyBudget(most=200_000)
        async with budget.writing(100_000):
            pass
        entered: list[int] = []
        release = asyncio.Event()

        async def fetch(number: int) -> None:
            async with budget.fetching():
                entered.append(number)
                await release.wait()

        tasks = [asyncio.create_task(fetch(number)) for number in range(4)]
        await asyncio.sleep(0.01)
        assert entered == [0, 1], "two of the size of the last fit exactly"
        tasks[2].cancel()
        release.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert entered == [0, 1, 3]
        assert budget.total == 100_000

    async def test_one_that_gives_up_as_its_turn_comes_gives_it_back(self) -> None:
        budget = ReplyBudget(most=70_000)
        first = budget.fetching()
        await first.__aenter__()
        order: list[int] = []

        async def fetch(number: int) -> None:
            async with budget.fetching():
                order.append(number)

        one, two = asyncio.create_task(fetch(1)), asyncio.create_task(fetch(2))
        await asyncio.sleep(0.01)
        await first.__aexit__(None, None, None)
        one.cancel()
        await asyncio.wait_for(two, 60)
        assert order == [2]
        with pytest.raises(asyncio.CancelledError):
            await one

    async def test_nothing_is_fetched_while_what_is_held_fills_the_budget(self) -> None:
        budget = ReplyBudget(most=100)
        async with budget.writing(100):
            waiting = asyncio.create_task(_fetch(budget))
            await asyncio.sleep(0.01)
            assert not waiting.done()
        await asyncio.wait_for(waiting, 60)


async def _fetch(budget: ReplyBudget) -> None:
    async with budget.fetching():
        pass


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit code 0"),
        (127, "exit code 127"),
        (128, "exit code 128"),
        (-11, "killed by SIGSEGV"),
        (139, "killed by SIGSEGV"),
        (129, "killed by SIGHUP"),
    ],
)
def test_how_a_process_ended_in_words(code: int, words: str) -> None:
    assert in_words(code) == words
