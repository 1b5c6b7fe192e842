"""What a fold or a gateway with the audit log switched on records, refuses and survives."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters

from tests.lab import LAB, lab_fold
from tests.test_cli import toolfold
from toolfold import Call, Proceed, Question, ToolfoldError, ToolResult
from toolfold.config.settings import Settings
from toolfold.errors import AuditUnavailable, ToolChanged
from toolfold.guards.audit import shape
from toolfold.guards.chain import Chain
from toolfold.guards.context import Deadline, RunContext
from toolfold.guards.events import Reply, RunResult
from toolfold.guards.record import Record
from toolfold.sandbox.replies import ReplyBudget
from toolfold.schema.validation import Validators
from toolfold.telemetry import audit_reader
from toolfold.telemetry.audit import FILE
from toolfold.telemetry.audit_reader import AuditReader, Filter
from toolfold.telemetry.audit_verify import verify

pytestmark = pytest.mark.anyio

LEDGER = Path(__file__).parent / "servers" / "ledger.py"
EVERY_WAY = """
from servers.lab import add, echo
from toolfold import call_mcp_tool, get_prompt, read_resource
await add(a=1, b=2)
await call_mcp_tool("mcp__lab__echo", {"value": {"name": "Ada", "tags": ["x", "yz"], "ok": True, "none": None}})
await read_resource("lab", "lab://notes")
await get_prompt("lab", "greet", {"who": "Grace"})
"""


def history(folder: Path, **wanted: Any) -> tuple[list[audit_reader.Run], list[audit_reader.Call]]:
    """Runs and calls, the oldest first; the chain is proved on the way."""
    with AuditReader.open(folder) as reader:
        proof = verify(reader)
        assert proof.ok, proof.problems
        items = list(reader.history(Filter(**wanted)))[::-1]
    runs = [item for item in items if isinstance(item, audit_reader.Run)]
    return runs, [item for item in items if isinstance(item, audit_reader.Call)]


async def test_a_run_and_each_of_its_calls_are_recorded(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir, audit=True) as fold:
        result = await fold.run(EVERY_WAY, session="s", caller="ada", timeout=25)
        assert result.success, result.error
        [run], calls = history(runtime_dir)
    assert (run.caller, run.session, run.ok, run.calls, run.review) == ("ada", "s", True, 4, "passed, low risk")
    assert (run.code, run.code_sha256) == (EVERY_WAY, hashlib.sha256(EVERY_WAY.encode()).hexdigest())
    assert run.limits["timeout"] == 25
    assert run.tokens > 0
    assert [call.target for call in calls] == ["lab.add", "lab.echo", "resource:lab:lab://notes", "prompt:lab:greet"]
    assert {(call.run, call.caller, call.session, call.ok, call.decision) for call in calls} == {
        (run.run, "ada", "s", True, "allow")
    }
    assert all(call.ms > 0 for call in calls)
    assert calls[0].arguments == {"a": "number", "b": "number"}
    assert calls[1].arguments == {
        "value": {"name": "text(3)", "tags": ["text(1)", "1 more"], "ok": "boolean", "none": "null"}
    }
    assert calls[2].result_size == len("the lab's notes")
    held = [str(link.resolve()) for link in Path("/proc/self/fd").iterdir()]
    assert not [file for file in held if file.startswith(str(runtime_dir / FILE))], "closed with the fold"


def test_shapes_of_arguments_are_so_many_and_the_others_are_counted() -> None:
    most = 99  # and the object that they are in
    assert shape({f"k{number}": number for number in range(most)}) == {f"k{number}": "number" for number in range(most)}
    cut = shape({f"k{number}": number for number in range(most + 1)})
    assert (len(cut), cut["…"]) == (most + 1, "1 more")
    assert shape({"list": [[1, 2, 3]] * 2, "empty": [], "one": [None], "k" * 100: {}}) == {
        "list": [["number", "2 more"], "1 more"],
        "empty": [],
        "one": ["null"],
        "k" * 60: {},
    }
    nested = shape({**{f"k{number}": True for number in range(most - 1)}, "list": [1, 2], "last": 1})
    assert nested["list"] == ["1 more"], "nothing is left for what is in it"
    assert nested["…"] == "1 more"


async def test_values_are_recorded_only_where_the_setting_asks(runtime_dir: Path) -> None:
    code = "from servers.lab import echo\nawait echo(value='Ada')\nawait echo(value='x' * 100_000)"
    async with lab_fold(runtime_dir, audit={"values": True}) as fold:
        assert (await fold.run(code)).success
    _, [small, large] = history(runtime_dir)
    assert small.arguments == {"value": "Ada"}
    assert large.arguments == {"value": "text(100000)"}


async def test_without_the_setting_nothing_is_written(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir) as fold:
        assert (await fold.run("print(1)")).success
    assert not (runtime_dir / FILE).exists()


async def test_what_is_refused_fails_or_is_cancelled_is_recorded_with_the_reason(runtime_dir: Path) -> None:
    begun = asyncio.Event()

    async def watch(call: Call, proceed: Proceed) -> ToolResult:
        if call.name == "two_parts":
            raise ToolfoldError("Not on a Sunday.")
        if call.name == "sleep":
            begun.set()
        return await proceed(call)

    async def agree(question: Question) -> Reply:
        return "once"

    rules = [{"match": "lab.nothing", "do": "deny"}, {"match": "lab.fail", "do": "ask"}]
    async with lab_fold(runtime_dir, audit=True, guards=[watch], policy={"rules": rules}) as fold:
        await fold.run("from toolfold import call_mcp_tool\nawait call_mcp_tool('lab.nothing', {})")
        await fold.run("from servers.lab import fail\nawait fail(message='secret text')", ask=agree)
        await fold.run("from servers.lab import two_parts\nawait two_parts()")
        await fold.run("from servers.lab import nope")
        run = asyncio.create_task(fold.run("from servers.lab import sleep\nawait sleep(seconds=60)"))
        async with asyncio.timeout(30):
            await begun.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    runs, [denied, failed, refused, cancelled] = history(runtime_dir)
    assert [run.ok for run in runs] == [False] * 5
    reviews = [run.review.partition(",")[0] for run in runs]
    assert reviews == ["passed", "passed", "passed", "refused", "passed"]
    assert runs[3].error.startswith("unknown_tool: ")
    assert runs[4].error.startswith("cancelled")
    assert denied.decision == "deny"
    assert "lab.nothing" in denied.rule
    assert "policy" in denied.error
    assert failed.decision == "ask"
    assert failed.approved_by
    assert failed.error == "tool: the tool reported an error"
    assert refused.error == "toolfold: Not on a Sunday."
    assert cancelled.error.startswith("cancelled")


async def test_calls_over_the_limit_do_not_fill_the_log(runtime_dir: Path) -> None:
    code = "from servers.lab import nothing\nfor _ in range(50):\n    try: await nothing()\n    except Exception: pass"
    async with lab_fold(runtime_dir, audit=True, sandbox={"tool_calls": 5}) as fold:
        await fold.run(code)
    assert len(history(runtime_dir)[1]) == 5


async def test_a_call_that_cannot_be_recorded_is_not_made(runtime_dir: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    servers = {"ledger": {"command": sys.executable, "args": [str(LEDGER), str(ledger)]}}
    note = "from servers.ledger import note\nawait note(text='{}')"
    async with lab_fold(runtime_dir, audit=True, servers=servers) as fold:
        assert (await fold.run(note.format("before"))).success
        other = sqlite3.connect(runtime_dir / FILE, isolation_level=None)
        other.execute(
            'CREATE TRIGGER full BEFORE INSERT ON records WHEN CAST(NEW.body AS TEXT) LIKE \'{"type":"call",%\''
            " BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
        )
        refused = await fold.run(note.format("unrecorded"))
        assert "The audit log cannot be written (database or disk is full)" in str(refused.error)
        other.execute("DROP TRIGGER full")
        other.execute(
            "CREATE TRIGGER full BEFORE INSERT ON records BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
        )
        with pytest.raises(AuditUnavailable, match="disk is full"):
            await fold.run("print('nothing of this happens')")
        other.execute("DROP TRIGGER full")
        other.close()
        assert (await fold.run(note.format("after"))).success
    texts = [json.loads(line)["arguments"]["text"] for line in ledger.read_text().splitlines()]
    assert texts == ["before", "after"]
    assert len(history(runtime_dir)[1]) == 2


# Without a program


@asynccontextmanager
async def audited(folder: Path, held: tuple[str, ...] = (), **settings: Any) -> AsyncGenerator[Chain]:
    given = Settings.model_validate({"data_dir": folder, "audit": True, **settings})
    chain = Chain(given, [], Validators(), lambda server, tool: tool in held)
    try:
        yield chain
    finally:
        await chain.close()


async def finished() -> RunResult:
    return RunResult(success=True)


async def test_a_run_whose_end_cannot_be_recorded_has_its_result_and_the_next_is_refused(tmp_path: Path) -> None:
    async with audited(tmp_path) as chain:
        await chain.recorded("1", RunContext("ada", None, Deadline(9)), finished)
        other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
        other.execute(
            "CREATE TRIGGER full BEFORE INSERT ON records WHEN CAST(NEW.body AS TEXT) LIKE '%\"run_end\"%'"
            " BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
        )
        assert (await chain.recorded("2", RunContext("ada", None, Deadline(9)), finished)).success
        with pytest.raises(AuditUnavailable):
            await chain.recorded("3", RunContext("ada", None, Deadline(9)), finished)
        other.execute("DROP TRIGGER full")
        other.close()
    runs, _ = history(tmp_path)
    assert [(run.code, run.ok) for run in runs] == [("1", True), ("2", True)], "the end was kept until it could be"


async def test_long_texts_are_cut_and_the_hash_is_of_the_whole_program(tmp_path: Path) -> None:
    code = "x" * 65_537
    async with audited(tmp_path, sandbox={"memory": "1GB", "cpu": 50, "tool_calls": 7}) as chain:
        run = RunContext("ada", "@connection", Deadline(25))

        async def fail(call: Call) -> ToolResult:
            raise ToolfoldError("e" * 501)

        async def work() -> RunResult:
            await chain.for_run(fail, Record(), ReplyBudget())(Call("1", "tool", "lab", "t" * 501, {}, run))
            return RunResult(success=True)

        with pytest.raises(ToolfoldError):
            await chain.recorded(code, run, work)
    [started], [call] = history(tmp_path)
    assert started.code == code[:-1]
    assert started.code_sha256 == hashlib.sha256(code.encode()).hexdigest()
    assert started.limits == {"timeout": 25, "memory": 10**9, "cpu": 50, "tool_calls": 7}
    assert (started.ok, started.error, started.calls, started.tokens) == (False, f"toolfold: {'e' * 490}", 0, 0)
    assert (call.target, call.error) == (f"lab.{'t' * 496}", f"toolfold: {'e' * 490}")
    assert (started.session, call.session) == (None, None), "the name of a connection's own session is ours"


async def test_a_call_of_a_changed_tool_is_in_the_log_with_the_reason(tmp_path: Path) -> None:
    async def upstream(call: Call) -> ToolResult:
        raise AssertionError("called")

    async with audited(tmp_path, held=("add",)) as chain:
        call = Call("1", "tool", "lab", "add", {"a": 1}, RunContext("ada", None, Deadline(9)))
        with pytest.raises(ToolChanged):
            await chain.for_run(upstream, Record(), ReplyBudget())(call)
    _, [logged] = history(tmp_path)
    assert (logged.ok, logged.decision, logged.rule) == (False, "deny", "the tool has changed")
    assert logged.error.startswith("tool_changed: lab.add has changed")


def gateway_parameters(folder: Path, ledger: Path) -> StdioServerParameters:
    config = folder / "audit.json"
    servers = {"ledger": {"command": sys.executable, "args": [str(LEDGER), str(ledger)]}, "lab": LAB}
    config.write_text(json.dumps({"servers": servers, "audit": {"values": True}, "sandbox": {"pool": 1}}))
    # The gateway's process id is the first line of a file: the SDK's client does not tell it.
    start = (
        f"import os, runpy, sys; open({str(folder / 'pid')!r}, 'w').write(str(os.getpid()));"
        f"sys.argv = ['toolfold', 'serve', '--config', {str(config)!r}, '--data', {str(folder)!r}];"
        "runpy.run_module('toolfold', run_name='__main__')"
    )
    return StdioServerParameters(command=sys.executable, args=["-c", start])


@pytest.mark.parametrize("notes", [1, 7, 40])
async def test_every_call_that_reached_a_server_is_in_the_log_after_kill_9(
    notes: int, runtime_dir: Path, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    code = (
        "import asyncio\nfrom servers.ledger import note\n"
        "for i in range(100_000):\n"
        "    await asyncio.gather(*(note(text=f'{i}-{each}') for each in range(3)))"
    )

    async def run_until_killed() -> None:
        async with Client(gateway_parameters(runtime_dir, ledger)) as client:
            first: Any = await client.call_tool("run_code", {"code": "print('acknowledged')"})
            assert first.content[0].text == "acknowledged"
            running = asyncio.create_task(client.call_tool("run_code", {"code": code}))
            async with asyncio.timeout(60):
                while not ledger.exists() or len(ledger.read_text().splitlines()) < notes:
                    assert not running.done(), await running
                    await asyncio.sleep(0)
            os.kill(int((runtime_dir / "pid").read_text()), signal.SIGKILL)
            await running

    with pytest.raises((MCPError, BaseExceptionGroup)):
        await run_until_killed()
    reached = {json.loads(line)["arguments"]["text"] for line in ledger.read_text().splitlines() if line.endswith("}")}
    runs, calls = history(runtime_dir)
    assert len(reached) >= notes
    assert reached <= {call.arguments["text"] for call in calls}
    assert (runs[0].ok, runs[0].code) == (True, "print('acknowledged')")
    assert runs[1].ok is None
    async with Client(gateway_parameters(runtime_dir, ledger)) as client:
        await client.call_tool("run_code", {"code": "print('again')"})
    assert history(runtime_dir)[0][-1].code == "print('again')"


async def test_two_gateways_on_one_data_folder_write_one_chain(runtime_dir: Path, tmp_path: Path) -> None:
    code = "from servers.ledger import note\nfor i in range(40): await note(text=f'{name}-{i}')"

    async def work(client: Client, name: str) -> None:
        result = await client.call_tool("run_code", {"code": f"name = {name!r}\n{code}", "session": name})
        assert not result.is_error, result.content

    parameters = gateway_parameters(runtime_dir, tmp_path / "ledger")
    async with Client(parameters) as one, Client(parameters) as other:
        await asyncio.gather(work(one, "one"), work(other, "other"), work(one, "third"))
    runs, calls = history(runtime_dir)
    assert [run.ok for run in runs] == [True] * 3
    assert len(calls) == 120
    assert {call.arguments["text"] for call in calls} == {
        f"{name}-{i}" for name in ("one", "other", "third") for i in range(40)
    }


# The command line


async def test_the_command_line_reads_and_proves_the_log(runtime_dir: Path, tmp_path: Path) -> None:
    heads = tmp_path / "heads"
    async with lab_fold(runtime_dir, audit={"head_file": str(heads)}) as fold:
        await fold.run(EVERY_WAY, session="s", caller="ada")
        await fold.run("1 / 0", caller="bob")

    def audit(*words: str) -> Any:
        return toolfold("audit", *words, "--data", str(runtime_dir), cwd=tmp_path, env={"HOME": str(tmp_path)})

    listed = json.loads(audit("list", "--json").stdout)
    assert [item.get("target", item.get("caller")) for item in listed][:3] == [
        "bob",
        "prompt:lab:greet",
        "resource:lab:lab://notes",
    ]
    assert audit("list", "--target", "lab.*", "--caller", "ada").stdout.count("\n") == 2
    assert "bob" in audit("list", "--failed").stdout
    assert audit("list", "--since", "2090-01-01").stdout == ""
    run = next(item["run"] for item in listed if item.get("caller") == "ada")
    shown = audit("show", run).stdout
    assert "from servers.lab import add" in shown
    assert "lab.echo" in shown
    assert json.loads(audit("show", f"{run}-1", "--json").stdout)[0]["target"] == "lab.add"
    assert audit("show", "nothing").returncode == 1
    assert json.loads(audit("stats", "--json").stdout)["targets"]["lab.add"] == 1
    exported = [json.loads(line) for line in audit("export").stdout.splitlines()]
    assert [line["seq"] for line in exported] == list(range(1, 14))
    head = audit("head").stdout.strip()
    assert audit("verify", "--head", head, "--head-file", str(heads)).returncode == 0
    assert "cut off" in audit("verify").stderr
    connection = sqlite3.connect(runtime_dir / FILE)
    with connection:
        connection.execute("DELETE FROM records WHERE seq = 13")
    connection.close()
    assert audit("verify").returncode == 0
    cut = audit("verify", "--head", head)
    assert cut.returncode == 1
    assert "the log ends at record 12" in cut.stderr
    assert json.loads(audit("verify", "--head", head, "--json").stdout)["ok"] is False
    assert audit("verify", "--head", "nonsense").returncode == 1


def test_without_a_log_or_a_folder_for_it_the_commands_say_so(tmp_path: Path) -> None:
    done = toolfold("audit", "list", "--data", str(tmp_path / "data"), cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert done.returncode == 1
    assert "There is no audit log" in done.stderr
    config = tmp_path / "toolfold.toml"
    config.write_text("audit = true")
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = toolfold("run", "-c", "1", "--config", str(config), "--data", str(blocked / "data"), cwd=tmp_path)
    assert done.returncode == 1
    assert "The audit log must be kept there" in done.stderr
