"""Sandboxes of one zygote have nothing of each other: no memory, no names, no share of each other's limits."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.hostile.arena import Listener
from tests.zygote_lab import Lab, Watching, first_process, lab_around, namespaces, value, zygote_of
from toolfold.errors import LimitExceeded
from toolfold.sandbox.protocol import Supervised
from toolfold.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.anyio


@pytest.fixture
async def lab(engine_data: Path, tmp_path: Path) -> AsyncIterator[Lab]:
    async with lab_around(engine_data, tmp_path, memory="200MB", processes=40) as made:
        yield made


@pytest.fixture(scope="session")
def engine_data(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> Path:
    data = tmp_path_factory.mktemp("zygote")
    (data / "runtime").symlink_to(shared_runtime)
    return data


# Every byte that this process can read of itself, searched for words. They are given backwards and looked for letter by
# letter: whole and forwards they would be found in the searching program itself.
SEARCH = """
import ctypes, re
words = {words!r}
patterns = {{word: re.compile(b"".join(b"[%c]" % ord(letter) for letter in reversed(word))) for word in words}}
found, searched = set(), 0
with open("/proc/self/maps") as file:
    areas = [line.split() for line in file]
for area in areas:
    if "r" not in area[1] or area[-1].startswith(("[vvar", "[vsyscall")):
        continue
    begin, end = (int(number, 16) for number in area[0].split("-"))
    memory = ctypes.string_at(begin, end - begin)
    searched += len(memory)
    found |= {{word for word, pattern in patterns.items() if pattern.search(memory)}}
    del memory
[sorted(found), searched]
"""


async def test_no_name_of_another_home_is_in_a_clones_memory(lab: Lab) -> None:
    names = [f"session-of-somebody-{os.urandom(6).hex()}" for _ in range(3)]
    before, own, after = [await lab.start(name) for name in names]
    await value(before, f"kept = {'f' * 2 + names[0] + 'g'!r}")
    for sandbox in (own, await lab.start("another")):
        backwards = [name[::-1] for name in (*names, str(lab.folder), str(lab.api))]
        assert zygote_of(sandbox) == zygote_of(before) == zygote_of(after)
        found, searched = await value(sandbox, SEARCH.format(words=backwards))
        assert found == []
        assert searched > 5_000_000


async def test_the_search_would_find_them(lab: Lab) -> None:
    """The proof: a name that is in memory is found."""
    sandbox = await lab.start("one")
    await value(sandbox, "made = ''.join(chr(ord(letter) - 1) for letter in 'tfdsfuobnf')")
    found, _ = await value(sandbox, SEARCH.format(words=["secretname"[::-1]]))
    assert found == ["secretname"[::-1]]


async def test_no_memory_is_shared_for_writing(lab: Lab) -> None:
    sandbox = await lab.start("one")
    maps = await value(sandbox, "open('/proc/self/maps').read()")
    shared = [line for line in maps.splitlines() if "w" in line.split()[1] and "s" in line.split()[1]]
    assert shared == []


async def test_every_namespace_is_its_own(lab: Lab) -> None:
    one, two = await lab.start("one"), await lab.start("two")
    seen = [namespaces(pid) for pid in (first_process(one), first_process(two), zygote_of(one), "self")]
    for kind in seen[0]:
        assert len({each[kind] for each in seen}) == 4, kind
    assert isinstance(one.cell, Supervised)
    assert namespaces(one.cell.pids()[0]) == seen[0]


async def test_another_user_in_each_where_the_host_is_root(lab: Lab) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has ids to give away: run the tests as root")
    sandboxes = [await lab.start(name) for name in ("one", "two")]
    users = [Path(f"/proc/{pid}").stat().st_uid for sandbox in sandboxes for pid in _pids(sandbox)]
    users.append(Path(f"/proc/{zygote_of(sandboxes[0])}").stat().st_uid)
    assert len(set(users)) == 3
    assert 0 not in users
    assert [sandbox.home.workspace.stat().st_uid for sandbox in sandboxes] == users[:2]


def _pids(sandbox: Sandbox) -> list[int]:
    assert isinstance(sandbox.cell, Supervised)
    return sandbox.cell.pids()


async def test_process_one_cannot_be_looked_into(lab: Lab) -> None:
    """Same user, so only this keeps a guest out of it where there is no Landlock. The host sees it by the owner."""
    sandbox = await lab.start("one")
    first = first_process(sandbox)
    assert Path(f"/proc/{first}/mem").stat().st_uid != Path(f"/proc/{_pids(sandbox)[0]}/mem").stat().st_uid
    # It takes the filter once the guest is on its way, which may be ready before.
    async with asyncio.timeout(20):
        while "Seccomp:\t2" not in (status := Path(f"/proc/{first}/status").read_text()):
            await asyncio.sleep(0.01)
    for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"):
        assert line in status


async def test_no_user_namespace_can_be_made_in_a_clones_whatever_the_filter_says(lab: Lab) -> None:
    """Seen from a process of the host that enters the clone's namespace, without a filter."""
    sandbox = await lab.start("one")
    code = """
    import ctypes, os, sys
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.setns(os.open(f"/proc/{sys.argv[1]}/ns/user", os.O_RDONLY), 0) == 0, os.strerror(ctypes.get_errno())
    user = int(open("/proc/self/uid_map").read().split()[0])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    print(libc.unshare(0x10000000), os.strerror(ctypes.get_errno()))
    """
    command = [sys.executable, "-I", "-c", textwrap.dedent(code)]
    inside, outside = [
        await asyncio.to_thread(subprocess.run, [*command, str(pid)], capture_output=True, text=True, timeout=30)
        for pid in (_pids(sandbox)[0], zygote_of(sandbox))
    ]
    assert inside.stdout == "-1 No space left on device\n", inside.stderr
    assert outside.stdout.startswith("0 "), outside.stderr


async def test_random_numbers_are_its_own(lab: Lab) -> None:
    code = """
    import random, secrets, tempfile, uuid
    [random.random(), secrets.token_hex(8), uuid.uuid4().hex, next(tempfile._get_candidate_names())]
    """
    one, two = [await value(await lab.start(name), textwrap.dedent(code)) for name in ("one", "two")]
    assert not set(one) & set(two)


# Starvation: one sandbox takes all it can of something, and another one must still get its own share.

FORK_BOMB = """
import os, time
children = 0
while True:
    try:
        if os.fork() == 0:
            time.sleep(60)
    except OSError:
        break
    children += 1
print("full", flush=True)
time.sleep(60)
"""
FORKS = """
import os
children = []
for _ in range(20):
    child = os.fork()
    if child == 0:
        os.read(0, 1)
        os._exit(0)
    children.append(child)
[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children].count(0)
"""
LOCK_BOMB = """
import fcntl, os, time
files = []
for number in range(100):
    file = open(f"workspace/{number}", "w+b")
    fcntl.flock(file, fcntl.LOCK_EX)
    files.append(file)
begun = time.monotonic()
offset = 0
while time.monotonic() < begun + 2:
    fcntl.lockf(files[0], fcntl.LOCK_EX, 1, offset)
    offset += 2
for shared in ("/usr/lib", "/opt/api"):
    fcntl.flock(os.open(shared, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
print("full", flush=True)
time.sleep(60)
"""
LOCKS = """
import fcntl, sqlite3
with open("workspace/lock", "w+b") as file:
    for offset in range(0, 2000, 2):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
database = sqlite3.connect("workspace/database")
database.execute("create table t (n)")
database.execute("insert into t values (20)")
database.commit()
database.execute("select n from t").fetchone()[0]
"""
SIGNAL_BOMB = """
import ctypes, os, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, range(34, 64))
libc = ctypes.CDLL(None)
while libc.sigqueue(os.getpid(), 40, ctypes.c_void_p()) == 0:
    pass
print("full", flush=True)
time.sleep(60)
"""
SIGNALS = """
import ctypes, os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, range(34, 64))
libc = ctypes.CDLL(None)
sum(libc.sigqueue(os.getpid(), 40, ctypes.c_void_p()) == 0 for _ in range(20))
"""
MEMORY_BOMB = """
import time
taken = []
try:
    while True:
        taken.append(b"x" * 1_000_000)
except MemoryError:
    taken.pop()
print("full", flush=True)
time.sleep(60)
"""
MEMORY = "len(b'x' * 100_000_000) // 5_000_000"
INOTIFY_BOMB = """
import ctypes, time
libc = ctypes.CDLL(None)
while libc.inotify_init() >= 0:
    pass
print("full", flush=True)
time.sleep(60)
"""
SPAWN = "import subprocess, sys\nint(subprocess.run([sys.executable, '-c', 'print(20)'], capture_output=True).stdout)"


@pytest.mark.parametrize(
    ("bomb", "share"),
    [
        pytest.param(FORK_BOMB, FORKS, id="processes"),
        pytest.param(MEMORY_BOMB, MEMORY, id="memory"),
        pytest.param(LOCK_BOMB, LOCKS, id="locks"),
        pytest.param(SIGNAL_BOMB, SIGNALS, id="queued signals"),
        pytest.param(INOTIFY_BOMB, SPAWN, id="inotify"),
    ],
)
async def test_a_sibling_still_gets_its_share(lab: Lab, bomb: str, share: str) -> None:
    greedy, modest = await lab.start("greedy"), await lab.start("modest")
    watching = Watching()
    running = asyncio.create_task(greedy.run(bomb, watching, 60))
    full = asyncio.create_task(watching.printed_something.wait())
    try:
        await asyncio.wait([running, full], timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert full.done(), running
        assert await value(modest, share) == 20
        # Neither is the zygote starved.
        assert await value(await lab.start("late"), share) == 20
        assert zygote_of(modest) == zygote_of(lab.sandboxes[-1])
    finally:
        full.cancel()
        running.cancel()
        await asyncio.gather(running, full, return_exceptions=True)


async def test_a_sandbox_that_runs_out_of_memory_ends_alone(lab: Lab) -> None:
    greedy, modest = await lab.start("greedy"), await lab.start("modest")
    await value(modest, "kept = 42")
    code = """
    import mmap, os, time
    for _ in range(5):
        if os.fork() == 0:
            break
    block = mmap.mmap(-1, 90_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, len(block), 4096):
        block[offset] = 1
    time.sleep(20)
    """
    with pytest.raises(LimitExceeded) as caught:
        await greedy.run(textwrap.dedent(code), Listener(slow=False), 20)
    assert caught.value.limit == "sandbox.memory"
    assert await value(modest, "kept") == 42
    assert await value(await lab.start("next"), "1") == 1
