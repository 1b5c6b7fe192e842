"""Servers that ask in the middle of a call: the person who approves answers, a model never does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.upstream_lab import SERVERS, eventually
from toolfold import ApprovalRequest, Finished, Question, RunResult, Toolfold
from toolfold.config.settings import ServerConfig
from toolfold.guards import guard
from toolfold.guards.context import Ask, Deadline, RunContext
from toolfold.guards.events import Replied, Reply
from toolfold.guards.relay import Relay
from toolfold.schema.forms import Field, Form
from toolfold.telemetry.audit_reader import AuditReader, Call, Filter
from toolfold.upstream import server
from toolfold.upstream.asking import Asked
from toolfold.upstream.fleet import Fleet

pytestmark = pytest.mark.anyio

ASKS = str(SERVERS / "asks.py")
ERAS = ["older", "newer"]
FILLED = {"city": "Rome", "room": "d"}


def config(folder: Path) -> dict[str, Any]:
    servers = {era: {"command": sys.executable, "args": [ASKS, era, f"calls={folder / era}"]} for era in ERAS}
    return {"servers": servers, "sandbox": {"pool": 1}, "audit": True}


@pytest.fixture(scope="module")
async def fold(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Toolfold]:
    folder = tmp_path_factory.mktemp("asks")
    async with Toolfold.open(config(folder), data_dir=folder) as opened:
        await opened.listed()
        yield opened


def program(era: str, tool: str, **arguments: Any) -> str:
    return f"from servers.{era} import {tool}\nprint(await {tool}(**{arguments!r}))"


def answering(*replies: Reply | Replied) -> tuple[Ask, list[Question]]:
    left = list(replies)
    asked: list[Question] = []

    async def ask(question: Question) -> Reply | Replied:
        asked.append(question)
        return left.pop(0)

    return ask, asked


def printed(result: RunResult) -> Any:
    assert result.error is None, result.text
    return result.value if result.output == "" else eval(result.output)


@pytest.mark.parametrize("era", ERAS)
async def test_a_form_is_filled_in_by_the_person_and_labelled_with_the_server(fold: Toolfold, era: str) -> None:
    ask, asked = answering(Replied("once", "page", values=FILLED))
    result = await fold.run(program(era, "form"), ask=ask)
    assert printed(result) == {
        "action": "accept",
        "content": {"city": "Rome", "nights": 2, "smoking": False, "room": "d"},
    }
    [question] = asked
    assert question.text.startswith(f"The server {era} asks you, during a call of {era}.form:\n> Where do you want")
    assert question.replies == ("once", "no")
    assert question.form is not None
    assert [field.name for field in question.form.fields] == ["city", "nights", "smoking", "room"]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("reply", "action"),
    [("no", "decline"), (Replied("once", "page", values={"city": "X", "room": "d"}), "cancel"), ("run", "decline")],
    ids=["no", "invalid", "not offered"],
)
async def test_what_is_no_answer_is_none_for_the_server(fold: Toolfold, era: str, reply: Any, action: str) -> None:
    ask, asked = answering(reply)
    assert printed(await fold.run(program(era, "form"), ask=ask)) == {"action": action}
    assert len(asked) == 1


NAME = Form((Field(name="name", kind="string", title="Your name", required=True),))


@pytest.mark.parametrize(
    ("reply", "form", "answer", "noted"),
    [
        ("no", NAME, "decline", "asked for 1 values: not answered (the person who was asked said no)"),
        (RuntimeError(), NAME, "cancel", "asked for 1 values: not answered (asking a person failed)"),
        (TimeoutError(), NAME, "cancel", "asked for 1 values: not answered (no person answered within 5 s)"),
        (Replied("once", "page"), NAME, "cancel", "asked for 1 values: not answered (the answer was invalid)"),
        (Replied("once", "page", values={"name": "Ada"}), NAME, "accept", "asked for 1 values: answered (page)"),
        (
            Replied("once", "page"),
            Form((), "https://a.example"),
            "accept",
            "asked for opening an address: answered (page)",
        ),
    ],
)
async def test_a_refusal_is_told_from_a_question_that_was_not_answered(
    reply: Any, form: Form, answer: str, noted: str
) -> None:
    async def ask(_question: Question) -> Reply:
        if isinstance(reply, Exception):
            raise reply
        return reply

    call = calling(ask)
    given = await Relay(call, 5).answer(Asked("Who are you?", form))
    assert given.action == answer
    assert given.values == ({"name": "Ada"} if noted.endswith("1 values: answered (page)") else {})
    assert call.notes.asked == [noted]


async def test_no_line_of_a_server_passes_for_one_of_ours() -> None:
    ask, asked = answering("no")
    message = "Hello.\nIt gets your answers: nothing.\x1b[2J\u202e" + "x" * 2000
    await Relay(calling(ask), 5).answer(Asked(message, NAME))
    first, *lines, names, source = asked[0].text.split("\n")
    assert first == "The server shop asks you, during a call of shop.buy now:"
    assert [line[:2] for line in lines] == ["> ", "> "]
    assert lines[0] == "> Hello."
    assert lines[1].startswith("> It gets your answers: nothing.")
    assert "\x1b" not in asked[0].text
    assert "\u202e" not in asked[0].text
    assert len(asked[0].arguments[0]) == 2002
    assert asked[0].arguments[0].endswith("x …")
    assert names == "It gets your answers: Your name."
    assert source == "Line 2: buy()"
    assert (asked[0].line, asked[0].source, asked[0].replies) == (2, "buy()", ("once", "no"))


def calling(ask: Ask) -> guard.Call:
    run = RunContext("ada", None, Deadline(60), asker=ask, code="x = 1\nbuy()")
    return guard.Call("1", "tool", "shop", "buy\nnow", {}, run, line=2)


@pytest.mark.parametrize("era", ERAS)
async def test_an_address_is_shown_whole_and_only_addresses_of_the_web(fold: Toolfold, era: str) -> None:
    ask, asked = answering("once")
    assert printed(await fold.run(program(era, "url"), ask=ask)) == {"action": "accept"}
    [question] = asked
    assert question.form is not None
    assert question.form.url == "https://pay.example/checkout?id=7&to=<x>"
    assert "open an address of pay.example:\nhttps://pay.example/checkout?id=7&to=<x>" in question.text
    for url in ("javascript:alert(1)", "file:///etc/passwd", "https://", "https://a.b/\u202e", "https://a b"):
        assert printed(await fold.run(program(era, "url", url=url), ask=ask)) == {"action": "decline"}


async def test_an_address_that_must_be_opened_before_a_call_is_relayed_and_the_call_sent_again(fold: Toolfold) -> None:
    ask, asked = answering("once")
    assert (await fold.run(program("older", "seat"), ask=ask)).output == "seated\n"
    [question] = asked
    assert "> Sign in first." in question.text


@pytest.mark.parametrize("era", ERAS)
async def test_without_a_person_it_is_declined_at_once(fold: Toolfold, era: str) -> None:
    assert printed(await fold.run(program(era, "form"))) == {"action": "decline"}


async def test_the_capability_is_told_for_each_call_where_the_era_allows_it(fold: Toolfold) -> None:
    ask, _ = answering()
    offered: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
    assert printed(await fold.run(program("newer", "capabilities"), ask=ask))["now"] == offered
    assert printed(await fold.run(program("newer", "capabilities")))["now"] == {}
    assert printed(await fold.run(program("older", "capabilities")))["elicitation"] == {"form": {}, "url": {}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}},
        {"type": "object", "properties": {f"f{number}": {"type": "string"} for number in range(21)}},
        {"type": "object", "properties": {"a" * 101: {"type": "string"}}},
    ],
    ids=["nested", "many fields", "long name"],
)
async def test_a_form_that_cannot_be_shown_is_declined(fold: Toolfold, schema: dict[str, Any]) -> None:
    ask, asked = answering()
    result = await fold.run(program("newer", "form", schema=schema), ask=ask)
    assert result.error is not None or printed(result) == {"action": "decline"}
    assert asked == []


async def test_a_server_may_ask_ten_times_in_a_call(fold: Toolfold) -> None:
    noes: list[Reply] = ["no"] * 10
    ask, asked = answering(*noes)
    assert printed(await fold.run(program("older", "many", times=12), ask=ask)) == ["decline"] * 12
    assert len(asked) == 10


async def test_a_question_is_only_put_where_one_run_can_be_meant(fold: Toolfold) -> None:
    """While another run's call is in flight, a server of the older era may ask about either."""
    ask, asked = answering(Replied("once", "page", values=FILLED), Replied("once", "page", values=FILLED))
    holding = asyncio.create_task(fold.run(program("older", "hold"), ask=ask))
    calls = fold.settings.data_dir / "older"
    async with asyncio.timeout(30):
        while "holding" not in calls.read_text():
            await asyncio.sleep(0.01)  # a file has no event
    assert printed(await fold.run(program("older", "form"), ask=ask)) == {"action": "decline"}
    assert asked == []
    # A server of the newer era says which call it asks about.
    assert printed(await fold.run(program("newer", "form"), ask=ask))["action"] == "accept"
    await fold.run(program("older", "release"))
    assert (await holding).output == "held\n"
    # Two calls of the same run leave no doubt.
    both = "import asyncio\nfrom servers.older import form, plain\nprint((await asyncio.gather(form(), plain()))[0])"
    assert printed(await fold.run(both, ask=ask))["action"] == "accept"


async def give_up(fold: Toolfold, era: str) -> None:
    """Cancel a run whose call has led to a question; the question is withdrawn."""
    put, withdrawn = asyncio.Event(), asyncio.Event()

    async def ask(_question: Question) -> Reply:
        put.set()
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()
        raise AssertionError

    run = asyncio.create_task(fold.run(program(era, "form"), ask=ask, caller="gone"))
    await put.wait()
    run.cancel()
    async with asyncio.timeout(20):
        await withdrawn.wait()
    with pytest.raises(asyncio.CancelledError):
        await run


@pytest.mark.parametrize("era", ERAS)
async def test_a_cancelled_run_takes_the_question_back(fold: Toolfold, era: str) -> None:
    await give_up(fold, era)


async def test_what_a_given_up_call_may_still_ask_is_not_put_to_another_caller(fold: Toolfold) -> None:
    """The server of the older era may still be at the cancelled call."""
    await give_up(fold, "older")
    ask, asked = answering(Replied("once", "page", values=FILLED))
    assert printed(await fold.run(program("older", "form"), ask=ask)) == {"action": "decline"}
    assert asked == []
    result = await fold.run(program("older", "form"), ask=ask, caller="gone")
    assert printed(result)["action"] == "accept"


async def test_a_library_gets_the_form_with_the_event(fold: Toolfold) -> None:
    async for event in fold.stream(program("newer", "form")):
        if isinstance(event, ApprovalRequest):
            with pytest.raises(ValueError, match="City is required"):
                event.approve()
            with pytest.raises(ValueError, match="City must be at least 2 characters"):
                event.submit({**FILLED, "city": "X"})
            assert event.submit({**FILLED, "nights": 3, "unknown": 1})
            assert not event.deny()
        if isinstance(event, Finished):
            content = {"city": "Rome", "nights": 3, "smoking": False, "room": "d"}
            assert printed(event.result) == {"action": "accept", "content": content}


async def test_it_is_in_the_audit_log_without_the_answers(fold: Toolfold) -> None:
    ask, _ = answering(Replied("once", "page", values={**FILLED, "city": "Castrop-Rauxel"}))
    await fold.run(program("newer", "form"), ask=ask)
    with AuditReader.open(fold.settings.data_dir) as reader:
        calls = [item for item in reader.history(Filter()) if isinstance(item, Call)]
    assert next(call for call in calls if call.asked).asked == "asked for 4 values: answered (page)"
    assert "Castrop" not in repr(calls)


@pytest.mark.parametrize("era", ERAS)
async def test_sampling_is_refused_in_plain_words_and_roots_are_none(fold: Toolfold, era: str) -> None:
    result = await fold.run(program(era, "sample"))
    assert "Toolfold does not offer sampling: it has no model to ask." in result.text
    assert printed(await fold.run(program(era, "roots"))) == {"roots": []}
    problems = next(health.problems for health in fold.fleet.health() if health.server == era)
    assert "it asks for sampling (answers of a model), which Toolfold does not offer" in problems


async def test_a_server_that_is_set_up_part_by_part_is_listed_every_second() -> None:
    assert [server.relist_spacing(before) for before in (0, 1, 5, 6, 7, 8, 50)] == [1, 1, 1, 2, 4, 8, 60]


async def test_a_server_that_goes_on_announcing_changes_is_listed_less_and_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "RELIST_SPACING", 0.02)
    calls = tmp_path / "calls"
    config = ServerConfig(command=sys.executable, args=(ASKS, f"calls={calls}"))
    async with Fleet({"a": config}, log_dir=tmp_path / "logs") as fleet:
        await fleet.call("a", "announce", {"times": 100})
        assert 2 <= calls.read_text().count("tools/list") <= 50  # a busy machine announces with pauses


@pytest.mark.parametrize("era", ERAS)
async def test_log_messages_go_to_the_server_s_log(fold: Toolfold, era: str) -> None:
    await fold.run(program(era, "log", times=3000))
    log = fold.fleet.log_file(era)
    await eventually(lambda: "more messages of this connection are not recorded" in log.read_text())
    assert "warning boiler: pressure 7\n" in log.read_text()
    assert log.read_text().count("boiler") == 2000
