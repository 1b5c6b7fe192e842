"""A run's clock, its place in line, its caller's sessions, and what is told when a session is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import toolfold
from tests.lab import lab_fold
from toolfold import Toolfold, ToolfoldError
from toolfold.config.settings import Settings
from toolfold.definitions import BlobPart, TextPart, ToolResult
from toolfold.guards.context import Caller, Deadline, RunContext
from toolfold.guards.events import Replied, RunResult
from toolfold.guards.guard import Call, CallNotes
from toolfold.guards.privacy import KeepPrivate
from toolfold.guards.watch import Watch
from toolfold.telemetry.observe import Observer, Observers, SeenCall, SeenRun

pytestmark = pytest.mark.anyio


class TestContext:
    async def test_a_caller_is_nothing_but_a_caller_unless_it_is_said(self) -> None:
        ada = Caller("ada")
        assert (ada.groups, ada.host, ada.owner, ada.scraper) == (frozenset(), False, False, False)

    async def test_what_is_noted_on_the_way_makes_no_other_call_and_is_not_shown(self) -> None:
        run = RunContext("ada", None, Deadline(5), code="secret = 1")
        run.answered["lab.add"] = Replied("run", "ada")
        first = Call("1", "tool", "lab", "add", {"a": 1}, run)
        second = Call("1", "tool", "lab", "add", {"a": 1}, run, notes=CallNotes(asked=["Where to?"]))
        assert first == second
        for part in ("notes", "answered", "secret", "privacy", "watch"):
            assert part not in repr(second)
        assert first != first.with_arguments({"a": 2})

    async def test_without_a_person_every_answer_is_no(self) -> None:
        question: Any = object()

        async def ask(asked: object) -> Any:
            assert asked is question
            return "once"

        assert await RunContext("ada", None, Deadline(5)).replied(question) == Replied("no", "nobody to ask")
        run = RunContext("ada", None, Deadline(5), asker=ask)
        assert await run.replied(question) == Replied("once", "host application")
        assert await run.ask(question) == "once"

    @pytest.mark.parametrize(
        ("result", "threads"),
        [
            (ToolResult(parts=[TextPart("x" * 4096)]), 0),
            (ToolResult(parts=[TextPart("x" * 4000), TextPart("x" * 97)]), 1),
            (ToolResult(parts=[BlobPart("A" * 4097, "image/png")]), 1),
            (ToolResult(structured={"a": 1}, has_structured=True), 0),
            (ToolResult(structured=msgspec.Raw(b'{"a": 1}'), has_structured=True), 1),
        ],
    )
    async def test_private_values_of_long_results_are_looked_for_beside_the_loop(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: ToolResult, threads: int
    ) -> None:
        keep = KeepPrivate(Settings.model_validate({"privacy": {"enabled": True}, "data_dir": tmp_path}))
        run = RunContext("ada", None, Deadline(5), privacy=await keep.for_run("ada", None))
        begun: list[object] = []

        async def beside(function: Callable[[], Any]) -> Any:
            begun.append(function)
            return function()

        async def server(call: Call) -> ToolResult:
            return result

        monkeypatch.setattr(asyncio, "to_thread", beside)
        await keep(Call("1", "tool", "lab", "add", {}, run), server)
        assert len(begun) == threads

    async def test_observers_are_told_of_every_call_and_a_run_keeps_a_thousand(self) -> None:
        told: list[SeenCall] = []
        runs: list[SeenRun] = []

        class Counting(Observer):
            def call_started(self, run: SeenRun, call: SeenCall) -> None:
                told.append(call)
                runs.append(run)

        observers = Observers()
        observers.add(Counting())
        watch = Watch(observers)
        run = RunContext("ada", None, Deadline(5))

        async def work() -> Any:
            for number in range(1001):
                watch.call_started(Call(f"c{number}", "tool", "lab", "add", {}, run, line=number))
            return RunResult(success=True, output="")

        await watch.run(run, work)
        assert [(told[7].id, told[7].kind, told[7].server, told[7].name, told[7].line)] == [
            ("c7", "tool", "lab", "add", 7)
        ]
        assert (len(told), len(runs[0].calls), runs[0].call_count) == (1001, 1000, 1001)

    @pytest.mark.parametrize("private", [True, False])
    async def test_why_a_run_or_a_call_failed_is_told_unless_values_are_private(
        self, tmp_path: Path, private: bool
    ) -> None:
        runs: list[SeenRun] = []

        class Ends(Observer):
            def run_ended(self, run: SeenRun) -> None:
                runs.append(run)

        observers = Observers()
        observers.add(Ends())
        watch = Watch(observers)
        keep = KeepPrivate(Settings.model_validate({"privacy": {"enabled": True}, "data_dir": tmp_path}))
        run = RunContext("ada", None, Deadline(5), privacy=await keep.for_run("ada", None) if private else None)

        async def work() -> Any:
            call = Call("1", "tool", "lab", "add", {}, run)
            problem = ToolfoldError("Ada Lovelace is not there. " + "x" * 200)
            watch.call_ended(watch.call_started(call), call, problem)
            raise problem

        with pytest.raises(ToolfoldError):
            await watch.run(run, work)
        [seen] = runs
        assert (seen.ok, seen.error_code, seen.calls[0].ok, seen.calls[0].error_code) == (
            False,
            "toolfold",
            False,
            "toolfold",
        )
        told = "" if private else "Ada Lovelace is not there. " + "x" * 200
        assert (seen.error, seen.calls[0].error) == (told, told[:200])


class TestDeadline:
    async def test_it_fires_and_names_the_limit(self) -> None:
        deadline = Deadline(0.01)
        with pytest.raises(toolfold.LimitExceeded, match="too late"):
            async with deadline.enforced("too late"):
                await asyncio.sleep(60)
        assert deadline.remaining == 0

    async def test_time_that_is_over_before_the_block_begins_ends_it(self) -> None:
        deadline = Deadline(0.001)
        await asyncio.sleep(0.01)
        with pytest.raises(toolfold.LimitExceeded):
            async with deadline.enforced("too late"):
                await asyncio.sleep(60)

    async def test_a_timeout_of_somebody_else_passes_through(self) -> None:
        with pytest.raises(TimeoutError):
            async with Deadline(60).enforced("too late"), asyncio.timeout(0.01):
                await asyncio.sleep(60)

    async def test_it_stands_still_while_paused_and_pauses_may_overlap(self) -> None:
        deadline = Deadline(0.05)
        async with deadline.enforced("too late"):
            with deadline.paused():
                with deadline.paused():
                    await asyncio.sleep(0.1)
                await asyncio.sleep(0.1)
                assert deadline.is_paused
            assert not deadline.is_paused
        with pytest.raises(toolfold.LimitExceeded):
            async with deadline.enforced("too late"):
                await asyncio.sleep(60)

    async def test_it_fires_also_when_a_pause_never_ends(self) -> None:
        deadline = Deadline(0.01, longest_pause=0.05)
        with deadline.paused(), pytest.raises(toolfold.LimitExceeded):
            async with deadline.enforced("too late"):
                await asyncio.sleep(60)

    @pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), True])
    async def test_what_is_no_time_is_refused(self, seconds: float) -> None:
        with pytest.raises(ValueError, match="positive number of seconds"):
            Deadline(seconds)


class TestEdges:
    @pytest.mark.parametrize("timeout", [0, -1, float("nan")])
    async def test_a_timeout_that_is_none_is_refused(self, lab: Toolfold, timeout: float) -> None:
        with pytest.raises(ToolfoldError, match="positive number"):
            await lab.run("1", timeout=timeout)

    @pytest.mark.parametrize("arguments", [{"code": 123}, {"code": b"1"}, {"code": "1", "session": 5}])
    async def test_what_is_no_program_is_a_clear_error(self, lab: Toolfold, arguments: dict[str, Any]) -> None:
        with pytest.raises(ToolfoldError, match="must be a string, not"):
            await lab.run(**arguments)
        with pytest.raises(TypeError):
            await lab.run(**arguments)

    async def test_a_closed_fold_raises(self, runtime_dir: Path) -> None:
        async with lab_fold(runtime_dir) as fold:
            assert (await fold.run("print(1)")).success
        for use in (fold.run("1"), fold.search("add")):
            with pytest.raises(ToolfoldError, match="not open"):
                await use
        with pytest.raises(ToolfoldError, match="not open"):
            async for _ in fold.stream("1"):
                pass

    async def test_closing_ends_a_run_that_is_under_way(self, runtime_dir: Path) -> None:
        async with lab_fold(runtime_dir) as fold:
            begun = asyncio.Event()
            run = asyncio.create_task(fold.run("print('begun')\nwhile True: pass", on_event=lambda event: begun.set()))
            await asyncio.wait_for(begun.wait(), 60)
        with pytest.raises(ToolfoldError, match="closed"):
            await asyncio.wait_for(run, 30)

    def test_the_public_names_are_these(self) -> None:
        assert sorted(toolfold.__all__) == [
            "Answer",
            "ApprovalDenied",
            "ApprovalRequest",
            "Call",
            "ConfigError",
            "Event",
            "Finished",
            "Guard",
            "LimitExceeded",
            "LogseqSkillsIntegration",
            "Output",
            "PolicyDenied",
            "Proceed",
            "Progress",
            "Question",
            "RunContext",
            "RunError",
            "RunResult",
            "Settings",
            "SkillsManager",
            "ToolCall",
            "ToolResult",
            "Toolfold",
            "ToolfoldError",
            "__version__",
        ]
        for name in toolfold.__all__:
            assert getattr(toolfold, name) is not None


class TestErrors:
    @pytest.mark.parametrize(
        ("code", "wanted"),
        [
            ("while True: pass", "limit"),
            ("1 / 0", "program"),
            ("def", "syntax"),
            ("from servers.lab import ad", "unknown_tool"),
            ("import os\nos._exit(3)", "sandbox_died"),
        ],
    )
    async def test_a_framework_can_tell_them_apart(self, lab: Toolfold, code: str, wanted: str) -> None:
        await lab.warm_up()
        result = await lab.run(code, timeout=6)
        assert result.error is not None
        assert result.error.code == wanted
        assert result.error.message
        assert result.error.message in str(result.error)
        assert result.text.endswith(f"ERROR\n{result.error}")


class TestWaiting:
    async def test_runs_that_wait_for_a_sandbox_time_out_on_time_and_leave_the_pool_whole(
        self, runtime_dir: Path
    ) -> None:
        async with lab_fold(runtime_dir, run_limit=1) as fold:
            await fold.warm_up()
            begun = asyncio.Event()
            busy = asyncio.create_task(
                fold.run("print('x')\nwhile True: pass", timeout=60, on_event=lambda event: begun.set())
            )
            await asyncio.wait_for(begun.wait(), 60)
            results = await asyncio.gather(*(fold.run("print(1)", timeout=0.05) for _ in range(12)))
            assert not busy.done(), "they all ended while the place was taken"
            assert {result.error.code for result in results if result.error} == {"limit"}
            assert all("Nothing was run" in str(result.error) for result in results)
            waiting = [asyncio.create_task(fold.run("print(1)")) for _ in range(3)]
            await asyncio.sleep(0)
            for task in [*waiting, busy]:
                task.cancel()
            await asyncio.wait([*waiting, busy])
            assert [(await fold.run("print(2)")).output for _ in range(3)] == ["2\n"] * 3

    async def test_a_line_that_is_too_long_is_refused(self, runtime_dir: Path) -> None:
        async with lab_fold(runtime_dir, run_limit=1, run_queue=2) as fold:
            await fold.warm_up()
            code = "import time\nwhile True: time.sleep(0.01)"
            tasks = [asyncio.create_task(fold.run(code, timeout=60)) for _ in range(3)]
            await asyncio.sleep(0.05)
            refused = await fold.run("print(1)")
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        assert refused.error is not None
        assert refused.error.code == "limit"
        assert "run_queue" in str(refused.error)

    async def test_a_second_run_of_a_busy_session_times_out_on_time(self, runtime_dir: Path) -> None:
        async with lab_fold(runtime_dir) as fold:
            begun = asyncio.Event()
            busy = asyncio.create_task(
                fold.run("print(1)\nwhile True: pass", session="s", timeout=60, on_event=lambda event: begun.set())
            )
            await asyncio.wait_for(begun.wait(), 60)
            late = await fold.run("print(2)", session="s", timeout=0.05)
            assert not busy.done()
            busy.cancel()
            await asyncio.wait([busy])
        assert "Nothing was run" in str(late.error)


class TestSessions:
    async def test_sessions_belong_to_their_caller(self, lab: Toolfold) -> None:
        await lab.run("secret = 41\nopen('workspace/mine', 'w').close()", session="shared", caller="ada")
        other = await lab.run(
            "import os\nprint('secret' in globals(), os.listdir('workspace'))", session="shared", caller="bob"
        )
        again = await lab.run("print(secret + 1)", session="shared", caller="ada")
        assert other.output == "False []\n"
        assert again.output == "42\n"

    async def test_the_limit_holds_under_concurrency_and_the_oldest_goes_first(self, runtime_dir: Path) -> None:
        async with lab_fold(runtime_dir, session_limit=2) as fold:
            await fold.warm_up()
            results = await asyncio.gather(*(fold.run(f"x = {n}\nprint(x)", session=f"s{n}") for n in range(8)))
            assert [result.output for result in results] == [f"{n}\n" for n in range(8)]
            pool = fold.pool
            assert pool is not None
            assert pool.owned - pool.warm <= 2

    async def test_what_was_lost_is_told_once(self, runtime_dir: Path) -> None:
        async with lab_fold(runtime_dir, session_limit=1) as fold:
            await fold.run("rows = [1]\nopen('workspace/f', 'w').close()", session="first")
            await fold.run("pass", session="second")
            told = await fold.run("import os\nprint(os.listdir('workspace'))", session="first")
            after = await fold.run("print(1)", session="first")
        assert told.notice.startswith("Session 'first' was restarted (it made space for other sessions)")
        assert "rows" in told.notice
        assert told.text.startswith(told.notice)
        assert told.output == "['f']\n"
        assert after.notice == ""

    async def test_a_cancelled_run_is_told_to_the_next(self, runtime_dir: Path) -> None:
        async with lab_fold(runtime_dir) as fold:
            await fold.run("rows = [1]", session="s")
            begun = asyncio.Event()
            run = asyncio.create_task(
                fold.run("print(1)\nwhile True: pass", session="s", on_event=lambda event: begun.set())
            )
            await asyncio.wait_for(begun.wait(), 60)
            run.cancel()
            await asyncio.wait([run])
            told = await fold.run("print('again')", session="s")
        assert "its last run was cancelled" in told.notice

    async def test_a_restart_is_told_and_the_files_are_there(self, runtime_dir: Path) -> None:
        async with lab_fold(runtime_dir) as fold:
            await fold.run("rows = [1]\nopen('workspace/f', 'w').close()", session="s")
        async with lab_fold(runtime_dir) as fold:
            told = await fold.run("import os\nprint(os.listdir('workspace'))", session="s")
            again = await fold.run("pass", session="s")
        assert "Toolfold was restarted" in told.notice
        assert told.output == "['f']\n"
        assert again.notice == ""

    async def test_a_limit_tells_what_is_gone_at_once(self, runtime_dir: Path) -> None:
        async with lab_fold(runtime_dir) as fold:
            await fold.run("rows = [1]", session="s")
            ended = await fold.run("while True: pass", session="s", timeout=2)
            told = await fold.run("print(1)", session="s")
            after = await fold.run("print(1)", session="s")
        assert "its variables (rows) are gone" in str(ended.error)
        assert told.notice.startswith("Session 's' was restarted (its last run was stopped by a limit)")
        assert after.notice == ""

    async def test_an_idle_session_keeps_its_files_also_without_a_name(self, runtime_dir: Path) -> None:
        async with lab_fold(runtime_dir, session_idle=0.2) as fold:
            await fold.run("rows = [1]\nopen('workspace/f', 'w').close()", session="@connection")
            async with asyncio.timeout(60):
                while (pool := fold.pool) is None or pool.owned > pool.warm:
                    await asyncio.sleep(0.05)
            told = await fold.run("import os\nprint(os.listdir('workspace'))", session="@connection")
        assert told.notice.startswith("The session was restarted (it was not used for 0.2 s)")
        assert "@" not in told.text
        assert told.session is None
        assert told.output == "['f']\n"

    async def test_two_folds_on_one_folder_can_make_the_same_session(self, runtime_dir: Path) -> None:
        async with lab_fold(runtime_dir) as one, lab_fold(runtime_dir) as two:
            await asyncio.gather(one.warm_up(), two.warm_up())
            results = await asyncio.gather(
                *(fold.run("print(open('workspace/f', 'a').close())", session="new") for fold in (one, two))
            )
            assert [result.output for result in results] == ["None\n"] * 2
            seen = await one.run("import os\nprint(os.listdir('workspace'))", session="new")
        assert seen.output == "['f']\n"
