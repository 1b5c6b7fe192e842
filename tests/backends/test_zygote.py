"""A sandbox that was cloned from a zygote is the same place as one that has a bwrap of its own."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.backends.available import candidate
from tests.backends.box import SETTINGS, Box, box_around
from toolfold.sandbox.protocol import Supervised

pytestmark = pytest.mark.anyio

# Everything about its place that a program can find out, but what must differ (numbers of descriptors, times).
LOOK_AROUND = """
import asyncio, os, resource, signal, socket, stat, sys, threading

def tree():
    found = {}
    for folder, folders, files in os.walk("/"):
        for path in (os.path.join(folder, name) for name in folders + files):
            known = os.lstat(path)
            size = known.st_size if stat.S_ISREG(known.st_mode) else 0
            found[path] = [oct(known.st_mode), known.st_uid, known.st_gid, size, os.access(path, os.W_OK)]
        folders[:] = [name for name in folders if folder + name != "/proc"]
    return found

def status():
    wanted = ("Name", "Umask", "PPid", "NSpid", "NSpgid", "NSsid", "TracerPid", "Uid", "Gid", "Groups", "Threads")
    with open("/proc/self/status") as file:
        lines = dict(line.rstrip().split(":", 1) for line in file)
    prefixes = ("Cap", "SigBlk", "SigIgn", "SigCgt", "NoNew", "Seccomp", "Spec", "THP")
    return {name: value for name, value in lines.items() if name in wanted or name.startswith(prefixes)}

PROC = "self/cgroup self/mountinfo self/environ self/maps self/mem self/auxv self/cmdline self/limits self/fd"
PROC += " 1/status 1/mem 1/environ 1/root 1/cwd 1/maps meminfo cpuinfo net/dev sys/kernel/hostname kallsyms version"

def can_open(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        return error.errno
    return 0

def descriptors():
    kinds = []
    for number in range(256):
        try:
            kinds.append([stat.S_IFMT(os.fstat(number).st_mode), os.get_inheritable(number)])
        except OSError:
            pass
    return sorted(kinds)

{
    "tree": tree(),
    "status": status(),
    "descriptors": descriptors(),
    "variables": dict(os.environ),
    "folder": os.getcwd(),
    "arguments": [sys.argv, sys.path, str(sys.flags), sys.executable],
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT_" in name},
    "names": [socket.gethostname(), os.uname().nodename],
    "processes": [os.getpid(), os.getppid(), os.getsid(0), os.getpgrp(), threading.get_native_id(), os.nice(0)],
    "memory": {path: os.statvfs(path).f_bsize * os.statvfs(path).f_blocks for path in ("/tmp", "/dev/shm")},
    "mounts": {path: os.statvfs(path).f_flag for path in ("/", "/agent/workspace", "/agent/skills", "/opt/api")},
    "proc": {name: can_open("/proc/" + name) for name in PROC.split()},
    "encodings": [sys.stdout.encoding, sys.getfilesystemencoding()],
    "input": sys.stdin.read(),
    "namespace": sorted(globals()),
    "signals": {number: str(signal.getsignal(number)) for number in signal.valid_signals()},
    "modules": sorted(name for name in sys.modules if name.startswith("servers") or "." not in name),
}
"""


@pytest.fixture
async def boxes(engine_data: Path, tmp_path: Path) -> AsyncIterator[list[Box]]:
    """One sandbox of each kind."""
    cloned = await candidate("zygote", engine_data, SETTINGS)
    alone = await candidate("bubblewrap", engine_data, SETTINGS)
    places = (tmp_path / "cloned", tmp_path / "alone")
    async with box_around(cloned.backend, places[0]) as one, box_around(alone.backend, places[1]) as two:
        yield [one, two]


async def test_it_is_the_same_place(boxes: list[Box]) -> None:
    seen: list[dict[str, Any]] = []
    for box in boxes:
        ran = await box.run(LOOK_AROUND)
        assert not ran.error, ran.error
        seen.append(ran.value)
    cloned, alone = seen
    assert len(cloned["tree"]) > 1000
    for what, value in alone.items():
        assert cloned[what] == value, what


async def test_the_same_is_mounted(boxes: list[Box]) -> None:
    """As the host sees it, with the flags that hold: read-only, no devices, no set-uid."""
    mounts: list[list[tuple[str, ...]]] = []
    for box in boxes:
        await box.run("1")
        assert box.sandbox is not None
        assert isinstance(box.sandbox.cell, Supervised)
        text = Path(f"/proc/{box.sandbox.cell.pids()[0]}/mountinfo").read_text()
        rows = [(line.split()[4:6], line.split(" - ")[1].split()[0]) for line in text.splitlines()]
        mounts.append(sorted((where, flags, kind) for (where, flags), kind in rows))
    assert mounts[0] == mounts[1]
    assert {where for where, _, _ in mounts[0]} >= {"/", "/proc", "/agent/workspace", "/opt/api"}


async def test_programs_behave_the_same_in_it(boxes: list[Box]) -> None:
    """What a fork could have spoilt: threads, processes, signals, exit codes, imports, loops."""
    code = """
    import asyncio, os, signal, subprocess, sys, threading, time
    heard = []
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    os.kill(os.getpid(), signal.SIGUSR1)
    thread = threading.Thread(target=lambda: heard.append(threading.current_thread().name), name="other")
    thread.start(); thread.join()
    command = [sys.executable, "-c", "import sys; print(6 * 7); sys.exit(3)"]
    child = subprocess.run(command, capture_output=True, text=True)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    except KeyboardInterrupt:
        heard.append("interrupted")
    async def later():
        await asyncio.sleep(0.01)
        return "later"
    [heard, child.returncode, child.stdout, await later()]
    """
    values = [(await box.run(textwrap.dedent(code))).value for box in boxes]
    assert values[0] == values[1]
    assert values[0] == [[10, "other", "interrupted"], 3, "42\n", "later"]
