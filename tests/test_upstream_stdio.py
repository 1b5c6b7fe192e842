"""Real servers over real pipes, and what they do to us."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.upstream_lab import AWKWARD, awkward, eventually, text_of
from toolfold.config.settings import ServerConfig
from toolfold.definitions import BlobPart, LinkPart, Listing, TextPart
from toolfold.errors import InvalidArguments, UpstreamError, UpstreamTimeout, UpstreamUnavailable
from toolfold.upstream.fleet import Fleet
from toolfold.upstream.processes.supervisor_process import processes
from toolfold.upstream.starts import StartQueue, Turn

pytestmark = pytest.mark.anyio


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def list_files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_nothing_starts_before_it_is_needed_and_then_once_for_all(logs: Path) -> None:
    async with Fleet({"a": awkward(), "b": awkward()}, log_dir=logs) as fleet:
        assert [health.state for health in fleet.health()] == ["idle", "idle"]
        pids = await asyncio.gather(*(fleet.call("a", "pid", {}) for _ in range(10)))
        assert len({text_of(pid) for pid in pids}) == 1
        a, b = fleet.health()
        assert (a.state, a.pid, a.restarts) == ("ready", int(text_of(pids[0])), 0)
        assert a.protocol_version == "2025-11-25"
        assert b.state == "idle"


async def test_results_keep_every_kind_of_content(logs: Path) -> None:
    async with Fleet({"a": awkward()}, log_dir=logs) as fleet:
        result = await fleet.call("a", "everything", {})
        assert result.parts == [
            TextPart("plain"),
            BlobPart("aGk=", "image/png"),
            BlobPart("aGk=", "audio/wav"),
            TextPart("inside", "memo://a/b.txt", "text/plain"),
            BlobPart("AAEC", "application/octet-stream", "c.bin", "memo://a/c.bin"),
            LinkPart("memo://d", "d", "a link", "text/x"),
        ]
        assert result.has_structured
        assert result.structured == {"n": 1}
        refused = await fleet.call("a", "refuse", {})
        assert refused.is_error
        assert not refused.has_structured
        assert not (await fleet.call("a", "null", {})).has_structured


async def test_a_listing_holds_tools_resources_prompts_and_instructions(logs: Path) -> None:
    async with Fleet({"a": awkward()}, log_dir=logs) as fleet:
        listing = await fleet.listing("a")
        assert listing.instructions == "Be careful."
        assert listing.tools[0].name == "echo"
        assert [(r.uri, r.template) for r in listing.resources] == [("memo://a/b.txt", False), ("memo://{x}", True)]
        (prompt,) = listing.prompts
        assert [(a.name, a.required) for a in prompt.arguments] == [("who", True)]
        assert await fleet.read_resource("a", "memo://a/b.txt") == [
            TextPart("read", "memo://a/b.txt"),
            BlobPart("AAEC", "application/octet-stream", "c.bin", "memo://a/c.bin"),
        ]
        assert await fleet.get_prompt("a", "greet", {"who": "Ada"}) == [
            {"role": "user", "content": {"type": "text", "text": "Hello Ada"}}
        ]


async def test_all_pages_of_tools_are_read(logs: Path) -> None:
    async with Fleet({"a": awkward("pages")}, log_dir=logs) as fleet:
        listing = await fleet.listing("a")
        assert [tool.name for tool in listing.tools] == [f"t{page}{letter}" for page in range(5) for letter in "ab"]


@pytest.mark.parametrize(("flag", "kept"), [("same-cursor", 1), ("endless", 1000)])
async def test_a_list_without_end_is_cut_and_reported(logs: Path, flag: str, kept: int) -> None:
    async with Fleet({"a": awkward(flag)}, log_dir=logs) as fleet:
        listing = await fleet.listing("a")
        assert len(listing.tools) == kept
        assert any("tools/list" in problem for problem in fleet.health()[0].problems)


async def test_a_list_is_cut_at_a_number_of_bytes_and_the_server_is_not_asked_for_more(logs: Path) -> None:
    async with Fleet({"a": awkward("heavy-pages")}, log_dir=logs) as fleet, asyncio.timeout(60):
        listing = await fleet.listing("a")
        assert [tool.name for tool in listing.tools] == [f"t{page}" for page in range(8)]
        assert fleet.health()[0].problems[0] == "tools/list sent too much; 8 entries were kept"


async def test_one_invalid_tool_does_not_lose_the_others(logs: Path) -> None:
    async with Fleet({"a": awkward("invalid-tools")}, log_dir=logs) as fleet:
        listing = await fleet.listing("a")
        tools = {tool.name: tool for tool in listing.tools}
        assert list(tools) == ["good", "no_schema", "list_schema", "wrong_type", "wrong_details", "last"]
        assert tools["no_schema"].input_schema == tools["list_schema"].input_schema == {"type": "object"}
        assert tools["wrong_type"].input_schema["type"] == "objekt"
        assert tools["wrong_details"].description == ""
        assert tools["wrong_details"].output_schema is None
        problems = "\n".join(fleet.health()[0].problems)
        for word in ("number 2", "number 5", "no_schema", "list_schema", "wrong_type", "wrong_details", "twice"):
            assert word in problems
        assert "wrong_type" in fleet.health()[0].log_file.read_text()


async def test_junk_on_stdout_is_skipped_and_logged(logs: Path) -> None:
    async with Fleet({"a": awkward("banner")}, log_dir=logs) as fleet:
        assert text_of(await fleet.call("a", "junk", {})) == "still here"
        assert text_of(await fleet.call("a", "echo", {"x": 1})) == '{"x": 1}'
        log = fleet.health()[0].log_file.read_text()
        assert "listening on stdio" in log
        assert "no newline here" in log
        assert "\x1b" not in log


async def test_a_command_that_floods_stdout_is_given_up_and_does_not_hold_up_the_loop(logs: Path) -> None:
    async with Fleet({"a": ServerConfig(command="yes"), "b": awkward()}, log_dir=logs) as fleet, asyncio.timeout(20):
        flood = asyncio.create_task(fleet.call("a", "echo", {}))
        assert text_of(await fleet.call("b", "echo", {})) == "{}"
        with pytest.raises(UpstreamUnavailable, match=r"sent 10,000 lines and no MCP message before it was ready"):
            await flood


@pytest.mark.parametrize(
    "kind", ["result is a list", "no result", "too deep", "broken text", "content is a number", "unknown content"]
)
async def test_an_invalid_response_fails_its_call_at_once_and_no_other(logs: Path, kind: str) -> None:
    async with Fleet({"a": awkward(call_timeout=60)}, log_dir=logs) as fleet, asyncio.timeout(20):
        if kind == "unknown content":
            result = await fleet.call("a", "nonsense", {"kind": kind})
            assert '"hologram"' in "".join(part.text for part in result.parts if isinstance(part, TextPart))
        else:
            with pytest.raises(UpstreamError) as failed:
                await fleet.call("a", "nonsense", {"kind": kind})
            assert not isinstance(failed.value, UpstreamUnavailable | UpstreamTimeout)
            if kind == "content is a number":
                assert "`nonsense` sent an invalid response" in str(failed.value)
                assert "may have taken effect" in str(failed.value)
        assert text_of(await fleet.call("a", "echo", {})) == "{}"
        assert fleet.health()[0].restarts == 0


async def test_a_batch_of_answers_is_read(logs: Path) -> None:
    async with Fleet({"a": awkward(call_timeout=10)}, log_dir=logs) as fleet:
        assert (await fleet.call("a", "batch", {})).parts == []


async def test_an_unknown_method_of_the_server_is_an_error_with_its_words(logs: Path) -> None:
    async with Fleet({"a": awkward()}, log_dir=logs) as fleet:
        with pytest.raises(UpstreamError, match="nothing_like_it"):
            await fleet.call("a", "nothing_like_it", {})


async def test_arguments_that_are_no_json_fail_without_harm(logs: Path) -> None:
    async with Fleet({"a": awkward()}, log_dir=logs) as fleet:
        for arguments in ({"x": "\ud800"}, {"x": object()}):
            with pytest.raises(InvalidArguments):
                await fleet.call("a", "echo", arguments)
        assert text_of(await fleet.call("a", "echo", {"x": "é"})) == json.dumps({"x": "é"})


async def test_a_call_that_takes_too_long_is_ended_and_its_late_answer_ignored(logs: Path) -> None:
    async with Fleet({"a": awkward(call_timeout=0.3)}, log_dir=logs) as fleet:
        with pytest.raises(UpstreamTimeout, match=r"`late`.*0\.3 s \(its `call_timeout`\).*was sent and may have"):
            await fleet.call("a", "late", {"seconds": 0.6})
        with pytest.raises(UpstreamTimeout):
            await fleet.call("a", "hang", {})
        await asyncio.sleep(0.4)
        for number in range(5):
            assert text_of(await fleet.call("a", "echo", {"n": number})) == json.dumps({"n": number})
        assert len(json.loads(text_of(await fleet.call("a", "cancelled", {})))) == 2
        assert fleet.health()[0].restarts == 0


async def test_cancelling_a_call_cancels_it_at_the_server_and_keeps_the_connection(logs: Path) -> None:
    async with Fleet({"a": awkward()}, log_dir=logs) as fleet:
        await fleet.call("a", "echo", {})
        call = asyncio.create_task(fleet.call("a", "hang", {}))
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert len(json.loads(text_of(await fleet.call("a", "cancelled", {})))) == 1


async def test_a_caller_that_gives_up_does_not_stop_a_start_that_others_wait_for(logs: Path) -> None:
    async with Fleet({"a": awkward()}, log_dir=logs) as fleet:
        impatient = asyncio.create_task(fleet.call("a", "echo", {}))
        patient = asyncio.create_task(fleet.call("a", "echo", {"still": True}))
        await asyncio.sleep(0)
        impatient.cancel()
        assert text_of(await patient) == '{"still": true}'
        assert fleet.health()[0].restarts == 0


async def test_progress_is_passed_on(logs: Path) -> None:
    steps: list[tuple[float, float | None, str | None]] = []
    async with Fleet({"a": awkward()}, log_dir=logs) as fleet:
        await fleet.call("a", "progress", {}, on_progress=lambda done, total, text: steps.append((done, total, text)))
        await eventually(lambda: len(steps) == 2)
        assert steps == [(1, 2, "step 1"), (2, 2, "step 2")]


@pytest.mark.parametrize(
    ("tool", "arguments", "how"),
    [
        ("die", {"status": 7}, "exit status 7"),
        ("die", {"signal": int(signal.SIGKILL)}, "SIGKILL"),
        ("leave_a_child_with_stdout", {}, "exit status 9"),
    ],
)
async def test_a_server_that_dies_in_mid_call_fails_every_call_at_once(
    logs: Path, tool: str, arguments: dict[str, Any], how: str
) -> None:
    async with Fleet({"a": awkward(call_timeout=60)}, log_dir=logs) as fleet:
        await fleet.call("a", "echo", {})
        waiting = [asyncio.create_task(fleet.call("a", "hang", {})) for _ in range(3)]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(45):
            with pytest.raises(UpstreamUnavailable, match=how) as failed:
                await fleet.call("a", tool, arguments)
            ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(end, UpstreamUnavailable) for end in ends)
        if tool == "die":
            assert "I cannot go on" in str(failed.value)
        assert "The call was sent and may have taken effect." in str(failed.value)
        assert "`toolfold doctor` names its log" in str(failed.value)
        assert str(logs) not in str(failed.value)
        # Of use before, so it is started again at once.
        assert text_of(await fleet.call("a", "echo", {"again": 1})) == '{"again": 1}'
        assert fleet.health()[0].restarts == 1


async def test_a_server_that_keeps_dying_is_left_alone_for_longer_and_longer(logs: Path) -> None:
    async with Fleet({"a": awkward()}, log_dir=logs) as fleet:
        with pytest.raises(UpstreamUnavailable, match="exit status 7"):
            await fleet.call("a", "die", {})
        with pytest.raises(UpstreamUnavailable, match="exit status 7"):
            await fleet.call("a", "die", {})
        waits: list[float] = []
        for _ in range(2):
            with pytest.raises(UpstreamUnavailable, match=r"tried again in .* s.*exit status 7"):
                await fleet.call("a", "echo", {})
            health = fleet.health()[0]
            assert health.state == "backoff"
            waits.append(health.retry_in)
            await eventually(lambda: fleet.health()[0].state == "failed")
            with pytest.raises(UpstreamUnavailable, match="while"):
                await fleet.call("a", "die", {})
        assert waits[1] > waits[0]
        await eventually(lambda: fleet.health()[0].state == "failed")
        assert text_of(await fleet.call("a", "echo", {})) == "{}"


async def test_a_server_that_only_has_resources_is_restarted_at_once_too(logs: Path) -> None:
    async with Fleet({"a": awkward()}, log_dir=logs) as fleet:
        for _ in range(3):
            assert await fleet.read_resource("a", "memo://a/b.txt")
            pid = fleet.health()[0].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await eventually(lambda: not fleet.is_ready("a"))


async def test_a_broken_server_neither_delays_nor_breaks_a_good_one(logs: Path) -> None:
    servers = {
        "never": awkward("never-answers", start_timeout=30),
        "missing": ServerConfig(command="no-such-command-here"),
        "ends": ServerConfig(command="sh", args=("-c", "echo oops >&2; exit 3")),
        "nowhere": ServerConfig(command=sys.executable, cwd="/no/such/folder"),
        "good": awkward(),
    }
    async with Fleet(servers, log_dir=logs) as fleet:
        found: dict[str, Listing | UpstreamError] = {}
        async with asyncio.timeout(15):
            async for name, listing in fleet.listings():
                found[name] = listing
                if len(found) == 4:
                    break
        assert isinstance(found["good"], Listing)
        assert "no-such-command-here" in str(found["missing"])
        assert "Install it" in str(found["missing"])
        assert "exit status 3" in str(found["ends"])
        assert "oops" in str(found["ends"])
        assert "its folder (`cwd`) cannot be entered" in str(found["nowhere"])
        assert text_of(await fleet.call("good", "echo", {})) == "{}"
        states = {health.server: health.state for health in fleet.health()}
        assert states["good"] == "ready"
        assert states["never"] == "starting"


async def test_no_error_that_a_model_reads_names_a_path_of_the_host(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "no-program").write_text("")
    source = str(tmp_path / "config.json")
    servers = {
        "silent": awkward("never-answers", start_timeout=0.2, source=source),
        "missing": ServerConfig(command="no-such-command-here", source=source),
        "unfit": ServerConfig(command=str(tmp_path / "no-program"), source=source),
        "nowhere": ServerConfig(command=sys.executable, cwd=str(tmp_path / "nowhere"), source=source),
        "ends": ServerConfig(command=sys.executable, args=("-c", "raise SystemExit(3)"), source=source),
        "elsewhere": ServerConfig(transport="http", url="http://127.0.0.1:9/mcp", source=source),
        "dies": awkward(source=source),
    }
    async with Fleet(servers, log_dir=logs) as fleet:
        for name in servers:
            with pytest.raises(UpstreamError) as failed:
                await fleet.call(name, "die", {})
            told = [str(failed.value), *(health.last_error for health in fleet.health() if health.server == name)]
            for text in told:
                assert not any(path in text for path in (str(tmp_path), str(logs), sys.executable)), text
            assert str(failed.value).startswith(f"{name}: ")


async def test_more_silent_servers_than_start_at_once_do_not_hold_up_the_rest(logs: Path) -> None:
    silent = {f"silent{number}": awkward("never-answers", start_timeout=60) for number in range(3)}
    starts = StartQueue(2, slow_after=0.2)
    async with Fleet({**silent, "good": awkward()}, log_dir=logs, starts=starts) as fleet, asyncio.timeout(20):
        async for name, listing in fleet.listings():
            assert name == "good"
            assert isinstance(listing, Listing)
            break


async def test_the_time_in_the_queue_does_not_count_as_time_to_start(logs: Path) -> None:
    starts = StartQueue(1, slow_after=1000)
    async with Fleet({"a": awkward(start_timeout=3)}, log_dir=logs, starts=starts) as fleet:
        async with starts.wait_for(Turn(urgent=True)), starts.wait_for(Turn(urgent=True)):
            call = asyncio.create_task(fleet.call("a", "echo", {}))
            done, _ = await asyncio.wait({call}, timeout=3.2)
            assert not done
            assert fleet.health()[0].state == "starting"
        assert text_of(await call) == "{}"


async def test_a_call_starts_its_server_before_those_that_are_listed_in_the_background(logs: Path) -> None:
    starts = StartQueue(1, slow_after=1000)
    servers = {name: awkward("sleeps=600", start_timeout=600) for name in ("first", "second", "third")}
    async with Fleet({**servers, "called": awkward()}, log_dir=logs, starts=starts) as fleet, asyncio.timeout(20):
        listing = [asyncio.create_task(fleet.listing(name, background=True)) for name in [*servers, "called"]]
        await eventually(lambda: fleet.health()[3].state == "starting")
        assert text_of(await fleet.call("called", "echo", {})) == "{}"
        assert isinstance(await listing[3], Listing)
        assert {path.stem for path in logs.glob("*.log")} - {"supervisor"} == {"first", "called"}
    await asyncio.gather(*listing, return_exceptions=True)


async def test_servers_over_http_do_not_wait_for_a_turn(logs: Path) -> None:
    """They cost this machine nothing."""
    starts = StartQueue(1, slow_after=1000)
    servers = {"a": ServerConfig(transport="http", url="http://127.0.0.1:9/mcp")}
    busy = (starts.wait_for(Turn(urgent=True)), starts.wait_for(Turn(urgent=True)))
    async with busy[0], busy[1], Fleet(servers, log_dir=logs, starts=starts) as fleet, asyncio.timeout(20):
        with pytest.raises(UpstreamUnavailable, match="cannot be reached"):
            await fleet.call("a", "echo", {})


async def test_a_server_that_never_answers_the_handshake_is_given_up(logs: Path) -> None:
    async with Fleet({"a": awkward("never-answers", start_timeout=1.0)}, log_dir=logs) as fleet:
        with pytest.raises(UpstreamUnavailable, match=r"handshake within 1 s \(its `start_timeout`\).*was not sent"):
            await fleet.call("a", "echo", {})
        with pytest.raises(UpstreamUnavailable, match=r"will be tried again in .* s\..*was not sent"):
            await fleet.call("a", "echo", {})
        assert fleet.health()[0].state == "backoff"


@pytest.mark.parametrize("flag", ["dies-on-probe", "hangs-on-probe", "silent-on-probe"])
async def test_an_older_server_that_the_probe_harms_is_started_without_it(logs: Path, flag: str) -> None:
    async with Fleet({"a": awkward(flag, start_timeout=6)}, log_dir=logs) as fleet:
        assert text_of(await fleet.call("a", "echo", {})) == "{}"
        assert fleet.health()[0].restarts == 0
        with pytest.raises(UpstreamUnavailable):
            await fleet.call("a", "die", {})
        # Remembered: the second start is not probed, so it does not take the time of a failed one.
        before = fleet.health()[0].log_file.read_text().count("starting (auto)")
        assert text_of(await fleet.call("a", "echo", {})) == "{}"
        assert fleet.health()[0].log_file.read_text().count("starting (auto)") == before


async def test_a_slow_start_is_not_taken_for_silence(logs: Path) -> None:
    slow = ServerConfig(
        command="sh",
        args=("-c", 'echo started >> "$0.count"; sleep 3; exec "$@"', str(logs / "slow"), sys.executable, AWKWARD),
        start_timeout=5,
    )
    async with Fleet({"a": slow}, log_dir=logs) as fleet:
        assert text_of(await fleet.call("a", "echo", {})) == "{}"
        assert (logs / "slow.count").read_text().count("started") == 1


async def test_changed_tools_are_listed_again_and_announced(logs: Path) -> None:
    heard: list[Listing] = []
    async with Fleet({"a": awkward()}, log_dir=logs, on_listing=heard.append) as fleet:
        await fleet.call("a", "change", {"name": "brand_new", "times": 50})
        await eventually(lambda: heard)
        assert heard[0].tools[-1].name == "brand_new"
        await fleet.call("a", "change", {"name": "newer"})
        await eventually(lambda: heard[-1].tools[-1].name == "newer")
        assert len(heard) <= 4


async def test_a_listing_that_another_one_overtook_does_not_bring_back_what_was_before(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolfold.upstream.server.RELIST_SPACING", 60.0)
    heard: list[Listing] = []
    tasks = asyncio.all_tasks()
    async with Fleet({"a": awkward("changes-while-listed")}, log_dir=logs, on_listing=heard.append) as fleet:
        listing = await fleet.listing("a")
        assert [each.tools[-1].name for each in (*heard, listing)] == ["brand_new", "brand_new"]
    # The pause until it may be listed again ends with the connection.
    await eventually(lambda: asyncio.all_tasks() == tasks)


async def test_200_megabytes_in_one_line_arrive(logs: Path) -> None:
    async with Fleet({"a": awkward(call_timeout=100)}, log_dir=logs) as fleet:
        result = await fleet.call("a", "big", {"megabytes": 200})
        assert len(text_of(result)) == 200_000_000
        assert text_of(await fleet.call("a", "echo", {})) == "{}"


async def test_200_megabytes_in_many_lines_arrive_without_being_hoarded(logs: Path) -> None:
    async with Fleet({"a": awkward(call_timeout=100)}, log_dir=logs) as fleet:
        await fleet.call("a", "echo", {})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.001)
                turns += 1

        counting = asyncio.create_task(count())
        assert text_of(await fleet.call("a", "many", {"megabytes": 200})) == "done"
        counting.cancel()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 120_000
        assert turns > 20


async def test_a_message_over_the_limit_ends_the_connection_with_a_reason(logs: Path) -> None:
    async with Fleet({"a": awkward()}, log_dir=logs, message_limit=4 * 1024**2) as fleet:
        assert len(text_of(await fleet.call("a", "big", {"megabytes": 4}))) == 4_000_000
        with pytest.raises(UpstreamUnavailable, match="more than 4 MB"):
            await fleet.call("a", "big", {"megabytes": 5})
        assert text_of(await fleet.call("a", "echo", {})) == "{}"


async def test_a_flood_on_stderr_goes_to_a_log_of_bounded_size(logs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with Fleet({"a": awkward()}, log_dir=logs) as fleet:
        assert text_of(await fleet.call("a", "flood", {"megabytes": 20})) == "flooded"
        log = fleet.health()[0].log_file
    assert 0 < sum(path.stat().st_size for path in list_files(logs) if path.name.startswith(log.name)) < 6_000_000
    assert log.stat().st_mode & 0o077 == 0
    out, err = capfd.readouterr()
    assert "eeee" not in out + err


async def test_a_server_gets_the_default_environment_and_its_own(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "1")
    async with Fleet({"a": awkward(env={"GIVEN": "yes"}, cwd=str(logs))}, log_dir=logs) as fleet:
        environment = json.loads(text_of(await fleet.call("a", "environment", {})))
        assert environment["GIVEN"] == "yes"
        assert "SECRET_OF_OURS" not in environment
        assert environment["PATH"] == os.environ["PATH"]


async def test_a_server_that_does_not_read_cannot_hold_up_a_caller(logs: Path) -> None:
    """Its pipe fills up; the call still ends when its time does."""
    async with Fleet({"a": awkward(call_timeout=0.5)}, log_dir=logs) as fleet, asyncio.timeout(20):
        pid = int(text_of(await fleet.call("a", "pid", {})))
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(UpstreamTimeout):
                await fleet.call("a", "echo", {"x": "y" * 5_000_000})
            with pytest.raises(UpstreamTimeout):
                await fleet.call("a", "echo", {})
        finally:
            os.kill(pid, signal.SIGCONT)
        async with asyncio.timeout(60):
            while True:
                try:
                    assert text_of(await fleet.call("a", "echo", {"n": 3})) == '{"n": 3}'
                    break
                except UpstreamTimeout:
                    continue


async def test_an_unknown_server_is_answered_with_the_nearest_name(logs: Path) -> None:
    async with Fleet({"github": awkward()}, log_dir=logs) as fleet:
        with pytest.raises(UpstreamUnavailable, match="Did you mean github"):
            await fleet.call("githib", "x", {})


async def test_a_closed_fleet_refuses_instead_of_starting(logs: Path) -> None:
    async with Fleet({"a": awkward()}, log_dir=logs) as fleet:
        await fleet.call("a", "echo", {})
    with pytest.raises(UpstreamUnavailable, match="closed"):
        await fleet.call("a", "echo", {})


async def test_closing_while_a_server_starts_is_quick_and_leaves_nothing(logs: Path) -> None:
    async with Fleet({"a": awkward("never-answers")}, log_dir=logs) as fleet:
        call = asyncio.create_task(fleet.call("a", "echo", {}))
        await eventually(lambda: list(logs.glob("a.log")))
        await asyncio.sleep(0.3)
        began = time.monotonic()
    assert time.monotonic() - began < 8
    with pytest.raises(UpstreamUnavailable, match="closed"):
        await call


async def test_a_server_without_tools_is_listed_for_the_rest(logs: Path) -> None:
    async with Fleet({"a": awkward("no-tools")}, log_dir=logs) as fleet:
        listing = await fleet.listing("a")
        assert not listing.tools
        assert listing.prompts
        assert not [problem for problem in fleet.health()[0].problems if "tools" in problem]


async def test_a_server_that_closes_its_stdout_is_told_from_one_that_ended(logs: Path) -> None:
    async with Fleet({"a": awkward("closes-stdout", "never-answers")}, log_dir=logs) as fleet:
        with pytest.raises(UpstreamUnavailable, match="closed its stdout"):
            await fleet.call("a", "echo", {})


async def test_a_server_that_closes_its_stdin_and_lives_on_is_started_again(logs: Path) -> None:
    async with Fleet({"a": awkward()}, log_dir=logs) as fleet:
        pid = int(text_of(await fleet.call("a", "pid", {})))
        await fleet.call("a", "stop_reading", {})
        with pytest.raises(UpstreamUnavailable, match="the server closed its stdin while tool `echo` was running"):
            await fleet.call("a", "echo", {})
        assert int(text_of(await fleet.call("a", "pid", {}))) != pid
        await eventually(lambda: pid not in processes())


async def test_a_call_in_flight_when_the_fleet_closes_fails_and_does_not_hang(logs: Path) -> None:
    async with Fleet({"a": awkward()}, log_dir=logs) as fleet:
        await fleet.call("a", "echo", {})
        call = asyncio.create_task(fleet.call("a", "hang", {}))
        await asyncio.sleep(0.05)
    with pytest.raises(UpstreamUnavailable, match="closed"):
        async with asyncio.timeout(60):
            await call


async def test_a_server_that_dies_while_nobody_asks_is_started_again_by_the_next_call(logs: Path) -> None:
    async with Fleet({"a": awkward()}, log_dir=logs) as fleet:
        pid = int(text_of(await fleet.call("a", "pid", {})))
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: fleet.health()[0].state == "failed")
        assert "SIGKILL" in fleet.health()[0].last_error
        assert int(text_of(await fleet.call("a", "pid", {}))) != pid


async def test_restarts_leak_no_descriptors_and_no_tasks(logs: Path) -> None:
    tasks = len(asyncio.all_tasks())
    async with Fleet({"a": awkward()}, log_dir=logs) as fleet:

        async def die() -> None:
            await fleet.call("a", "echo", {})
            with pytest.raises(UpstreamUnavailable):
                await fleet.call("a", "die", {})

        await die()
        await eventually(lambda: len(asyncio.all_tasks()) == tasks)
        before = open_descriptors()
        for _ in range(4):
            await die()
        await eventually(lambda: len(asyncio.all_tasks()) == tasks)
        assert open_descriptors() == before


async def test_starts_for_which_descriptors_are_lacking_take_none(logs: Path) -> None:
    async with Fleet({"a": awkward(), "b": awkward()}, log_dir=logs) as fleet:
        await fleet.call("a", "echo", {})
        before = open_descriptors()
        taken = {int(path.name) for path in Path("/dev/fd").iterdir()}
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Three are left, with the one that the folder was read by: enough for one of the two pipes.
        limit = [number for number in range(3 + len(taken)) if number not in taken][2]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
        try:
            with pytest.raises(UpstreamUnavailable, match="Too many open files"):
                await fleet.call("b", "echo", {})
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert open_descriptors() == before
        assert text_of(await fleet.call("a", "echo", {})) == "{}"


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))
