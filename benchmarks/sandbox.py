"""What a sandbox costs: starts, runs, callbacks, bursts and memory, on every backend that runs here.

Beside it, in the same run: plain Python, and a bare `bwrap` around Python with the same imports.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import clones
from benchmarks.report import Figure
from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxUnavailable, ToolfoldError
from toolfold.sandbox.choose import Candidate, backends
from toolfold.sandbox.frames import Request
from toolfold.sandbox.pool import Pool
from toolfold.sandbox.protocol import Closable, Supervised
from toolfold.sandbox.runtime import prepare
from toolfold.sandbox.sandbox import Sandbox
from toolfold.session.homes import SessionHomes

_TRIVIAL = "print('ok')"
_CALLS = 1000
_CALLING = f"for _ in range({_CALLS}):\n    await call_mcp_tool('echo', {{'text': 'hi'}})"
_READY = 4
"""Sandboxes that wait, where a backend does not want fewer."""
_BURST = 100
_SECONDS = 4.0
_TURNS = 2
_PAUSE = 0.05
_REPLY = {"parts": [{"type": "text", "text": "hi"}]}
# The imports of the guest, without ssl, as the guest does it, from the same byte code.
_IMPORTS = (
    "import sys; sys.path.insert(0, {guest!r}); sys.modules['ssl'] = None; "
    "from toolfold_guest import confine, program, api; print('ok')"
)
_ECHO = """
import json, socket, struct, sys
sock = socket.socket(fileno=int(sys.argv[1]))
buffer = b""
while True:
    while len(buffer) < 4 or len(buffer) < 4 + struct.unpack_from(">I", buffer)[0]:
        data = sock.recv(1 << 16)
        if not data:
            raise SystemExit
        buffer += data
    size, = struct.unpack_from(">I", buffer)
    request, buffer = json.loads(buffer[4 : 4 + size]), buffer[4 + size :]
    body = json.dumps({"id": request["id"], "ok": request["arguments"]}).encode()
    sock.sendall(struct.pack(">I", len(body)) + body)
"""


@dataclass(frozen=True)
class Baselines:
    """Milliseconds, of this machine in this run."""

    python: float
    bare: float
    """A cold `bwrap python -c` with the guest's imports; plain Python where there is no bwrap."""
    bare_title: str
    bare_command: list[str]
    """The same, per start, when every core does nothing else."""


class _Host:
    def __init__(self) -> None:
        self.output = bytearray()

    async def answer(self, request: Request) -> Any:
        return _REPLY

    def printed(self, data: bytes) -> None:
        self.output += data

    def progress(self, text: str, fraction: float | None) -> None: ...


async def measure(data_dir: Path, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    """All figures, one backend after the other. A backend that does not run here is said to `progress` and left out."""
    progress("plain Python and a bare bwrap")
    base = await _baselines(data_dir, rounds)
    figures = [
        Figure("plain `python -c`, cold", base.python, None, ""),
        Figure(f"{base.bare_title}, cold, same imports", base.bare, base.python, "plain `python -c`"),
    ]
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as folder:
        for name, openers in backends().items():
            for opener in openers:
                try:
                    candidate = await opener(SandboxSettings(), data_dir, progress)
                    title = await candidate.title()
                    progress(f"{title}")
                    figures += await _backend(candidate, title, Path(folder), rounds, base)
                    if isinstance(candidate.backend, Closable):
                        await candidate.backend.close()
                except (SandboxUnavailable, ToolfoldError) as error:
                    progress(f"{name} does not run here: {error}")
        figures += await clones.measure(data_dir, Path(folder), rounds, progress)
    return figures


async def _backend(candidate: Candidate, title: str, folder: Path, rounds: int, base: Baselines) -> list[Figure]:
    name = candidate.backend.name
    slow = name == "container"
    times = max(3, rounds // 10) if slow else max(rounds, 200)
    async with _pool(candidate, folder, size=_READY) as pool:
        ready = min(_READY, getattr(candidate.backend, "warm", _READY))
        await _full(pool, ready)
        warm = await _timed(lambda: _fresh(pool), times, lambda: _full(pool, ready))
        warm_median, worst = statistics.median(warm), _percentile(warm, 99)
        memory = _private_megabytes(pool)
        session = await pool.take()
        await _full(pool, ready)
        in_session = statistics.median(await _timed(lambda: session.run("1", _Host(), 30), rounds, _nothing))
        callback, echo = await _callback(session)
        pool.discard(session)
        await _full(pool, ready)
        begun = time.perf_counter()
        await asyncio.gather(*(_fresh(pool) for _ in range(_BURST // 5 if slow else _BURST)))
        burst = (time.perf_counter() - begun) * 1000 / (_BURST // 5 if slow else _BURST)
        sustained, bare_each = await _in_turns(pool, base, ready)
    async with _pool(candidate, folder, size=0) as pool:
        cold = statistics.median(
            await _timed(lambda: _fresh(pool), max(3, rounds if not slow else times // 4), _nothing)
        )
    against = base.bare_title
    figures = [
        Figure(f"{name}: fresh sandbox to output, warm", warm_median, base.bare, against, budget=0.25),
        Figure(f"{name}: the same, 99th percentile", worst, warm_median, "its own median", budget=3),
        Figure(f"{name}: fresh sandbox to output, cold", cold, base.bare, against),
        Figure(f"{name}: run in a live session", in_session, 1.0, "one millisecond", budget=1),
        Figure(f"{name}: each of a burst of {_BURST // 5 if slow else _BURST}", burst, bare_each, "cold on all cores"),
        Figure(f"{name}: each of sustained one-use runs", sustained, bare_each, "cold on all cores", budget=1.43),
    ]
    if callback is not None:
        figures.insert(4, Figure(f"{name}: callback round trip", callback, echo, "bare JSON echo", budget=2))
    if memory is not None:
        figures.append(Figure(f"{name}: idle sandbox, unshared", memory, 15.0, "15 MB", unit="MB", budget=1))
    return figures


@asynccontextmanager
async def _pool(candidate: Candidate, folder: Path, size: int) -> AsyncGenerator[Pool]:
    api = folder / "api"
    (api / "servers").mkdir(parents=True, exist_ok=True)
    homes = SessionHomes(folder)
    try:
        async with Pool(candidate.backend, api, homes, SandboxSettings(pool=size)) as pool:
            yield pool
    finally:
        homes.close()


async def _fresh(pool: Pool) -> None:
    """Request to output, and the sandbox thrown away in the background, as a run without a session does it."""
    sandbox = await pool.take()
    host = _Host()
    try:
        await sandbox.run(_TRIVIAL, host, 30)
    finally:
        pool.discard(sandbox)
    if b"ok" not in host.output:
        raise SandboxUnavailable("the sandbox printed nothing.")


async def _full(pool: Pool, ready: int) -> None:
    async with asyncio.timeout(60):
        while pool.statistics.warm < ready or pool.statistics.starting:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
    await asyncio.sleep(_PAUSE)


async def _nothing() -> None: ...


async def _timed(work: Callable[[], Awaitable[Any]], times: int, before: Callable[[], Awaitable[None]]) -> list[float]:
    taken: list[float] = []
    for _ in range(times):
        await before()
        begun = time.perf_counter()
        await work()
        taken.append((time.perf_counter() - begun) * 1000)
    return taken


async def _callback(sandbox: Sandbox) -> tuple[float | None, float]:
    """Milliseconds per callback, and per round trip of a bare echo, taken in turns."""
    ours: list[float] = []
    echo: list[float] = []
    for _ in range(5):
        begun = time.perf_counter()
        done = await sandbox.run(f"from toolfold import call_mcp_tool\n{_CALLING}", _Host(), 60)
        ours.append((time.perf_counter() - begun) * 1000 / _CALLS)
        echo.append(await asyncio.to_thread(_echo))
        if done.error:
            return None, echo[0]
    return statistics.median(ours), statistics.median(echo)


async def _in_turns(pool: Pool, base: Baselines, ready: int) -> tuple[float, float]:
    """Milliseconds for each of sustained runs, and of cold starts, with no sandbox left over from a quieter moment."""
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(_TURNS):
        bare.append(await _sustained(lambda: _command(base.bare_command)))
        await asyncio.gather(*(_fresh(pool) for _ in range(8)))
        ours.append(await _sustained(lambda: _fresh(pool)))
        await _full(pool, ready)
    return statistics.mean(ours), statistics.mean(bare)


async def _sustained(work: Callable[[], Awaitable[None]]) -> float:
    """Milliseconds per run while as many run at once as there are cores."""
    count = 0
    end = time.perf_counter() + _SECONDS

    async def one_after_the_other() -> None:
        nonlocal count
        while time.perf_counter() < end:
            await work()
            count += 1

    begun = time.perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(os.cpu_count() or 1)))
    return (time.perf_counter() - begun) * 1000 / max(count, 1)


def _private_megabytes(pool: Pool) -> float | None:
    """What one waiting sandbox has for itself, every process of it together."""
    cells = [sandbox.cell for sandbox in pool.waiting_sandboxes]
    found = [sum(map(_private, cell.pids())) / 1e6 for cell in cells if isinstance(cell, Supervised)]
    return statistics.median(found) if found else None


def _private(pid: int) -> int:
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
    return 0


def _percentile(values: list[float], percent: int) -> float:
    """The smallest of `values` that so many percent of them do not exceed."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


# What it is measured against


async def _baselines(data_dir: Path, rounds: int) -> Baselines:
    runtime = await asyncio.to_thread(prepare, data_dir)
    python = [sys.executable, "-I", "-S", "-c"]
    plain = statistics.median(await _timed(lambda: _command([*python, "print('ok')"]), rounds, _nothing))
    bare, title = [*python, _IMPORTS.format(guest=str(runtime.root / "opt/toolfold"))], "`python -c`"
    with contextlib.suppress(SandboxUnavailable, subprocess.CalledProcessError):
        from toolfold.sandbox.bubblewrap.launcher import find_bwrap

        wall = ["--unshare-all", "--die-with-parent", "--ro-bind", str(runtime.root), "/", "--proc", "/proc"]
        wall += ["--clearenv", "--setenv", "LD_LIBRARY_PATH", runtime.library_path, "--chdir", "/"]
        inner = [runtime.python, "-I", "-S", "-B", "-c", _IMPORTS.format(guest="/opt/toolfold")]
        bwrap = [str(find_bwrap()), *wall, "--", *inner]
        await _command(bwrap)
        bare, title = bwrap, "`bwrap python -c`"
    alone = statistics.median(await _timed(lambda: _command(bare), rounds, _nothing))
    return Baselines(plain, alone, title, bare)


async def _command(command: list[str]) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    if process.returncode or b"ok" not in out:
        raise subprocess.CalledProcessError(process.returncode or 1, command)


def _echo() -> float:
    """A bare JSON echo between two Python processes over a pair of sockets, milliseconds per round trip."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-I", "-S", "-c", _ECHO, str(theirs.fileno())]
    with ours, subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        begun = 0.0
        for number in range(_CALLS + 1):
            if number == 1:
                # The first one waits for the other process to start.
                begun = time.perf_counter()
            request = {"t": "call_named", "id": number, "name": "echo", "arguments": {"text": "hi"}}
            body = json.dumps(request).encode()
            ours.sendall(struct.pack(">I", len(body)) + body)
            json.loads(ours.recv(1 << 16)[4:])
        taken = (time.perf_counter() - begun) * 1000 / _CALLS
        ours.close()
        process.wait(10)
    return taken
