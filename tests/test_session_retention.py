"""What is old goes by itself; what is in use, and what a person named, stays."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab import lab_fold
from toolfold import Toolfold
from toolfold.config.retention import RetentionSettings
from toolfold.sandbox.protocol import SessionHome
from toolfold.session.homes import SessionHomes, SessionState, ask_for_reset, homes_in, state_of, take_reset
from toolfold.session.retention import Retention, survey
from toolfold.session.transcript import Entry, append, entries

DAY = 86_400
LONG = "print('x' * 50_000)"


@contextmanager
def another_gateway(data: Path) -> Generator[SessionHomes]:
    homes = SessionHomes(data)
    try:
        yield homes
    finally:
        homes.close()


def sweep(data: Path, **settings: Any) -> None:
    with another_gateway(data) as homes:
        Retention(data, RetentionSettings(**settings), homes).sweep()


def names(data: Path) -> set[str]:
    return {state.name for home, _ in homes_in(data) if (state := state_of(home))}


def home_of(data: Path, name: str) -> SessionHome:
    (found,) = [home for home, _ in homes_in(data) if (state := state_of(home)) and state.name == name]
    return found


def make_old(path: Path, days: float) -> None:
    then = time.time() - days * DAY
    os.utime(path, (then, then), follow_symlinks=False)


def keep_run(homes: SessionHomes, name: str, *, days: float = 0, size: int = 10, caller: str = "local") -> None:
    home = homes.for_output(caller, name)
    (home.workspace / "outputs").mkdir()
    (home.workspace / "outputs" / "000000-1.txt").write_bytes(os.urandom(size))
    homes.release(home)
    make_old(home.path, days)


def make_session(homes: SessionHomes, name: str) -> SessionHome:
    """A session that was used, and is not in use."""
    home = homes.adopt(homes.new(), "local", name)
    assert home is not None
    homes.release(home)
    return home


@pytest.mark.anyio
async def test_a_run_without_a_session_keeps_its_long_output_and_nothing_else(lab: Toolfold) -> None:
    data = lab.settings.data_dir
    result = await lab.run(f"open('workspace/table.csv', 'w').write('1,2')\nleft = 1\n{LONG}")
    assert result.session is not None
    assert result.output_file is not None
    home = home_of(data, result.session)
    files = [path for path in home.path.rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == sorted([Path(result.output_file).name, "session.json"])
    again = await lab.run(f"print(len(open('{result.output_file}').read()))", session=result.session)
    assert again.output == "50001\n"


@pytest.mark.anyio
async def test_what_is_written_to_the_data_folder_is_its_owners(lab: Toolfold) -> None:
    assert (await lab.run(f"from servers.lab import add\nawait add(1, 2)\n{LONG}", session="modes")).success
    data = lab.settings.data_dir
    home = home_of(data, "modes").path
    (output,) = (home / "workspace" / "outputs").iterdir()
    private = [
        *(data / "logs").glob("*.log"),
        *data.glob("**/lock"),
        data / "retention.lock",
        home / "transcript.jsonl",
    ]
    assert {path: oct(path.stat().st_mode & 0o7777) for path in private} == dict.fromkeys(private, "0o600")
    folders = [data / "logs", data / "catalog" / "pins", home / "workspace", home / "skills"]
    assert {path: oct(path.stat().st_mode & 0o7777) for path in folders} == dict.fromkeys(folders, "0o700")
    # What a program made others may read, who can reach it at all.
    assert oct(output.stat().st_mode) == "0o100644"
    assert oct(output.parent.stat().st_mode) == "0o40755"


@pytest.mark.anyio
async def test_a_run_that_is_cancelled_leaves_no_output(lab: Toolfold) -> None:
    data = lab.settings.data_dir
    before = names(data)
    printed = asyncio.Event()
    code = f"{LONG}\nimport asyncio\nawait asyncio.sleep(60)"
    run = asyncio.create_task(lab.run(code, on_event=lambda _: printed.set()))
    async with asyncio.timeout(30):
        await printed.wait()
        while names(data) == before:
            await asyncio.sleep(0.01)
    run.cancel()
    await asyncio.wait([run])
    assert names(data) == before


def test_outputs_of_runs_go_by_age(tmp_path: Path) -> None:
    with another_gateway(tmp_path) as homes:
        keep_run(homes, "run-00000001", days=8)
        keep_run(homes, "run-00000002", days=6)
        make_old(make_session(homes, "run-named-by-a-person").path, days=8)
    sweep(tmp_path)
    assert names(tmp_path) == {"run-00000002", "run-named-by-a-person"}
    sweep(tmp_path, runs=5 * DAY)
    assert names(tmp_path) == {"run-named-by-a-person"}


def test_outputs_of_runs_go_by_size_the_oldest_first_and_only_those_of_the_same_caller(tmp_path: Path) -> None:
    with another_gateway(tmp_path) as homes:
        for number in range(4):
            keep_run(homes, f"run-0000000{number}", days=number / 24, size=1_000_000)
        keep_run(homes, "run-0000000f", days=1, size=1_000_000, caller="ci")
    sweep(tmp_path, runs_size=2_500_000)
    assert names(tmp_path) == {"run-00000000", "run-00000001", "run-0000000f"}


def test_what_a_connection_left_is_told_once_and_to_the_same_client(tmp_path: Path) -> None:
    with another_gateway(tmp_path) as homes:
        state = SessionState("ada", "@connection", is_running=True)
        homes.remember_connection(state)
        assert homes.recall_connection("bob", "@connection") is None
        assert homes.recall_connection("ada", "another") is None
        assert homes.recall_connection("ada", "@connection") == state
        assert homes.recall_connection("ada", "@connection") is None


def test_a_reset_is_asked_for_once(tmp_path: Path) -> None:
    with another_gateway(tmp_path) as homes:
        home = make_session(homes, "mine")
        assert not take_reset(home)
        ask_for_reset(home)
        assert take_reset(home)
        assert not take_reset(home)


def test_nothing_goes_where_the_setting_is_never(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    with another_gateway(tmp_path) as homes:
        keep_run(homes, "run-00000001", days=4000)
        outputs = make_session(homes, "mine").workspace / "outputs"
        outputs.mkdir()
        (outputs / "abcdef-1.txt").write_text("x")
        (logs / "old.log").write_text("x")
        make_old(logs / "old.log", 4000)
    sweep(tmp_path, runs="never", outputs="never", logs="never", sessions="never")
    kept = {kind: kept.count for kind, kept in survey(tmp_path).items()}
    assert kept == {"sessions": 1, "outputs": 1, "runs": 1, "logs": 1}


def test_named_sessions_go_only_by_setting(tmp_path: Path) -> None:
    with another_gateway(tmp_path) as homes:
        make_old(make_session(homes, "old").path, days=4000)
        make_session(homes, "new")
    sweep(tmp_path)
    assert names(tmp_path) == {"old", "new"}
    sweep(tmp_path, sessions="30d")
    assert names(tmp_path) == {"new"}


def test_a_folder_without_a_readable_note_counts_as_a_named_session(tmp_path: Path) -> None:
    with another_gateway(tmp_path) as homes:
        keep_run(homes, "run-00000001", days=8)
    home = home_of(tmp_path, "run-00000001")
    (home.path / "session.json").write_text("{")
    make_old(home.path, days=8)
    sweep(tmp_path)
    assert home.path.is_dir()


@pytest.mark.anyio
async def test_a_session_in_use_stays_however_old_and_whatever_runs_in_it_locks(runtime_dir: Path) -> None:
    code = """
import fcntl, os
for path in (".", "..", "workspace", "workspace/..", "skills"):
    try:
        fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pass
open('workspace/kept', 'w').write('1')
"""
    async with lab_fold(runtime_dir) as fold:
        assert (await fold.run(code, session="mine")).success
        home = home_of(runtime_dir, "mine")
        make_old(home.path, days=60)
        sweep(runtime_dir, sessions="30d")
        assert (await fold.run("open('workspace/kept').read()", session="mine")).value == "1"


@pytest.mark.anyio
async def test_who_comes_back_to_a_session_that_has_expired_is_told_once(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir, session_limit=1) as fold:
        await fold.run("kept = open('workspace/kept', 'w').write('1')", session="mine")
        await fold.run("1", session="another one, which takes the place")
        home = home_of(runtime_dir, "mine")
        make_old(home.path, days=60)
        sweep(runtime_dir, sessions="30d")
        assert not home.path.exists()
        told = await fold.run("import os\nprint(os.listdir('workspace'))", session="mine")
        assert told.output == "[]\n"
        assert told.notice == "Session 'mine' has expired: its variables and files are gone."
        assert (await fold.run("1", session="mine")).notice == ""


def test_what_a_gateway_holds_is_not_removed_by_another(tmp_path: Path) -> None:
    with another_gateway(tmp_path) as homes:
        home = make_session(homes, "mine")
        assert homes.named("local", "mine") == home
        make_old(home.path, days=60)
        sweep(tmp_path, sessions="30d")
        assert home.path.is_dir()
        homes.release(home)
        sweep(tmp_path, sessions="30d")
        assert home.path.is_dir(), "it was in use a moment ago"
        make_old(home.path, days=60)
        sweep(tmp_path, sessions="30d")
        assert not home.path.exists()
        assert homes.named("local", "mine") is None


def test_a_session_that_one_gateway_opens_while_another_removes_it_is_whole_or_new(tmp_path: Path) -> None:
    stop = threading.Event()

    def remove() -> None:
        with another_gateway(tmp_path) as homes:
            while not stop.is_set():
                for home, status in homes_in(tmp_path):
                    homes.expire(home, status.st_mtime_ns)

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        with another_gateway(tmp_path) as homes:
            for _ in range(500):
                home = homes.named("local", "s") or homes.adopt(homes.new(), "local", "s")
                if home is None:
                    continue
                (home.workspace / "file").write_text("1")
                assert (home.workspace / "file").exists()
                homes.release(home)
            limit = time.monotonic() + 30
            while list(homes_in(tmp_path)) and time.monotonic() < limit:
                time.sleep(0.001)
            assert not list(homes_in(tmp_path))
    finally:
        stop.set()
        remover.join()


def test_old_outputs_in_a_session_go_and_everything_else_in_it_stays(tmp_path: Path) -> None:
    with another_gateway(tmp_path) as homes:
        home = make_session(homes, "mine")
        outputs = home.workspace / "outputs"
        outputs.mkdir()
        for number in range(250):
            (outputs / f"abcdef-{number}.txt").write_bytes(b"x" * 4096)
        (outputs / "report.txt").write_bytes(b"x" * 4096)
        (outputs / "abcdef-900.txt").symlink_to(outputs / "report.txt")
        (outputs / "abcdef-901.txt").mkdir()
        homes.release(home)
    sweep(tmp_path)
    assert survey(tmp_path)["outputs"].count == 250
    sweep(tmp_path, outputs_size=10 * 4096)
    assert survey(tmp_path)["outputs"].count == 10
    sweep(tmp_path, outputs=1e-9)
    assert {path.name for path in outputs.iterdir()} == {"report.txt", "abcdef-900.txt", "abcdef-901.txt"}


def test_old_runs_go_from_the_transcript_with_their_outputs(tmp_path: Path) -> None:
    with another_gateway(tmp_path) as homes:
        home = make_session(homes, "mine")
        for days in (40, 20, 0):
            append(home, Entry(time=time.time() - days * DAY, run=f"{days}", caller="local", code="1"))
        used = home.path.stat().st_mtime
        sweep(tmp_path, outputs="30d")
        assert [entry.run for entry in entries(home)] == ["20", "0"]
        assert home.path.stat().st_mtime == used
        sweep(tmp_path, outputs="never")
        assert len(list(entries(home))) == 2


def test_outputs_behind_a_link_are_not_touched(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "abcdef-1.txt").write_text("mine")
    with another_gateway(tmp_path) as homes:
        (make_session(homes, "mine").workspace / "outputs").symlink_to(elsewhere)
    sweep(tmp_path, outputs=1e-9)
    assert (elsewhere / "abcdef-1.txt").exists()


@pytest.mark.timeout(20)
def test_a_pipe_in_place_of_the_outputs_holds_nothing_up(tmp_path: Path) -> None:
    with another_gateway(tmp_path) as homes:
        os.mkfifo(make_session(homes, "mine").workspace / "outputs")
    sweep(tmp_path, outputs=1e-9)
    assert survey(tmp_path)["outputs"].count == 0


def test_outputs_of_a_session_in_use_stay(tmp_path: Path) -> None:
    with another_gateway(tmp_path) as homes:
        home = make_session(homes, "mine")
        (home.workspace / "outputs").mkdir()
        output = home.workspace / "outputs" / "abcdef-1.txt"
        output.write_text("x")
        homes.named("local", "mine")
        sweep(tmp_path, outputs=1e-9)
        assert output.exists()


@pytest.mark.anyio
async def test_old_logs_go_but_not_those_of_a_server_that_runs(runtime_dir: Path) -> None:
    logs = runtime_dir / "logs"
    async with lab_fold(runtime_dir) as fold:
        await fold.fleet.call("lab", "add", {"a": 1, "b": 2})
        for name in ("gone.log", "gone.log.1", "recent.log"):
            (logs / name).write_text("x")
        for log in logs.iterdir():
            make_old(log, 0 if log.name == "recent.log" else 31)
        sweep(runtime_dir)
        assert {path.name for path in logs.iterdir()} == {"lab.log", "recent.log", "supervisor.log"}
    (logs / "recent.log").write_bytes(b"x" * 200_000)
    make_old(logs / "recent.log", 1)
    sweep(runtime_dir, logs_size=100_000)
    assert "recent.log" not in {path.name for path in logs.iterdir()}


def test_one_gateway_sweeps_and_not_again_within_the_hour(tmp_path: Path) -> None:
    with another_gateway(tmp_path) as homes, another_gateway(tmp_path) as others:
        keep_run(homes, "run-00000001", days=8)
        first = Retention(tmp_path, RetentionSettings(), homes)
        second = Retention(tmp_path, RetentionSettings(), others)
        assert first.sweep_if_due()
        assert not second.sweep_if_due()
        assert names(tmp_path) == set()
        stamp = tmp_path / "retention.lock"
        make_old(stamp, days=1)
        busy = os.open(stamp, os.O_RDONLY)
        fcntl.flock(busy, fcntl.LOCK_EX)
        assert not second.sweep_if_due()
        os.close(busy)
        assert second.sweep_if_due()


@pytest.mark.anyio
async def test_a_fold_removes_what_has_expired_by_itself(runtime_dir: Path) -> None:
    with another_gateway(runtime_dir) as homes:
        keep_run(homes, "run-00000001", days=2)
    async with lab_fold(runtime_dir, retention={"runs": "1d"}) as fold:
        await fold.run("1")
        async with asyncio.timeout(30):
            while names(runtime_dir):
                await asyncio.sleep(0.01)


def test_processes_that_begin_at_once_never_remove_each_others_folders(tmp_path: Path) -> None:
    """One may find the other's lock before that has taken it."""
    problems: list[BaseException] = []

    def begin() -> None:
        try:
            for _ in range(100):
                with another_gateway(tmp_path) as homes:
                    assert homes.new().workspace.is_dir()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert list((tmp_path / "homes").iterdir()) == []


@pytest.mark.anyio
async def test_private_values_go_with_their_session(runtime_dir: Path) -> None:
    settings: dict[str, Any] = {"privacy": {"enabled": True, "persist": True}}
    async with lab_fold(runtime_dir, **settings) as fold:
        for name in ("old", "new"):
            result = await fold.run("print('ada@example.com')", session=name)
            assert result.output == "EMAIL_1\n", result.text
    sealed = runtime_dir / "privacy"
    assert len([*sealed.rglob("*.sealed")]) == 2
    make_old(home_of(runtime_dir, "old").path, 40)
    sweep(runtime_dir, sessions="30d")
    assert names(runtime_dir) == {"new"}
    assert len([*sealed.rglob("*.sealed")]) == 1
