"""What the fault test sees of the machine, from outside: processes, descriptors, rooms, control groups, mounts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
TRANSCRIPT = "transcript.jsonl"


def adopt_orphans() -> None:
    """What our descendants leave behind becomes our child, and is found."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(root: int) -> dict[int, str]:
    """Live processes below `root` with their command lines."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] not in "ZX":
                    parents[int(entry.name)] = int(fields[1])
    found: dict[int, str] = {}
    level = {root}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        for pid in level:
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    return found


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def disk_mb(folder: Path) -> float:
    """What the files below `folder` take, without what sessions keep: files, long outputs and transcripts."""
    total = 0
    for at, folders, files in os.walk(folder):
        if "workspace" in folders:
            folders.remove("workspace")
        for name in (*folders, *(file for file in files if file != TRANSCRIPT)):
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(at, name)).st_blocks * 512  # noqa: PTH118 - os.walk gives strings
    return total / 1e6


def control_groups(pids: set[int], *, used: bool = False) -> list[str]:
    """Groups that these gateways made; with `used`, only those that hold processes."""
    marks = tuple(f"toolfold-{pid}-" for pid in pids)
    found = [Path(at, name) for at, names, _ in os.walk("/sys/fs/cgroup") for name in names if name.startswith(marks)]
    return [path.name for path in found if not used or _members(path)]


def _members(group: Path) -> str:
    try:
        return (group / "cgroup.procs").read_text()
    except OSError:
        return ""


def mounts(folder: Path) -> list[str]:
    """What is mounted below `folder` here."""
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {folder}/" in line]


def rooms(data: Path) -> list[str]:
    """Homes of sandboxes that have no session's name."""
    return [str(path.relative_to(data)) for path in (data / "homes").glob("*/*") if path.is_dir()]


@dataclass
class Disk:
    """A folder that can be filled: a small file system of its own where that can be mounted."""

    folder: Path
    mounted: bool

    @classmethod
    def prepare(cls, folder: Path, megabytes: int) -> Disk:
        folder.mkdir(parents=True)
        options = f"size={megabytes}m,mode=700"
        command = ["mount", "-t", "tmpfs", "-o", options, "toolfold-faults", str(folder)]
        try:
            mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            mounted = False
        return cls(folder, mounted)

    def fill(self) -> None:
        with contextlib.suppress(OSError), (self.folder / "ballast").open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while file.write(b"\0" * size):
                        pass

    def free(self) -> None:
        (self.folder / "ballast").unlink(missing_ok=True)

    def remove(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)
