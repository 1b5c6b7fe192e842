"""The walls are for attacks: what ordinary programs do with Python must work inside."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import pytest

from tests.hostile.arena import Arena
from toolfold.config.settings import SandboxSettings

PROGRAMS = {
    "databases": """
        import sqlite3
        base = sqlite3.connect("workspace/x.db")
        base.execute("pragma journal_mode = wal")
        base.execute("create table t (a)")
        base.execute("insert into t values (42)")
        base.commit()
        base.execute("select a from t").fetchone()[0]
        """,
    "child programs": """
        import subprocess, sys
        int(subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True).stdout)
        """,
    "child programs with asyncio": """
        import asyncio, sys
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(42)", stdout=asyncio.subprocess.PIPE)
        int((await child.communicate())[0])
        """,
    "threads": """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(32) as pool:
            total = sum(pool.map(int, ["1"] * 42))
        total
        """,
    "processes": """
        import multiprocessing
        with multiprocessing.get_context("fork").Pool(3) as pool:
            total = sum(pool.map(abs, [-20, -22]))
        total
        """,
    "queues between processes": """
        import multiprocessing
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        process = context.Process(target=queue.put, args=(42,))
        process.start()
        answer = queue.get(timeout=10)
        process.join()
        answer
        """,
    "copies of the program that end themselves": """
        import os, sys
        child = os.fork()
        if child == 0:
            sys.exit(42)
        os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        """,
    "copies of the program that go on to its end": """
        import os
        child = os.fork()
        status = os.waitpid(child, 0)[1] if child else 0
        42 + status if child else 0
        """,
    "copies of the program that fail": """
        import os
        child = os.fork()
        status = os.waitpid(child, 0)[1] if child else 1 / 0
        41 + os.waitstatus_to_exitcode(status)
        """,
    "shared memory": """
        from multiprocessing.shared_memory import SharedMemory
        block = SharedMemory(create=True, size=100)
        block.buf[0] = 42
        other = SharedMemory(block.name)
        answer = other.buf[0]
        block.unlink()
        answer
        """,
    "mapped files": """
        import mmap
        with open("workspace/mapped", "wb+") as file:
            file.truncate(4096)
            with mmap.mmap(file.fileno(), 4096) as view:
                view[0] = 42
            answer = file.read(1)[0]
        answer
        """,
    "copies, archives and temporary files": """
        import json, os, shutil, tempfile
        shutil.copytree(os.path.dirname(json.__file__), "workspace/json")
        shutil.make_archive("workspace/archive", "gztar", "workspace/json")
        with tempfile.TemporaryDirectory() as folder:
            shutil.unpack_archive("workspace/archive.tar.gz", folder)
            found = "decoder.py" in os.listdir(folder)
        os.rename("workspace/json", "workspace/renamed")
        42 if found and os.path.isdir("workspace/renamed") else 0
        """,
    "time zones and users": """
        import datetime, getpass, os, pwd, zoneinfo
        winter = datetime.datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
        42 if winter.tzname() == "CET" and getpass.getuser() == "agent" and pwd.getpwuid(os.getuid()).pw_name else 0
        """,
    "files with odd names": """
        import os
        open(b"workspace/\\xff\\xfe", "w").close()
        42 if os.listdir("workspace")[0].startswith("\\udcff") else 0
        """,
    "signals and timers": """
        import signal
        heard = []
        signal.signal(signal.SIGALRM, lambda *_: heard.append(42))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        signal.pause()
        heard[0]
        """,
    "memory up to the limit": """
        block = bytearray(b"x") * 300_000_000
        42 if len(block) == 300_000_000 else 0
        """,
}


@pytest.fixture(scope="module", params=["zygote", "bubblewrap"])
def arena(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    arena = Arena(request.param, tmp_path_factory.mktemp("ordinary"), SandboxSettings(pool=2))
    arena.open()
    yield arena
    arena.close()


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_may_use(arena: Arena, name: str) -> None:
    outcome = arena.run(textwrap.dedent(PROGRAMS[name]))
    assert (outcome.error, outcome.value) == ("", 42)


def test_a_value_with_half_a_character_arrives(arena: Arena) -> None:
    outcome = arena.run("['\\udcff']")
    assert (outcome.error, outcome.value) == ("", ["?"])


def test_a_program_with_half_a_character_is_answered(arena: Arena) -> None:
    assert arena.run("x = '\udcff'; 42").value == 42


def test_an_error_is_cut_and_a_value_too_large_is_said_to_be(arena: Arena) -> None:
    assert len(arena.run("raise ValueError('x' * 10**7)").error) < 25_000
    large = arena.run("from toolfold import call_mcp_tool\nawait call_mcp_tool('t', {'x': 'y' * 20_000_000})")
    assert "sandbox.message" in large.error


def test_programs_of_many_loops_find_their_answers(arena: Arena) -> None:
    code = """
    import asyncio, threading
    from toolfold import call_mcp_tool
    async def ask(): return len(await call_mcp_tool("t"))
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(asyncio.run(ask()))) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    sum(answers) + await ask()
    """
    assert arena.run(textwrap.dedent(code)).value == 50
