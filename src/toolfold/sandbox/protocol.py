"""The seam between sessions and whatever holds a program: one Protocol, one file per backend."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from toolfold.errors import LimitExceeded

GUEST_HOME = "/agent"
"""The program's working directory: servers/ (read-only), skills/ and workspace/."""

Log = Callable[[str], None]
"""Called, from any thread, with a line about set-up that takes long."""


def no_log(text: str) -> None:
    """A `Log` for callers who are not interested."""


@dataclass(frozen=True)
class SessionHome:
    """The host's side of one session's files."""

    path: Path

    @property
    def workspace(self) -> Path:
        return self.path / "workspace"

    @property
    def skills(self) -> Path:
        return self.path / "skills"


class Cell(Protocol):
    """One started, isolated guest process, seen from outside."""

    channel: socket.socket
    """The host's end of the frame channel."""
    output: int
    """A descriptor that reads what the program prints."""

    def kill(self) -> None:
        """End every process in it, now. Safe to call twice."""
        ...

    async def wait(self) -> str:
        """Wait until nothing of it is left; answers how it ended in words ("exit code 3", "killed by SIGSEGV")."""
        ...


@runtime_checkable
class Supervised(Protocol):
    """A cell whose processes can be seen and held from outside. Not needed where an engine does that."""

    def begin(self, seconds: float) -> None:
        """A run of at most so many seconds begins: everything inside may move."""
        ...

    def pause(self) -> None:
        """Begin to make everything inside stand still, until `resume` or `begin`. `still` tells when it does."""
        ...

    def resume(self) -> None: ...

    def exceeded(self) -> LimitExceeded | None:
        """The limit that this run has broken, if it has broken one; also when that is what ended the cell."""
        ...

    def still(self) -> bool:
        """Whether nothing inside works since it was told to stand still. False for good once something has."""
        ...

    def pids(self) -> list[int]: ...


class Backend(Protocol):
    name: str

    async def start(self, home: SessionHome, api: Path) -> Cell:
        """Start a guest that sees `home`, and the API tree in the folder `api`, and nothing else."""
        ...


@runtime_checkable
class SeparatesOwners(Protocol):
    """A backend whose cells have something in common, and that keeps those of different owners apart."""

    warm: int
    """Sandboxes that are worth keeping ready."""

    async def start(self, home: SessionHome, api: Path, owner: str = "") -> Cell: ...


@runtime_checkable
class HasZygotes(Protocol):
    """A backend whose cells are cloned."""

    zygotes_started: int

    def zygotes(self) -> list[int]:
        """Those that live, as processes."""
        ...


@runtime_checkable
class Closable(Protocol):
    """A backend that keeps something between cells. It may be used again after it was closed."""

    async def close(self) -> None:
        """End what it keeps, and every cell that is left."""
        ...
