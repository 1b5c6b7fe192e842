"""One bubblewrap for each sandbox: unprivileged, everything unshared, an empty root.

This file is where the walls are put together: namespaces and mounts by bwrap, `seccomp.py` for system calls,
`identity.py` for who the processes are, `cgroup.py` for what they may use together, and the guest's `confine.py` for
what its first process gives up by itself.
"""

from __future__ import annotations

import contextlib
import os
import socket
import weakref
from collections.abc import Sequence
from pathlib import Path

from toolfold.config.settings import SandboxSettings
from toolfold.errors import SandboxUnavailable
from toolfold.sandbox.bubblewrap.cell import IN_MEMORY, BubblewrapCell
from toolfold.sandbox.bubblewrap.launcher import IN_MEMORY_BYTES, Launcher
from toolfold.sandbox.protocol import GUEST_HOME, SessionHome
from toolfold.sandbox.runtime import Runtime
from toolfold.sandbox.walls import cgroup

_NAMESPACES = ("--unshare-all", "--unshare-user")


class Bubblewrap:
    """Starts cells; each is a fresh set of namespaces around one Python.

    `walls` says in words what holds here beside the namespaces.
    """

    name = "bubblewrap"

    def __init__(self, settings: SandboxSettings, runtime: Runtime, bwrap: Path, packages: Sequence[Path] = ()) -> None:
        self._settings = settings
        self._launcher = Launcher(settings, runtime, bwrap, packages)
        self._filter = _in_memory(self._launcher.filter)
        self._cgroups = cgroup.find_cgroups()
        if self._cgroups is not None:
            self._cgroups.sweep()
        weakref.finalize(self, _close, self._filter, self._launcher)

    @property
    def walls(self) -> dict[str, str]:
        return {"isolation": "one bwrap for each sandbox", **self._launcher.walls(self._cgroups)}

    async def start(self, home: SessionHome, api: Path) -> BubblewrapCell:
        ours, theirs = socket.socketpair()
        output_read, output_write = os.pipe2(os.O_CLOEXEC)
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        arguments_read, arguments_write = os.pipe2(os.O_CLOEXEC)
        # A description of its own: the place up to which it was read is not shared.
        rules = -1 if self._filter is None else os.open(f"/proc/self/fd/{self._filter}", os.O_RDONLY | os.O_CLOEXEC)
        given = (theirs.fileno(), status_write, arguments_read, *(() if rules < 0 else (rules,)))
        program = self._launcher.program("boot", {"channel": theirs.fileno()})
        command = ["--args", str(arguments_read), "--", *program]
        try:
            owner = self._launcher.users.take(home) if self._launcher.users is not None else 0
            process, names = await self._launcher.start(command, api, [home.path.parent], output_write, given, owner)
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
        cell = BubblewrapCell(process, os.pidfd_open(process.pid), ours, output_read, status_read, self._settings)
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

    def _arguments(self, home: SessionHome, names: dict[Path, str], api: Path, status: int, rules: int) -> list[str]:
        arguments = [*_NAMESPACES, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        arguments += ["--disable-userns", "--uid", "1000", "--gid", "1000"]
        arguments += ["--hostname", "sandbox", *self._launcher.environment()]
        arguments += [*self._launcher.root(names, api), "--proc", "/proc"]
        for folder in IN_MEMORY:
            arguments += ["--perms", "1777", "--size", str(IN_MEMORY_BYTES), "--tmpfs", folder]
        mounted = SessionHome(Path(names[home.path.parent]) / home.path.name)
        arguments += ["--bind", str(mounted.skills), f"{GUEST_HOME}/skills"]
        arguments += ["--bind", str(mounted.workspace), f"{GUEST_HOME}/workspace"]
        if rules >= 0:
            arguments += ["--seccomp", str(rules)]
        return [*arguments, "--json-status-fd", str(status), "--chdir", GUEST_HOME]


def _in_memory(rules: bytes | None) -> int | None:
    """A descriptor of the compiled filter, to be opened anew for every sandbox."""
    if rules is None:
        return None
    descriptor = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    os.write(descriptor, rules)
    return descriptor


def _close(rules: int | None, launcher: Launcher) -> None:
    if rules is not None:
        os.close(rules)
    launcher.close()
