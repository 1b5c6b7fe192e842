"""Programs that go wrong: each ends in a short, exact, teaching error, and the next run is fine."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.lab import lab_fold
from toolfold import Toolfold
from toolfold.guards.events import RunResult

pytestmark = pytest.mark.anyio

DOWN = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no licence')"]}


@pytest.fixture
def fold(lab: Toolfold) -> Toolfold:
    return lab


async def ends_badly(fold: Toolfold, code: str, *, timeout: float = 20) -> RunResult:
    """The run fails with an error, and the fold still works afterwards."""
    result = await fold.run(code, timeout=timeout)
    assert not result.success
    assert result.error
    assert len(str(result.error)) < 2000
    after = await fold.run("print('fine')")
    assert after.output == "fine\n", after.error
    return result


async def test_a_syntax_error_points_at_the_place(fold: Toolfold) -> None:
    result = await ends_badly(fold, "x = 1\nfor in range(3):\n    pass")
    assert "SyntaxError" in str(result.error)
    assert "line 2" in str(result.error)


async def test_an_endless_loop_is_stopped_by_the_clock(fold: Toolfold) -> None:
    result = await ends_badly(fold, "print('begun')\nwhile True: pass", timeout=3)
    assert "sandbox.timeout" in str(result.error)
    assert result.output == "begun\n"


async def test_a_loop_that_swallows_every_exception_is_stopped_too(fold: Toolfold) -> None:
    code = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try:
        while True: pass
    except BaseException: pass
"""
    assert "sandbox.timeout" in str((await ends_badly(fold, code, timeout=3)).error)


async def test_time_spent_in_a_tool_call_counts(fold: Toolfold) -> None:
    result = await ends_badly(fold, "from servers.lab import sleep\nawait sleep(seconds=60)", timeout=3)
    assert "sandbox.timeout" in str(result.error)


async def test_too_much_memory_is_a_memory_error_naming_its_setting(fold: Toolfold) -> None:
    result = await ends_badly(fold, "x = bytearray(2_000_000_000)")
    assert "sandbox.memory" in str(result.error)


async def test_ending_the_interpreter_is_told_as_what_it_is(fold: Toolfold) -> None:
    assert "exit code 9" in str((await ends_badly(fold, "import os; os._exit(9)")).error)


async def test_a_crash_of_the_interpreter_is_told(fold: Toolfold) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert "SIGSEGV" in str((await ends_badly(fold, code)).error)


async def test_fifty_megabytes_printed_are_cut_and_kept(fold: Toolfold) -> None:
    result = await fold.run("print('first')\nfor _ in range(50):\n    print('x' * 1_000_000)\nprint('last')")
    assert result.success, result.error
    assert result.truncated
    assert len(result.output) < 3000
    assert result.output.startswith("first")
    assert result.output.rstrip().endswith("last")
    assert result.output_file is not None
    assert result.session is not None
    check = f"import os\nprint(os.path.getsize({result.output_file!r}))"
    again = await fold.run(check, session=result.session)
    assert again.output == f"{50 * 1_000_001 + 6 + 5}\n"


async def test_more_output_than_the_limit_ends_the_run(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir, sandbox={"output": "1MB"}) as fold:
        result = await ends_badly(fold, "while True: print('x' * 1000)")
        assert "sandbox.output" in str(result.error)


async def test_deep_recursion_is_a_recursion_error(fold: Toolfold) -> None:
    result = await ends_badly(fold, "def f(n): return f(n + 1)\nf(0)")
    assert "RecursionError" in str(result.error)


async def test_an_unknown_server_is_answered_with_the_ones_there_are(fold: Toolfold) -> None:
    result = await ends_badly(fold, "print('must not run')\nfrom servers.labb import add")
    assert "lab" in str(result.error)
    assert result.output == ""


async def test_an_unknown_tool_is_found_before_anything_runs(fold: Toolfold) -> None:
    result = await ends_badly(fold, "from servers.lab import add, subtract\nprint('must not run')")
    assert "subtract" in str(result.error)
    assert result.output == ""


async def test_a_wrong_argument_is_found_before_anything_runs(fold: Toolfold) -> None:
    result = await ends_badly(fold, "from servers.lab import add\nprint('no')\nawait add(a=1, c=2)")
    assert "c" in str(result.error)
    assert result.output == ""


async def test_a_server_that_dies_in_a_call_fails_that_call_only(fold: Toolfold) -> None:
    result = await ends_badly(fold, "from servers.lab import die\nawait die()")
    assert "lab" in str(result.error)


async def test_a_server_that_is_down_leaves_the_others_alone(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir, servers={"down": DOWN}) as fold:
        result = await fold.run("from servers.lab import add\nprint((await add(a=1, b=1))['sum'])")
        assert result.output == "2\n", result.error
        result = await ends_badly(fold, "from servers.down import anything\nawait anything()")
        assert "no licence" in str(result.error)


async def test_calls_end_with_the_program(fold: Toolfold) -> None:
    code = """
import asyncio
from servers.lab import sleep
task = asyncio.create_task(sleep(seconds=30))
await asyncio.sleep(0.1)
print('done')
"""
    result = await asyncio.wait_for(fold.run(code), 15)
    assert result.success, result.error
    assert "done" in result.output
    assert "cancelled" in result.output


async def test_cancelling_a_run_ends_the_program(fold: Toolfold) -> None:
    await fold.run("1")
    task = asyncio.create_task(fold.run("open('workspace/x', 'w').write('y')\nwhile True: pass", session="cut"))
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    after = await fold.run("import os\nprint(os.listdir('workspace'))", session="cut")
    assert after.output == "['x']\n", after.error


async def test_a_program_cannot_speak_on_the_channel(fold: Toolfold) -> None:
    code = """
import os, time
for fd in range(3, 4096):
    try: os.write(fd, bytes([255]) * 64)
    except OSError: pass
time.sleep(5)
"""
    assert "protocol" in str((await ends_badly(fold, code)).error)


async def test_a_long_error_is_held_to_the_budget(fold: Toolfold) -> None:
    result = await fold.run("raise ValueError('begin ' + 'x' * 100_000 + ' end')")
    assert result.error is not None
    assert len(str(result.error)) < 2100
    assert "ValueError: begin" in str(result.error)
    assert "characters cut" in str(result.error)
    assert str(result.error).endswith(" end")


async def test_a_wrong_call_is_answered_with_the_right_signature_once(fold: Toolfold) -> None:
    result = await fold.run("from servers.lab import add\nawait add(a=1)\nawait add(a=1, b=2, c=3)")
    assert result.error is not None
    assert str(result.error).splitlines() == [
        "Nothing was run.",
        "line 2: add: missing required argument 'b'.",
        "line 3: add has no argument 'c'. It takes a, b.",
        'Signature: add(a: float, b: float) -> {"sum": float}',
    ]
