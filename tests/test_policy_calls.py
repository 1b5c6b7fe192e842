"""What rules and profiles allow, ask about and refuse: real programs, a real server, and what it received."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.office import office
from toolfold import ApprovalRequest, Finished, ToolCall, Toolfold
from toolfold.gateway.views.viewer import Viewer
from toolfold.gateway.views.views import Views
from toolfold.telemetry.activity import Activity

pytestmark = pytest.mark.anyio

TOOLS = ["read_note", "create_note", "delete_note", "archive_all", "remove_draft"]
ARGUMENTS: dict[str, dict[str, Any]] = {"read_note": {"path": "a"}}


@pytest.mark.parametrize(
    ("profile", "refused"),
    [
        ("open", []),
        ("careful", ["delete_note", "archive_all"]),
        ("strict", ["create_note", "delete_note", "archive_all", "remove_draft"]),
        ("read_only", ["create_note", "delete_note", "archive_all", "remove_draft"]),
    ],
)
async def test_each_profile_lets_through_what_it_says(runtime_dir: Path, profile: str, refused: list[str]) -> None:
    """There is nobody to ask here, so what would be asked about is refused."""
    async with office(runtime_dir, policy={"profile": profile}) as lab:
        said = {name: await lab.call(f"office.{name}", ARGUMENTS.get(name)) for name in TOOLS}
        read = await lab.fold.run(
            "from toolfold import read_resource\nawait read_resource('office', 'office://notes/a')"
        )
    assert [name for name in TOOLS if "did" not in said[name]] == refused
    assert [name for name, _ in lab.done] == [*(name for name in TOOLS if name not in refused), "office://notes/a"]
    assert read.success, read.error
    for name in refused:
        kind = "PolicyDenied(policy_denied)" if profile == "read_only" else "ApprovalDenied(approval_denied)"
        assert said[name].startswith(kind), said[name]
        assert f"profile {profile}" in said[name]
        assert f"toolfold policy allow 'office.{name}'" in said[name]


async def test_careful_is_the_default(runtime_dir: Path) -> None:
    async with office(runtime_dir) as lab:
        assert "ApprovalDenied" in await lab.call("office.delete_note")
        assert await lab.call("office.create_note") == "did create_note"


async def test_a_person_is_asked_and_the_answer_counts(runtime_dir: Path) -> None:
    program = (
        "from servers.office import archive_all, delete_note\nfrom toolfold import ApprovalDenied, PolicyDenied\n"
        "print(await delete_note())\n"
        "try: await archive_all()\n"
        "except ApprovalDenied as error: print('no:', isinstance(error, PolicyDenied))"
    )
    asked: list[str] = []
    output = ""
    async with office(runtime_dir) as lab:
        async for event in lab.fold.stream(program):
            match event:
                case ApprovalRequest(question=question):
                    asked.append(question.text)
                    assert event.approve() if "delete_note" in question.text else event.deny()
                case Finished(result=result):
                    output = result.output
                case _:
                    pass
    assert output == "did delete_note\nno: True\n"
    assert len(asked) == 2
    assert [name for name, _ in lab.done] == ["delete_note"]


async def test_the_first_rule_that_matches_decides(runtime_dir: Path) -> None:
    rules = [
        {"match": "office.delete_note", "do": "allow"},
        {"match": "office.delete_*", "do": "deny"},
        {"match": "office.*", "do": "deny"},
    ]
    async with office(runtime_dir, policy={"rules": rules}) as lab:
        assert await lab.call("office.delete_note") == "did delete_note"
        said = await lab.call("office.create_note")
    assert said.startswith("PolicyDenied(policy_denied): Policy denies office.create_note: rule 3 (deny office.*).")


async def test_kinds_are_told_apart_and_a_whole_server_means_all_of_it(runtime_dir: Path) -> None:
    program = (
        "from toolfold import PolicyDenied, get_prompt, read_resource\n"
        "for call in (read_resource('office', 'office://notes/a'), read_resource('office', 'office://secrets/b'),\n"
        "             read_resource('office', 'office://notes/../secrets/b'),\n"
        "             get_prompt('office', 'letter', {'to': 'x'})):\n"
        "    try: print('ok', await call)\n"
        "    except PolicyDenied as error: print('denied', str(error).split(': ')[1])"
    )
    rules = [{"match": "resource:office:office://secrets/*", "do": "deny"}]
    async with office(runtime_dir, policy={"rules": rules}) as lab:
        some = await lab.fold.run(program)
        listed = await lab.fold.search("server:office")
    whole = runtime_dir / "whole"
    async with office(whole, policy={"rules": [{"match": "office.*", "do": "deny"}]}) as lab:
        all_of_it = await lab.fold.run(program)
    assert [line.split()[0] for line in some.output.splitlines()] == ["ok", "denied", "denied", "ok"]
    assert "notes/a" in listed.text
    assert "secrets" not in listed.text
    assert [line.split()[0] for line in all_of_it.output.splitlines()] == ["denied"] * 4
    assert lab.done == []


async def test_what_is_denied_to_a_caller_is_not_there_for_it(runtime_dir: Path) -> None:
    """`send_mail` and `send.mail` would have one name: what is left of the two keeps the one that it had."""
    rules = [{"match": "office.send_mail", "caller": "ci", "do": "deny"}]
    look = (
        "import json, os\nfrom toolfold import search_tools\n"
        "print(json.dumps([sorted(name[:-3] for name in os.listdir('servers/office') if name.startswith('send')),\n"
        "                  sorted(hit.name for hit in search_tools('send mail') if 'send' in hit.name)]))"
    )
    async with office(runtime_dir, policy={"rules": rules}) as lab:
        files, hits = json.loads((await lab.fold.run(look)).output)
        [other] = [name for name in files if name != "send_mail"]
        assert hits == files == ["send_mail", other]
        theirs = json.loads((await lab.fold.run(look, caller="ci")).output)
        found = await lab.fold.search("send mail", caller="ci")
        called = await lab.call("mcp__office__send_mail", {"to": "x"}, caller="ci")
        imported = await lab.fold.run("from servers.office import send_mail", caller="ci")
        near = await lab.fold.run("from servers.office import send_mai", caller="ci")
        used = await lab.fold.run(f"from servers.office import {other}\nprint(await {other}(to='x'))", caller="ci")
        mine = await lab.fold.run("from servers.office import send_mail\nprint(await send_mail(to='x'))")
    assert theirs == [[other], [other]]
    assert "send_mail " not in found.text.replace(other, "")
    assert "Policy denies office.send_mail: rule 1 (deny office.send_mail for ci)" in called
    assert imported.error is not None
    assert imported.error.code == "policy_denied"
    assert "Policy denies office.send_mail: rule 1" in str(imported.error)
    assert "send_mail" not in str(near.error).replace(other, "")
    assert used.output == "did send.mail\n"
    assert mine.output == "did send_mail\n"


async def test_a_server_that_is_denied_to_a_caller_is_not_named_to_it_before_it_is_listed(runtime_dir: Path) -> None:
    rules = [{"match": "payroll.*", "caller": "ci", "do": "deny"}]
    servers = {"payroll": {"command": "/no/such/payroll"}}
    config = {"servers": servers, "policy": {"rules": rules}}
    programs = ["import servers.payroll", "from toolfold import call_mcp_tool\nawait call_mcp_tool('payroll.pay', {})"]

    async def told(caller: str) -> list[str]:
        queries = ["", "pay the wages", "server:payroll", "payroll.pay"]
        runs = [str((await fold.run(code, caller=caller)).error) for code in programs]
        searches = [(await fold.search(query, caller=caller)).text for query in queries]
        shown = (await Views(fold, Activity()).servers(Viewer(caller))).servers
        counted = (await Views(fold, Activity()).overview(Viewer(caller))).servers
        return [*runs, *searches, str(shown), str(counted)]

    async with Toolfold.open(config, data_dir=runtime_dir) as fold:
        mine, theirs = await told("web"), await told("ci")
    reason = "cannot be run"
    assert [reason in text for text in mine] == [True, True, True, True, True, True, True, False]
    assert "failed" in mine[-1]
    assert [reason in text or "failed" in text for text in theirs] == [False] * len(theirs)
    assert "There is no server module servers.payroll." in theirs[0]
    assert theirs[4] == 'There is no server "payroll".'
    assert [text for text in (*theirs[2:4], *theirs[5:]) if "payroll" in text] == []


async def test_a_rule_for_a_session_or_on_arguments_only_refuses(runtime_dir: Path) -> None:
    rules = [
        {"match": "office.create_note", "session": "trial", "do": "deny"},
        {"match": "office.create_note", "args": {"owner": "boss"}, "do": "deny"},
    ]
    use = "from servers.office import create_note\nprint(await create_note(owner='me'))"
    async with office(runtime_dir, policy={"rules": rules}) as lab:
        refused = await lab.fold.run(use, session="trial")
        fine = await lab.fold.run(use, session="work")
        boss = await lab.call("office.create_note", {"owner": "Boss "})
        found = await lab.fold.search("create note")
    assert "PolicyDenied" in str(refused.error)
    assert "in one session" in str(refused.error)
    assert fine.output == "did create_note\n"
    assert "rule 2 (deny office.create_note where owner)" in boss
    assert "create_note" in found.text
    assert lab.done == [["create_note", {"owner": "me"}]]


EVASIONS: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"id": 1}, "delete_note", {"id": "1"}),
    ({"id": 1}, "delete_note", {"id": 1.0}),
    ({"id": "1"}, "delete_note", {"id": 1}),
    ({"id": 1}, "delete_note", {"id": [2, 1]}),
    ({"id": 1}, "delete_note", {"id": {"value": " 1 "}}),
    ({"owner": "boss"}, "create_note", {"owner": "BOSS"}),
    ({"owner": "boss"}, "create_note", {"owner": "bоss"}),
    ({"owner": "boss"}, "create_note", {"owner": "bo\u200bss"}),
    ({"owner": "boss"}, "create_note", {"owner": "ｂｏｓｓ"}),
    ({"owner": "me"}, "create_note", {}),
    ({"force": True}, "move", {}),
    ({"force": True}, "move", {"filter": {"a": 1}}),
    ({"filter.owner": "boss"}, "move", {"force": False, "filter": {"owner": "boss"}}),
    ({"filter": {"owner": "boss"}}, "move", {"force": False, "filter": {"owner": ["x", "boss"]}}),
    ({"path": "/etc/*"}, "read_note", {"path": "/home/../etc/passwd"}),
    ({"path": "/etc/*"}, "read_note", {"path": "//etc/./passwd"}),
    ({"path": "/etc/*"}, "read_note", {"path": "/%65tc/passwd"}),
    ({"path": "/etc/*"}, "read_note", {"path": "/etc"}),
]


async def test_a_rule_on_arguments_is_not_got_around(runtime_dir: Path) -> None:
    """One rule each: the call is denied, whatever the spelling. An allow of the same is not used for it."""
    for number, (args, tool, given) in enumerate(EVASIONS):
        rules = [{"match": f"office.{tool}", "args": args, "do": "deny"}]
        async with office(runtime_dir, policy={"profile": "open", "rules": rules}, sandbox={"pool": 0}) as lab:
            said = await lab.call(f"office.{tool}", given)
        assert said.startswith("PolicyDenied"), (number, said)
    assert not (runtime_dir / "ledger.jsonl").exists()


async def test_an_allowed_value_is_exactly_that_value(runtime_dir: Path) -> None:
    rules = [
        {"match": "office.create_note", "args": {"owner": ["me", "team-*"]}, "do": "allow"},
        {"match": "office.read_note", "args": {"path": "/home/me/*"}, "do": "allow"},
        {"match": "office.*", "do": "deny"},
    ]
    asked: list[tuple[str, dict[str, Any], bool]] = [
        ("create_note", {"owner": "me"}, True),
        ("create_note", {"owner": "team-a"}, True),
        ("create_note", {}, True),
        ("create_note", {"owner": "Me"}, False),
        ("create_note", {"owner": "mе"}, False),
        ("read_note", {"path": "/home/me/a.txt"}, True),
        ("read_note", {"path": "/home/me/../you/a.txt"}, False),
        ("read_note", {"path": "/home/me/%2e%2e/you"}, False),
        ("read_note", {"path": "/home/me\\..\\..\\you"}, False),
    ]
    async with office(runtime_dir, policy={"rules": rules}) as lab:
        for tool, given, allowed in asked:
            said = await lab.call(f"office.{tool}", given)
            assert said.startswith("did" if allowed else "PolicyDenied"), (tool, given, said)


async def test_annotations_are_matched(runtime_dir: Path) -> None:
    rules = [
        {"when": {"open_world": True, "read_only": False}, "match": "office.send.mail", "do": "deny"},
        {"when": {"destructive": True}, "do": "deny"},
        {"when": {"read_only": True}, "do": "allow"},
    ]
    async with office(runtime_dir, policy={"profile": "open", "rules": rules}) as lab:
        said = {name: await lab.call(f"office.{name}", ARGUMENTS.get(name)) for name in TOOLS}
        mail = await lab.call("office.send.mail", {"to": "x"})
    assert [name for name in TOOLS if "did" not in said[name]] == ["delete_note", "archive_all"]
    assert "rule 2 (deny * where destructive)" in said["delete_note"]
    assert "rule 1" in mail


async def test_a_refused_call_is_recorded_as_such(runtime_dir: Path) -> None:
    calls: list[ToolCall] = []
    async with office(runtime_dir, policy={"profile": "read_only"}) as lab:
        result = await lab.fold.run(
            "from toolfold import call_mcp_tool\nawait call_mcp_tool('office.create_note', {})",
            on_event=lambda event: calls.append(event) if isinstance(event, ToolCall) else None,
        )
    assert [(call.tool, call.ok) for call in calls] == [("create_note", None), ("create_note", False)]
    assert result.tool_calls[0].error.startswith("Policy denies office.create_note")
    assert result.error is not None
    assert "PolicyDenied" in str(result.error)
