"""What an agent's program can do and what it gets back, through the library, a real server and a real sandbox."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path

import pytest

from tests.lab import lab_fold
from toolfold import Toolfold
from toolfold.guards.events import Finished, Output, ToolCall

pytestmark = pytest.mark.anyio


@pytest.fixture
def fold(lab: Toolfold) -> Toolfold:
    return lab


async def printed(fold: Toolfold, code: str, *, session: str | None = None) -> str:
    result = await fold.run(code, session=session)
    assert result.success, result.error
    return result.output


async def failed(fold: Toolfold, code: str, *, session: str | None = None) -> str:
    result = await fold.run(code, session=session)
    assert not result.success
    assert result.error is not None
    return str(result.error)


class TestResults:
    async def test_a_structured_result_arrives_as_plain_data(self, fold: Toolfold) -> None:
        code = "from servers.lab import add\nr = await add(a=1, b=2)\nprint(r['sum'], type(r).__name__)"
        assert await printed(fold, code) == "3 dict\n"

    async def test_arguments_may_be_one_dict(self, fold: Toolfold) -> None:
        assert await printed(fold, "from servers.lab import add\nprint(await add({'a': 1, 'b': 5}))") == "{'sum': 6}\n"

    async def test_a_text_that_is_json_arrives_parsed(self, fold: Toolfold) -> None:
        code = "from servers.lab import json_text\nprint((await json_text())['rows'][2])"
        assert await printed(fold, code) == "3\n"

    async def test_a_text_that_is_nested_too_deeply_to_be_parsed_stays_text(self, fold: Toolfold) -> None:
        assert await printed(fold, "from servers.lab import deep_text\nprint(len(await deep_text()))") == "200000\n"

    async def test_a_text_that_looks_like_a_number_stays_text(self, fold: Toolfold) -> None:
        assert await printed(fold, "from servers.lab import number_text\nprint(await number_text())") == "007\n"

    async def test_several_parts_arrive_as_a_list(self, fold: Toolfold) -> None:
        code = "from servers.lab import two_parts\nprint(await two_parts())"
        assert await printed(fold, code) == "['one', [2]]\n"

    async def test_an_empty_answer_is_none(self, fold: Toolfold) -> None:
        assert await printed(fold, "from servers.lab import nothing\nprint(await nothing())") == "None\n"

    async def test_is_error_raises_tool_error_with_the_tools_own_text(self, fold: Toolfold) -> None:
        code = """
from servers.lab import fail
from toolfold import ToolError
try:
    await fail(message="no such row")
except ToolError as error:
    print(error, error.server, error.tool)
"""
        assert await printed(fold, code) == "no such row lab fail\n"

    async def test_a_tool_error_that_is_not_caught_fails_the_run_and_names_the_line(self, fold: Toolfold) -> None:
        error = await failed(fold, "from servers.lab import fail\n\nawait fail(message='broken')")
        assert "line 3" in error
        assert "ToolError: lab.fail: broken" in error

    async def test_an_image_arrives_as_a_file_in_the_workspace(self, fold: Toolfold) -> None:
        code = """
from servers.lab import image
picture = await image()
print(picture.path.startswith("workspace/"), picture.mime_type, open(picture.path, "rb").read()[:4])
"""
        assert await printed(fold, code) == "True image/png b'\\x89PNG'\n"

    async def test_ten_megabytes_arrive_whole_and_stay_in_the_sandbox(self, fold: Toolfold) -> None:
        code = "from servers.lab import big\nprint(len(await big(size=10_000_000)))"
        assert await printed(fold, code) == "10000000\n"

    async def test_a_result_that_breaks_its_schema_is_a_warning_not_a_failure(self, fold: Toolfold) -> None:
        output = await printed(fold, "from servers.lab import lies\nprint(await lies())")
        assert "{'ok': 'yes'}" in output
        assert "note:" in output

    async def test_null_and_unicode_survive_the_way_there_and_back(self, fold: Toolfold) -> None:
        code = """
from servers.lab import echo
v = {'a': None, 'b': '✓ 𝄞', 'c': [1.5, True]}
print((await echo(value=v))['value'] == v)
"""
        assert await printed(fold, code) == "True\n"


class TestLanguage:
    async def test_gathered_calls_really_run_at_once(self, fold: Toolfold) -> None:
        # Twenty calls of 1 s within 15 s: one after the other they would need 20 s.
        code = """
import asyncio
from servers.lab import sleep
print(len(await asyncio.gather(*[sleep(seconds=1) for _ in range(20)])))
"""
        result = await fold.run(code, timeout=15)
        assert result.output == "20\n", result.error

    async def test_the_last_expression_is_shown_and_returned(self, fold: Toolfold) -> None:
        result = await fold.run("x = [1, 2]\nx + [3]")
        assert result.output == "[1, 2, 3]"
        assert result.value == [1, 2, 3]

    async def test_asyncio_run_works_as_in_a_script(self, fold: Toolfold) -> None:
        code = """
import asyncio
from servers.lab import add
async def main():
    return (await add(a=2, b=2))["sum"]
if __name__ == "__main__":
    print(asyncio.run(main()), asyncio.run(main()))
"""
        assert await printed(fold, code) == "4 4\n"

    async def test_tasks_may_be_made_before_the_first_await(self, fold: Toolfold) -> None:
        code = """
import asyncio
from servers.lab import add
tasks = [asyncio.create_task(add(a=n, b=n)) for n in range(3)]
[result["sum"] for result in await asyncio.gather(*tasks)]
"""
        assert await printed(fold, code) == "[0, 2, 4]"

    async def test_a_program_may_run_a_loop_and_await_in_its_last_line(self, fold: Toolfold) -> None:
        code = """
import asyncio
from servers.lab import add
async def main():
    return (await add(a=1, b=1))["sum"]
first = asyncio.run(main())
first + await main()
"""
        assert await printed(fold, code) == "4"

    async def test_an_exception_names_the_agents_own_line(self, fold: Toolfold) -> None:
        error = await failed(fold, "def f():\n    return 1 / 0\n\nf()")
        assert error.splitlines() == [
            "  line 4: f()",
            "  line 2, in f: return 1 / 0",
            "ZeroDivisionError: division by zero",
        ]

    @pytest.mark.parametrize(
        ("code", "step"),
        [
            ("import socket\nsocket.create_connection(('192.0.2.1', 80), 2)", "There is no network in the sandbox"),
            ("import urllib.request\nurllib.request.urlopen('http://example.org')", "There is no network"),
            (
                "import os\nfor _ in range(99): os.fork() or os._exit(__import__('time').sleep(9) or 0)",
                "sandbox.processes",
            ),
            ("open('/etc/new', 'w')", "Only workspace/ and /tmp are writable"),
            ("import requests", "There is no network in the sandbox"),
            ("import pandas", "`sandbox.packages` in the settings"),
            ("input()", "Standard input is closed"),
            ("import asyncio\nasyncio.create_task(asyncio.sleep(0))", "await asyncio.gather"),
        ],
    )
    async def test_what_the_sandbox_forbids_comes_with_the_next_step(
        self, fold: Toolfold, code: str, step: str
    ) -> None:
        assert step in await failed(fold, code)

    async def test_a_process_that_was_forked_cannot_call_tools_and_says_what_to_do(self, fold: Toolfold) -> None:
        code = """
            import asyncio, multiprocessing
            from servers.lab import add

            def work(number):
                return asyncio.run(add(a=number, b=1))

            with multiprocessing.get_context("fork").Pool(2) as pool:
                pool.map(work, [1, 2])
            """
        result = await fold.run(textwrap.dedent(code), session="forks")
        assert "use `asyncio.gather`" in str(result.error)
        again = await fold.run("print(await add(a=1, b=2))", session="forks")
        assert (again.success, again.output) == (True, "{'sum': 3}\n"), again.error

    async def test_an_error_names_the_tool_once(self, fold: Toolfold) -> None:
        error = await failed(fold, "from toolfold import call_mcp_tool\nawait call_mcp_tool('lab.add', {'a': 1})")
        assert error.splitlines()[-1].count("lab.add") == 1

    async def test_a_forgotten_await_is_explained(self, fold: Toolfold) -> None:
        result = await fold.run("from servers.lab import add\nadd(a=1, b=2)\nprint('on')", check=False)
        assert not result.success
        assert "line 2" in str(result.error)
        assert "await add(...)" in str(result.error)

    async def test_standard_input_is_closed(self, fold: Toolfold) -> None:
        assert "EOFError" in await failed(fold, "input()")

    async def test_an_empty_program_is_fine(self, fold: Toolfold) -> None:
        result = await fold.run("")
        assert result.success
        assert "nothing printed" in result.text

    async def test_bytes_that_are_no_utf8_do_not_break_the_output(self, fold: Toolfold) -> None:
        assert "a\ufffdb" in await printed(fold, r"import os; os.write(1, b'a\xffb\n')")


class TestDiscovery:
    async def test_every_documented_import_works(self, fold: Toolfold) -> None:
        code = """
import os
from toolfold import search_tools, call_mcp_tool, read_resource, get_prompt, save_skill, progress
from tool_discovery import search_tools as again
from client import call_mcp_tool as call, get_client
print(search_tools("add two numbers")[0].name, (await again("add"))[0].server)
print(await call_mcp_tool("mcp__lab__add", {"a": 1, "b": 1}), await get_client().call_tool("lab.add", {"a": 1, "b": 2}))
print(await read_resource("lab", "lab://notes"))
print((await get_prompt("lab", "greet", {"who": "Ada"}))[0]["role"])
print(sorted(os.listdir(".")), "add.py" in os.listdir("servers/lab"))
"""
        lines = (await printed(fold, code)).splitlines()
        assert lines[0] == "add lab"
        assert lines[1] == "{'sum': 2} {'sum': 3}"
        assert lines[2] == "the lab's notes"
        assert lines[3] == "user"
        assert lines[4] == "['servers', 'skills', 'workspace'] True"

    async def test_help_shows_the_tools_documentation(self, fold: Toolfold) -> None:
        assert "The lab's add." in await printed(fold, "from servers.lab import add\nhelp(add)")

    async def test_an_unknown_tool_is_answered_with_the_nearest_names(self, fold: Toolfold) -> None:
        error = await failed(fold, "from toolfold import call_mcp_tool\nawait call_mcp_tool('lab.ad', {})")
        assert "add" in error

    async def test_a_wrong_argument_is_answered_with_what_is_valid(self, fold: Toolfold) -> None:
        code = "from toolfold import call_mcp_tool\nawait call_mcp_tool('lab.add', {'a': 'one', 'b': 2})"
        error = await failed(fold, code)
        assert "number" in error


class TestSessions:
    async def test_variables_and_files_stay_in_a_session(self, fold: Toolfold) -> None:
        await printed(fold, "x = 41\nopen('workspace/a.txt', 'w').write('kept')", session="one")
        assert await printed(fold, "print(x + 1, open('workspace/a.txt').read())", session="one") == "42 kept\n"

    @pytest.mark.parametrize(
        "silence",
        ["sys.stdout = io.StringIO()\n1 / 0", "sys.stdout = sys.stderr = None", "sys.stdout.close()"],
    )
    async def test_a_run_that_silences_its_output_silences_no_later_one(self, fold: Toolfold, silence: str) -> None:
        await fold.run(f"import io, sys\nprint('before')\nx = 1\n{silence}", session="silenced")
        later = await fold.run("import sys\nprint(x)\nprint(2, file=sys.stderr)", session="silenced")
        assert (later.output, later.notice) == ("1\n2\n", ""), later.text

    async def test_a_run_without_a_session_is_fresh(self, fold: Toolfold) -> None:
        await printed(fold, "leak = 1\nopen('workspace/a.txt', 'w').write('x')")
        assert await printed(fold, "import os\nprint('leak' in globals(), os.listdir('workspace'))") == "False []\n"

    async def test_sessions_do_not_see_each_other(self, fold: Toolfold) -> None:
        await printed(fold, "secret = 1\nopen('workspace/secret', 'w').write('x')", session="alice")
        code = "import os\nprint('secret' in globals(), os.listdir('workspace'))"
        assert await printed(fold, code, session="bob") == "False []\n"

    async def test_runs_of_one_session_queue_and_others_run_beside(self, fold: Toolfold) -> None:
        import asyncio

        step = """
from servers.lab import sleep
await sleep(seconds=0.1)
n = globals().get("n", 0) + 1
print(n)
"""
        results = await asyncio.gather(
            *[fold.run(step, session="line") for _ in range(4)], fold.run(step, session="other")
        )
        assert sorted(result.output for result in results[:4]) == ["1\n", "2\n", "3\n", "4\n"]
        assert results[4].output == "1\n"

    async def test_a_session_that_lost_its_sandbox_says_what_survived(self, fold: Toolfold) -> None:
        await printed(fold, "rows = [1]\nopen('workspace/kept', 'w').write('x')", session="s")
        error = await failed(fold, "import os; os._exit(3)", session="s")
        assert "exit code 3" in error
        assert "rows" in error
        assert "workspace/ are kept" in error
        assert (
            await printed(fold, "import os\nprint('rows' in globals(), os.listdir('workspace'))", session="s")
            == "False ['kept']\n"
        )

    async def test_files_outlive_the_process(self, runtime_dir: Path) -> None:
        async with lab_fold(runtime_dir) as first:
            await printed(first, "open('workspace/note', 'w').write('hello')", session="long")
        async with lab_fold(runtime_dir) as second:
            assert await printed(second, "print(open('workspace/note').read())", session="long") == "hello\n"

    async def test_a_skill_can_be_imported_by_a_later_run(self, fold: Toolfold) -> None:
        await printed(
            fold,
            "from toolfold import save_skill\ndef double(x):\n    return 2 * x\nprint(save_skill(double))",
            session="k",
        )
        assert await printed(fold, "from skills.double import double\nprint(double(4))", session="k") == "8\n"
        assert (
            await printed(fold, "from skills import double\nprint(double(5), double.double(6))", session="k")
            == "10 12\n"
        )
        assert await printed(fold, "import skills.double as d\nprint(d.double(7))", session="k") == "14\n"
        package = "open('skills/__init__.py', 'w').write('from .double import double as twice')\n"
        assert await printed(fold, f"{package}from skills import twice\nprint(twice(8))", session="k") == "16\n"
        with pytest.raises(AssertionError, match="cannot import name 'triple'"):
            await printed(fold, "from skills import triple", session="k")


class TestEvents:
    async def test_a_stream_tells_output_and_calls_and_ends_with_the_result(self, fold: Toolfold) -> None:
        code = "from servers.lab import add\nprint('before')\nawait add(a=1, b=1)\nprint('after')"
        events = [event async for event in fold.stream(code)]
        assert "".join(event.text for event in events if isinstance(event, Output)) == "before\nafter\n"
        calls = [event for event in events if isinstance(event, ToolCall)]
        assert [(call.tool, call.ok) for call in calls] == [("add", None), ("add", True)]
        assert isinstance(events[-1], Finished)
        assert events[-1].result.success
        assert len(events[-1].result.tool_calls) == 1


async def test_a_burst_larger_than_the_pool_is_served_and_counted(lab: Toolfold) -> None:
    results = await asyncio.gather(*(lab.run(str(number)) for number in range(12)))
    assert [result.value for result in results] == list(range(12))
    assert lab.pool is not None
    assert lab.pool.taken >= 12
    assert lab.pool.waited > 0
    assert lab.pool.longest_wait > 0
    assert lab.pool.waiting == 0
