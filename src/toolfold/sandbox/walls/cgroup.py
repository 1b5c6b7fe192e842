"""One control group per sandbox, where this process may make them: memory, processes and processor of the whole tree.

Version 2 (a delegated subtree) and version 1 (root) alike. Where none can be made, `find_cgroups` says so, and the
backend measures the tree from outside instead.

A group of version 2 can also be frozen: nothing in it runs, whatever it does or is sent, until it is thawed. Version 1
has a freezer too, which is not used: what is frozen there cannot be killed, and would outlive a host that was.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "toolfold-"
_PERIOD = 100_000
_OLD = 60.0
_WANTED = ("memory", "pids", "cpu")
_REMOVAL_TRIES = 50


@dataclass(frozen=True)
class Bounds:
    memory: int
    processes: int
    cores: float


@dataclass(frozen=True)
class _Hierarchy:
    """A folder in which groups can be made, and the controllers that work there."""

    base: Path
    unified: bool
    controllers: frozenset[str]

    def settings(self, bounds: Bounds) -> list[tuple[str, str, bool]]:
        """(file, value, required) for a new group."""
        quota = max(1000, int(bounds.cores * _PERIOD))
        if self.unified:
            every = {
                "memory": [
                    ("memory.max", bounds.memory, True),
                    ("memory.swap.max", 0, False),
                    ("memory.oom.group", 1, False),
                ],
                "pids": [("pids.max", bounds.processes, True)],
                "cpu": [("cpu.max", f"{quota} {_PERIOD}", True)],
            }
        else:
            every = {
                "memory": [
                    ("memory.limit_in_bytes", bounds.memory, True),
                    ("memory.memsw.limit_in_bytes", bounds.memory, False),
                ],
                "pids": [("pids.max", bounds.processes, True)],
                "cpu": [("cpu.cfs_period_us", _PERIOD, True), ("cpu.cfs_quota_us", quota, True)],
            }
        chosen = [item for name in sorted(self.controllers) for item in every[name]]
        return [(name, str(value), required) for name, value, required in chosen]


class Cgroups:
    """Where groups are made. `holds` names the controllers that are really enforced; `freezes` says what it says."""

    def __init__(self, hierarchies: list[_Hierarchy]) -> None:
        self._hierarchies = hierarchies
        self.holds = frozenset[str]().union(*(hierarchy.controllers for hierarchy in hierarchies))
        self.freezes = any(hierarchy.unified for hierarchy in hierarchies)
        self._mark = f"{_PREFIX}{os.getpid()}-{_born(os.getpid())}"

    def create(self, bounds: Bounds) -> Cgroup:
        """A new group. Raises OSError, with nothing left behind, when one of its limits cannot be set."""
        name = f"{self._mark}-{secrets.token_hex(4)}"
        made: list[Path] = []
        try:
            for hierarchy in self._hierarchies:
                path = hierarchy.base / name
                path.mkdir()
                made.append(path)
                for file, value, required in hierarchy.settings(bounds):
                    try:
                        (path / file).write_text(value)
                    except OSError:
                        if required:
                            raise
        except OSError:
            _remove(made)
            raise
        return Cgroup(made)

    def sweep(self) -> int:
        """Remove the groups of hosts that were killed, and end what is left in them; how many there were."""
        removed = 0
        for hierarchy in self._hierarchies:
            for path in hierarchy.base.glob(f"{_PREFIX}*"):
                with contextlib.suppress(OSError, ValueError):
                    _, pid, born, *_ = path.name.split("-")
                    if _born(int(pid)) != born and time.time() - path.stat().st_mtime > _OLD:
                        _end_members(path)
                        removed += _remove([path])
        return removed


class Freezer:
    """Makes everything in a group of version 2 stand still, from outside."""

    def __init__(self, group: Path) -> None:
        self._freeze = str(group / "cgroup.freeze")
        self._events = str(group / "cgroup.events")

    def freeze(self) -> None:
        """Begin to; `frozen` tells when it is done, which is usually within a fraction of a millisecond."""
        self._write(b"1")

    def thaw(self) -> None:
        self._write(b"0")

    def frozen(self) -> bool:
        with contextlib.suppress(OSError):
            return b"frozen 1" in _read(self._events)
        return False

    def _write(self, value: bytes) -> None:
        # The group may be gone already, and with it everything that was in it.
        with contextlib.suppress(OSError):
            descriptor = os.open(self._freeze, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, value)
            finally:
                os.close(descriptor)


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


class Cgroup:
    """One sandbox's group, in every hierarchy that it needs. `freezer` is None where the kernel has none for it."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self.freezer = next((Freezer(path) for path in paths if (path / "cgroup.freeze").exists()), None)
        self._events: int | None = None
        for file in (path / name for path in paths for name in ("memory.events", "memory.oom_control")):
            with contextlib.suppress(OSError):
                self._events = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
                break

    def admit(self, pid: int) -> None:
        """Move a process that has not forked yet; everything it starts stays inside. May take milliseconds."""
        for path in self._paths:
            (path / "cgroup.procs").write_text(str(pid))

    def memory_kills(self) -> int:
        """How many of its processes the kernel has ended for want of memory."""
        if self._events is None:
            return 0
        try:
            for line in os.pread(self._events, 4096, 0).splitlines():
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
        except OSError:
            pass
        return 0

    def remove(self) -> bool:
        """Remove it, once nothing runs in it. The kernel may need a moment after the last process is gone."""
        if self._events is not None:
            os.close(self._events)
            self._events = None
        return _remove(self._paths)


def _end_members(path: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in (path / "cgroup.procs").read_text().split():
            # Processes of another PID namespace are listed as 0, which `kill` takes for our own process group.
            if pid != "0":
                os.kill(int(pid), signal.SIGKILL)


def _remove(paths: list[Path]) -> bool:
    left = [*paths]
    for attempt in range(_REMOVAL_TRIES):
        for path in [*left]:
            try:
                path.rmdir()
            except FileNotFoundError:
                left.remove(path)
            except OSError:
                continue
            else:
                left.remove(path)
        if not left:
            return True
        time.sleep(0.001 * (attempt + 1))
    return False


def find_cgroups(proc: Path = Path("/proc/self")) -> Cgroups | None:
    """The places in which we can make groups that limit memory or can be frozen, or None."""
    try:
        own = _own_groups((proc / "cgroup").read_text())
        mounts = _mounts((proc / "mountinfo").read_text())
    except (OSError, ValueError):
        return None
    hierarchies: list[_Hierarchy] = []
    missing: set[str] = {*_WANTED}
    for mounted, root, point in mounts:
        # "0::/path" is version 2's line: no controllers are named.
        path = own.get("" if mounted == {""} else next((name for name in _WANTED if name in mounted), "none"))
        if path is None or not missing:
            continue
        here = point / os.path.relpath(path, root) if path.startswith(root) else point
        if mounted == {""}:
            found = _version_two(here, missing) or _freezer_only(here)
        else:
            found = _version_one(here, mounted & missing)
        if found is not None:
            hierarchies.append(found)
            missing -= found.controllers
    found_groups = Cgroups(hierarchies)
    return found_groups if found_groups.freezes or "memory" in found_groups.holds else None


def _own_groups(text: str) -> dict[str, str]:
    """Controller → this process's group; version 2 is the empty name."""
    own: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), path)
    return own


def _mounts(text: str) -> list[tuple[set[str], str, Path]]:
    """(controllers, the group that is mounted, where). Version 2 comes first: one move is cheaper than three."""
    found: list[tuple[set[str], str, Path]] = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        fields = before.split()
        if kind == "cgroup2":
            found.insert(0, ({""}, fields[3], Path(fields[4])))
        elif kind == "cgroup":
            found.append((set(options.split(",")), fields[3], Path(fields[4])))
    return found


def _version_one(base: Path, controllers: set[str]) -> _Hierarchy | None:
    if not controllers or not os.access(base, os.W_OK):
        return None
    return _Hierarchy(base, unified=False, controllers=frozenset(controllers))


def _version_two(own: Path, wanted: set[str]) -> _Hierarchy | None:
    """Our own group where it hands controllers down, else the one above: groups with processes in them cannot."""
    for base in (own, own.parent):
        try:
            handed = set((base / "cgroup.subtree_control").read_text().split()) & wanted
        except OSError:
            continue
        # Moving a process asks for the right to write to the common ancestor, which is `base` in both cases.
        if handed and os.access(base, os.W_OK) and os.access(base / "cgroup.procs", os.W_OK):
            return _Hierarchy(base, unified=True, controllers=frozenset(handed))
    return _empty_own(own, wanted)


def _empty_own(own: Path, wanted: set[str]) -> _Hierarchy | None:
    """A group delegated to us alone: move ourselves into a leaf of it, so that it can hand its controllers down."""
    try:
        available = set((own / "cgroup.controllers").read_text().split()) & wanted
        inhabitants = (own / "cgroup.procs").read_text().split()
        alone = inhabitants == [str(os.getpid())]
        if not available or not alone or not os.access(own, os.W_OK):
            return None
        leaf = own / f"{_PREFIX}host"
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
        (own / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(available)))
    except OSError:
        return None
    return _Hierarchy(own, unified=True, controllers=frozenset(available))


def _freezer_only(own: Path) -> _Hierarchy | None:
    """Groups below our own that limit nothing: version 2 beside version 1, or without controllers handed to us."""
    trial = own / f"{_PREFIX}trial-{secrets.token_hex(4)}"
    try:
        if not os.access(own / "cgroup.procs", os.W_OK):
            return None
        trial.mkdir()
        try:
            works = (trial / "cgroup.freeze").exists()
        finally:
            trial.rmdir()
    except OSError:
        return None
    return _Hierarchy(own, unified=True, controllers=frozenset()) if works else None


def freezer_within(first: int, pids: list[int]) -> Freezer | None:
    """A group for `pids` below the one that an engine has made for process `first`, if we may make it.

    The first process stays outside: it must notice when the host is gone. What `pids` start stays inside. The engine
    removes the group together with its own.
    """
    try:
        own = _own_groups(Path("/proc/self/cgroup").read_text()).get("")
        theirs = _own_groups(Path(f"/proc/{first}/cgroup").read_text()).get("")
        mounts = _mounts(Path("/proc/self/mountinfo").read_text())
    except (OSError, ValueError):
        return None
    # An engine without groups of version 2 leaves its containers in a group that others are in as well.
    if own is None or theirs is None or Path(own).is_relative_to(theirs):
        return None
    for mounted, root, point in mounts:
        if mounted == {""} and theirs.startswith(root):
            group = point / os.path.relpath(theirs, root) / f"{_PREFIX}guest"
            try:
                group.mkdir()
                for pid in pids:
                    (group / "cgroup.procs").write_text(str(pid))
            except OSError:
                return None
            return Freezer(group) if (group / "cgroup.freeze").exists() else None
    return None


def _born(pid: int) -> str:
    """When a process started, in the kernel's ticks: a reused number has another one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
