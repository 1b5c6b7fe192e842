"""A made-up machine for the config tests: folders that are real, an environment that is not this process's."""

from __future__ import annotations

import ctypes
import json
import os
import pty
import select
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import warm
from toolfold.config.documents import Problem
from toolfold.config.edge import Host
from toolfold.config.load import Loaded, load
from toolfold.config.settings import Settings


@dataclass
class Machine:
    root: Path
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    platform: str = "linux"
    trusting: bool = True
    """Whether the person trusts the project, whatever is in it."""
    folder: str = "project"
    """Where Toolfold runs, below the root."""

    @property
    def cwd(self) -> Path:
        return self.root / self.folder

    @property
    def home(self) -> Path:
        return self.root / "home"

    def project(self, name: str, content: object) -> Path:
        return _write(self.cwd / name, content)

    def user(self, name: str, content: object) -> Path:
        return _write(self.home / name, content)

    @property
    def host(self) -> Host:
        env = {"TOOLFOLD_TRUST": "1", **self.env} if self.trusting else self.env
        return Host(cwd=self.cwd, home=self.home, env=env, platform=self.platform)

    def load(self, source: Path | str | Mapping[str, Any] | Settings | None = None, **more: Any) -> Loaded:
        host = self.host
        return load(source, cwd=host.cwd, home=host.home, env=host.env, platform=host.platform, **more)


def _write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def texts(problems: list[Problem]) -> list[str]:
    return [str(problem) for problem in problems]


def on_a_terminal(*words: str, cwd: Path, env: Mapping[str, str], answer: str = "") -> tuple[int, str]:
    """Runs `toolfold` on a terminal; its exit code and all that was shown. `answer` is typed at the first `[y/N]`."""
    ours, theirs = pty.openpty()
    command = [warm.python(), "-P", "-m", "toolfold", *words]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=env)
    os.close(theirs)
    shown = b""
    try:
        while select.select([ours], [], [], 100)[0]:
            try:
                shown += os.read(ours, 65536)
            except OSError:
                # The other end is closed: the command is over.
                break
            if answer and shown.endswith(b"[y/N] "):
                os.write(ours, f"{answer}\n".encode())
                answer = ""
        return process.wait(timeout=60), shown.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


_READ_EVERYTHING = (1 << 1) | (1 << 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
_CAPABILITIES = 0x20080522


@contextmanager
def like_any_owner() -> Generator[None]:
    """Modes count for us too, also when we are root: root gives up, for a while, what lets it read everything."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0)
    held = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice
    if libc.capget(header, held) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    less = (ctypes.c_uint32 * 6)(*held)
    less[0] &= ~_READ_EVERYTHING
    try:
        libc.capset(header, less)
        yield
    finally:
        libc.capset(header, held)
