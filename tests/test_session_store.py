"""Sessions from outside: listed, shown, exported, reset, ended and shared, by the library and by the command line."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.lab import lab_fold
from toolfold import Toolfold
from toolfold.errors import InvalidRequest
from toolfold.session.store import SessionStore, shared_session

pytestmark = pytest.mark.anyio

PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00"
    b"\x00\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff\xa7\xf6\x8c\xa1\x00\x00\x00\x00IEND\xaeB`\x82"
)


@pytest.fixture(scope="module")
async def fold(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> AsyncIterator[Toolfold]:
    data = tmp_path_factory.mktemp("store")
    (data / "runtime").symlink_to(shared_runtime)
    async with lab_fold(data) as fold:
        yield fold


def command(fold: Toolfold, *arguments: str) -> subprocess.CompletedProcess[str]:
    config = fold.settings.data_dir / "none.json"
    config.write_text("{}")
    line = [
        warm.python(),
        "-m",
        "toolfold",
        *arguments,
        "--config",
        str(config),
        "--data",
        str(fold.settings.data_dir),
    ]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL)


async def out(fold: Toolfold, *arguments: str) -> str:
    ended = await asyncio.to_thread(command, fold, *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


async def ran(fold: Toolfold, code: str, session: str, caller: str = "local") -> str:
    result = await fold.run(code, session=session, caller=caller)
    assert result.success, result.error
    return result.text


async def test_a_session_is_listed_live_and_then_put_away(fold: Toolfold) -> None:
    await ran(
        fold, "from toolfold import keep\nrows = 1\nkeep('cursor', 7)\nopen('workspace/f','w').write('x')", "listed"
    )
    found = {info["name"]: info for info in json.loads(await out(fold, "sessions", "list", "--json"))}
    info = found["listed"]
    assert (info["state"], info["owner"], info["files"], info["variables"]) == ("live", "local", 1, ["rows"])
    assert (info["kept"], info["shared_with"]) == (["cursor"], [])
    assert info["size"] > 0
    await fold.sessions.reset("listed")
    assert (await fold.sessions.show("listed")).state == "put away"
    assert "put away" in await out(fold, "sessions", "list")


async def test_a_reset_from_another_process_reaches_the_live_session(fold: Toolfold) -> None:
    await ran(fold, "rows = 1\nopen('workspace/f','w').write('x')", "reset")
    await out(fold, "sessions", "reset", "reset")
    told = await ran(fold, "import os\nprint('rows' in globals(), os.listdir('workspace'))", "reset")
    assert told == (
        "Session 'reset' was restarted (it was reset): its variables (rows) are gone, files in workspace/ are kept.\n"
        "False ['f']"
    )
    await ran(fold, "from toolfold import keep\nkeep('x', 1)\ny = 1", "reset")
    await out(fold, "sessions", "reset", "reset", "--files", "--yes")
    told = await ran(fold, "from toolfold import kept\nimport os\nprint(os.listdir('workspace'), list(kept))", "reset")
    assert told.endswith("[] []")


async def test_an_end_from_another_process_reaches_the_live_session(fold: Toolfold) -> None:
    await ran(fold, "rows = 1\nopen('workspace/f','w').write('x')", "ended")
    refused = await asyncio.to_thread(command, fold, "sessions", "end", "ended")
    assert refused.returncode == 1
    assert "--yes" in refused.stderr
    await out(fold, "sessions", "end", "ended", "--yes")
    with pytest.raises(InvalidRequest, match="There is no session 'ended'"):
        await fold.sessions.show("ended")
    told = await ran(fold, "import os\nprint('rows' in globals(), os.listdir('workspace'))", "ended")
    assert told == "Session 'ended' was ended: its variables and files are gone.\nFalse []"
    assert (await fold.sessions.show("ended")).files == 0
    assert await ran(fold, "print(1)", "ended") == "1"


async def test_only_the_person_is_told_who_else_has_sessions(fold: Toolfold) -> None:
    await ran(fold, "rows = 1", "theirs", caller="alice")
    with pytest.raises(InvalidRequest) as refused:
        await fold.sessions.show("theirs")
    assert "need `--caller`: alice" in refused.value.hint
    with pytest.raises(InvalidRequest) as refused:
        await fold.sessions.show("mine", caller="bob")
    assert "alice" not in refused.value.hint


async def test_a_program_ends_with_its_session(fold: Toolfold) -> None:
    begun = asyncio.Event()
    running = asyncio.create_task(
        fold.run("print(1)\nwhile True: pass", session="busy", on_event=lambda event: begun.set())
    )
    await asyncio.wait_for(begun.wait(), 60)
    await fold.sessions.end("busy")
    result = await asyncio.wait_for(running, 30)
    assert not result.success
    assert await ran(fold, "print('fresh')", "busy") == (
        "Session 'busy' was ended: its variables and files are gone.\nfresh"
    )


@pytest.mark.parametrize("name", ["", "x" * 500, "../../etc", "a/b", "\x00", "@connection", "nobody's"])
async def test_a_name_that_is_none_is_told_and_leads_nowhere(fold: Toolfold, name: str) -> None:
    for work in (fold.sessions.show(name), fold.sessions.end(name), fold.sessions.reset(name)):
        with pytest.raises(InvalidRequest):
            await work


async def test_the_transcript_has_code_output_calls_and_who(fold: Toolfold) -> None:
    await ran(fold, "from servers.lab import add\nprint((await add(a=1, b=2))['sum'])", "told")
    await fold.run("print('before')\n1 / 0", session="told")
    shown = await fold.run(f"from toolfold import show\nshow({PNG!r}, 'dot')", session="told")
    assert [image.mime_type for image in shown.images] == ["image/png"]
    first, second, third = await fold.sessions.transcript("told")
    assert (first.caller, first.output, first.calls[0].target, first.calls[0].ok) == ("local", "3\n", "lab.add", True)
    assert first.calls[0].arguments == {"a": 1, "b": 2}
    assert (second.output, "ZeroDivisionError" in second.error) == ("before\n", True)
    assert third.images[0].data == PNG
    text = await out(fold, "sessions", "show", "told")
    for part in (">>> 1 / 0", "→ lab.add", "ZeroDivisionError", "[image dot, 1 × 1]", "local"):
        assert part in text
    both = json.loads(await out(fold, "sessions", "show", "told", "--runs", "1", "--json"))
    assert len(both["runs"]) == 1


async def test_a_notebook_is_what_nbformat_takes(fold: Toolfold) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install 'toolfold[test]'")
    await ran(fold, "print('\x1b[31m ✓')\n[1]", "valid")
    await fold.run(f"from toolfold import show\nshow({PNG!r})\n1 / 0", session="valid")
    nbformat.validate(json.loads(await fold.sessions.export("valid", "ipynb")))


async def test_a_session_is_exported_as_a_notebook_and_as_markdown(fold: Toolfold, tmp_path: Path) -> None:
    await ran(fold, "print('```\\x1b[31m ✓')\n[1]", "book")
    await fold.run("def f():\n    raise ValueError('no: why')\nf()", session="book")
    await fold.run(f"from toolfold import show\nshow({PNG!r})", session="book")
    path = tmp_path / "book.ipynb"
    await out(fold, "sessions", "export", "book", "-o", str(path))
    document: dict[str, Any] = json.loads(path.read_text())
    kinds = [output["output_type"] for cell in document["cells"] for output in cell.get("outputs", [])]
    assert kinds == ["stream", "error", "stream", "display_data"]
    year = datetime.now(UTC).strftime("%Y-%m-")
    assert document["cells"][0]["source"] in ("# Session book", ["# Session book"])
    assert any(year in str(cell["source"]) and " UTC · local · " in str(cell["source"]) for cell in document["cells"])
    markdown = await out(fold, "sessions", "export", "book", "--format", "md")
    assert "````text" in markdown
    assert "ValueError: no: why" in markdown
    with pytest.raises(InvalidRequest, match="ipynb or md"):
        await fold.sessions.export("book", "pdf")


async def test_the_transcript_is_bounded(fold: Toolfold) -> None:
    for _ in range(6):
        await fold.run("# " + "x" * 2_000_000 + "\nprint('y' * 100_000)", session="long")
    entries = await fold.sessions.transcript("long")
    assert all(len(entry.code) < 60_000 and len(entry.output) < 60_000 for entry in entries)


class TestSharing:
    def test_owners_and_names_may_have_slashes_in_them(self, fold: Toolfold) -> None:
        store, data = SessionStore(fold.settings), fold.settings.data_dir
        assert asyncio.run(store.share("a/b", "worker", caller="team/one")) == "@team/one/a/b"
        assert shared_session(data, "@team/one/a/b", "worker") == ("team/one", "a/b")
        assert shared_session(data, "@ada//x", "ada") == ("ada", "/x")
        deep = "/".join("abcdefgh")
        assert shared_session(data, f"@{deep}/name", deep) == (deep, "name")
        for written in ("@worker", "@", "@/", "@team/one", "@team/one/a", f"@{deep}/i/name"):
            with pytest.raises(InvalidRequest, match="is shared with you"):
                shared_session(data, written, f"{deep}/i" if "/i/" in written else "worker")

    async def test_only_those_with_whom_it_is_shared_can_use_it(self, fold: Toolfold) -> None:
        await ran(fold, "plan = ['write']\nopen('workspace/brief', 'w').write('hello')", "plan", "planner")
        for handle in ("@planner/plan", "@planner/other", "@nobody/plan"):
            with pytest.raises(InvalidRequest, match="is shared with you"):
                await fold.run("1", session=handle, caller="worker")
        handle = await fold.sessions.share("plan", "worker", caller="planner")
        assert handle == "@planner/plan"
        result = await fold.run(
            "print(plan, open('workspace/brief').read())\ndone = 1", session=handle, caller="worker"
        )
        assert (result.output, result.session) == ("['write'] hello\n", handle)
        assert await ran(fold, "print(done)", "plan", "planner") == (
            "Others ran programs in this session since your last one: worker (1).\n1"
        )
        callers = [entry.caller for entry in await fold.sessions.transcript("plan", caller="planner")]
        assert callers == ["planner", "worker", "planner"]
        with pytest.raises(InvalidRequest, match="is shared with you"):
            await fold.run("1", session=handle, caller="other")
        await fold.sessions.unshare("plan", "worker", caller="planner")
        with pytest.raises(InvalidRequest, match="is shared with you"):
            await fold.run("1", session=handle, caller="worker")

    async def test_it_can_be_shared_before_it_is_used(self, fold: Toolfold) -> None:
        handle = (await out(fold, "sessions", "share", "early", "--with", "worker", "--caller", "planner")).strip()
        assert (await fold.run("x = 1\nprint(x)", session=handle, caller="worker")).text == "1"
        assert await ran(fold, "print(x)", "early", "planner") == "1"
        listed = json.loads(await out(fold, "sessions", "list", "--caller", "planner", "--json"))
        assert {info["name"]: info["shared_with"] for info in listed}["early"] == ["worker"]

    async def test_a_share_never_takes_the_place_of_ones_own_session(self, fold: Toolfold) -> None:
        await ran(fold, "mine = 1", "main", "victim")
        await ran(fold, "mine = 'planted'", "main", "attacker")
        await fold.sessions.share("main", "victim", caller="attacker")
        assert await ran(fold, "print(mine)", "main", "victim") == "1"

    @pytest.mark.parametrize("other", ["", " ", "planner", "x" * 500])
    async def test_it_is_shared_with_another_caller(self, fold: Toolfold, other: str) -> None:
        with pytest.raises(InvalidRequest):
            await fold.sessions.share("plan", other, caller="planner")


async def test_private_values_are_tokens_in_what_is_kept_and_in_the_transcript(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir, privacy={"enabled": True, "mode": "egress"}) as fold:
        code = "from toolfold import keep, kept\nx = 'ada@example.org'\nkeep('who', [x])\nprint(x)\nkept['who'] == [x]"
        result = await fold.run(code, session="private")
        assert "ada@example.org" not in result.text
        refused = await fold.run(f"from toolfold import show\nshow({PNG!r})", session="private")
        assert "`privacy.images = true`" in str(refused.error)
        [entry, _] = await fold.sessions.transcript("private")
        assert "EMAIL_1" in entry.code
    written = b"".join(path.read_bytes() for path in (runtime_dir / "sessions").rglob("*") if path.is_file())
    assert b"ada@example.org" not in written
    assert b"EMAIL_1" in written


async def test_two_writers_of_one_name_leave_one_whole_value(fold: Toolfold) -> None:
    code = "from toolfold import keep\nfor n in range(5): keep('x', [{who}] * 10_000)"
    await ran(fold, "1", "writers")
    async with lab_fold(fold.settings.data_dir) as other:
        await asyncio.gather(ran(fold, code.format(who=1), "writers"), ran(other, code.format(who=2), "writers"))
    text = await ran(fold, "from toolfold import kept\nprint(len(set(kept['x'])), len(kept['x']))", "writers")
    assert text.endswith("1 10000")
