"""Containers as cells: podman or docker, without network, read-only, without capabilities, limited, thrown away.

Frames and output travel over the engine's own standard input and output (`guest/toolfold_guest/first.py` is the other
end), so the container needs no socket, no shared folder and no network for them, and it works wherever the engine's
command works. This file is where the walls are put together; `cell.py` is one container's life.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import platform
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxUnavailable
from toolfold.sandbox.container.cell import ContainerCell
from toolfold.sandbox.container.engine import ContainerEngine
from toolfold.sandbox.container.image import Image, find_image, import_runtime
from toolfold.sandbox.container.leftovers import Lease, mark
from toolfold.sandbox.protocol import GUEST_HOME, Log, SessionHome, no_log
from toolfold.sandbox.runtime import prepare
from toolfold.sandbox.walls import identity, seccomp

_BOOT = "import sys; sys.path.insert(0, '/opt/toolfold'); from toolfold_guest.first import main; main()"
_IN_MEMORY_BYTES = 64 * 1024 * 1024
_IN_MEMORY_FILES = 10_000
_ENVIRONMENT = {"HOME": GUEST_HOME, "USER": "agent", "LANG": "C.UTF-8", "TZ": "UTC", "PATH": ""}
_OWN_MEMORY = 32 * 1024 * 1024
"""What our first process in the container needs beside the program."""
_OWN_PROCESSES = 4
_EXAMPLE = "python:3.13-slim"
_SELINUX = Path("/sys/fs/selinux/enforce")


async def open_container(
    settings: SandboxSettings,
    engine: ContainerEngine,
    data_dir: Path,
    packages: Sequence[Path] = (),
    log: Log = no_log,
) -> Container:
    """The backend on `engine`, with its image there and what earlier processes left behind removed."""
    if settings.image:
        image = await find_image(engine, settings.image)
        if image is None:
            hint = f"Run: {engine.name} pull {settings.image}"
            raise SandboxUnavailable(f"{engine.name} has no image {settings.image!r} (`sandbox.image`).", hint=hint)
    elif platform.system() != "Linux":
        message = f"the image is made from this Python, which is one for {platform.system()} and not for Linux."
        hint = f'Run: {engine.name} pull {_EXAMPLE}, and set `image = "{_EXAMPLE}"` under [sandbox] in toolfold.toml'
        raise SandboxUnavailable(message, hint=hint)
    else:
        image = await import_runtime(
            engine, await asyncio.to_thread(prepare, data_dir, shared=settings.shared is not None), log
        )
    if settings.shared is not None and os.geteuid() == 0:
        settings.shared.chmod(0o777)  # programs are another user than root inside
    lease = await asyncio.to_thread(Lease, data_dir / "containers")
    container = Container(settings, engine, image, data_dir / "containers", lease, packages)
    await container.sweep()
    return container


class Container:
    """Starts cells; each is a container of its own, named and labelled so that none outlives this process for long."""

    name = "container"

    def __init__(
        self,
        settings: SandboxSettings,
        engine: ContainerEngine,
        image: Image,
        home: Path,
        lease: Lease,
        packages: Sequence[Path] = (),
    ) -> None:
        self._settings = settings
        self._engine = engine
        self.image = image
        self._home = home
        self._lease = lease
        self._packages = tuple(packages)
        self._spare = identity.own_spare_ids() if engine.needs_spare_user else None
        if engine.needs_spare_user and self._spare is None:
            raise SandboxUnavailable("there is no user id to spare that could own the container's processes.")
        machines = ("x86_64", "aarch64")
        self._filters = {name: base64.b64encode(seccomp.compile_filter(name)).decode() for name in machines}

    @property
    def label(self) -> str:
        """On all containers of this data directory, from whichever process."""
        return self._lease.label

    @property
    def identity(self) -> str:
        """What a proof depends on beside the machine."""
        return f"{self._engine.title} {self.image.id} {self._engine.user(None)}"

    async def sweep(self) -> int:
        """Remove the containers that processes which are gone left behind; how many there were."""
        shown = await self._engine.do("ps", "--all", "--filter", f"label={self.label}", "--format", "{{.Names}}")
        left = await asyncio.to_thread(self._lease.abandoned, shown.split())
        if left:
            await self._engine.do("rm", "--force", *left)
        return len(left)

    async def start(self, home: SessionHome, api: Path) -> ContainerCell:
        for path in (home.path, api, *self._packages):
            if ":" in str(path):
                raise SandboxUnavailable(f"an engine cannot mount {path}: its name has a colon.")
        spare_user = await asyncio.to_thread(identity.take, home, *self._spare) if self._spare is not None else None
        name = self._lease.name()
        ours, theirs = socket.socketpair()
        try:
            process = subprocess.Popen(
                [self._engine.command, *self.command(name, home, api, spare_user)],
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                cwd=self._home,  # engines' helpers leave notes where they were started
            )
        except OSError as error:
            ours.close()
            theirs.close()
            raise SandboxUnavailable(f"{self._engine.name} could not be started: {error}.") from error
        return ContainerCell(self._engine, name, self._settings, process, ours, theirs)

    def command(self, name: str, home: SessionHome, api: Path, spare_user: int | None) -> list[str]:
        """The engine's arguments for one container."""
        settings = self._settings
        memory = str(settings.memory + _OWN_MEMORY)
        command = ["run", "--rm", "--interactive", "--pull", "never", "--name", name, "--label", self._lease.label]
        command += [
            "--stop-signal",
            "SIGKILL",
            "--network",
            "none",
            "--ipc",
            "private",
            "--hostname",
            "sandbox",
            "--log-driver",
            "none",
        ]
        command += ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        command += self._engine.user(spare_user)
        command += ["--memory", memory, "--memory-swap", memory, "--cpus", f"{settings.cpu:g}"]
        command += ["--pids-limit", str(settings.processes + _OWN_PROCESSES)]
        command += [
            "--ulimit",
            f"core={self._engine.core}:{self._engine.core}",
            "--ulimit",
            "nofile=256:256",
            *self._engine.ulimits(),
        ]
        command += ["--shm-size", str(_IN_MEMORY_BYTES), "--tmpfs", self._temporary_folder()]
        command += self._volumes(home, api)
        for key, value in self.image.environment.items():
            command += ["--env", f"{key}={value}"]
        options = {
            "mark": mark(name),
            "environment": {**_ENVIRONMENT, **self.image.environment},
            "limits": self._limits(),
            "message": self._settings.message,
            "filters": self._filters,
            "paths": [f"/opt/packages/{number}" for number in range(len(self._packages))],
        }
        program, *flags = self.image.python
        command += ["--workdir", GUEST_HOME, "--entrypoint", program, self.image.id]
        return [*command, *flags, "-c", _BOOT, json.dumps(options)]

    def _temporary_folder(self) -> str:
        options = f"/tmp:rw,nosuid,nodev,mode=1777,size={_IN_MEMORY_BYTES}"  # noqa: S108 - the sandbox's own
        # Podman refuses the option; there, memory is what bounds the number of files.
        return options + (f",nr_inodes={_IN_MEMORY_FILES}" if self._engine.name == "docker" else "")

    def _volumes(self, home: SessionHome, api: Path) -> list[str]:
        # On SELinux systems a container may only touch what is labelled for it: `z` for all, `Z` for this one alone.
        mounts = [(api, "/opt/api", "ro", "z")]
        mounts += [(home.skills, f"{GUEST_HOME}/skills", "rw", "Z")]
        mounts += [(home.workspace, f"{GUEST_HOME}/workspace", "rw", "Z")]
        if self._settings.shared is not None:
            mounts += [(self._settings.shared, f"{GUEST_HOME}/shared", "rw", "z")]
        mounts += [(path, f"/opt/packages/{number}", "ro", "z") for number, path in enumerate(self._packages)]
        needed = self.image.mounts(self._home, shared=self._settings.shared is not None)
        mounts = [*((path, target, "ro", "z") for path, target in needed), *mounts]
        labelled = _SELINUX.exists()
        arguments: list[str] = []
        for source, target, mode, label in mounts:
            arguments += ["--volume", f"{source.resolve()}:{target}:{mode}{f',{label}' if labelled else ''}"]
        return arguments

    def _limits(self) -> dict[str, int]:
        """For each process. Limits that the kernel counts per user of the whole machine are left to the engine."""
        limits = {
            "RLIMIT_DATA": self._settings.memory,
            "RLIMIT_AS": self._settings.memory + 1024**3,
            "RLIMIT_FSIZE": self._settings.disk,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_SIGPENDING": 256,
        }
        if not self._engine.holds_limits:
            # A rootless engine: the container is a user namespace of its own, and this counts in there.
            limits["RLIMIT_NPROC"] = self._settings.processes + _OWN_PROCESSES
        return limits
