"""Proof that a backend holds: start a real cell, run a program that tries to get out, and look at what it reached.

The host lays baits that a program without walls would find: a secret file, a listening port, a named socket. What
counts is what the program reached and what arrived at the host, not what a setting promises.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from toolfold.config.settings import SandboxSettings
from toolfold.errors import ProgramError, SandboxDied, SandboxUnavailable
from toolfold.sandbox.frames import Request
from toolfold.sandbox.protocol import Backend, Closable, SessionHome
from toolfold.sandbox.sandbox import Sandbox

_SECONDS = 20.0
_SETTINGS = SandboxSettings(output=1_000_000)
_ENVIRONMENT = {"HOME", "USER", "LANG", "LC_CTYPE", "TZ", "PATH", "LD_LIBRARY_PATH", "HOSTNAME", "PWD", "container"} | {
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
}
"""Names a cell's environment may have. Anything else came from the host."""
_PROCESSES = 8
"""An init and its threads, perhaps an engine's helper, and the program."""

# Every attempt answers True when it succeeded, so an attempt that cannot be made at all counts as held.
_PROGRAM = """
import os, socket

def attempt(action):
    try:
        return action() is not False
    except Exception:
        return False

def read_secret():
    with open(BAITS["secret"]) as file:
        return BAITS["token"] in file.read()

def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as peer:
        peer.settimeout(1)
        peer.connect(address)

def write(path):
    with open(path, "w") as file:
        file.write(BAITS["token"])

def status():
    with open("/proc/self/status") as file:
        return dict(line.rstrip("\\n").split(":\\t", 1) for line in file if ":\\t" in line)

def processes():
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        numbers = [*range(1, 1000), BAITS["process"]]
        return [str(number) for number in numbers if os.path.exists("/proc/%d" % number)]

def parent_secret():
    roots = ["/proc/%s/root" % name for name in processes()]
    return any(attempt(lambda root=root: open(root + BAITS["secret"]).close()) for root in roots)

known = status()
{
    "secret": attempt(read_secret) or attempt(parent_secret),
    "network": attempt(lambda: connect(socket.AF_INET, ("127.0.0.1", BAITS["port"]))),
    "socket": attempt(lambda: connect(socket.AF_UNIX, "\\0" + BAITS["abstract"])),
    "outside": [path for path in ("/escaped", "/opt/api/escaped", "/opt/toolfold/escaped", "/etc/escaped")
                if attempt(lambda: write(path))],
    "workspace": attempt(lambda: write("workspace/proof")),
    "environment": sorted(os.environ),
    "processes": len(processes()),
    "host_process": BAITS["process"] > 100 and str(BAITS["process"]) in processes(),
    "capabilities": [known.get(name, "?") for name in ("CapEff", "CapPrm", "CapBnd")],
    "no_new_privileges": known.get("NoNewPrivs"),
    "filter": known.get("Seccomp"),
}
"""


@dataclass(frozen=True)
class Proof:
    """What was tried and held, in words that a person reads in one line."""

    evidence: str


async def prove(backend: Backend, data_dir: Path, *, title: str, program: str = "") -> Proof:
    """Run the hostile probe in a fresh cell of `backend`. Raises SandboxUnavailable when anything got through.

    `program` replaces the probe for a backend whose language cannot hold it; it must answer the same names.
    """
    with _Baits(data_dir) as baits:
        code = f"BAITS = {baits.described()!r}\n{program or _PROGRAM}"
        try:
            seen = await _run(backend, baits.home, baits.api, code, title)
        finally:
            if isinstance(backend, Closable):
                await backend.close()
        problems = [*_problems(seen, strict=not program), *baits.problems()]
    if problems:
        raise SandboxUnavailable(f"{title} does not hold: the probe {', '.join(problems)}.")
    return Proof(f"{title}: a hostile probe {_held(seen)}")


async def _run(backend: Backend, home: SessionHome, api: Path, code: str, title: str) -> dict[str, Any]:
    try:
        async with asyncio.timeout(_SECONDS):
            sandbox = await Sandbox.start(backend.start(home, api), home, _SETTINGS)
            try:
                done = await sandbox.run(code, _RefuseAll(), _SECONDS)
            finally:
                await sandbox.close()
    except (SandboxDied, ProgramError) as error:
        raise SandboxUnavailable(f"{title} did not run a program: {error}") from error
    except TimeoutError:
        raise SandboxUnavailable(f"{title} did not run a program within {_SECONDS:.0f} s.") from None
    answer: Any = done.value
    if done.error or not isinstance(answer, dict):
        raise SandboxUnavailable(f"{title} did not finish the probe: {done.error or 'no answer'}")
    return cast("dict[str, Any]", answer)


class _RefuseAll:
    """The probe needs nothing of the host."""

    async def answer(self, request: Request) -> Any:
        raise ProgramError("the probe may not call anything.")

    def printed(self, data: bytes) -> None: ...

    def progress(self, text: str, fraction: float | None) -> None: ...


class _Baits:
    """Things on the host that only an escaped program can touch, beside a home and an API tree for the cell."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._token = secrets.token_hex(16)
        self._listeners: list[socket.socket] = []
        self._abstract = ""

    def __enter__(self) -> _Baits:
        self._data_dir.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(prefix="probe-", dir=self._data_dir, ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        self.home = SessionHome(folder / "home")
        self.home.workspace.mkdir(parents=True)
        self.home.skills.mkdir()
        self.api = folder / "api"
        (self.api / "servers").mkdir(parents=True)
        self._secret = folder / "secret"
        self._secret.write_text(self._token)
        tcp = socket.create_server(("127.0.0.1", 0))
        self._port: int = tcp.getsockname()[1]
        self._listeners.append(tcp)
        named = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):  # abstract names exist on Linux only
            named.bind(f"\0toolfold-probe-{self._token}")
            named.listen()
            self._abstract = f"toolfold-probe-{self._token}"
        self._listeners.append(named)
        return self

    def __exit__(self, *exc: object) -> None:
        for listener in self._listeners:
            listener.close()
        self._folder.cleanup()

    def described(self) -> dict[str, Any]:
        return {
            "token": self._token,
            "secret": str(self._secret.resolve()),
            "port": self._port,
            "process": os.getpid(),
            "abstract": self._abstract,
        }

    def problems(self) -> list[str]:
        """What the host itself saw arrive, whatever the program said."""
        found: list[str] = []
        for listener in self._listeners:
            listener.setblocking(False)
            with contextlib.suppress(OSError):
                peer, _ = listener.accept()
                peer.close()
                found.append("reached a socket of the host")
        proof = self.home.workspace / "proof"
        if proof.is_symlink() or not proof.is_file() or proof.read_text() != self._token:
            found.append("could not write to its workspace")
        return found


def _problems(seen: dict[str, Any], *, strict: bool) -> list[str]:
    found: list[str] = []
    if seen.get("secret") is not False:
        found.append("read a file of the host")
    if seen.get("network") is not False or seen.get("socket") is not False:
        found.append("opened a connection to the host")
    if seen.get("outside") != []:
        found.append(f"wrote to {json.dumps(seen.get('outside'))}")
    if seen.get("workspace") is not True:
        found.append("could not write to its workspace")
    extra = set(seen.get("environment") or ()) - _ENVIRONMENT
    if extra:
        found.append(f"saw the host's variables {', '.join(sorted(map(str, extra)))[:200]}")
    processes = seen.get("processes")
    if not isinstance(processes, int) or processes > _PROCESSES or seen.get("host_process") is not False:
        found.append(f"saw {processes} processes")
    if strict and any(str(value).strip("0") for value in seen.get("capabilities") or ("?",)):
        found.append("held capabilities")
    if strict and str(seen.get("no_new_privileges")).strip() != "1":
        found.append("could gain privileges")
    return found


def _held(seen: dict[str, Any]) -> str:
    words = "saw no network, no host files, no host variables, no other processes"
    if "no_new_privileges" in seen:
        words += "; no capabilities, no way to gain any"
        words += ", system calls filtered" if str(seen.get("filter")).strip() == "2" else ", system calls not filtered"
    return words
