"""Sandboxes of one zygote, for tests that look at what they share and at what happens to the zygote."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.backends.available import candidate
from tests.hostile.arena import Listener
from toolfold.config.settings import SandboxSettings
from toolfold.sandbox.protocol import SessionHome
from toolfold.sandbox.sandbox import Sandbox
from toolfold.sandbox.zygote.backend import Zygotes
from toolfold.sandbox.zygote.cell import ZygoteCell
from toolfold.session.removal import remove_tree


class Watching(Listener):
    """Tells when the program has printed something."""

    def __init__(self) -> None:
        super().__init__(slow=False)
        self.printed_something = asyncio.Event()

    def printed(self, data: bytes) -> None:
        super().printed(data)
        self.printed_something.set()


@dataclass
class Lab:
    """Starts sandboxes on one backend, each in a home of its own."""

    backend: Zygotes
    folder: Path
    settings: SandboxSettings
    sandboxes: list[Sandbox] = field(default_factory=list[Sandbox])

    @property
    def api(self) -> Path:
        return self.folder / "api"

    def home(self, name: str, shelf: str = "homes") -> SessionHome:
        home = SessionHome(self.folder / shelf / name)
        home.workspace.mkdir(parents=True, exist_ok=True)
        home.skills.mkdir(exist_ok=True)
        return home

    async def start(self, name: str, *, shelf: str = "homes", owner: str = "") -> Sandbox:
        home = self.home(name, shelf)
        sandbox = await Sandbox.start(self.backend.start(home, self.api, owner), home, self.settings)
        self.sandboxes.append(sandbox)
        return sandbox


@asynccontextmanager
async def lab_around(data_dir: Path, folder: Path, **settings: Any) -> AsyncGenerator[Lab]:
    limits = SandboxSettings.model_validate(settings)
    found = await candidate("zygote", data_dir, limits)
    assert isinstance(found.backend, Zygotes)
    lab = Lab(found.backend, folder, limits)
    (lab.api / "servers").mkdir(parents=True, exist_ok=True)
    try:
        yield lab
    finally:
        for sandbox in lab.sandboxes:
            await sandbox.close()
        await found.backend.close()
        for sandbox in lab.sandboxes:
            remove_tree(sandbox.home.path)


async def value(sandbox: Sandbox, code: str, seconds: float = 60.0) -> Any:
    """What a program that ends well answers."""
    done = await sandbox.run(code, Listener(slow=False), seconds)
    assert not done.error, done.error
    return done.value


def first_process(sandbox: Sandbox) -> int:
    """The host's number of process 1 inside."""
    cell = sandbox.cell
    assert isinstance(cell, ZygoteCell)
    return parent(cell.pids()[0])


def zygote_of(sandbox: Sandbox) -> int:
    """The host's number of the zygote that it was cloned from."""
    return parent(first_process(sandbox))


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_running(pid: int) -> bool:
    """Whether there is such a process that is not merely waiting to be reaped."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def namespaces(pid: int | str) -> dict[str, str]:
    wanted = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
    return {name: str(Path(f"/proc/{pid}/ns/{name}").readlink()) for name in wanted}
