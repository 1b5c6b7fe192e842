"""Sessions from code: a program lists, shows, resets and ends the sessions of its caller, and nobody else's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import lab_fold
from toolfold import Toolfold
from toolfold.errors import InvalidRequest, PolicyDenied
from toolfold.guards.context import Deadline, RunContext
from toolfold.session.own import OwnSessions

pytestmark = pytest.mark.anyio

SESSIONS = "import json\nfrom toolfold import sessions, PolicyDenied\n"


@pytest.fixture(scope="module")
async def fold(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> AsyncIterator[Toolfold]:
    data = tmp_path_factory.mktemp("code")
    (data / "runtime").symlink_to(shared_runtime)
    async with lab_fold(data) as fold:
        yield fold


async def printed(fold: Toolfold, code: str, session: str | None = None, caller: str = "local") -> str:
    result = await fold.run(SESSIONS + code, session=session, caller=caller)
    assert result.success, result.error
    return result.text


async def refused(fold: Toolfold, call: str, session: str | None = None, caller: str = "local") -> str:
    code = f"try:\n    {call}\nexcept ValueError as error:\n    print(error)"
    return await printed(fold, code, session, caller)


async def listed(fold: Toolfold, caller: str) -> list[str]:
    return json.loads(await printed(fold, "print(json.dumps([s['name'] for s in sessions.list()]))", caller=caller))


async def test_a_session_is_listed_shown_reset_and_ended(fold: Toolfold) -> None:
    begin = "from toolfold import keep\nrows = 1\nkeep('cursor', 7)\nopen('workspace/f', 'w').write('x')\n"
    await fold.run(f"{begin}print('y' * 5000)", session="work", caller="ann")
    for number in range(6):
        await fold.run(f"print({number})", session="work", caller="ann")
    info = json.loads(await printed(fold, "print(json.dumps(sessions.list()))", caller="ann"))[0]
    shown: dict[str, Any] = json.loads(
        await printed(fold, "print(json.dumps(await sessions.show('work')))", "other", "ann")
    )
    runs = shown.pop("runs")
    assert info == shown
    assert set(info) == {"name", "state", "last_used", "size", "files", "variables", "kept", "shared_with"}
    assert (info["name"], info["state"], info["files"], info["kept"]) == ("work", "live", 1, ["cursor"])
    assert info["size"] == (await fold.sessions.show("work", caller="ann")).size
    assert "rows" in info["variables"]
    assert [(run["code"], run["output"]) for run in runs] == [(f"print({n})", f"{n}\n") for n in range(1, 6)]

    assert await printed(fold, "sessions.reset('work')", "other", "ann") == "session 'work' was reset"
    assert (await fold.sessions.show("work", caller="ann")).state == "put away"
    look = "import os\nprint('rows' in globals(), os.listdir('workspace'))"
    result = await fold.run(look, session="work", caller="ann")
    assert result.output == "False ['f']\n"
    assert "(it was reset)" in result.notice

    await printed(fold, "await sessions.end('work')", "other", "ann")
    assert await listed(fold, "ann") == ["other"]
    assert "You have no session 'work'. `sessions.list()` names yours." in await refused(
        fold, "sessions.show('work')", caller="ann"
    )


async def test_long_texts_of_a_transcript_are_cut(fold: Toolfold) -> None:
    await fold.run(f"print('y' * 9000)\n# {'z' * 9000}", session="long", caller="lou")
    code = "run = sessions.show('long')['runs'][0]\nprint(len(run['code']) < 2100, len(run['output']) < 2100)"
    assert await printed(fold, code, caller="lou") == "True True"


async def test_sessions_of_another_caller_are_neither_listed_nor_reached(fold: Toolfold) -> None:
    await fold.run("x = 1", session="hers", caller="eve")
    await fold.run("x = 1", session="given", caller="eve")
    await fold.sessions.share("given", "uma", caller="eve")
    await fold.run("x = 2", session="mine", caller="uma")
    assert await listed(fold, "uma") == ["mine"]
    for name in ("hers", "given", "@eve/hers", "@eve/given", "eve\0hers"):
        for action in ("show", "reset", "end"):
            told = await refused(fold, f"sessions.{action}({name!r})", "mine", "uma")
            assert "eve" not in told.replace(repr(name), ""), told
            assert told
    # Also in a session that is another caller's, a program has its own caller's sessions.
    assert await printed(fold, "print([s['name'] for s in sessions.list()])", "@eve/given", "uma") == "['mine']"
    assert sorted(await listed(fold, "eve")) == ["given", "hers"]
    assert (await fold.run("print(x)", session="hers", caller="eve")).output == "1\n"


@pytest.mark.parametrize("session", ["self", "@local/self"])
@pytest.mark.parametrize("action", ["reset", "end"])
async def test_a_program_cannot_take_away_its_own_session(fold: Toolfold, action: str, session: str) -> None:
    await fold.run("x = 3", session="self")
    told = await refused(fold, f"sessions.{action}('self')", session)
    assert told.startswith(f"A program cannot {action} its own session; do it from a run in another session")
    assert (await fold.run("print(x)", session="self")).output == "3\n"


async def test_names_that_are_none_are_refused_and_the_program_goes_on(fold: Toolfold) -> None:
    code = """
for name in ["", "x" * 500, "../../etc", "a/b", "\\x00", "\\ud800", "@connection", None, 7, b"x"]:
    for work in (sessions.show, sessions.reset, sessions.end):
        try:
            work(name)
            print("not refused", name)
        except (ValueError, TypeError) as error:
            assert str(error)
print("on")
"""
    assert await printed(fold, code, "names") == "on"


async def test_what_only_reads_lists_and_shows(fold: Toolfold) -> None:
    await fold.run("x = 1", session="read", caller="rea")
    example = RunContext("rea", None, Deadline(10), read_only=True)
    plain = RunContext("rea", None, Deadline(10))
    for run, only_reads in ((example, False), (plain, True)):
        own = OwnSessions(fold.sessions, only_reads=only_reads)
        assert [info["name"] for info in (await own.answer(run, "list", ""))["sessions"]] == ["read"]
        assert (await own.answer(run, "show", "read"))["session"]["runs"][0]["code"] == "x = 1"
        with pytest.raises(PolicyDenied, match="not reset them"):
            await own.answer(run, "reset", "read")
        with pytest.raises(PolicyDenied, match="not end them"):
            await own.answer(run, "end", "read")
    assert (await fold.sessions.show("read", caller="rea")).state == "live"


async def test_an_example_of_a_skill_cannot_end_a_session(fold: Toolfold) -> None:
    await fold.run("x = 1", session="target", caller="sky")
    skill = (
        "def tidy() -> int:\n    '''Tidy up.\n\n    >>> tidy()\n    1\n    '''\n"
        "    from toolfold import sessions\n    sessions.end('target')\n    return 1\n"
    )
    result = await fold.run(f"from toolfold import save_skill\nsave_skill({skill!r})", caller="sky")
    assert not result.success
    assert "The examples of a skill may list and show sessions, not end them." in str(result.error)
    assert await listed(fold, "sky") == ["target"]


async def test_a_list_is_bounded(fold: Toolfold) -> None:
    for name in ("one", "two", "three"):
        await fold.run("x = 1", session=name, caller="many")
    found = await fold.sessions.list("many", most=2)
    assert [info.name for info in found] == ["three", "two"]
    own = OwnSessions(fold.sessions, only_reads=False)
    with pytest.raises(InvalidRequest, match="You have no session 'four'"):
        await own.answer(RunContext("many", None, Deadline(10)), "show", "four")
