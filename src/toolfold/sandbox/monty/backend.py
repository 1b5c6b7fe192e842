"""Monty as a cell: a Python subset in an interpreter that has no way to the system, for machines without a real wall.

The wall here is the interpreter, not the operating system, so this backend comes last and says so. The interpreter and
the process that drives it (`worker/`) are a process group of their own, with a clean environment, which is killed
as a whole: every limit holds even when the interpreter hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxDied, SandboxUnavailable
from toolfold.sandbox.exits import exit_code, in_words
from toolfold.sandbox.protocol import SessionHome

_BOOT = "from toolfold.sandbox.monty.worker.boot import main; main()"
_ENVIRONMENT = {"LANG": "C.UTF-8", "TZ": "UTC"}
_GONE_WITHIN = 5.0

PROBE = """
import os

def attempt(action):
    try:
        return action() is not False
    except Exception:
        return False

def read_secret():
    with open(BAITS["secret"]) as file:
        return BAITS["token"] in file.read()

def write(path):
    with open(path, "w") as file:
        file.write(BAITS["token"])

def climb():
    with open("workspace/../../secret") as file:
        return BAITS["token"] in file.read()

def connect():
    import socket
    return True

def start_process():
    import subprocess
    return True

outside = []
for path in ("/escaped", "/agent/escaped", "/agent/servers/escaped", "/agent/skills/escaped", "/etc/escaped"):
    if attempt(lambda: write(path)):
        outside.append(path)

{
    "secret": attempt(read_secret) or attempt(climb),
    "network": attempt(connect),
    "socket": False,
    "outside": outside,
    "workspace": attempt(lambda: write("workspace/proof")),
    "environment": list(os.environ),
    "processes": 1 if attempt(start_process) else 0,
    "host_process": attempt(start_process),
}
"""
"""The hostile probe in Monty's own subset; it answers the same names as the common one."""


def find_monty() -> tuple[str, str]:
    """The interpreter's program and its version. Raises SandboxUnavailable with what to install."""
    try:
        from pydantic_monty._binary import find_monty_binary  # pyright: ignore[reportPrivateImportUsage]

        return find_monty_binary(), metadata.version("pydantic-monty")
    except (ImportError, FileNotFoundError, metadata.PackageNotFoundError):
        hint = "Run: pip install 'toolfold[monty]'"
        raise SandboxUnavailable("Monty is not installed.", hint=hint) from None


class Monty:
    """Starts cells; each is one interpreter."""

    name = "monty"

    def __init__(self, settings: SandboxSettings, binary: str) -> None:
        self._settings = settings
        self._binary = binary

    async def start(self, home: SessionHome, api: Path) -> MontyCell:
        ours, theirs = socket.socketpair()
        read, write = os.pipe()
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-X", "utf8", "-c", _BOOT, self._options(home, api, theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                pass_fds=(theirs.fileno(),),
                env=_ENVIRONMENT,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            os.close(read)
            raise SandboxUnavailable(f"the interpreter could not be started: {error}.") from error
        finally:
            theirs.close()
            os.close(write)
        return MontyCell(process, ours, read)

    def _options(self, home: SessionHome, api: Path, channel: int) -> str:
        options = {
            "channel": channel,
            "home": str(home.path.absolute()),
            "api": str(api.absolute()),
            "binary": self._binary,
            "memory": self._settings.memory,
            "disk": self._settings.disk,
            "shared": str(self._settings.shared or ""),
            "message": self._settings.message,
        }
        return json.dumps(options)


class MontyCell:
    """One process group: the interpreter and the process that drives it."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket, output: int) -> None:
        self.channel = channel
        self.output = output
        self._process = process
        self._killed = False
        self._ended: asyncio.Task[str] | None = None

    def kill(self) -> None:
        # Once only, and not after the leader was reaped: `_alone` sees to the rest right then.
        if not self._killed and self._process.returncode is None:
            self._killed = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def wait(self) -> str:
        if self._ended is None:
            self._ended = asyncio.create_task(self._wait())
        return await asyncio.shield(self._ended)

    async def _wait(self) -> str:
        code = await exit_code(self._process)
        try:
            await self._alone()
        finally:
            self.channel.close()
            os.close(self.output)
        return in_words(code)

    async def _alone(self) -> None:
        """Wait until nothing of the group is left but, perhaps, dead processes that have not been reaped yet."""
        group = self._process.pid
        deadline = asyncio.get_running_loop().time() + _GONE_WITHIN
        while asyncio.get_running_loop().time() < deadline:
            try:
                os.killpg(group, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):  # the latter is how macOS says that only dead ones are left
                return
            if not await asyncio.to_thread(_anyone_alive, group):
                return
            await asyncio.sleep(0.01)
        raise SandboxDied(f"the interpreter did not end within {_GONE_WITHIN:.0f} s of being killed.")


def _anyone_alive(group: int) -> bool:
    """Whether a living process belongs to the group. Where /proc cannot tell, yes."""
    processes = list(Path("/proc").glob("[0-9]*/stat"))
    if not processes:
        return True
    for path in processes:
        try:
            state, _, number = path.read_text(errors="replace").rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if number == str(group) and state not in {"Z", "X"}:
            return True
    return False
