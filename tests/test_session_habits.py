"""What a program is told when it fails by a known habit, and that nothing of an earlier run is held against it."""
# ruff: noqa: E501 - a table reads better with its rows on one line

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolfold import Toolfold

pytestmark = pytest.mark.anyio

GUEST = Path(__file__).parents[1] / "src" / "toolfold" / "sandbox" / "guest"
# Each line is a list of programs, which a child of its own runs one after the other.
RUNNER = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
from toolfold_guest.program import Programs
for line in sys.stdin:
    ours, theirs = os.pipe()
    if os.fork() == 0:
        signal.alarm(60)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        programs = Programs()
        done = [programs.run(code) for code in json.loads(line)]
        with open(theirs, "w") as file:
            json.dump(done, file)
        os._exit(0)
    os.close(theirs)
    with open(ours) as file:
        print(file.read(), flush=True)
    os.wait()
"""
Runs = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    """Runs programs one after the other in an interpreter with the guest's own code; what each of them gives."""
    command = [sys.executable, "-c", RUNNER, str(GUEST)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdin is not None
        assert runner.stdout is not None
        given, answers = runner.stdin, runner.stdout

        def run(*codes: str) -> list[dict[str, Any]]:
            given.write(json.dumps(codes) + "\n")
            given.flush()
            return json.loads(answers.readline())

        yield run
        given.close()
        runner.wait(20)


async def last_line(fold: Toolfold, code: str, *, session: str | None = None) -> str:
    result = await fold.run(code, session=session, check=False)
    assert not result.success
    return str(result.error).splitlines()[-1]


class TestHowItEnded:
    @pytest.mark.parametrize(
        ("code", "kind", "line", "exception"),
        [
            ("x = 1\n\n1 / 0", "exception", 3, "ZeroDivisionError"),
            ("def f():\n    return {}['a']\nx = 1\nf()", "exception", 2, "KeyError"),
            ("import json\njson.loads('x')", "exception", 2, "JSONDecodeError"),
            ("```python\nx = 1\nx.y\n```", "exception", 3, "AttributeError"),
            ("x = 1\ny = (", "syntax", 2, "SyntaxError"),
            ("if 1:\nx = 1", "syntax", 2, "IndentationError"),
            ("import asyncio\nx = 1\nasyncio.sleep(1)\nx = 2", "not_awaited", 3, ""),
            ("x = 1\nraise SystemExit(3)", "exit", 2, "SystemExit"),
            ("import sys\n\ndef f():\n    sys.exit('no')\nf()", "exit", 4, "SystemExit"),
            ("raise ExceptionGroup('two', [ValueError('a')])", "exception", 1, "ExceptionGroup"),
            ("class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd", "exception", 3, "Odd"),
            ("if True:\n    x = 1\n    return 1 / 0", "exception", 3, "ZeroDivisionError"),
        ],
    )
    def test_a_failure_says_its_kind_its_line_and_its_type(
        self, runs: Runs, code: str, kind: str, line: int, exception: str
    ) -> None:
        [done] = runs(code)
        assert done["error"]
        assert (done["kind"], done["line"], done.get("exception", "")) == (kind, line, exception)

    @pytest.mark.parametrize("code", ["1", "x = 1", "raise SystemExit", "raise SystemExit(0)", "exit()", "return 1"])
    def test_a_success_has_no_kind(self, runs: Runs, code: str) -> None:
        [done] = runs(code)
        assert done["error"] == ""
        assert "kind" not in done

    def test_the_line_is_one_of_the_program_that_failed(self, runs: Runs) -> None:
        first = "\n\n\ndef f():\n    return 1 / 0"
        assert [done.get("line") for done in runs(first, "x = 1\nf()")] == [None, 2]


LOOP = """
import asyncio, contextvars
loop = asyncio.get_event_loop()
async def work(n=0):
    await asyncio.sleep(0)
    return n
"""


class TestLoopsInsideLoops:
    @pytest.mark.parametrize(
        ("code", "value"),
        [
            ("async def f(): return loop.run_until_complete(work(1))\nawait asyncio.gather(f(), *map(work, range(5)), f())", [1, 0, 1, 2, 3, 4, 1]),
            ("async def f(): return asyncio.run(work(1))\nawait asyncio.gather(f(), *map(work, range(3)), f())", [1, 0, 1, 2, 1]),
            ("async def f(n): return n if n == 0 else asyncio.run(f(n - 1)) + 1\nawait f(5)", 5),
            ("async def f(n): return n if n == 0 else loop.run_until_complete(f(n - 1)) + 1\nawait f(5)", 5),
            ("task = asyncio.create_task(work(7))\nloop.run_until_complete(task) + await task", 14),
            ("async def f():\n    before = asyncio.current_task()\n    asyncio.run(work())\n    loop.run_until_complete(work())\n    return asyncio.current_task() is before and asyncio.get_running_loop() is loop\nawait f()", True),
            ("v = contextvars.ContextVar('v', default=0)\nasync def g(): v.set(2)\nasync def f():\n    v.set(1)\n    loop.run_until_complete(g())\n    asyncio.run(g())\n    return v.get()\nawait f()", 1),
            ("async def f():\n    try:\n        return asyncio.run(asyncio.wait_for(asyncio.sleep(60), 0.01))\n    except TimeoutError:\n        return 'timeout'\nawait f()", "timeout"),
            ("async def f():\n    async with asyncio.timeout(60):\n        return asyncio.run(work(1))\nawait f()", 1),
            ("async def g():\n    for n in range(3):\n        yield asyncio.run(work(n))\n[n async for n in g()]", [0, 1, 2]),
            ("async def f():\n    loop.call_later(0.01, loop.stop)\n    loop.run_forever()\n    return asyncio.run(work(3))\nasyncio.run(f())", 3),
            ("import threading\nresult = []\nt = threading.Thread(target=lambda: result.append(asyncio.run(work(4))))\nt.start()\nt.join()\nresult", [4]),
            ("async def f(): return await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(work(5), loop).result(10))\nawait f()", 5),
            ("asyncio.run(work())\nasyncio.get_event_loop() is loop", True),
            ("loop.close()\nawait work(6)", 6),
        ],
    )  # fmt: skip
    def test_a_loop_may_be_run_while_one_is_running(self, runs: Runs, code: str, value: Any) -> None:
        done, after = runs(LOOP + code, "await work(9)")
        assert (done["error"], done.get("value")) == ("", value)
        assert (after["error"], after["value"]) == ("", 9)

    def test_what_fails_inside_names_its_line(self, runs: Runs) -> None:
        code = f"{LOOP}async def g():\n    return 1 / 0\nasync def f():\n    loop.run_until_complete(g())\nawait f()"
        for inner in (code, code.replace("loop.run_until_complete", "asyncio.run")):
            done, after = runs(inner, "await work(9)")
            assert (done["exception"], done["line"]) == ("ZeroDivisionError", 8)
            assert after["value"] == 9

    def test_the_end_of_the_program_inside_ends_it(self, runs: Runs) -> None:
        code = f"{LOOP}async def g():\n    raise SystemExit(3)\nasync def f():\n    loop.run_until_complete(g())\nawait f()"
        done, after = runs(code, "await work(9)")
        assert done["kind"] == "exit"
        assert after["value"] == 9

    def test_the_loop_of_another_thread_is_not_run_here(self, runs: Runs) -> None:
        code = (
            f"{LOOP}import threading\nother = asyncio.new_event_loop()\nstarted = threading.Event()\n"
            "other.call_soon(started.set)\nthreading.Thread(target=other.run_forever, daemon=True).start()\nstarted.wait()\n"
            "job = work()\ntry:\n    other.run_until_complete(job)\nfinally:\n    job.close()\n    other.call_soon_threadsafe(other.stop)"
        )
        assert "already running" in runs(code)[0]["error"]


FORGET = "import asyncio\nasync def work(): pass\n"


class TestEarlierRuns:
    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ("job = work()", "job = None"),
            ("jobs = [work() for _ in range(3)]", "del jobs"),
            ("jobs = {'a': [work()], 'b': (work(), 1)}", "jobs.clear()"),
            ("class Holder: pass\nholder = Holder()\nholder.job = work()", "holder = None"),
            ("job = work()\nloop = [job]\nloop.append(loop)\ndel job, loop", "import gc\ngc.collect()"),
            ("job = work()\nraise ValueError(job)", "import gc\njob = None\ngc.collect()"),
            ("import asyncio\nqueue = asyncio.Queue()\nqueue.put_nowait(work())", "queue.get_nowait()\nqueue = None"),
            ("later = lambda job=work(): job", "later = None"),
            ("work()", "pass"),
            ("import threading\nbox = []\nt = threading.Thread(target=lambda: box.append(work()))\nt.start()\nt.join()",
             "box.clear()"),
        ],
    )  # fmt: skip
    def test_a_call_that_an_earlier_run_never_awaited_is_not_held_against_a_later_one(
        self, runs: Runs, first: str, second: str
    ) -> None:
        done = runs(FORGET, first, second, "import gc\ngc.collect()\n'fine'")
        assert [run["error"] for run in done[2:]] == ["", ""]

    @pytest.mark.parametrize(
        ("code", "line"),
        [
            ("x = 1\nwork()", 2),
            ("x = 1\njob = work()", 2),
            ("jobs = [work() for _ in range(3)]", 1),
            ("jobs = {'a': [1, work()]}", 1),
            ("[work()]", 1),
            ("async def f():\n    work()\nawait f()", 2),
            ("async def f():\n    work()\nawait asyncio.gather(f(), f())", 2),
            ("def f():\n    work()\nf()", 2),
            ("def f():\n    work()\nimport threading\nt = threading.Thread(target=f)\nt.start()\nt.join()", 0),
        ],
    )
    def test_a_call_that_this_run_never_awaited_is_reported_with_it(self, runs: Runs, code: str, line: int) -> None:
        done = runs(f"{FORGET}{code}")[0]
        assert done["kind"] == "not_awaited"
        assert done["line"] == (line and line + 2)
        assert "Write `await work(...)`." in done["error"]

    def test_a_function_of_an_earlier_run_that_forgets_an_await_is_reported_with_the_run_that_calls_it(
        self, runs: Runs
    ) -> None:
        first = f"{FORGET}async def f():\n    work()\n"
        done = runs(first, "await f()", "await asyncio.gather(f(), f())", "'fine'")
        assert [run.get("kind", "") for run in done] == ["", "not_awaited", "not_awaited", ""]

    def test_a_plain_function_is_told_to_become_async(self, runs: Runs) -> None:
        [done] = runs(f"{FORGET}def helper():\n    work()\nhelper()")
        assert "`helper` must be an `async def`" in done["error"]

    @pytest.mark.parametrize(
        "keep",
        [
            "made = list(pool.map(echo, 'ab'))",
            "list(pool.map(echo, 'ab'))",
            "made = [pool.submit(echo, 1)]\npool.shutdown()",
        ],
    )
    async def test_calls_made_in_threads_are_reported_with_their_run(self, lab: Toolfold, keep: str) -> None:
        code = f"from servers.lab import echo\nfrom concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\n{keep}\nprint('on')"
        result = await lab.run(code, session=keep)
        assert "echo(...) was not awaited" in str(result.error)
        later = await lab.run("import gc\nmade = None\ngc.collect()\nprint('later')", session=keep)
        assert (later.success, later.output) == (True, "later\n")

    async def test_calls_hidden_in_an_object_of_an_earlier_run_are_not_reported(self, lab: Toolfold) -> None:
        hide = "from servers.lab import echo\nclass Jobs: pass\njobs = Jobs()\njobs.open = [echo('a')]"
        assert (await lab.run(hide, session="hidden")).success
        later = await lab.run("import gc\njobs = None\ngc.collect()\nprint(await echo('x'))", session="hidden")
        assert later.success, later.error

    async def test_a_task_that_failed_is_mentioned_in_its_own_run_only(self, lab: Toolfold) -> None:
        fail = "import asyncio\nasync def fail(): raise ValueError('lost')\ntask = asyncio.create_task(fail())\n"
        own = await lab.run(f"{fail}await asyncio.sleep(0)\ntask = None", session="tasks")
        assert "lost" in own.output
        await lab.run(f"{fail}await asyncio.sleep(0)", session="tasks")
        later = await lab.run("import gc\ntask = None\ngc.collect()\nprint('later')", session="tasks")
        assert (later.success, later.output) == (True, "later\n")


class TestHints:
    @pytest.mark.parametrize(
        ("code", "hint"),
        [
            ("r = {'id': 1, 'total': 5}\nr.total", "`r` is a dict: write `r['total']`."),
            ("r = {'id': 1}\nr.content[0].text", "`r` is already the data: a dict with the keys 'id'."),
            ("r = [{'id': 1}, {'id': 2}]\nr.content", "`r` is already the data: a list of 2, each a dict with the keys 'id'. There is no `.content` around it."),
            ("r = 'hello'\nr.text", "`r` is already the data: the text 'hello'. There is no `.text` around it."),
            ("r = '{\"a\": 1}'\nr.items()", "`r` is JSON text: `json.loads(...)` gives the data."),
            ("r = {'id': 1}\nr['content']", "`r` is already the data: a dict with the keys 'id'."),
            ("r = {'id': 1}\nr['result']", "`r` is already the data: a dict with the keys 'id'."),
            ("r = [1, 2]\nr['result']", "`r` is already the data: a list of 2. Drop ['result']."),
            ("r = {'id': 1, 'customer_name': 'x', 'total': 2}\nr['customer']", "`r` is a dict; its keys are 'customer_name', 'id', 'total'."),
            ("r = {'a': {'b': {'city': 1}}}\nr['a']['b']['cty']", "`r['a']['b']` is a dict; its keys are 'city'."),
            ("rows = [{'id': 1}]\nfor row in rows:\n    print(row['idd'])", "`row` is a dict; its keys are 'id'."),
            ("rows = [{'id': 1}]\n[row['idd'] for row in rows]", "`row` is a dict; its keys are 'id'."),
            ("rows = [{'id': 1}]\nkey = 'idd'\nrows[0][key]", "`rows[0]` is a dict; its keys are 'id'."),
            ("r = {'id': 1}\nprint(f\"{r['idd']}\")", "`r` is a dict; its keys are 'id'."),
            ("def f(r):\n    return r['idd']\nf({'id': 1})", "`r` is a dict; its keys are 'id'."),
            ("r = {str(n): n for n in range(40)}\nr['x']", "`r` is a dict; its keys are '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '10', '11' and 28 more."),
            ("r = {'a': None}\nr['a']['b']", "`r['a']` is None."),
            ("r = '[1]'\nr['a']", "`r` is JSON text: `json.loads(r)` gives the data."),
            ("d = {'x': {'id': 1}}\nfor row in d:\n    row['id']", "`row` is a key of the dict `d`: loop over `d.values()` or `d.items()`."),
            ("d = {'content': '[{\"id\": 1}]'}\nfor row in d:\n    row['id']", "`row` is the one key of the dict `d`: write `json.loads(d['content'])`."),
            ("d = {'rows': [{'id': 1}]}\n[row['id'] for row in d]", "`row` is the one key of the dict `d`: write `d['rows']`."),
            ("d = {'content': 'a b'}\nd.splitlines()", "`d` is a dict; its text is `d['content']`."),
            ("r = 5\nr['a']", "`r` is already the data: 5."),
            ("r = [1]\nx = await r", "`r` is already the result: drop the `await`."),
            ("x = await {'a': 1}", "`{'a': 1}` is already the result: drop the `await`."),
            ("x = await print('x')", "`print` returned its result already: drop this `await`."),
            ("import json\njson.loads('Returns are accepted.')", "The text begins with 'Returns are accepted.': it is plain text, not JSON. Use it as it is."),
            ("import json\njson.loads(\"{'a': None}\")", "The text begins with \"{'a': None}\": it is Python's notation, not JSON; `ast.literal_eval(text)` reads it."),
            ("import json\njson.loads('{\"a\": 1}\\n{\"a\": 2}')", "The text begins with '{\"a\": 1}\\n{\"a\": 2}': it is one JSON value per line; `[json.loads(line) for line in text.splitlines()]`."),
            ("import json\njson.loads('')", "The text is empty."),
            ("import json\njson.loads('{\"a\": [1, 2')", "The text begins with '{\"a\": [1, 2': it looks like JSON, and is not valid from the position above on."),
            ("from servers.lab import add\nr = add(a=1, b=2)\nr['sum']", "`r` is a call that was not awaited: write `await add(...)`; several at once: `await asyncio.gather(...)`."),
            ("from servers.lab import add\nr = [add(a=1, b=2)]\nr[0]['sum']", "`r[0]` is a call that was not awaited: write `await add(...)`; several at once: `await asyncio.gather(...)`."),
            ("from servers.lab import add\ndef f():\n    r = add(a=1, b=2)\n    return r.get('sum')\nf()", "`r` is a call that was not awaited: write `await add(...)`, make `f` an `async def`, and await it where it is called."),
            ("from servers.lab import add\nadd['x']", "It is a tool: call it with `await tool(...)` and use what it returns."),
            ("from servers.lab import add\nawait add", "It must be called: `await add(...)`."),
            ("from servers import lab\nawait lab('add')", "It is a server: call one of its tools, `await server.tool(...)`."),
            ("from servers.lab import add\n(await add(a=1, b=2))['result']", "What the tool returns is already the data, and has no key 'result'."),
            ("from servers.lab import two_parts\n(await two_parts())['content']", "What the tool returns is already the data, and no dict: drop ['content']."),
            ("await tools.add(a=1, b=2)", "There is no `tools` here. Tools are functions: `from servers.lab import add`, then `await add(...)`."),
            ("await mcp.call('lab.add', {})", "There is no `mcp` here. Tools are functions: `from servers.lab import add`, then `await add(...)`."),
            ("await call_tool('add', {})", "There is no `call_tool` here. Tools are functions: `from servers.lab import add`, then `await add(...)`."),
            ("await client.call_tool('nope')", "There is no `client` here. Tools are functions: `from servers.<server> import <tool>`; `from toolfold import call_mcp_tool` calls one by its name."),
            ("await add(a=1, b=2)", "Write `from servers.lab import add` first."),
            ("await lab.add(a=1, b=2)", "Write `from servers import lab` first."),
            ("await call_mcp_tool('lab.add')", "Write `from toolfold import call_mcp_tool` first."),
            ("asyncio.run(x)", "Write `import asyncio` first."),
            ("orders = []\nprint(order)", "Did you mean `orders`?"),
            ("final_answer(1)", "There is no `final_answer` here: `print(...)` what you want to see, or make it the last line."),
            ("import servers.labb", "Did you mean servers.lab?"),
            ("from servers.lab import ad", "Did you mean add?"),
            ("from lab import add", "Write `from servers.lab import ...`."),
            ("import mcp", "Tools are functions here: `from servers.<server> import <tool>`; `search_tools(...)` finds them."),
            ("import httpx", "There is no network in the sandbox: reach the world through tools; search_tools finds them."),
            ("import numpy", "`numpy` is not installed. `sandbox.packages` in the settings adds packages; the standard library is here (csv, json, sqlite3, statistics)."),
            ("import subprocess\nsubprocess.run(['ls'])", "There are no shell commands in the sandbox: use Python, for example os.listdir, pathlib, shutil or re."),
            ("open('report.json', 'w')", "Only workspace/ and /tmp are writable; use for example open('workspace/report.json', 'w')."),
            ("open('/data/report.json')", "The program's files are in workspace/, and it sees no others."),
            ("open('workspace/new/report.json', 'w')", "Its folder does not exist yet: os.makedirs('workspace/new', exist_ok=True)."),
            ("open('workspace/a.csv', 'w').close()\nopen('a.csv')", "It is in workspace/: 'workspace/a.csv'."),
            ("open('workspace/orders.csv', 'w').close()\nopen('workspace/order.csv')", "Did you mean 'workspace/orders.csv'?"),
            ("import asyncio\nasync def main(): pass\nasyncio.run(main)", "`asyncio.run(...)` takes a call: `asyncio.run(main())`."),
            ("import asyncio\nawait asyncio.gather(1)", "`asyncio.gather(...)` takes the calls themselves, without `await`, and is awaited as a whole."),
            ("def f():\n    await g()", "Write `async def f`, and `await f(...)` where it is called."),
            ("from servers.json-server import x", "Write `from servers.json_server import x`."),
        ],
    )  # fmt: skip
    async def test_a_known_habit_is_answered_with_what_the_values_prove(
        self, lab: Toolfold, code: str, hint: str
    ) -> None:
        assert await last_line(lab, code) == hint

    async def test_a_tools_own_complaint_about_an_argument_comes_with_its_signature(self, lab: Toolfold) -> None:
        code = "from servers.lab import fail\nawait fail(message='invalid message: too short')"
        assert (await last_line(lab, code)).startswith("Signature: fail(")
        assert "Signature" not in await last_line(lab, "from servers.lab import fail\nawait fail(message='no row')")

    @pytest.mark.parametrize(
        "code",
        [
            "{}['x']",
            "import os\nos.environ['NOT_THERE']",
            "class D(dict):\n    def __missing__(self, key): raise KeyError(key)\nd = D()\nd['x']",
            "r = {'a': 1}\nr.pop('b')",
            "(await something())['x']",
            "class A:\n    content = None\na = A()\na.text",
            "r = {'a': 1}\ndef f(): return {}\nf()['b']",
            "raise KeyError",
            "raise AttributeError('mine')",
            "raise TypeError('a coroutine was not what I wanted')",
            "print(email)",
            "print(output + 1)",
            "x = session",
            "print(tool)",
        ],
    )
    async def test_what_the_values_do_not_prove_is_not_claimed(self, lab: Toolfold, code: str) -> None:
        said = await last_line(lab, code)
        for claim in ("is a dict; its keys", "already the data", "Write `import", "There is no `"):
            assert claim not in said


HOSTILE = """
class Trap:
    def _no(self, *args): raise SystemExit("touched")
    __repr__ = __str__ = __eq__ = __hash__ = __len__ = __iter__ = __getitem__ = __bool__ = __contains__ = _no
    def __getattribute__(self, name): raise SystemExit("touched")
    __class__ = property(_no)
trap = Trap()
"""


class TestHostileValues:
    @pytest.mark.parametrize(
        "failing",
        [
            "rows = {'a': trap}\nrows['b']",
            "rows = [trap]\nrows['b']",
            "rows = {1: trap}\nrows.a",
            "rows = {'a': trap}\nrows['a'].b.c if 0 else {}['x']",
            "def f(trap):\n    return undefined\nf(trap)",
            "x = [trap, {'a': 1}]\nx[1]['b']",
            "import json\nlocals()['zz'] = trap\njson.loads('x')",
            "raise AttributeError('x', name='a', obj=trap)",
            "class Meta(type):\n    def __getattribute__(self, name): raise SystemExit('touched')\nclass A(metaclass=Meta): pass\na = A()\nx = [a]\nx['b']",
            "class E(Exception):\n    def __str__(self): raise SystemExit('inner')\nraise E",
            "raise KeyError(trap)",
            "raise NameError('x', name='tools')",
        ],
    )
    def test_looking_for_a_hint_runs_nothing_of_the_program(self, runs: Runs, failing: str) -> None:
        [done] = runs(f"{HOSTILE}{failing}")
        assert done["kind"] == "exception"
        assert "touched" not in done["error"]

    @pytest.mark.parametrize(
        "code",
        [
            "r = {f'key {n}' * 100: n for n in range(100_000)}\nr['x']",
            "r = 'x' * 5_000_000\nr['a']",
            "import json\njson.loads('[' * 1_000_000)",
            "import json\njson.loads('{' + 'x' * 5_000_000)",
            "name_" + "x" * 50_000,
            "x = " + "-" * 60 + "undefined",
            "r = {}\n" + "r['a']['b']" + "['c']" * 80,
            "from json import " + "x" * 5000,
        ],
    )
    def test_a_hint_is_short_however_large_the_values_are(self, runs: Runs, code: str) -> None:
        [done] = runs(code)
        shown = done["error"].splitlines()
        # The last line is the hint, or what Python itself says.
        assert len(shown[-1]) <= 700 or shown[-1].startswith(done["exception"])

    def test_an_error_in_looking_for_a_hint_does_not_hide_the_error(self, runs: Runs) -> None:
        broken = "import toolfold_guest.advice as advice\nadvice.Place.of = None\nr = {}\nr['a']"
        [done] = runs(broken)
        assert done["error"].endswith("KeyError: 'a'")

    def test_a_value_that_cannot_be_shown_or_encoded_is_the_programs_business(self, runs: Runs) -> None:
        code = "class D(dict):\n    def items(self): raise SystemExit('no')\n    def __repr__(self): raise SystemExit('no')\nD(a=1)"
        [done] = runs(code)
        assert (done["error"], done["shown"]) == ("", "<D whose repr failed: SystemExit>")

    def test_a_hint_is_looked_for_without_the_source(self, runs: Runs) -> None:
        [done] = runs("import linecache\nlinecache.cache.clear()\nr = {'b': 1}\nr['a']")
        assert "KeyError: 'a'" in done["error"]
