"""What every backend promises to a program: the same words, the same results, the same errors."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.backends.box import PICTURE, TOOLS, Box, Host, box_around
from toolfold.codegen.tree import write_tree
from toolfold.definitions import ToolDefinition
from toolfold.errors import LimitExceeded

pytestmark = pytest.mark.anyio


class TestCalls:
    async def test_a_tool_is_awaited_at_the_top_level_with_keywords(self, box: Box) -> None:
        ran = await box.run("from servers.lab import echo\nprint(await echo(text='hello'))")
        assert (ran.output, ran.error) == ("hello\n", "")
        assert ran.host.calls == [("echo", {"text": "hello"})]

    async def test_a_tool_takes_one_dict(self, box: Box) -> None:
        assert await box.printed("from servers.lab import echo\nprint(await echo({'text': 'a dict'}))") == "a dict\n"

    async def test_a_tool_takes_arguments_in_the_order_of_its_signature(self, box: Box) -> None:
        assert await box.printed("from servers.lab import echo\nprint(await echo('first'))") == "first\n"
        ran = await box.run("from servers.lab import echo\nawait echo('first', 'second')")
        assert "echo() takes at most 1 argument, not 2. Signature: echo(text: str)" in ran.error
        assert ran.host.calls == []

    async def test_json_loads_gives_a_result_that_is_parsed_already(self, box: Box) -> None:
        code = """
import json
from servers.lab import echo, slow
print(json.loads(await echo(text='[1, 2]'))[1], json.loads(await slow(n=1))['met'], json.loads('[3]'))
"""
        assert await box.printed(code) == "2 1 [3]\n"

    async def test_python_repr_and_null_are_read(self, box: Box) -> None:
        code = """
from servers.lab import echo
rows = await echo(text="[{'id': 1, 'name': None}]")
print(rows[0]['id'], rows[0]['name'], await echo(text='null'), (await echo(text="['it")) == "['it")
"""
        assert await box.printed(code) == "1 None None True\n"

    async def test_a_call_by_server_and_tool_can_say_which_type_it_expects(self, box: Box) -> None:
        code = """
from client import call_mcp_tool, get_client
print(await call_mcp_tool(server='lab', tool='echo', input_data={'text': '[1]'}, type=list))
try:
    await call_mcp_tool('mcp__lab__echo', {'text': 'x'}, type=dict)
except TypeError as error:
    print('the result is not dict' in str(error))
print(get_client().call_count >= 2, get_client().total_tokens > 0, 'lab.echo' in get_client().tools_called)
"""
        assert await box.printed(code) == "[1]\nTrue\nTrue True True\n"

    async def test_a_search_takes_both_words_for_detail(self, box: Box) -> None:
        code = """
from toolfold import search_tools
print(search_tools('x', detail_level='full', server='lab')[0].name, search_tools(detail='name_only')[0].server)
try:
    search_tools('x', detail='all')
except (TypeError, ValueError) as error:
    print('name_only, with_description, full' in str(error))
"""
        assert await box.printed(code) == "echo lab\nTrue\n"

    async def test_a_module_of_tools_can_be_imported(self, box: Box) -> None:
        assert await box.printed("from servers import lab\nprint(await lab.echo(text='m'))") == "m\n"
        assert await box.printed("import servers.lab\nprint(await servers.lab.echo(text='n'))") == "n\n"

    async def test_gathered_calls_are_open_at_the_same_time(self, box: Box) -> None:
        code = """
import asyncio
from servers.lab import slow
print(await asyncio.gather(*[slow(n=8) for _ in range(8)]))
"""
        assert await box.printed(code) == str([{"met": 8}] * 8) + "\n"

    async def test_a_call_by_full_name_works_under_both_names(self, box: Box) -> None:
        for module in ("client", "toolfold"):
            code = "import call_mcp_tool\nprint(await call_mcp_tool('mcp__lab__echo', {'text': 'by name'}))"
            assert await box.printed(f"from {module} {code}") == "by name\n"

    async def test_the_client_object_calls_tools(self, box: Box) -> None:
        code = "from client import get_client\nprint(await get_client().call_tool('mcp__lab__echo', {'text': 'c'}))"
        assert await box.printed(code) == "c\n"

    async def test_search_answers_with_and_without_await(self, box: Box) -> None:
        code = """
from tool_discovery import search_tools
print(search_tools('x')[0].name, (await search_tools('x'))[0].server, search_tools('x')[0].import_)
"""
        assert await box.printed(code) == "echo lab from servers.lab import echo\n"

    async def test_a_resource_is_read(self, box: Box) -> None:
        code = "from toolfold import read_resource\nprint(await read_resource('lab', 'file://a'))"
        assert await box.printed(code) == "content of file://a\n"

    async def test_progress_reaches_the_host_and_not_the_output(self, box: Box) -> None:
        ran = await box.run("from toolfold import progress\nprogress('half', 0.5)")
        assert (ran.host.reported, ran.output, ran.error) == ([("half", 0.5)], "", "")

    async def test_a_result_of_thousands_of_rows_is_filtered_inside(self, box: Box) -> None:
        code = """
from servers.lab import rows
print(len([row for row in (await rows(n=20000))['rows'] if row['number'] % 2]))
"""
        assert await box.printed(code) == "10000\n"

    async def test_a_text_that_is_json_arrives_parsed_and_other_text_as_text(self, box: Box) -> None:
        code = (
            "from servers.lab import echo\nprint((await echo(text='[1, {\"a\": 2}]'))[1]['a'], await echo(text='007'))"
        )
        assert await box.printed(code) == "2 007\n"

    async def test_megabytes_go_both_ways(self, box: Box) -> None:
        code = "from servers.lab import echo\nprint(len(await echo(text='x' * 3_000_000)))"
        assert await box.printed(code) == "3000000\n"

    async def test_binary_results_are_files_in_the_workspace(self, box: Box) -> None:
        code = "from servers.lab import picture\nf = await picture()\nprint(f.path, f.mime_type, f.size)"
        path, mime_type, size = (await box.printed(code)).split()
        assert (mime_type, int(size)) == ("image/png", len(PICTURE))
        assert path.startswith("workspace/files/")
        assert (box.home.path / path).read_bytes() == PICTURE
        assert await box.printed(f"print(len(open({path!r}, 'rb').read()))") == f"{len(PICTURE)}\n"

    async def test_a_wrong_argument_shows_the_signature(self, box: Box) -> None:
        ran = await box.run("from servers.lab import echo\nawait echo(txt='x')")
        assert "echo(" in ran.error
        assert "text: str" in ran.error
        assert ran.host.calls == []

    async def test_an_unknown_tool_names_the_near_ones(self, box: Box) -> None:
        ran = await box.run("from servers.lab import ecko")
        assert "Did you mean echo" in ran.error

    async def test_help_shows_a_tools_signature_and_doc(self, box: Box) -> None:
        printed = await box.printed("from servers.lab import echo\nhelp(echo)")
        assert "text: str" in printed
        assert "Say it back." in printed

    async def test_the_api_can_be_listed_and_not_written(self, box: Box) -> None:
        listed = await box.printed("import os\nprint(sorted(os.listdir('.')), 'echo.py' in os.listdir('servers/lab'))")
        assert listed == "['servers', 'skills', 'workspace'] True\n"
        ran = await box.run("open('servers/lab/echo.py', 'w').write('x')")
        assert "Error" in ran.error
        assert "workspace/" in ran.error

    async def test_a_tool_that_appears_later_can_be_imported(self, box: Box) -> None:
        await box.printed("kept = 1")
        write_tree([*TOOLS, ToolDefinition(server="late", name="comer", description="New.")], box.api)
        try:
            ran = await box.run("print(kept)\nfrom servers.late import comer\nawait comer()")
            assert ran.host.calls == [("comer", {})]
            assert ran.output == "1\n"
        finally:
            write_tree(TOOLS, box.api)


class TestErrors:
    async def test_a_tools_error_is_a_tool_error_with_its_text(self, box: Box) -> None:
        code = """
from servers.lab import boom
from toolfold import ToolError
try:
    await boom()
except ToolError as error:
    print('caught', error)
"""
        assert await box.printed(code) == "caught it went boom\n"

    async def test_an_uncaught_tool_error_says_which_tool_and_line(self, box: Box) -> None:
        ran = await box.run("from servers.lab import boom\n\nawait boom()")
        assert "line 3: await boom()" in ran.error
        assert "ToolError: lab.boom: it went boom" in ran.error

    async def test_an_exception_has_the_programs_own_lines_and_nothing_else(self, box: Box) -> None:
        ran = await box.run("def f():\n    return g()\n\ndef g():\n    raise ValueError('no')\n\nf()")
        lines = [
            "  line 7: f()",
            "  line 2, in f: return g()",
            "  line 5, in g: raise ValueError('no')",
            "ValueError: no",
        ]
        assert ran.error.splitlines() == lines

    async def test_what_was_printed_before_an_error_is_there(self, box: Box) -> None:
        ran = await box.run("print('before')\n1/0")
        assert ran.output == "before\n"
        assert ran.error.endswith("ZeroDivisionError: division by zero")

    async def test_a_syntax_error_has_its_line_and_place(self, box: Box) -> None:
        ran = await box.run("x = 1\ny = (\n")
        assert ran.error.startswith("SyntaxError: '(' was never closed (line 2)")

    async def test_a_forgotten_await_is_explained_and_the_tool_is_not_called(self, box: Box) -> None:
        for code in (
            "from servers.lab import echo\necho(text='x')",
            "from servers.lab import echo\nr = echo(text='x')",
        ):
            ran = await box.run(code)
            assert ran.error.startswith("NotAwaited: line 2: echo(...) was not awaited")
            assert "`await echo(...)`" in ran.error
            assert ran.host.calls == []

    async def test_a_forgotten_await_of_an_own_function_is_explained(self, box: Box) -> None:
        ran = await box.run("async def main():\n    print('never')\nmain()")
        assert ran.error.startswith("NotAwaited: line 3: main(...) was not awaited")

    async def test_a_module_that_is_not_there_says_what_is(self, box: Box) -> None:
        ran = await box.run("import no_such_module_at_all")
        assert "ModuleNotFoundError: No module named 'no_such_module_at_all'" in ran.error
        assert "can be imported" in ran.error or "the standard library is here" in ran.error

    async def test_deep_recursion_is_an_error_of_the_program(self, box: Box) -> None:
        ran = await box.run("def r(): return r()\nr()")
        assert ran.error.endswith("RecursionError: maximum recursion depth exceeded")
        assert len(ran.error) < 2000
        assert await box.printed("print('alive')") == "alive\n"

    @pytest.mark.parametrize(
        "call",
        [
            "progress('half', 'much')",
            "progress('half', float('nan'))",
            "search_tools(5)",
            "search_tools('x', limit='many')",
            "await call_mcp_tool(5)",
            "await call_mcp_tool('mcp__lab__echo', ['a', 'list'])",
            "await call_mcp_tool('mcp__lab__echo', {'text': {1, 2}})",
            "await read_resource(5, 'file://a')",
            "await get_prompt('lab', None)",
        ],
    )
    async def test_a_wrong_type_is_an_error_of_the_program_and_nothing_is_asked(self, box: Box, call: str) -> None:
        names = "call_mcp_tool, get_prompt, progress, read_resource, search_tools"
        ran = await box.run(f"from toolfold import {names}\n{call}")
        assert "line 2: " in ran.error
        assert "TypeError: " in ran.error
        assert (ran.failure, ran.host.calls, ran.host.reported) == (None, [], [])

    async def test_an_empty_program_ends_well(self, box: Box) -> None:
        for code in ("", "\n\n", "# nothing"):
            ran = await box.run(code)
            assert (ran.failure, ran.error, ran.output, ran.value) == (None, "", "", None)

    async def test_sys_exit_with_a_code_is_an_error_and_without_is_none(self, python: Box) -> None:
        ran = await python.run("import sys\nsys.exit(3)")
        assert ran.error == "SystemExit: the program ended itself with 3"
        assert (await python.run("import sys\nsys.exit()")).error == ""

    async def test_input_meets_a_closed_stdin(self, python: Box) -> None:
        assert "EOFError" in (await python.run("input()")).error


class TestOutput:
    async def test_the_last_expression_is_shown_and_is_a_value(self, box: Box) -> None:
        ran = await box.run("x = [1, {'a': None}]\nx")
        assert (ran.shown, ran.value) == ("[1, {'a': None}]", [1, {"a": None}])

    async def test_a_value_that_is_not_json_is_only_shown(self, box: Box) -> None:
        ran = await box.run("{1, 2}")
        assert (ran.shown, ran.value) == ("{1, 2}", None)

    async def test_nothing_is_shown_for_a_statement(self, box: Box) -> None:
        ran = await box.run("x = 5")
        assert (ran.shown, ran.value, ran.output) == ("", None, "")

    async def test_both_streams_are_captured(self, box: Box) -> None:
        assert await box.printed("import sys\nprint('out')\nprint('err', file=sys.stderr)") == "out\nerr\n"

    async def test_fifty_megabytes_arrive_whole(self, box: Box) -> None:
        ran = await box.run("print('x' * 50_000_000)", timeout=60)
        assert (ran.failure, len(ran.raw)) == (None, 50_000_001)

    async def test_many_small_lines_arrive_in_order(self, box: Box) -> None:
        printed = await box.printed("for i in range(20000): print(i)")
        assert printed == "".join(f"{i}\n" for i in range(20000))

    async def test_more_than_the_output_limit_ends_the_run_with_its_name(self, box: Box) -> None:
        ran = await box.run("while True: print('y' * 1_000_000)", timeout=60)
        assert isinstance(ran.failure, LimitExceeded)
        assert ran.failure.limit == "sandbox.output"
        assert await box.printed("print('next')") == "next\n"

    async def test_output_of_one_run_never_shows_up_in_the_next(self, box: Box) -> None:
        for number in range(20):
            assert await box.printed(f"print('{number}' * 3000)") == f"{number}" * 3000 + "\n"

    async def test_bytes_that_are_not_text_arrive_as_they_are(self, python: Box) -> None:
        ran = await python.run(r"import os; os.write(1, b'\xff\xfe\x00ok'); print('\udcff')")
        assert ran.raw == b"\xff\xfe\x00ok\\udcff\n"


class TestLimits:
    async def test_an_endless_loop_ends_at_the_timeout_and_the_next_run_is_fine(self, box: Box) -> None:
        ran = await box.run("print('begun')\nwhile True: pass", timeout=1)
        assert isinstance(ran.failure, LimitExceeded)
        assert ran.failure.limit == "sandbox.timeout"
        assert ran.output == "begun\n"
        assert await box.printed("print('next')") == "next\n"

    async def test_waiting_counts_as_time(self, box: Box) -> None:
        for code in ("import time\ntime.sleep(100)", "import asyncio\nawait asyncio.sleep(100)"):
            ran = await box.run(code, timeout=0.5)
            assert isinstance(ran.failure, LimitExceeded)

    async def test_a_call_that_never_answers_is_cancelled_at_the_timeout(self, box: Box) -> None:
        ran = await box.run("from servers.lab import never\nawait never()", timeout=0.5)
        assert isinstance(ran.failure, LimitExceeded)
        assert ran.host.cancelled == ["never"]

    async def test_too_much_memory_at_once_is_an_error_of_the_program(self, box: Box) -> None:
        ran = await box.run("x = [0] * 400_000_000")
        assert "MemoryError" in ran.error
        assert "`sandbox.memory`" in ran.error

    async def test_memory_taken_bit_by_bit_ends_in_an_error_that_names_the_limit(self, box: Box) -> None:
        ran = await box.run("x = []\nwhile True: x.append('y' * 1_000_000 + str(len(x)))", timeout=60)
        assert "`sandbox.memory`" in (ran.error or str(ran.failure))
        assert await box.printed("x = None\nprint('next')") == "next\n"

    async def test_memory_of_many_processes_counts_together(self, python: Box) -> None:
        code = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        hog = bytearray(120_000_000)
        for i in range(0, len(hog), 4096): hog[i] = 1
        time.sleep(60)
time.sleep(60)
"""
        ran = await python.run(code, timeout=40)
        assert isinstance(ran.failure, LimitExceeded)
        assert ran.failure.limit == "sandbox.memory"
        assert await python.printed("print('next')") == "next\n"

    async def test_processes_end_with_the_run_that_is_stopped(self, python: Box) -> None:
        code = """
import os, time
for _ in range(5):
    if os.fork() == 0:
        while True:
            with open('workspace/alive', 'a') as f: f.write('x')
            time.sleep(0.01)
while True: pass
"""
        ran = await python.run(code, timeout=1)
        assert isinstance(ran.failure, LimitExceeded)
        written = (python.home.workspace / "alive").stat().st_size
        assert written > 0
        await python.printed("import time; time.sleep(0.2)")
        assert (python.home.workspace / "alive").stat().st_size == written


class TestEndings:
    async def test_leaving_without_a_word_is_told_with_the_exit_code(self, python: Box) -> None:
        ran = await python.run("print('last words', flush=True)\nimport os\nos._exit(3)")
        assert "exit code 3" in str(ran.failure)
        assert ran.output == "last words\n"
        assert await python.printed("print('next')") == "next\n"

    async def test_a_crash_is_told_with_its_signal(self, python: Box) -> None:
        ran = await python.run("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
        assert "SIGSEGV" in str(ran.failure)
        assert await python.printed("print('next')") == "next\n"

    async def test_calls_still_open_at_the_end_are_cancelled(self, python: Box) -> None:
        code = """
import asyncio
from servers.lab import never
forgotten = asyncio.ensure_future(never())
await asyncio.sleep(0.2)
"""
        ran = await python.run(code)
        assert ran.host.cancelled == ["never"]
        assert "cancelled" in ran.output

    async def test_a_cancelled_run_ends_the_program(self, box: Box) -> None:
        host = Host()
        running = asyncio.ensure_future(box.run("print('begun', flush=True)\nwhile True: pass", timeout=60, host=host))
        async with asyncio.timeout(60):
            while not host.printed_bytes:
                await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert box.sandbox is not None
        assert not box.sandbox.alive
        assert await box.printed("print('next')") == "next\n"

    async def test_an_own_loop_works_as_well_as_top_level_await(self, box: Box) -> None:
        code = """
import asyncio
from servers.lab import echo
async def main():
    print(await echo(text='run'))
asyncio.run(main())
"""
        assert await box.printed(code) == "run\n"


class TestSessions:
    async def test_variables_functions_and_imports_live_on(self, box: Box) -> None:
        ran = await box.run("import json\nfrom servers.lab import echo\ncount = 41\ndef more(x): return x + 1")
        assert {"count", "more"} <= set(ran.names)
        assert await box.printed("print(more(count), json.dumps([1]), await echo(text='e'))") == "42 [1] e\n"

    async def test_variables_survive_an_error(self, box: Box) -> None:
        await box.printed("kept = 'here'")
        assert "ZeroDivisionError" in (await box.run("1/0")).error
        assert await box.printed("print(kept)") == "here\n"

    async def test_the_workspace_survives_the_sandbox(self, box: Box) -> None:
        await box.printed("with open('workspace/note.txt', 'w') as f: f.write('kept')\nlost = 1")
        assert (box.home.workspace / "note.txt").read_text() == "kept"
        await box.close()
        assert await box.printed("print(open('workspace/note.txt').read())") == "kept\n"
        assert "NameError" in (await box.run("lost")).error

    async def test_homes_do_not_see_each_other(self, box: Box, tmp_path: Path) -> None:
        await box.printed("with open('workspace/mine.txt', 'w') as f: f.write('x')")
        async with box_around(box.backend, tmp_path) as other:
            listed = await other.printed("import os\nprint(os.listdir('workspace'))")
        assert listed == "[]\n"
        shutil.rmtree(tmp_path, ignore_errors=True)

    async def test_only_the_workspace_can_be_written(self, box: Box) -> None:
        for path in ("here.txt", "/here.txt", "/etc/here", "servers/here.py"):
            ran = await box.run(f"open({path!r}, 'w').write('x')")
            assert "Error" in ran.error, path


class TestWalls:
    async def test_the_environment_holds_nothing_of_the_host(self, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TOOLFOLD_TEST_SECRET", "a credential")
        await box.close()
        printed = await box.printed("import os\nprint(sorted(os.environ))")
        known = {"HOME", "USER", "LANG", "LC_CTYPE", "TZ", "PATH", "PWD", "LD_LIBRARY_PATH"}
        assert set(eval(printed)) <= known

    async def test_a_file_of_the_host_is_not_there(self, box: Box, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("secret")
        for path in (str(tmp_path / "secret"), "workspace/../../secret", "/proc/1/root/etc/shadow"):
            ran = await box.run(f"print(open({path!r}).read())")
            assert "Error" in ran.error, path
            assert "secret" not in ran.output

    async def test_there_is_no_network(self, python: Box) -> None:
        code = "import socket\nsocket.create_connection(('127.0.0.1', 22), 2)"
        assert "Error" in (await python.run(code)).error

    async def test_no_program_of_the_host_can_be_run(self, python: Box) -> None:
        code = "import subprocess\nprint(subprocess.run(['/bin/sh', '-c', 'id'], capture_output=True))"
        assert "FileNotFoundError" in (await python.run(code)).error

    async def test_threads_and_processes_of_its_own_work(self, python: Box) -> None:
        code = """
import subprocess, sys, threading
t = threading.Thread(target=lambda: print('thread'))
t.start(); t.join()
print(subprocess.run([sys.executable, '-c', 'print("process")'], capture_output=True, text=True).stdout.strip())
"""
        assert await python.printed(code) == "thread\nprocess\n"

    async def test_temporary_files_work(self, python: Box) -> None:
        code = "import tempfile\nwith tempfile.TemporaryFile() as f:\n    f.write(b'x'); f.seek(0); print(f.read())"
        assert await python.printed(code) == "b'x'\n"
