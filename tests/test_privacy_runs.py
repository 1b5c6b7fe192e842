"""Privacy through the public API: what programs and models see, and what servers are sent."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import warm
from tests.lab import lab_fold
from tests.servers.people import ADA, VALUES
from toolfold import Event, Finished, Output, RunError, ToolCall, Toolfold, ToolfoldError
from toolfold.config.settings import Settings
from toolfold.definitions import BlobPart, LinkPart, TextPart, ToolResult
from toolfold.guards.chain import Chain
from toolfold.guards.context import Deadline, RunContext
from toolfold.guards.events import CallKind, Image, Progress, RunResult
from toolfold.guards.guard import Call
from toolfold.guards.record import Record
from toolfold.guards.watch import Watch
from toolfold.sandbox.replies import ReplyBudget
from toolfold.schema.validation import Validators
from toolfold.telemetry import audit_reader
from toolfold.telemetry.audit_reader import AuditReader, Filter
from toolfold.telemetry.observe import Observer, Observers, SeenCall, SeenRun

pytestmark = pytest.mark.anyio

EVERYTHING = """
import asyncio, json
from servers.people import person, as_text, note, fail, refuse, progress, half, send, with_key
from toolfold import read_resource, get_prompt, progress as report
ada = await person()
print(ada, json.dumps(ada), *(f"<{value}>" for value in ada.values()))
print(await as_text(), await note(), await with_key())
print(await read_resource("people", "people://notes"), await get_prompt("people", "greet"))
for call in (fail(), refuse(to=ada["email"])):
    try:
        await call
    except Exception as error:
        print("failed:", error)
await progress()
report("working on " + ada["email"])
print((await half())["part"] + (await half(second=True))["part"])
open("workspace/people.json", "w").write(json.dumps(ada))
await send(to=ada["email"], body=f"Dear {ada['name']}, {ada['phone']}", ids=[ada["ssn"]], n=1)
ada
"""


@asynccontextmanager
async def people_fold(folder: Path, **settings: Any) -> AsyncGenerator[tuple[Toolfold, Path]]:
    """A fold over the server with people, and the file of what that server was sent."""
    sent = folder / "sent.jsonl"
    server = {"command": warm.python(), "args": [str(Path(__file__).parent / "servers" / "people.py"), str(sent)]}
    async with lab_fold(folder, servers={"people": server}, **settings) as fold:
        yield fold, sent


def sent_to(file: Path, name: str) -> list[Any]:
    return [arguments for called, arguments in map(json.loads, file.read_text().splitlines()) if called == name]


def leaks(*things: object) -> list[str]:
    """Values that occur in what was shown, plainly or as JSON escapes."""
    text = "\n".join(map(str, things))
    unescaped = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
    return [value for value in VALUES if value in text or value in unescaped]


@pytest.mark.parametrize("mode", ["ingress", "egress"])
async def test_no_value_reaches_the_model_and_every_value_reaches_its_server(runtime_dir: Path, mode: str) -> None:
    events: list[Event] = []
    async with people_fold(runtime_dir, privacy={"mode": mode}) as (fold, sent):
        result = await fold.run(EVERYTHING, session="s", on_event=events.append)
        assert result.success, result.error
        failed = await fold.run("raise ValueError(ada['email'] + ada['name'])", session="s")
        later = await fold.run(
            "import json\nada = json.load(open('workspace/people.json'))\nprint(ada)\n"
            "from servers.people import send\nawait send(to=ada['email'])\nawait send(to='EMAIL_1')",
            session="s",
        )
    assert later.success, later.error
    assert leaks(result.text, result.value, result.tool_calls, failed.text, later.text, *events) == []
    assert "order_id': '4155550000'" in result.output
    assert result.value["email"] == "EMAIL_1"
    first, *rest = sent_to(sent, "send")
    assert first == {"to": ADA["email"], "body": f"Dear {ADA['name']}, {ADA['phone']}", "ids": [ADA["ssn"]], "n": 1}
    assert rest == [{"to": ADA["email"]}] * 2
    kinds = {type(event) for event in events}
    assert {Output, Progress, ToolCall} <= kinds
    printed = "".join(event.text for event in events if isinstance(event, Output))
    assert printed.strip() == result.output[: len(printed)].strip()
    saved = next((runtime_dir / "sessions").glob("*/workspace/people.json")).read_text()
    assert (leaks(saved) == []) == (mode == "ingress"), "in egress mode the program has the real values"


async def test_ingress_programs_see_tokens_and_egress_programs_values(runtime_dir: Path) -> None:
    code = "from servers.people import person\nx = (await person())['email']\nprint(x.count('@'), len(x))"
    async with people_fold(runtime_dir, privacy=True) as (fold, _):
        assert (await fold.run(code)).output == "0 7\n"
    async with people_fold(runtime_dir, privacy={"mode": "egress"}) as (fold, _):
        assert (await fold.run(code)).output == f"1 {len(str(ADA['email']))}\n"
    async with people_fold(runtime_dir, privacy=False) as (fold, _):
        assert str(ADA["email"]) in (await fold.run(code.replace("x.count('@'), len(x)", "x"))).output, "off by default"


async def test_tokens_mean_nothing_in_other_sessions_and_to_other_callers(runtime_dir: Path) -> None:
    get = "from servers.people import person\nprint((await person())['email'])"
    use = "from servers.people import send\nawait send(to='EMAIL_1')"
    async with people_fold(runtime_dir, privacy=True) as (fold, sent):
        assert (await fold.run(get, session="s")).output == "EMAIL_1\n"
        for session, caller in (("t", "local"), ("s", "bob"), (None, "local")):
            refused = await fold.run(use, session=session, caller=caller)
            assert "EMAIL_1 stands for no private value of this session" in str(refused.error)
        assert (await fold.run(use, session="s")).success
        assert sent_to(sent, "send") == [{"to": ADA["email"]}]


async def test_other_servers_get_values_by_rule_only_and_the_model_is_told_why(runtime_dir: Path) -> None:
    code = (
        "from servers.people import person\nfrom servers.lab import echo, fail\nada = await person()\n"
        "print(await echo(value=[ada['email'], ada['phone']]))\n"
        "try: await fail(message=ada['ssn'])\nexcept Exception as error: print(' '.join(str(error).split()))"
    )
    seen: list[Any] = []

    async def watch(call: Any, proceed: Any) -> Any:
        seen.append(call.arguments)
        return await proceed(call)

    async with people_fold(runtime_dir, privacy={"restore": {"lab": ["email"]}}, guards=[watch]) as (fold, _):
        result = await fold.run(code)
    assert result.success, result.error
    first, second = result.output.splitlines()
    assert first == "{'value': ['EMAIL_1', 'PHONE_1']}"
    assert "NATIONAL_ID_1" in second
    assert "privacy.restore" in second
    assert leaks(seen) == [], "guards of the embedding program see what the program wrote"


async def test_a_cut_output_keeps_no_value_and_its_file_can_be_used_later(runtime_dir: Path) -> None:
    code = "from servers.people import many\nfor row in (await many(count=400))['rows']: print(row['email'], end=' ')"
    async with people_fold(runtime_dir, privacy={"mode": "egress"}, output_chars=400) as (fold, sent):
        result = await fold.run(code)
        assert result.truncated
        assert "@" not in result.output
        assert result.session is not None
        use = (
            f"from servers.people import send\nnames = open({result.output_file!r}).read().split()\n"
            "print(len(names), '@' in ''.join(names))\nx = await send(to=names[-1])"
        )
        later = await fold.run(use, session=result.session)
    assert later.output == "400 False\n", later.error
    assert sent_to(sent, "send") == [{"to": "user399@example.com"}]


async def test_a_large_result_with_a_hundred_thousand_addresses(runtime_dir: Path) -> None:
    """Fifty megabytes: handled, while other runs go on; and refused, with the reason, when it is more than allowed."""
    code = (
        "from servers.people import many, send\nrows = (await many(count=100_000, filler=46_000_000))['rows']\n"
        "print(len(rows), rows[0], rows[-1]['n'], '@' in str(rows))\nx = await send(to=rows[-1]['email'])"
    )
    async with people_fold(runtime_dir, privacy=True, sandbox={"timeout": 100, "memory": "2GB"}) as (fold, sent):
        result = await fold.run(code, session="s")
        assert result.success, result.error
        assert result.output == "100000 {'email': 'EMAIL_1', 'n': 0} 99999 False\n"
        assert sent_to(sent, "send") == [{"to": "user99999@example.com"}]
    async with people_fold(runtime_dir, privacy={"values": 1000}) as (fold, _):
        result = await fold.run(code.replace("46_000_000", "0"), session="t")
    assert "privacy.values" in str(result.error)
    assert "@" not in str(result.error)


async def test_errors_in_arguments_show_no_restored_value(runtime_dir: Path) -> None:
    code = (
        "from servers.people import person\nfrom toolfold import call_mcp_tool\nada = await person()\n"
        "await call_mcp_tool('lab.add', {'a': ada['email'], 'b': ada['name']})"
    )
    async with people_fold(runtime_dir, privacy={"restore": {"lab": ["*"]}}) as (fold, _):
        result = await fold.run(code)
    assert result.error is not None
    assert leaks(result.error, result.tool_calls) == []


async def test_a_resource_is_read_by_an_address_that_holds_a_token(runtime_dir: Path) -> None:
    code = (
        "from servers.people import person\nfrom toolfold import read_resource\nada = await person()\n"
        "print(await read_resource('people', f\"people://{ada['email']}\"))"
    )
    async with people_fold(runtime_dir, privacy=True) as (fold, sent):
        result = await fold.run(code)
    assert "EMAIL_1 wrote" in result.output
    assert sent_to(sent, "resource") == [f"people://{ADA['email']}"]


async def test_the_audit_log_has_tokens_only(runtime_dir: Path) -> None:
    audit = {"enabled": True, "values": True}
    for mode in ("ingress", "egress"):
        async with people_fold(runtime_dir, privacy={"mode": mode}, audit=audit) as (fold, _):
            assert (await fold.run(EVERYTHING + "\nraise ValueError(ada['name'])", session=mode)).error is not None
    logs = [
        path
        for path in runtime_dir.rglob("*")
        if (path.is_file() and path.suffix in {".db", ".sqlite", ".log"}) or "audit" in path.name
    ]
    files = [path for path in logs if path.is_file()]
    assert files
    for path in files:
        assert leaks(path.read_bytes().decode("latin-1")) == [], path


async def test_streaming_ends_with_the_whole_output(runtime_dir: Path) -> None:
    code = (
        "from servers.people import person\nx = await person()\n"
        "for text in ('no newline yet: ', x['email']): print(text, end='')"
    )
    async with people_fold(runtime_dir, privacy={"mode": "egress"}) as (fold, _):
        events = [event async for event in fold.stream(code)]
    assert "".join(event.text for event in events if isinstance(event, Output)) == "no newline yet: EMAIL_1"
    assert isinstance(events[-1], Finished)
    assert events[-1].result.output == "no newline yet: EMAIL_1"


async def test_a_token_that_the_program_spells_out_is_not_judged_as_text(runtime_dir: Path) -> None:
    """`add` takes numbers: what the token stands for is one, and the review cannot know."""
    get = "from servers.lab import echo\nprint((await echo(value={'ssn': 123456789}))['value'])"
    async with people_fold(runtime_dir, privacy=True) as (fold, _):
        assert (await fold.run(get, session="s")).output == "{'ssn': 'NATIONAL_ID_1'}\n"
        code = "from servers.lab import add\nprint((await add(a='NATIONAL_ID_1', b=1))['sum'] % 1000)"
        result = await fold.run(code, session="s")
    assert result.output == "790\n", result.error


# Without a program: what the guards around its calls and around the run do.

EMAIL = str(ADA["email"])


@asynccontextmanager
async def guarded(folder: Path, **settings: Any) -> AsyncGenerator[Chain]:
    chain = Chain(Settings.model_validate({"data_dir": folder, **settings}), [], Validators())
    try:
        yield chain
    finally:
        await chain.close()


async def private_run(chain: Chain, session: str | None = None, **more: Any) -> RunContext:
    return RunContext("ada", session, Deadline(60), privacy=await chain.privacy_of("ada", session), **more)


async def answered(chain: Chain, run: RunContext, result: ToolResult | Exception, **arguments: Any) -> ToolResult:
    """What a program gets of what a server says."""

    async def upstream(call: Call) -> ToolResult:
        if isinstance(result, Exception):
            raise result
        return result

    proceed = chain.for_run(upstream, Record(), ReplyBudget())
    return await proceed(Call("1", "tool", "people", "person", arguments, run))


async def test_nothing_that_is_told_or_logged_of_a_run_has_a_value_in_it(tmp_path: Path) -> None:
    """In egress mode, where the program itself has the values: names, arguments, errors, and the program's text."""
    told: list[str] = []

    class Everything(Observer):
        def run_started(self, run: SeenRun) -> None:
            told.append(repr(run))

        def call_started(self, run: SeenRun, call: SeenCall) -> None:
            told.append(repr(call))

        def call_ended(self, run: SeenRun, call: SeenCall) -> None:
            told.append(f"{call!r} {call.text}")

        def run_ended(self, run: SeenRun) -> None:
            told.append(f"{run!r} {run.text} {run.code}")

    async def refuse(call: Call) -> ToolResult:
        raise ToolfoldError(f"{EMAIL} is not there.", hint=f"Ask {EMAIL}.")

    events: list[Event] = []
    record = Record()
    observers = Observers()
    observers.add(Everything())
    code = f"print('{EMAIL}')"
    async with guarded(tmp_path, privacy={"mode": "egress"}, audit={"values": True}) as chain:
        run = await private_run(chain, code=code, on_event=events.append, watch=Watch(observers))
        kinds: list[CallKind] = ["tool", "resource", "prompt"]

        async def work() -> RunResult:
            proceed = chain.for_run(refuse, record, ReplyBudget())
            for kind in kinds:
                name = "send" if kind == "tool" else f"people://to/{EMAIL}"
                with pytest.raises(ToolfoldError, match=EMAIL):
                    await proceed(Call(kind, kind, "people", name, {"to": EMAIL}, run))
            run.emit(Progress(f"asking {EMAIL}"))
            return RunResult(
                success=False,
                value={"to": EMAIL},
                error=RunError(code="program", message=EMAIL, hint=EMAIL, text=EMAIL),
                notice=f"{EMAIL} is gone.",
                tool_calls=record.calls,
                images=[Image(data=b"", mime_type="image/png", width=1, height=1, name=EMAIL)],
            )

        result = await chain.recorded(code, run, work)
    assert [each for each in [result, *events, *told] if leaks(each)] == []
    assert [call.tool for call in result.tool_calls] == ["send", "people://to/EMAIL_1", "people://to/EMAIL_1"]
    assert (len(told), len(events)) == (8, 7)
    assert result.images[0].name == str(result.error) == "EMAIL_1"
    for file in tmp_path.iterdir():
        assert leaks(file.read_bytes().decode("latin-1")) == [], file
    with AuditReader.open(tmp_path) as reader:
        started, *calls = list(reader.history(Filter()))[::-1]
    assert isinstance(started, audit_reader.Run)
    assert (started.code, started.error) == ("print('EMAIL_1')", "program: EMAIL_1")
    assert [(call.target, call.arguments, call.error) for call in calls if isinstance(call, audit_reader.Call)] == [
        (target, {"to": "EMAIL_1"}, "toolfold: EMAIL_1 is not there.")
        for target in ("people.send", "resource:people:people://to/EMAIL_1", "prompt:people:people://to/EMAIL_1")
    ]


@pytest.mark.parametrize("kind", ["text/csv", "application/json", "application/xml", "application/csv", "image/png"])
async def test_a_text_that_comes_as_bytes_is_a_text(tmp_path: Path, kind: str) -> None:
    data = base64.b64encode(f"to {EMAIL}".encode()).decode()
    async with guarded(tmp_path, privacy=True) as chain:
        given = ToolResult(parts=[BlobPart(data, kind), BlobPart("no base64", kind), BlobPart("/w==", kind)])
        first, *others = (await answered(chain, await private_run(chain), given)).parts
    assert isinstance(first, BlobPart)
    assert base64.b64decode(first.data).decode() == (f"to {EMAIL}" if kind == "image/png" else "to EMAIL_1")
    assert first.mime_type == kind
    assert others == given.parts[1:]


async def test_every_part_of_a_result_is_looked_at(tmp_path: Path) -> None:
    link = LinkPart(f"mail:{EMAIL}", f"name {EMAIL}", f"description {EMAIL}", "text/html")
    given = ToolResult(parts=[TextPart(EMAIL), link], structured=[EMAIL], has_structured=True, is_error=True)
    raw = ToolResult(structured=msgspec.Raw(json.dumps([EMAIL]).encode()), has_structured=True)
    async with guarded(tmp_path, privacy=True) as chain:
        run = await private_run(chain)
        result = await answered(chain, run, given)
        large = await answered(chain, run, raw)
    assert result.parts == [
        TextPart("EMAIL_1"),
        LinkPart("mail:EMAIL_1", "name EMAIL_1", "description EMAIL_1", "text/html"),
    ]
    assert (result.structured, result.is_error) == (["EMAIL_1"], True)
    assert msgspec.json.decode(msgspec.json.encode(large.structured)) == ["EMAIL_1"]


@pytest.mark.parametrize(("mode", "seen"), [("ingress", "EMAIL_1"), ("egress", EMAIL)])
async def test_an_error_has_values_only_for_a_program_that_may_see_them(tmp_path: Path, mode: str, seen: str) -> None:
    """What a program reads is not what it prints: that is looked at once more."""
    problem = ToolfoldError(f"{EMAIL} is not there.", hint=f"Ask {EMAIL}.")
    async with guarded(tmp_path, privacy={"mode": mode, "restore": {"people": []}}) as chain:
        run = await private_run(chain)
        assert run.privacy is not None
        assert run.privacy.tokenise(EMAIL) == "EMAIL_1"
        with pytest.raises(ToolfoldError) as refused:
            await answered(chain, run, problem, to="EMAIL_1")
    why = "(people was sent EMAIL_1 as written: the settings do not let it have email values of other servers, see"
    assert (refused.value.message, refused.value.args) == (f"{seen} is not there.", (f"{seen} is not there.",))
    assert refused.value.hint == f"Ask {seen}. {why} `privacy.restore`.)"
    assert refused.value.__cause__ is None


async def test_arguments_of_a_prompt_are_texts_whatever_the_value_was(tmp_path: Path) -> None:
    sent: list[Any] = []

    async def upstream(call: Call) -> ToolResult:
        sent.append(call.arguments)
        return ToolResult()

    async with guarded(tmp_path, privacy={"restore": {"people": ["*"]}}) as chain:
        run = await private_run(chain)
        result = await answered(chain, run, ToolResult(structured={"ssn": 123456789}, has_structured=True))
        assert result.structured == {"ssn": "NATIONAL_ID_1"}
        proceed = chain.for_run(upstream, Record(), ReplyBudget())
        await proceed(Call("1", "tool", "people", "send", {"to": "NATIONAL_ID_1"}, run))
        await proceed(Call("2", "prompt", "people", "greet", {"to": "NATIONAL_ID_1"}, run))
    assert sent == [{"to": 123456789}, {"to": "123456789"}]


@pytest.mark.parametrize("problem", [RuntimeError(), asyncio.CancelledError()])
async def test_what_a_run_that_failed_has_named_is_not_named_again(tmp_path: Path, problem: BaseException) -> None:
    """Its session may have kept the token in a file."""
    async with guarded(tmp_path, privacy=True) as chain:
        run = await private_run(chain, "s")

        async def fail() -> RunResult:
            await answered(chain, run, ToolResult(structured=[EMAIL], has_structured=True))
            raise problem

        with pytest.raises(type(problem)):
            await chain.recorded("", run, fail)
    async with guarded(tmp_path, privacy=True) as chain:
        run = await private_run(chain, "s")
        result = await answered(chain, run, ToolResult(structured=["bob@example.com"], has_structured=True))
    assert result.structured == ["EMAIL_2"]
