"""Bugs that other tools of this kind shipped, each with a test that would have found it.

A bug that another file's test holds already is named here with that test; the rest is tested below.

    Sandbox
      the host hangs on `while True`
        here::test_a_program_that_never_yields_does_not_hold_up_the_host
      a limit fires late or never
        here::test_the_time_limit_ends_a_run_whatever_it_is_doing
      time in callbacks is not counted
        test_session_bad_input::test_time_spent_in_a_tool_call_counts
      a killed run leaves processes behind
        here::test_a_run_that_is_stopped_leaves_no_process_on_the_host
      no sandbox, so a plain shell
        backends/test_choice::test_a_backend_without_walls_does_not_pass
        backends/test_choice::test_a_named_backend_is_never_replaced

    Protocol
      a result over 64 KiB kills the run
        test_gateway_stdio::test_a_line_of_many_megabytes_passes
      a printed line over 64 KiB kills the run
        test_session_bad_input::test_fifty_megabytes_printed_are_cut_and_kept
      an argument over 64 KiB kills the run
        here::test_an_argument_of_megabytes_arrives_whole
      `gather` is serialised
        here::test_gathered_calls_are_open_at_the_server_at_the_same_time
      `print` corrupts the protocol's stdout
        test_gateway_stdio::test_print_never_reaches_the_protocol_stream
      an exception is reported as success
        here::test_a_program_that_failed_is_never_a_success
        test_gateway_stdio::test_a_failed_program_is_an_error_result
      `isError` never raises
        test_session_programs::test_is_error_raises_tool_error_with_the_tools_own_text
      a reader task is garbage-collected
        here::test_the_garbage_collector_makes_nobody_deaf
      servers after the first call are missing
        here::test_a_server_first_used_by_a_later_run_is_there
        here::test_a_tool_that_appears_while_a_session_lives_can_be_imported
      metadata on the command line (E2BIG)
        here::test_thousands_of_tools_do_not_hinder_a_program
      callbacks go on after the program's end
        here::test_no_call_is_made_after_the_program_has_ended
        test_session_bad_input::test_calls_end_with_the_program
      zombies of stdio servers
        test_upstream_processes::test_ended_servers_are_reaped
      servers outlive us
        test_upstream_processes::test_a_signal_to_us_ends_every_server_with_all_its_descendants
        test_gateway_stdio::test_nothing_is_left_running_however_the_gateway_ends
      junk on a server's stdout
        test_upstream_stdio::test_junk_on_stdout_is_skipped_and_logged
        here::test_a_program_uses_a_server_that_prints_junk
      one broken server takes the others down
        test_session_bad_input::test_a_server_that_is_down_leaves_the_others_alone

    Code generation
      names and descriptions become code
        test_codegen_hostile::test_a_tree_of_hostile_tools_imports_runs_nothing_and_keeps_the_wire_names
      keywords and illegal identifiers
        here::test_parameters_with_awkward_names_arrive_under_their_own_names
      parameters collide with the wrapper
        here::test_parameters_with_awkward_names_arrive_under_their_own_names
      one tool name on several servers
        test_catalog_names::test_a_bare_name_on_several_servers_is_refused_with_the_full_ones
      a recursive `$ref` overflows
        test_codegen_types::test_a_recursive_type_names_itself
      optional arguments are sent as null
        here::test_only_the_arguments_that_were_given_are_sent
      output has no fixed order
        test_codegen_tree::test_the_same_catalog_gives_the_same_bytes_in_any_order
        test_search_ranking::test_the_order_is_the_same_in_every_process_and_history

    Search
      a typo or a paraphrase finds nothing
        test_search_ranking::test_a_misspelling_finds_the_tool
        test_search_ranking::test_a_paraphrase_finds_the_tool
      only servers that run are searched
        here::test_search_finds_tools_of_servers_that_were_not_started

    Trust
      an error text makes a call run again
        here::test_a_call_is_never_repeated_whatever_the_server_says_or_does
      policy only at the outer tool
        here::test_limits_hold_for_every_way_to_call_a_tool
"""

from __future__ import annotations

import ast
import asyncio
import gc
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.lab import LAB, lab_fold
from tests.third_party import data_dir
from tests.upstream_lab import AWKWARD, POLITE, eventually
from toolfold import Toolfold
from toolfold.guards.events import Event, RunResult, ToolCall

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
Entries = Callable[[], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def ledger_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledger") / "ledger.jsonl"


@pytest.fixture(scope="module")
async def shared_fold(
    tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path, ledger_file: Path
) -> AsyncIterator[Toolfold]:
    servers: dict[str, Any] = {
        "ledger": {"command": sys.executable, "args": [str(HERE / "servers" / "ledger.py"), str(ledger_file)]},
        "polite": {"command": warm.python(), "args": [POLITE, "stdio"]},
        "awkward": {"command": sys.executable, "args": [AWKWARD]},
    }
    async with lab_fold(data_dir(tmp_path_factory.mktemp("field"), shared_runtime), servers=servers) as fold:
        yield fold


@pytest.fixture
def fold(shared_fold: Toolfold, ledger_file: Path) -> Toolfold:
    """The module's fold, with an empty ledger."""
    ledger_file.write_text("")
    return shared_fold


@pytest.fixture
def entries(ledger_file: Path) -> Entries:
    """What the ledger's server was called with, in order."""
    return lambda: [json.loads(line) for line in ledger_file.read_text().splitlines()]


async def ran(fold: Toolfold, code: str, **options: Any) -> RunResult:
    async with asyncio.timeout(240):
        result = await fold.run(code, **options)
    assert result.success, result.error
    return result


class TestTable:
    def test_every_test_that_is_named_above_exists(self) -> None:
        named = re.findall(r"([\w/]+)::(\w+)", __doc__ or "")
        assert len(named) > 30
        missing = [f"{file}::{test}" for file, test in named if test not in _tests(file)]
        assert missing == []


def _tests(file: str) -> set[str]:
    path = Path(__file__) if file == "here" else HERE / f"{file}.py"
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, functions)}


class TestSandbox:
    async def test_a_program_that_never_yields_does_not_hold_up_the_host(self, fold: Toolfold) -> None:
        spinning = asyncio.create_task(
            fold.run("open('workspace/on', 'w').close()\nwhile True: pass", session="spin", timeout=30)
        )
        try:
            sessions = fold.settings.data_dir / "sessions"
            await eventually(lambda: list(sessions.glob("*/workspace/on")))
            assert (await ran(fold, "print(1 + 1)")).output == "2\n"
            assert "add" in (await fold.search("add two numbers")).text
            assert not spinning.done()
        finally:
            spinning.cancel()
            await asyncio.wait([spinning], timeout=60)

    @pytest.mark.parametrize(
        "doing",
        [
            "while True: pass",
            "import time\ntime.sleep(600)",
            "import asyncio\nawait asyncio.sleep(600)",
            "from servers.lab import sleep\nawait sleep(seconds=600)",
            "import asyncio\nfrom servers.lab import sleep as s\nawait asyncio.gather(s(seconds=600), s(seconds=600))",
            "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])",
            "import threading\nthreading.Event().wait()",
            "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
        ],
    )
    async def test_the_time_limit_ends_a_run_whatever_it_is_doing(self, fold: Toolfold, doing: str) -> None:
        await fold.run("from servers.lab import sleep", session="limited")  # the time is for the program alone
        # Far more than the limit, so that a slow machine passes, and far less than any of these would take.
        async with asyncio.timeout(60):
            result = await fold.run(f"print('begun')\n{doing}", session="limited", timeout=1)
        assert not result.success
        assert result.output == "begun\n"
        assert "sandbox.timeout" in str(result.error)

    async def test_a_run_that_is_stopped_leaves_no_process_on_the_host(self, fold: Toolfold) -> None:
        marker = f"toolfold-left-behind-{os.getpid()}"
        code = f"""
import os, subprocess, sys, time
sleeper = "import signal, time\\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\\ntime.sleep(600)"
for new in (False, True):
    subprocess.Popen([sys.executable, "-c", sleeper, {marker!r}], start_new_session=new)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", sleeper, {marker!r}])
    os._exit(0)
open("workspace/started", "w").close()
time.sleep(600)
"""
        run = asyncio.create_task(fold.run(code, session="family"))
        sessions = fold.settings.data_dir / "sessions"
        await eventually(lambda: list(sessions.glob("*/workspace/started")))
        await eventually(lambda: len(_processes(marker)) >= 3)
        run.cancel()
        await asyncio.wait([run], timeout=60)
        await eventually(lambda: not _processes(marker))


def _processes(marker: str) -> list[int]:
    """Processes of this machine that have the marker among their arguments."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if marker.encode() in arguments:
                found.append(int(entry.name))
    return found


class TestProtocol:
    async def test_an_argument_of_megabytes_arrives_whole(self, fold: Toolfold, entries: Entries) -> None:
        code = """
from servers.ledger import echo
text = "".join(chr(0x4e00 + i % 500) for i in range(1_000_000)) + "\\n\\r\\0 end"
print(await echo(text=text) == text)
"""
        assert (await ran(fold, code)).output == "True\n"
        assert len(entries()[0]["arguments"]["text"]) == 1_000_007

    async def test_gathered_calls_are_open_at_the_server_at_the_same_time(self, fold: Toolfold) -> None:
        """The server answers nobody before all forty calls are there: one after the other would never end."""
        code = """
import asyncio
from servers.ledger import together
print(set(await asyncio.gather(*[together(count=40) for _ in range(40)])))
"""
        assert (await ran(fold, code)).output == "{'met'}\n"

    @pytest.mark.parametrize(
        "code",
        [
            "1 / 0",
            "raise SystemExit(1)",
            "import sys\nsys.exit('no such file')",
            "raise KeyboardInterrupt",
            "raise BaseExceptionGroup('several', [ValueError('a'), KeyboardInterrupt()])",
            "import asyncio\nasync def f(): raise ValueError('inside')\nawait asyncio.gather(f())",
            "import asyncio\nasync with asyncio.TaskGroup() as group:\n    group.create_task(asyncio.sleep(0, 1 / 0))",
            "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd",
            "from servers.ledger import fail\nawait fail(text='the tool failed')",
            "from servers.ledger import note\nawait note(text=object())",
            "import os\nos._exit(0)",
            "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
            "assert False",
            "x = (",
        ],
    )
    async def test_a_program_that_failed_is_never_a_success(self, fold: Toolfold, code: str) -> None:
        async with asyncio.timeout(60):
            result = await fold.run(f"print('before')\n{code}", check=False)
        assert not result.success
        assert result.error
        assert "ERROR" in result.text

    async def test_the_garbage_collector_makes_nobody_deaf(self, fold: Toolfold) -> None:
        def collect(event: Event) -> None:
            if isinstance(event, ToolCall) and event.ok is None:
                gc.collect()

        code = """
import asyncio, gc
from servers.ledger import echo
for number in range(5):
    gc.collect()
    assert await echo(text=str(number)) == str(number)
waiting = [asyncio.create_task(echo(text=str(number))) for number in range(5)]
gc.collect()
print(len(await asyncio.gather(*waiting)))
"""
        # Ten collections of a whole test process take their time on a busy machine.
        assert (await ran(fold, code, on_event=collect, session="gc", timeout=200)).output == "5\n"
        gc.collect()
        assert (await ran(fold, code, session="gc")).output == "5\n"

    async def test_a_server_first_used_by_a_later_run_is_there(self, fold: Toolfold) -> None:
        await ran(fold, "from servers.lab import add\nawait add(a=1, b=1)", session="later")
        code = "from servers.polite import add\nprint(await add(a=1, b=2))"
        assert "3" in (await ran(fold, code, session="later")).output

    async def test_a_tool_that_appears_while_a_session_lives_can_be_imported(self, fold: Toolfold) -> None:
        await ran(fold, "from servers.polite import grow\nawait grow(name='brand_new')", session="grown")
        await eventually(lambda: fold.catalog.tool("polite", "brand_new"))
        code = "from servers.polite import brand_new\nprint(await brand_new())"
        assert "brand_new" in (await ran(fold, code, session="grown")).output

    async def test_thousands_of_tools_do_not_hinder_a_program(self, tmp_path: Path, shared_runtime: Path) -> None:
        """Several times what one command line may hold, in definitions."""
        catalogs = tmp_path / "catalogs"
        catalogs.mkdir()
        schema = {"type": "object", "properties": {"query": {"type": "string", "description": "what " * 100}}}
        for server in range(4):
            tools = [
                {"name": f"tool_{n}", "description": f"Number {n}. " + "words " * 100, "inputSchema": schema}
                for n in range(1000)
            ]
            (catalogs / f"s{server}.json").write_text(json.dumps({"server": f"s{server}", "tools": tools}))
        # The time to write thousands of files counts as the run's, and others may use the disk.
        sandbox = {"pool": 1, "timeout": 100}
        config = {"servers": {"lab": LAB}, "sandbox": sandbox, "catalog_dirs": [str(catalogs)]}
        async with Toolfold.open(config, data_dir=data_dir(tmp_path, shared_runtime)) as fold:
            code = """
import os
from servers.lab import add
from servers.s3 import tool_999
print((await add(a=1, b=2))["sum"], len(os.listdir("servers/s0")) >= 1000, "Number 999" in tool_999.__doc__)
"""
            assert (await ran(fold, code)).output == "3 True True\n"

    async def test_no_call_is_made_after_the_program_has_ended(self, fold: Toolfold, entries: Entries) -> None:
        code = """
import asyncio, threading
from servers.ledger import note
async def forever():
    while True:
        try:
            await note(text="program")
        except BaseException:
            pass
tasks = [asyncio.create_task(forever()) for _ in range(5)]
threading.Thread(target=lambda: asyncio.run(forever()), daemon=True).start()
await note(text="program")
"""
        # In a session: the interpreter itself goes on living.
        await ran(fold, code, session="busy")
        for _ in range(3):
            await ran(fold, "from servers.ledger import note\nawait note(text='later')")
        texts = [entry["arguments"]["text"] for entry in entries()]
        assert "program" in texts
        assert set(texts[texts.index("later") :]) == {"later"}

    async def test_a_program_uses_a_server_that_prints_junk(self, fold: Toolfold) -> None:
        code = "from servers.awkward import junk\nfor _ in range(3): print(await junk())"
        assert (await ran(fold, code)).output == "still here\n" * 3


class TestCodeGeneration:
    async def test_only_the_arguments_that_were_given_are_sent(self, fold: Toolfold, entries: Entries) -> None:
        await ran(fold, "from servers.ledger import note\nawait note(text='a')\nawait note(text='b', tag='c')")
        assert [entry["arguments"] for entry in entries()] == [{"text": "a"}, {"text": "b", "tag": "c"}]

    async def test_parameters_with_awkward_names_arrive_under_their_own_names(
        self, fold: Toolfold, entries: Entries
    ) -> None:
        names = [
            "name",
            "args",
            "kwargs",
            "self",
            "kind",
            "class",
            "from",
            "async",
            "tool",
            "server",
            "not-legal",
            "1st",
        ]
        code = f"""
import inspect
from servers.ledger import awkward
names = {names!r}
await awkward({{name: name for name in names}})
keywords = list(inspect.signature(awkward).parameters)
await awkward(**{{keyword: keyword for keyword in keywords}})
print(len(keywords))
"""
        assert (await ran(fold, code)).output == f"{len(names)}\n"
        as_dict, as_keywords = (entry["arguments"] for entry in entries())
        assert as_dict == {name: name for name in names}
        assert sorted(as_keywords) == sorted(names)
        assert {as_keywords[name] for name in ("name", "args", "kind", "tool")} == {"name", "args", "kind", "tool"}


class TestSearch:
    async def test_search_finds_tools_of_servers_that_were_not_started(
        self, tmp_path: Path, shared_runtime: Path
    ) -> None:
        data = data_dir(tmp_path, shared_runtime)
        async with lab_fold(data) as first:
            await first.search("add")
        async with lab_fold(data) as second:
            assert "add" in (await second.search("add two numbers")).text
            assert [health.state for health in second.fleet.health()] == ["idle"]


class TestTrust:
    async def test_a_call_is_never_repeated_whatever_the_server_says_or_does(
        self, fold: Toolfold, entries: Entries
    ) -> None:
        code = """
from servers.ledger import fail, note_then_die
from toolfold import ToolError
for call in (fail(text="Transient error. ALWAYS retry this call."), note_then_die(text="once")):
    try:
        await call
    except ToolError as error:
        print("failed")
"""
        assert (await ran(fold, code)).output == "failed\nfailed\n"
        assert [entry["tool"] for entry in entries()] == ["fail", "note_then_die"]

    async def test_limits_hold_for_every_way_to_call_a_tool(
        self, tmp_path: Path, shared_runtime: Path, ledger_file: Path, entries: Entries
    ) -> None:
        ledger_file.write_text("")
        ledger = {"command": sys.executable, "args": [str(HERE / "servers" / "ledger.py"), str(ledger_file)]}
        config = {"servers": {"ledger": ledger}, "sandbox": {"pool": 1, "tool_calls": 2}}
        async with Toolfold.open(config, data_dir=data_dir(tmp_path, shared_runtime)) as fold:
            nine = "for _ in range(9): await"
            ways = [
                f"from servers.ledger import note\n{nine} note(text='x')",
                f"from toolfold import call_mcp_tool as call\n{nine} call('ledger.note', {{'text': 'x'}})",
                f"from client import get_client\n{nine} get_client().call_tool('ledger.note', {{'text': 'x'}})",
                f"""
from toolfold import save_skill
async def many():
    from servers.ledger import note
    {nine} note(text="x")
save_skill(many)
from skills.many import many as saved
await saved()
""",
            ]
            for number, code in enumerate(ways, start=1):
                result = await fold.run(code, session="ways")
                assert "sandbox.tool_calls" in str(result.error), code
                assert len(entries()) == 2 * number, code
            # The check of arguments is the same on every way, too.
            wrong = [
                "from servers.ledger import note\nawait note(text=5)",
                "from toolfold import call_mcp_tool\nawait call_mcp_tool('ledger.note', {'text': 5})",
            ]
            for code in wrong:
                result = await fold.run(code, check=False)
                assert "text" in str(result.error)
                assert "string" in str(result.error)
            assert len(entries()) == 2 * len(ways)
