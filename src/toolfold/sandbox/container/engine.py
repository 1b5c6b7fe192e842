"""Podman or docker on this machine, seen through its command: found, asked what it is, told what to do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from toolfold.errors import SandboxUnavailable
from toolfold.sandbox.processes import NO_CORE

_SECONDS = 30.0
_INFO_SECONDS = 60.0
"""An engine that is busy with other containers may take long even to say what it is."""
_ERROR_CHARS = 400
_NPROC = 32768

Name = Literal["podman", "docker"]


@dataclass(frozen=True)
class ContainerEngine:
    """A running engine. `rootless` when the engine itself is unprivileged, so that containers get a user namespace."""

    name: Name
    command: str
    version: str
    rootless: bool
    holds_limits: bool
    """False for a rootless engine on cgroups of version 1: it takes limits on memory, processes and processor time,
    and ignores them."""
    remapped: bool
    """Docker's daemon maps users for every container; then a mounted folder is not writable unless told otherwise."""

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}{' (rootless)' if self.rootless else ''}"

    @property
    def needs_spare_user(self) -> bool:
        """Whether a container's processes would be root on the host if no user was named."""
        return os.geteuid() == 0 and not self.rootless

    def user(self, spare_user: int | None) -> list[str]:
        """Options that make a container's processes a user who may write to our folders and has no other rights.

        Rootless engines map that user in a user namespace; elsewhere it is `nobody` when we are root, or ourselves.
        """
        own = f"{os.geteuid()}:{os.getegid()}"
        if self.rootless:
            return ["--userns=keep-id", "--user", own] if self.name == "podman" else ["--user", "0:0"]
        who = own if spare_user is None else f"{spare_user}:{spare_user}"
        return [*(["--userns=host"] if self.remapped else []), "--user", who]

    @property
    def core(self) -> int:
        """No core files. A rootless engine cannot allow more than we have ourselves."""
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        return NO_CORE if hard or not self.rootless else 0

    def ulimits(self) -> list[str]:
        """Podman asks for more processes than we may have ourselves, which fails; `--pids-limit` is what counts."""
        if self.name != "podman":
            return []
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        most = _NPROC if hard == resource.RLIM_INFINITY else min(hard, _NPROC)
        return ["--ulimit", f"nproc={most}:{most}"]

    async def do(self, *arguments: str, seconds: float = _SECONDS, source: int | None = None) -> str:
        """Run a command of the engine to its end; its output. `source` is a descriptor it reads from."""
        return await _run(self.name, self.command, *arguments, seconds=seconds, source=source)


async def find_engine(name: Name) -> ContainerEngine:
    """The engine, if it is installed and answers. Raises SandboxUnavailable with what to do."""
    command = shutil.which(name)
    if command is None:
        raise SandboxUnavailable(f"{name} is not installed.", hint=f"Run: {_install(name)}")
    try:
        told = await _run(name, command, "info", "--format", "{{json .}}", seconds=_INFO_SECONDS)
        return _podman(command, told) if name == "podman" else _docker(command, told)
    except msgspec.MsgspecError as error:
        raise SandboxUnavailable(f"{name} did not describe itself: {error}.") from None
    except SandboxUnavailable as error:
        raise SandboxUnavailable(error.message, hint=error.hint or _start(name)) from None


class _PodmanSecurity(msgspec.Struct):
    rootless: bool = False


class _PodmanHost(msgspec.Struct):
    security: _PodmanSecurity
    cgroup_version: str = msgspec.field(default="v2", name="cgroupVersion")


class _PodmanVersion(msgspec.Struct, rename="pascal"):
    version: str = "of unknown version"


class _PodmanInfo(msgspec.Struct):
    host: _PodmanHost
    version: _PodmanVersion = msgspec.field(default_factory=_PodmanVersion)


class _DockerInfo(msgspec.Struct, rename="pascal"):
    server_version: str = ""
    server_errors: list[str] | None = None
    security_options: list[str] | None = None
    memory_limit: bool = True


def _podman(command: str, told: str) -> ContainerEngine:
    info = msgspec.json.decode(told, type=_PodmanInfo)
    rootless = info.host.security.rootless
    held = not rootless or info.host.cgroup_version != "v1"
    return ContainerEngine(
        "podman", command, info.version.version, rootless=rootless, holds_limits=held, remapped=False
    )


def _docker(command: str, told: str) -> ContainerEngine:
    info = msgspec.json.decode(told, type=_DockerInfo)
    if not info.server_version:
        problem = "; ".join(info.server_errors or ()) or "its daemon does not answer"
        raise SandboxUnavailable(f"docker is installed, but {problem[:_ERROR_CHARS]}.")
    options = info.security_options or []
    rootless = any(option.startswith("name=rootless") for option in options)
    remapped = any(option.startswith("name=userns") for option in options)
    return ContainerEngine(
        "docker",
        command,
        info.server_version,
        rootless=rootless,
        holds_limits=info.memory_limit,
        remapped=remapped and not rootless,
    )


async def _run(name: str, command: str, *arguments: str, seconds: float, source: int | None = None) -> str:
    process = await asyncio.create_subprocess_exec(
        command,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL if source is None else source,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    except TimeoutError:
        raise SandboxUnavailable(f"`{name} {arguments[0]}` did not answer within {seconds:g} s.") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                # With its plug-ins, which would keep the pipes open.
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode != 0:
        output = err.decode(errors="replace").strip() or f"exit code {process.returncode}"
        raise SandboxUnavailable(f"`{name} {arguments[0]}` failed: {output[:_ERROR_CHARS]}")
    return out.decode(errors="replace")


def _install(name: Name) -> str:
    package = "docker.io" if name == "docker" else "podman"
    for manager, command in (
        ("apt-get", f"sudo apt-get install -y {package}"),
        ("dnf", f"sudo dnf install -y {'moby-engine' if name == 'docker' else name}"),
        ("pacman", f"sudo pacman -S {name}"),
        ("zypper", f"sudo zypper install -y {name}"),
        ("apk", f"sudo apk add {name}"),
        ("brew", f"brew install {'--cask docker' if name == 'docker' else name}"),
    ):
        if shutil.which(manager):
            return command
    return f"install {name} with this system's packages"


def _start(name: Name) -> str:
    if name == "podman":
        return "Run `podman info` and follow what it says; on macOS: podman machine init && podman machine start"
    if Path("/run/systemd/system").is_dir():
        return "Run: sudo systemctl start docker && sudo usermod -aG docker $USER (and log in again)"
    return "Start Docker (Docker Desktop, or `dockerd`), and check with: docker info"
