"""Counts of what a gateway, or this process as one, could leave behind: processes, descriptors, groups, memory."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GROWTH = 1.2
"""What memory may be at the end, of what it was before."""


@dataclass(frozen=True)
class Leak:
    """One kind of thing that could be left: how many there were, are, and are once everything is closed."""

    what: str
    before: int
    after: int
    closed: int
    allowed: int = 0

    @property
    def leaked(self) -> int:
        return max(0, self.after - self.before - self.allowed)

    def data(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "before": self.before,
            "after": self.after,
            "closed": self.closed,
            "leaked": self.leaked,
        }


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        found += children
        for child in children:
            found += descendants(child)
    return found


def born(pid: int) -> int:
    """When the process was started, in ticks of the system; 0 when it is no more. A number may be given out again."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] == "Z" else int(fields[19])


def control_groups(pid: int) -> int:
    """Those that the process made. Groups of others come and go while they are looked at; `os.walk` allows for that."""
    mark = f"toolfold-{pid}-"
    return sum(name.startswith(mark) for _, names, _ in os.walk("/sys/fs/cgroup") for name in names)


def homes(data_dir: Path) -> int:
    """Folders of sandboxes."""
    return sum(1 for home in (data_dir / "homes").glob("*/*") if home.is_dir())


def entries(folder: str) -> int:
    """How many descriptors or threads a process has, by its folder in /proc; 0 when it has ended."""
    try:
        return len(list(Path(folder).iterdir()))
    except OSError:
        return 0


def resident_megabytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1_000_000
    except OSError:
        return 0


def proportional_megabytes(pids: list[int]) -> int:
    """Memory of all these processes, with what they share counted once."""
    kilobytes = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes * 1024 // 1_000_000
