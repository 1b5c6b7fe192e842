"""One clock: what servers take is covered by their own limits, and a time that somebody chose always holds."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.upstream_lab import AWKWARD
from toolfold import Question, Toolfold
from toolfold.codegen.names import ApiNames
from toolfold.errors import LimitExceeded
from toolfold.guards.context import Deadline, run_deadline
from toolfold.guards.events import Reply
from toolfold.review.servers import named_servers

pytestmark = pytest.mark.anyio
HANG = "from servers.plain import hang\nawait hang()"


def config(**sandbox: object) -> dict[str, object]:
    plain = {"command": sys.executable, "args": [AWKWARD], "call_timeout": 4}
    asks = {"command": sys.executable, "args": [str(Path(AWKWARD).with_name("asks.py"))], "call_timeout": 2}
    never = {"command": sys.executable, "args": [AWKWARD, "never-answers"], "start_timeout": 1}
    return {"servers": {"plain": plain, "asks": asks, "never": never}, "sandbox": {"pool": 1, **sandbox}}


@pytest.fixture(scope="module")
async def fold(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Toolfold]:
    async with Toolfold.open(config(), data_dir=tmp_path_factory.mktemp("limits")) as opened:
        await opened.listed(["plain", "asks"])
        await opened.warm_up()
        yield opened


async def test_by_default_a_run_has_time_for_what_one_call_and_one_start_may_take(tmp_path: Path) -> None:
    servers = {"a": {"command": "x", "call_timeout": 100, "start_timeout": 50}, "b": {"command": "x"}}
    given = Toolfold.open({"servers": servers}, data_dir=tmp_path).settings
    assert run_deadline(given, None).patience == pytest.approx(180, abs=1)
    assert run_deadline(given, 7).patience == pytest.approx(7, abs=1)
    chosen = Toolfold.open({"servers": servers, "sandbox": {"timeout": 9}}, data_dir=tmp_path).settings
    assert run_deadline(chosen, None).patience == pytest.approx(9, abs=1)


async def test_a_call_that_takes_too_long_ends_by_the_limit_of_its_server(fold: Toolfold) -> None:
    result = await fold.run(HANG)
    assert result.error is not None
    assert "did not answer within 4 s (its `call_timeout`) and was cancelled" in result.error.message
    assert "may have taken effect" in str(result.error)


async def test_an_explicit_timeout_wins_and_names_the_call_that_it_cut_off(fold: Toolfold) -> None:
    await fold.run("from servers.plain import hang", session="s")  # the time is for the program alone
    result = await fold.run(HANG, session="s", timeout=2)
    assert result.error is not None
    assert result.error.message.startswith("The program was stopped after 2 s.")
    assert "A call of plain.hang was cancelled and may have taken effect." in str(result.error)


async def test_a_server_that_does_not_start_is_named_with_its_limit(fold: Toolfold) -> None:
    result = await fold.run("from servers.never import echo\nawait echo()")
    assert result.error is not None
    assert "servers.never is not available now: failed: did not answer the handshake within 1 s" in str(result.error)
    assert "(its `start_timeout`)" in str(result.error)


async def test_a_tool_of_a_server_that_is_not_there_is_not_said_not_to_exist(fold: Toolfold) -> None:
    calls = "from toolfold import call_mcp_tool\nawait call_mcp_tool('{}', {{}})"
    absent, unknown = [await fold.run(calls.format(name)) for name in ("mcp__never__echo", "nonesuch.echo")]
    assert "'mcp__never__echo' is not available now: never: failed: did not answer" in str(absent.error)
    assert "There is no tool" not in str(absent.error)
    assert "There is no tool 'nonesuch.echo'." in str(unknown.error)


async def test_a_call_s_own_time_stands_still_while_a_person_answers(fold: Toolfold) -> None:
    async def ask(_question: Question) -> Reply:
        await asyncio.sleep(2.5)  # longer than the call may take
        return "no"

    result = await fold.run("from servers.asks import form\nprint(await form())", ask=ask)
    assert result.output == "{'action': 'decline'}\n"


async def test_waiting_for_servers_is_not_counted_as_far_as_it_was_granted() -> None:
    deadline = Deadline(0.2, waits=0.4)

    async def work() -> None:
        async with deadline.enforced("late"):
            with deadline.waiting(), deadline.waiting():
                await asyncio.sleep(0.3)
            with deadline.waiting():
                await asyncio.sleep(30)

    begun = deadline.patience
    with pytest.raises(LimitExceeded):
        await work()
    assert begun == pytest.approx(0.6, abs=0.05)
    assert deadline.patience == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("from servers.slow_one import echo", ["slow-one"]),
        ("import servers.slow_one.echo", ["slow-one"]),
        ("from servers import slow_one, other", ["slow-one", "other"]),
        ("import servers\nservers.other.echo()", ["other"]),
        ("```python\nfrom servers.other import echo\n```", ["other"]),
        ("await call_mcp_tool('mcp__slow-one__echo', {})", ["slow-one"]),
        ("name = 'mcp__slow_one__echo'\nawait call_mcp_tool(name)", ["slow-one"]),
        ("await call_mcp_tool(server='other', tool='echo')", ["other"]),
        ("await client.call_mcp_tool('other.echo')", ["other"]),
        ("await read_resource('other', 'memo://a')", ["other"]),
        ("await get_prompt('other', 'greet')", ["other"]),
        ("await client.call_tool('other/echo', {})", ["other"]),
        ("await call_mcp_tool('slow_one__echo')", ["slow-one"]),
        ("await call_mcp_tool('others.echo')", []),
        ("await call_mcp_tool('another.echo', {'text': text('other')})", []),
        ("import other, servers", []),
        ("import others.other", []),
        ("print('other')  # from servers.other import echo", []),
        ("print('''\nfrom servers.other import echo\n''')", []),
        ("from servers.another import other", []),
        ("from others.other import echo", []),
        ("other = 1\nprint(other.servers)", []),
        ("from servers.other import (", []),
    ],
)
async def test_a_server_is_named_by_its_module_and_not_by_a_piece_of_text(code: str, named: list[str]) -> None:
    servers = ["slow-one", "other"]
    assert named_servers(code, servers, ApiNames.of([], servers)) == named
