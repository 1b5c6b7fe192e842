"""Containers as cells: podman or docker, without network, read-only, without capabilities, limited, thrown away.

Frames and output travel over the engine's own standard input and output (`guest/toolfold_guest/first.py` is the other
end), so the container needs no socket, no shared folder and no network for them, and it works wherever the engine's
command works. Closing our end ends the container from inside; the engine is told to remove it if that is not enough.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import secrets
import signal
import socket
import struct
import weakref
from pathlib import Path

from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxDied, SandboxUnavailable
from toolfold.sandbox.engine import Engine
from toolfold.sandbox.image import import_runtime
from toolfold.sandbox.protocol import GUEST_HOME, Room
from toolfold.sandbox.runtime import prepare

_BOOT = "import sys; sys.path.insert(0, '/opt/toolfold'); from toolfold_guest.first import main; main()"
_RECORD = struct.Struct(">cI")
_MAX_RECORD = 1 << 20
_TMP_BYTES = 64 * 1024 * 1024
_TMP_FILES = 10_000
_ENVIRONMENT = {"HOME": GUEST_HOME, "USER": "agent", "LANG": "C.UTF-8", "TZ": "UTC", "PATH": ""}
_OWN_MEMORY = 32 * 1024 * 1024
"""What our first process in the container needs beside the program."""
_OWN_PROCESSES = 4
_SELINUX = Path("/sys/fs/selinux/enforce")
_ENGINE_FAILED = (125, 126, 127)
"""Exit codes with which an engine says that the container did not start."""
_GOES_BY_ITSELF = 1.0
_MUST_BE_GONE = 30.0


class Container:
    """Starts cells; each is a container of its own, named and labelled so that none outlives this process for long."""

    name = "container"

    def __init__(
        self, settings: SandboxSettings, engine: Engine, image: str, python: list[str], env: dict[str, str], home: Path
    ) -> None:
        """`image` holds `python`, and `home` is this backend's folder under the data directory."""
        self._settings = settings
        self._engine = engine
        self.image = image
        self._python = python
        self._env = env
        self._numbers = itertools.count(1)
        self._instance = secrets.token_hex(6)
        self._label = f"toolfold.home={hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:16]}"
        self._home = home
        # The lock is what says "alive"; the kernel drops it when this process ends, however it ends.
        home.mkdir(parents=True, exist_ok=True)
        lock = os.open(home / f"{self._instance}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._unlock = weakref.finalize(self, _unlock, lock, home / f"{self._instance}.lock")

    async def start(self, room: Room, api: Path) -> ContainerCell:
        for path in (room.path, api):
            if ":" in str(path):
                raise SandboxUnavailable(f"an engine cannot mount {path}: its name has a colon.")
        if self._engine.room_owner is not None:
            await asyncio.to_thread(_give, room, self._engine.room_owner)
        name = f"toolfold-{self._instance}-{next(self._numbers)}"
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                self._engine.command,
                *self.command(name, room, api),
                stdin=theirs.fileno(),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            theirs.close()
            raise SandboxUnavailable(f"{self._engine.name} could not be started: {error}.") from error
        return ContainerCell(self._engine, name, process, ours, theirs)

    def command(self, name: str, room: Room, api: Path) -> list[str]:
        """The engine's arguments for one container."""
        settings = self._settings
        memory = str(settings.memory + _OWN_MEMORY)
        tmp = f"/tmp:rw,nosuid,nodev,mode=1777,size={_TMP_BYTES}"  # noqa: S108 - the sandbox's
        if self._engine.name == "docker":  # podman refuses the option; there, memory is what bounds the inodes
            tmp += f",nr_inodes={_TMP_FILES}"
        command = ["run", "--rm", "--interactive", "--pull", "never", "--name", name]
        command += ["--label", self._label, "--label", f"toolfold.instance={self._instance}"]
        command += ["--network", "none", "--ipc", "none", "--hostname", "sandbox", "--log-driver", "none"]
        command += ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", *self._engine.user()]
        command += ["--memory", memory, "--memory-swap", memory, "--cpus", f"{settings.cpu:g}"]
        command += ["--pids-limit", str(settings.processes + _OWN_PROCESSES)]
        command += ["--ulimit", "core=0:0", "--ulimit", "nofile=256:256", *self._engine.ulimits(), "--tmpfs", tmp]
        # On SELinux systems a container may only touch what is labelled for it: `z` for all, `Z` for this one alone.
        for source, target, mode, label in (
            (api, "/opt/api", "ro", "z"),
            (room.skills, f"{GUEST_HOME}/skills", "rw", "Z"),
            (room.workspace, f"{GUEST_HOME}/workspace", "rw", "Z"),
        ):
            command += ["--volume", f"{source.resolve()}:{target}:{mode}{f',{label}' if _SELINUX.exists() else ''}"]
        environment = {**_ENVIRONMENT, **self._env}
        for key, value in environment.items():
            command += ["--env", f"{key}={value}"]
        options = json.dumps({"limits": self._limits(), "environment": sorted(environment)})
        command += ["--workdir", GUEST_HOME, "--entrypoint", self._python[0], self.image]
        return [*command, *self._python[1:], "-c", _BOOT, options]

    def _limits(self) -> dict[str, int]:
        """RLIMIT_NPROC counts a user's processes on the whole machine, so the engine's limit is the one to use."""
        return {"RLIMIT_AS": self._settings.memory, "RLIMIT_FSIZE": self._settings.disk}

    async def sweep(self) -> int:
        """Remove the containers that processes which are gone left behind; how many there were."""
        shown = await self._engine.do("ps", "--all", "--filter", f"label={self._label}", "--format", "{{.Names}}")
        left = [name for name in shown.split() if not await asyncio.to_thread(self._in_use, name)]
        if left:
            await self._engine.do("rm", "--force", *left)
        return len(left)

    def _in_use(self, container: str) -> bool:
        instance = container.removeprefix("toolfold-").rpartition("-")[0]
        if instance == self._instance:
            return True
        path = self._home / f"{instance}.lock"
        try:
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            path.unlink(missing_ok=True)
            return False
        finally:
            os.close(lock)


async def open_container(settings: SandboxSettings, engine: Engine, data_dir: Path) -> Container:
    """The backend on `engine`, with its image there and what earlier processes left behind removed."""
    runtime = await asyncio.to_thread(prepare, data_dir)
    image = await import_runtime(engine, runtime)
    python = [runtime.python, "-I", "-S", "-B", "-X", "utf8"]
    env = {"LD_LIBRARY_PATH": runtime.library_path}
    container = await asyncio.to_thread(Container, settings, engine, image, python, env, data_dir / "containers")
    await container.sweep()
    return container


class ContainerCell:
    """One container, through the engine's client that is attached to it."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        process: asyncio.subprocess.Process,
        channel: socket.socket,
        inner: socket.socket,
    ) -> None:
        self.channel = channel
        self._engine = engine
        self._name = name
        self._process = process
        self._inner = inner
        self._output, self._printed = socket.socketpair()
        self.output = self._output.fileno()
        self._said = b""
        self._started = False
        self._tasks = [asyncio.create_task(self._deliver()), asyncio.create_task(self._listen())]
        self._ended: asyncio.Task[str] | None = None
        self._killed = asyncio.Event()

    def kill(self) -> None:
        if not self._killed.is_set():
            self._killed.set()
            # The container's first process ends when its input does, and everything in it ends with that.
            with contextlib.suppress(OSError):
                self._inner.shutdown(socket.SHUT_RDWR)

    async def wait(self) -> str:
        if self._ended is None:
            self._ended = asyncio.create_task(self._wait())
        return await asyncio.shield(self._ended)

    async def _wait(self) -> str:
        try:
            await self._gone()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
            for end in (self.channel, self._inner, self._output, self._printed):
                end.close()
        said = self._said.decode(errors="replace").strip()
        code = self._process.returncode or 0
        if said and (code in _ENGINE_FAILED or not self._started):
            return f"{self._engine.name} said: {said[-400:]}"
        number = code - 128
        return f"killed by {signal.Signals(number).name}" if number in signal.valid_signals() else f"exit code {code}"

    async def _gone(self) -> None:
        """The engine's client ends once the container is gone. One that must go and stays is removed by force."""
        either = [asyncio.create_task(self._process.wait()), asyncio.create_task(self._killed.wait())]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        for task in either:
            task.cancel()
        if await self._exited(_GOES_BY_ITSELF):
            return
        deadline = asyncio.get_running_loop().time() + _MUST_BE_GONE
        problem = ""
        while asyncio.get_running_loop().time() < deadline:
            try:
                await self._engine.do("rm", "--force", self._name, seconds=10)
            except SandboxUnavailable as error:
                # Perhaps it does not exist yet: the client is still creating it.
                problem = error.message
            if await self._exited(0.5):
                return
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        raise SandboxDied(f"the container {self._name} did not end within {_MUST_BE_GONE:.0f} s. {problem}")

    async def _exited(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
        return self._process.returncode is not None

    async def _deliver(self) -> None:
        """Sort the container's records into what it sent and what it printed, in the order they came."""
        stream = self._process.stdout
        assert stream is not None
        try:
            while True:
                kind, size = _RECORD.unpack(await stream.readexactly(_RECORD.size))
                if kind not in (b"o", b"c") or size > _MAX_RECORD:
                    break
                data = await stream.readexactly(size)
                if kind == b"c":
                    self._started = True
                elif not self._started:
                    self._say(data)
                await _send(self._printed if kind == b"o" else self._inner, data)
        except (asyncio.IncompleteReadError, OSError):
            pass
        # Whatever it was, nothing more will come: whoever reads the channel learns it here.
        self._printed.close()
        with contextlib.suppress(OSError):
            self._inner.shutdown(socket.SHUT_RDWR)

    async def _listen(self) -> None:
        """The engine's own words, for when the container did not start."""
        stream = self._process.stderr
        assert stream is not None
        while data := await stream.read(4096):
            self._say(data)

    def _say(self, data: bytes) -> None:
        self._said = (self._said + data)[-4096:]


async def _send(target: socket.socket, data: bytes) -> None:
    """Send all of it without ever making the socket non-blocking: the engine's client reads from the same one."""
    loop = asyncio.get_running_loop()
    view = memoryview(data)
    while view:
        try:
            view = view[target.send(view, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            free: asyncio.Future[None] = loop.create_future()
            loop.add_writer(target, _resolve, free)
            try:
                await free
            finally:
                loop.remove_writer(target)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _give(room: Room, owner: int) -> None:
    """Make a room's files the container user's. Links are changed themselves, never followed."""
    for top in (room.workspace, room.skills):
        for folder, _, files in os.walk(top):
            for path in (folder, *(f"{folder}/{file}" for file in files)):
                if os.lstat(path).st_uid != owner:
                    os.chown(path, owner, owner, follow_symlinks=False)


def _unlock(lock: int, path: Path) -> None:
    path.unlink(missing_ok=True)
    os.close(lock)
