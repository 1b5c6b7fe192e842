"""Privacy through the public API: what programs and models see, and what servers are sent."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab import lab_fold
from tests.servers.people import ADA, VALUES
from toolfold import Event, Finished, Output, ToolCall, Toolfold
from toolfold.guards.events import Progress

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
    server = {"command": sys.executable, "args": [str(Path(__file__).parent / "servers" / "people.py"), str(sent)]}
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
