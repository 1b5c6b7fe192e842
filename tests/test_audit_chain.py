"""The audit log by itself: what is stored, what `verify` proves, what retention keeps, what happens when it fails."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.upstream_lab import eventually
from toolfold.config.audit import AuditSettings
from toolfold.config.retention import RetentionSettings
from toolfold.errors import AuditUnavailable
from toolfold.telemetry.audit import FILE, AuditLog
from toolfold.telemetry.audit_reader import AuditReader, Call, Filter, Run
from toolfold.telemetry.audit_records import CallEnded, CallStarted, Checkpoint, Head, RunEnded, RunStarted, ToolNoted
from toolfold.telemetry.audit_verify import Proof, verify

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(
    folder: Path, *, keep: float | None = None, size: str = "1GB", **given: Any
) -> AsyncGenerator[AuditLog]:
    retention = RetentionSettings.model_validate({"audit": keep, "audit_size": size})
    log = AuditLog(folder, AuditSettings(enabled=True, **given), retention)
    try:
        yield log
    finally:
        await asyncio.to_thread(log.close)


def noted(number: int) -> ToolNoted:
    return ToolNoted(server="lab", tool=f"tool{number}", event="new", digest="d")


async def written(folder: Path, count: int) -> None:
    async with opened(folder) as log:
        for number in range(count):
            log.add(noted(number))


def proof(folder: Path, *heads: Head) -> Proof:
    with AuditReader.open(folder) as reader:
        return verify(reader, heads)


def head(folder: Path) -> Head:
    with AuditReader.open(folder) as reader:
        return reader.head


def tampered(folder: Path, *statements: tuple[str, tuple[Any, ...]]) -> None:
    connection = sqlite3.connect(folder / FILE)
    with connection:
        for statement, values in statements:
            connection.execute(statement, values)
    connection.close()


async def test_what_was_appended_is_read_back_and_proved(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await log.append(RunStarted(run="r", caller="ada", code_sha256="00", code="x", session="s"))
        await log.append(CallStarted(run="r", call="r-1", caller="ada", target="lab.add", arguments={"a": "int"}))
        log.add(CallEnded(run="r", call="r-1", ok=True, ms=1.5, decision="allow", rule="1"))
        log.add(RunEnded(run="r", ok=True, ms=3, calls=1, tokens=2))
        await log.flush()
        with AuditReader.open(tmp_path) as reader:
            call, run = reader.history(Filter())
    assert isinstance(run, Run)
    assert (run.run, run.caller, run.session, run.ok, run.calls, run.tokens) == ("r", "ada", "s", True, 1, 2)
    assert isinstance(call, Call)
    assert (call.call, call.run, call.target, call.ok, call.decision, call.rule) == (
        "r-1",
        "r",
        "lab.add",
        True,
        "allow",
        "1",
    )
    assert call.arguments == {"a": "int"}
    found = proof(tmp_path)
    assert found.ok
    assert found.records == 4
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


async def test_a_run_without_its_end_is_listed_as_not_ended(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await log.append(RunStarted(run="r", caller="ada", code_sha256="00"))
    with AuditReader.open(tmp_path) as reader:
        (run,) = reader.history(Filter())
    assert isinstance(run, Run)
    assert run.ok is None


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Filter(caller="bob"), ["b-1", "b"]),
        (Filter(session="s"), ["a"]),
        (Filter(run="a"), ["a-1", "a"]),
        (Filter(target="git*.delete_*"), ["b-1"]),
        (Filter(decision="deny"), ["b-1"]),
        (Filter(failed=True), ["b-1"]),
        (Filter(since=200), ["b-1", "b"]),
        (Filter(until=200), ["a-1", "a"]),
    ],
)
async def test_filters_narrow_what_is_listed(wanted: Filter, expected: list[str], tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.add(RunStarted(time=100, run="a", caller="ada", code_sha256="00", session="s"))
        log.add(CallStarted(time=110, run="a", call="a-1", caller="ada", target="lab.add"))
        log.add(RunStarted(time=300, run="b", caller="bob", code_sha256="00"))
        log.add(CallStarted(time=310, run="b", call="b-1", caller="bob", target="github.delete_repo"))
        log.add(CallEnded(time=320, run="b", call="b-1", ok=False, ms=1, decision="deny", error="denied: no"))
    with AuditReader.open(tmp_path) as reader:
        items = [item for item in reader.history(wanted) if isinstance(item, Run | Call)]
        found = [item.call if isinstance(item, Call) else item.run for item in items]
        statistics = reader.statistics(Filter())
    assert found == expected
    assert (statistics.runs, statistics.calls, statistics.failed_calls) == (2, 2, 1)
    assert statistics.errors == {"denied": 1}


CHANGES: dict[str, Callable[[int, int], list[tuple[str, tuple[Any, ...]]]]] = {
    "alter": lambda one, _: [("UPDATE records SET body = CAST(body AS TEXT) || ' ' WHERE seq = ?", (one,))],
    "alter the hash": lambda one, _: [("UPDATE records SET hash = zeroblob(32) WHERE seq = ?", (one,))],
    "make it no record": lambda one, _: [("UPDATE records SET body = 'x' WHERE seq = ?", (one,))],
    "remove": lambda one, _: [("DELETE FROM records WHERE seq = ?", (one,))],
    "remove and close the gap": lambda one, _: [
        ("DELETE FROM records WHERE seq = ?", (one,)),
        ("UPDATE records SET seq = -(seq - 1) WHERE seq > ?", (one,)),
        ("UPDATE records SET seq = -seq WHERE seq < 0", ()),
    ],
    "swap": lambda one, other: [
        ("UPDATE records SET seq = 100000 WHERE seq = ?", (one,)),
        ("UPDATE records SET seq = ? WHERE seq = ?", (one, other)),
        ("UPDATE records SET seq = ? WHERE seq = 100000", (other,)),
    ],
}


@settings(max_examples=40)
@given(count=st.integers(3, 12), change=st.sampled_from(sorted(CHANGES)), data=st.data())
def test_any_change_before_the_newest_record_is_found_and_named(count: int, change: str, data: st.DataObject) -> None:
    one = data.draw(st.integers(1, count - 1))
    other = data.draw(st.integers(1, count - 1).filter(lambda number: number != one))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(written(folder, count))
        assert proof(folder).ok
        tampered(folder, *CHANGES[change](one, other))
        found = proof(folder)
        assert not found.ok
        touched = {str(number) for number in (one, one + 1, other, other + 1)}
        named = {word.strip(",") for word in found.problems[0].split()}
        assert named & touched, (change, one, other, found.problems)


@settings(max_examples=15)
@given(count=st.integers(2, 10), data=st.data())
def test_a_head_kept_elsewhere_shows_that_the_end_was_cut_off(count: int, data: st.DataObject) -> None:
    left = data.draw(st.integers(1, count - 1))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(written(folder, count))
        kept = Head.parse(f"{head(folder)} 2026-01-01T00:00:00Z")
        assert proof(folder, kept).heads == 1
        tampered(folder, ("DELETE FROM records WHERE seq > ?", (left,)))
        assert proof(folder).ok, "the chain alone cannot know"
        assert str(count) in proof(folder, kept).problems[0]


async def test_a_head_kept_elsewhere_shows_that_everything_was_written_anew(tmp_path: Path) -> None:
    await written(tmp_path, 5)
    kept = head(tmp_path)
    (tmp_path / FILE).unlink()
    async with opened(tmp_path) as log:
        for number in range(10, 17):
            log.add(noted(number))
    assert proof(tmp_path).ok
    assert "record 5 is not the one" in proof(tmp_path, kept).problems[0]


async def test_the_head_is_appended_to_a_file_elsewhere(tmp_path: Path) -> None:
    heads = tmp_path / "elsewhere" / "heads"
    async with opened(tmp_path, head_file=heads, head_interval=0.000_001) as log:
        await log.append(noted(1))
        await log.append(noted(2))
    async with opened(tmp_path, head_file=heads) as log:
        await log.append(noted(3))
    kept = [Head.parse(line) for line in heads.read_text().splitlines()]
    assert kept[-1] == head(tmp_path)
    assert proof(tmp_path, *kept).heads == len(kept)
    assert proof(tmp_path, *kept).ok


# Retention


async def test_old_records_are_dropped_and_the_chain_stays_provable(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        for number in range(20):
            log.add(ToolNoted(time=1000.0 + number, server="lab", tool="old", event="new", digest="d"))
        for number in range(5):
            log.add(noted(number))
    kept_before, (fourth, *_) = head(tmp_path), [Head(row.seq, row.hash) for row in stored(tmp_path)][3:]
    async with opened(tmp_path, keep=3600) as log:
        await log.append(noted(99))
    found = proof(tmp_path, kept_before, fourth)
    assert found.ok, found.problems
    assert (found.first, found.heads, found.uncheckable) == (21, 1, 1)
    assert found.dropped is not None
    assert found.dropped.through == 20
    tampered(tmp_path, ("DELETE FROM records WHERE seq = 21", ()))
    assert "records 21 to 21 are missing" in proof(tmp_path).problems[0]


async def test_when_every_record_is_old_the_chain_goes_on_from_where_it_was(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        for _ in range(5):
            log.add(ToolNoted(time=1000.0, server="lab", tool="old", event="new", digest="d"))
    async with opened(tmp_path, keep=3600) as log:
        await log.append(ToolNoted(time=1001.0, server="lab", tool="old", event="new", digest="d"))
    found = proof(tmp_path)
    assert found.ok, found.problems
    assert (found.first, found.records, found.head.seq) == (7, 1, 7)


async def test_a_log_that_is_too_large_drops_its_oldest_records(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        for _ in range(2000):
            log.add(RunStarted(run="r", caller="ada", code_sha256="00", code="x" * 1000))
    before = (tmp_path / FILE).stat().st_size
    async with opened(tmp_path, size="1MB") as log:
        await log.append(noted(1))
    found = proof(tmp_path)
    assert found.ok, found.problems
    assert before > 2_000_000
    assert (tmp_path / FILE).stat().st_size < 1_000_000
    assert found.first > 1000
    assert any(isinstance(record, Checkpoint) for _, record in records(tmp_path))


def stored(folder: Path) -> list[Any]:
    with AuditReader.open(folder) as reader:
        return list(reader.rows())


def records(folder: Path) -> list[Any]:
    with AuditReader.open(folder) as reader:
        return list(reader.records())


# Several writers, and failures


async def test_two_gateways_write_one_chain(tmp_path: Path) -> None:
    async with opened(tmp_path) as one, opened(tmp_path) as other:

        async def write(log: AuditLog, start: int) -> None:
            for number in range(start, start + 100):
                await log.append(noted(number))

        await asyncio.gather(write(one, 0), write(other, 1000), write(one, 2000))
    found = proof(tmp_path)
    assert found.ok, found.problems
    assert found.records == 300


async def test_a_log_cut_under_a_running_gateway_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        for number in range(10):
            await log.append(noted(number))
        tampered(tmp_path, ("DELETE FROM records WHERE seq > 4", ()))
        await log.append(noted(11))
    assert "records up to 10 were missing or changed" in proof(tmp_path).problems[0]


async def test_a_log_that_was_deleted_is_made_anew_and_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await log.append(noted(1))
        for file in tmp_path.glob(f"{FILE}*"):
            file.unlink()
        await log.append(noted(2))
    assert proof(tmp_path).records == 2
    assert "records up to 1 were missing or changed" in proof(tmp_path).problems[0]


async def test_a_record_that_cannot_be_stored_is_refused_and_one_of_the_past_is_kept(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await log.append(noted(1))
        blocker = sqlite3.connect(tmp_path / FILE)
        blocker.execute("CREATE TRIGGER full BEFORE INSERT ON records BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
        blocker.commit()
        log.add(noted(2))
        with pytest.raises(AuditUnavailable, match="disk is full"):
            await log.append(noted(3))
        with pytest.raises(AuditUnavailable):
            await log.flush()
        blocker.execute("DROP TRIGGER full")
        blocker.commit()
        blocker.close()
        await log.append(noted(4))
    assert [record.tool for _, record in records(tmp_path)] == ["tool1", "tool2", "tool4"]
    assert proof(tmp_path).ok


async def test_a_folder_that_cannot_be_written_refuses_every_record(tmp_path: Path) -> None:
    async with opened(tmp_path / "missing") as log:
        with pytest.raises(AuditUnavailable):
            await log.append(noted(1))
    with pytest.raises(AuditUnavailable, match="no audit log"), AuditReader.open(tmp_path):
        pass


async def test_half_characters_and_numbers_beyond_json_are_stored(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        call = CallStarted(run="r", call="1", caller="a", target="\ud800", arguments={"a": 1 << 80, "b": "\udfff"})
        await log.append(call)
    ((_, record),) = records(tmp_path)
    assert record.call == "1"
    assert proof(tmp_path).ok


WRITER = """
import asyncio, sys
from pathlib import Path
from toolfold.config.audit import AuditSettings
from toolfold.config.retention import RetentionSettings
from toolfold.telemetry.audit import AuditLog
from toolfold.telemetry.audit_records import ToolNoted

async def main():
    log = AuditLog(Path(sys.argv[1]), AuditSettings(enabled=True), RetentionSettings())
    async def write(name):
        for number in range(1_000_000):
            await log.append(ToolNoted(server=name, tool=str(number), event="new", digest="d"))
            print(name, number, flush=True)
    await asyncio.gather(*(write(f"w{each}") for each in range(4)))
asyncio.run(main())
"""


@pytest.mark.parametrize("lines", [1, 50, 333])
async def test_acknowledged_records_survive_kill_9(lines: int, tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged = [process.stdout.readline() for _ in range(lines)]
    os.kill(process.pid, signal.SIGKILL)
    acknowledged += process.stdout.readlines()
    process.wait(10)
    process.stdout.close()
    whole = {tuple(line.split()) for line in acknowledged if line.endswith("\n")}
    assert whole <= {(record.server, record.tool) for _, record in records(tmp_path)}
    assert proof(tmp_path).ok


FULL = """
import asyncio, resource, signal, sys
from pathlib import Path
from toolfold.config.audit import AuditSettings
from toolfold.config.retention import RetentionSettings
from toolfold.errors import AuditUnavailable
from toolfold.telemetry.audit import AuditLog
from toolfold.telemetry.audit_records import ToolNoted

async def main():
    # A file that may not grow is the nearest thing to a full disk that needs no rights.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    log = AuditLog(Path(sys.argv[1]), AuditSettings(enabled=True), RetentionSettings())
    stored = 0
    try:
        while True:
            await log.append(ToolNoted(server="s", tool="x" * 1000, event="new", digest="d"))
            stored += 1
    except AuditUnavailable as error:
        print(stored, error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await log.append(ToolNoted(server="s", tool="again", event="new", digest="d"))
    log.close()
asyncio.run(main())
"""


def test_a_full_disk_refuses_records_until_there_is_room(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    command = [sys.executable, "-c", FULL, str(tmp_path)]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    count, _, message = ran.stdout.partition(" ")
    assert "cannot be written" in message
    found = proof(tmp_path)
    assert found.ok, found.problems
    assert found.records == int(count) + 1


def test_patterns_that_were_asked_for_are_not_kept() -> None:
    """Anybody who may read the log can ask for any number of them."""
    kept = vars(fnmatch)["_compile_pattern"].cache_info
    before = kept().currsize
    call = Call(call="a-1", run="a", time=1.0, caller="ci", target="lab.add")
    assert [Filter(target=f"lab.{name}").takes(call) for name in ("a*", "b*", "[!b]dd", "ad")] == [
        True,
        False,
        True,
        False,
    ]
    assert kept().currsize == before


class TestClosing:
    def test_it_waits_for_a_thread_that_is_being_started(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        begun, go_on = threading.Event(), threading.Event()
        start = threading.Thread.start

        def slow(thread: threading.Thread) -> None:
            if thread.name == "audit":
                begun.set()
                assert go_on.wait(60)
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", slow)
        log = AuditLog(tmp_path, AuditSettings(enabled=True), RetentionSettings())
        with ThreadPoolExecutor(2) as threads:
            adding = threads.submit(log.add, noted(0))
            assert begun.wait(60)
            closing = threads.submit(log.close)
            assert not wait([closing], 0.1).done
            go_on.set()
            adding.result(60)
            closing.result(60)
        assert proof(tmp_path).records == 1

    async def test_a_record_that_comes_later_is_stored_by_a_thread_that_ends(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as log:
            log.add(noted(0))
        log.add(noted(1))
        await log.append(noted(2))
        assert proof(tmp_path).records == 3
        await eventually(lambda: not any(thread.name == "audit" for thread in threading.enumerate()))
