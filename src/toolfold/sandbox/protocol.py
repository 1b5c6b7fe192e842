"""The seam between sessions and whatever holds a program: one Protocol, one file per backend."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

GUEST_HOME = "/agent"
"""The program's working directory: servers/ (read-only), skills/ and workspace/."""


@dataclass(frozen=True)
class Room:
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


class Backend(Protocol):
    name: str

    async def start(self, room: Room, api: Path) -> Cell:
        """Start a guest that sees `room`, and the API tree in the folder `api`, and nothing else."""
        ...
