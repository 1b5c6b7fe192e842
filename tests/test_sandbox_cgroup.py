"""Where control groups are made, read from trees as the kernel shows them. Every sandbox test uses real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from toolfold.sandbox.walls.cgroup import Bounds, find_cgroups
from toolfold.sandbox.walls.identity import spare_ids

HIGH = 0x77000000
BOUNDS = Bounds(memory=1_000_000, processes=10, cores=0.5)


def _proc(folder: Path, groups: str, mounts: list[tuple[str, str, Path]]) -> Path:
    proc = folder / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(groups)
    lines = [
        f"{number} 1 0:{number} {root} {point} rw,nosuid - {kind} cgroup rw{',' + options if options else ''}"
        for number, (kind, options, (root, point)) in enumerate(
            (kind, options, ("/", point)) for kind, options, point in mounts
        )
    ]
    (proc / "mountinfo").write_text("\n".join(lines))
    return proc


def _two(folder: Path, path: str, *, handed: str = "", available: str = "cpu memory pids", inside: str = "1\n") -> Path:
    """A group of version 2, as files."""
    here = folder / path.strip("/")
    here.mkdir(parents=True, exist_ok=True)
    (here / "cgroup.subtree_control").write_text(handed)
    (here / "cgroup.controllers").write_text(available)
    (here / "cgroup.procs").write_text(inside)
    return here


def test_version_two_uses_a_group_that_hands_controllers_down(tmp_path: Path) -> None:
    own = _two(tmp_path / "fs", "/user/app", handed="cpu memory pids")
    groups = find_cgroups(_proc(tmp_path, "0::/user/app\n", [("cgroup2", "", tmp_path / "fs")]))
    assert groups is not None
    assert groups.holds == {"memory", "pids", "cpu"}
    groups.create(BOUNDS)
    (made,) = own.glob("toolfold-*")
    assert (made / "memory.max").read_text() == "1000000"
    assert (made / "memory.swap.max").read_text() == "0"
    assert (made / "pids.max").read_text() == "10"
    assert (made / "cpu.max").read_text() == "50000 100000"


def test_version_two_uses_the_group_above_when_ours_has_processes(tmp_path: Path) -> None:
    above = _two(tmp_path / "fs", "/user", handed="memory pids")
    _two(tmp_path / "fs", "/user/app", inside="1\n2\n3\n")
    groups = find_cgroups(_proc(tmp_path, "0::/user/app\n", [("cgroup2", "", tmp_path / "fs")]))
    assert groups is not None
    assert groups.holds == {"memory", "pids"}
    groups.create(BOUNDS)
    assert list(above.glob("toolfold-*"))


def test_version_two_moves_aside_in_a_group_that_is_ours_alone(tmp_path: Path) -> None:
    own = _two(tmp_path / "fs", "/delegated", inside=f"{os.getpid()}\n")
    groups = find_cgroups(_proc(tmp_path, "0::/delegated\n", [("cgroup2", "", tmp_path / "fs")]))
    assert groups is not None
    assert (own / "toolfold-host" / "cgroup.procs").read_text() == str(os.getpid())
    assert (own / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"


def test_version_two_leaves_a_group_with_strangers_alone(tmp_path: Path) -> None:
    own = _two(tmp_path / "fs", "/shared", inside=f"{os.getpid()}\n77\n")
    assert find_cgroups(_proc(tmp_path, "0::/shared\n", [("cgroup2", "", tmp_path / "fs")])) is None
    assert not list(own.glob("toolfold-*"))


def test_version_one_uses_each_hierarchy(tmp_path: Path) -> None:
    for name in ("memory/own", "pids", "cpu"):
        (tmp_path / name).mkdir(parents=True)
    mounts = [("cgroup", name, tmp_path / name) for name in ("memory", "pids", "cpu")]
    groups = find_cgroups(_proc(tmp_path, "3:memory:/own\n2:pids:/\n1:cpu,cpuacct:/\n", mounts))
    assert groups is not None
    assert groups.holds == {"memory", "pids", "cpu"}
    assert not groups.freezes
    groups.create(BOUNDS)
    (made,) = (tmp_path / "memory/own").glob("toolfold-*")
    assert (made / "memory.limit_in_bytes").read_text() == "1000000"
    (made,) = (tmp_path / "cpu").glob("toolfold-*")
    assert (made / "cpu.cfs_quota_us").read_text() == "50000"


def test_without_memory_there_is_no_group(tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    assert find_cgroups(_proc(tmp_path, "2:pids:/\n", [("cgroup", "pids", tmp_path / "pids")])) is None
    assert find_cgroups(tmp_path / "nothing") is None


def test_a_busy_process_in_a_real_group_is_frozen_thawed_and_killed() -> None:
    groups = find_cgroups()
    if groups is None or not groups.freezes:
        pytest.skip("no group can be frozen here: run as root, or under systemd-run -p Delegate=yes")
    group = groups.create(Bounds(memory=100_000_000, processes=10, cores=1))
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        group.admit(busy.pid)
        freezer = group.freezer
        assert freezer is not None
        freezer.freeze()
        _eventually(freezer.frozen)
        before = _ran(busy.pid)
        busy.send_signal(signal.SIGCONT)
        time.sleep(0.1)
        assert _ran(busy.pid) == before
        freezer.thaw()
        _eventually(lambda: _ran(busy.pid) > before)
        assert not freezer.frozen()
        freezer.freeze()
        _eventually(freezer.frozen)
    finally:
        busy.kill()
        busy.wait(10)
        assert group.remove()


def test_a_group_that_is_gone_already_counts_as_removed() -> None:
    groups = find_cgroups()
    if groups is None:
        pytest.skip("no group can be made here: run as root, or under systemd-run -p Delegate=yes")
    group = groups.create(Bounds(memory=100_000_000, processes=10, cores=1))
    assert group.remove()
    assert group.remove()


def _ran(pid: int) -> int:
    """Nanoseconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def _eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_groups_of_killed_hosts_are_swept(tmp_path: Path) -> None:
    own = _two(tmp_path / "fs", "/app", handed="memory")
    groups = find_cgroups(_proc(tmp_path, "0::/app\n", [("cgroup2", "", tmp_path / "fs")]))
    assert groups is not None
    for name in ("toolfold-999999999-1-abcd", f"toolfold-{os.getpid()}-1-abcd", "toolfold-host", "somebody-else"):
        (own / name).mkdir()
        os.utime(own / name, (1, 1))
    (own / "toolfold-999999999-2-new").mkdir()
    # A host that lives is known by its number and by when it started.
    started = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    alive = own / f"toolfold-{os.getpid()}-{started}-abcd"
    alive.mkdir()
    os.utime(alive, (1, 1))
    assert groups.sweep() == 2
    assert {path.name for path in own.iterdir() if path.is_dir()} == {
        alive.name,
        "toolfold-host",
        "somebody-else",
        "toolfold-999999999-2-new",
    }


def test_what_killed_hosts_left_in_their_groups_is_ended(tmp_path: Path) -> None:
    own = _two(tmp_path / "fs", "/app", handed="memory")
    groups = find_cgroups(_proc(tmp_path, "0::/app\n", [("cgroup2", "", tmp_path / "fs")]))
    assert groups is not None
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    group = own / "toolfold-999999999-1-abcd"
    group.mkdir()
    (group / "cgroup.procs").write_text(f"{left.pid}\n")
    os.utime(group, (1, 1))
    try:
        groups.sweep()
        assert left.wait(10) == -signal.SIGKILL
    finally:
        left.kill()


def test_processes_of_another_pid_namespace_are_left_alone(tmp_path: Path) -> None:
    own = _two(tmp_path / "fs", "/app", handed="memory")
    proc = _proc(tmp_path, "0::/app\n", [("cgroup2", "", tmp_path / "fs")])
    group = own / "toolfold-999999999-1-abcd"
    group.mkdir()
    (group / "cgroup.procs").write_text("0\n")
    os.utime(group, (1, 1))
    code = "import pathlib, sys\nfrom toolfold.sandbox.walls.cgroup import find_cgroups\n"
    code += "find_cgroups(pathlib.Path(sys.argv[1])).sweep()"
    # In a process group of its own: that is what a signal to process 0 would end.
    assert subprocess.run([sys.executable, "-c", code, proc], process_group=0, check=False).returncode == 0
    assert group.exists()


@pytest.mark.parametrize(
    ("users", "groups", "expected"),
    [
        pytest.param("0 0 4294967295", "0 0 4294967295", (0x77000000, 65536), id="the host itself"),
        pytest.param("0 100000 65536", "0 100000 65536", (32768, 31744), id="a container's usual range"),
        pytest.param(f"0 0 {HIGH + 65536}", f"0 0 {HIGH + 65536}", (HIGH, 65536), id="they just fit"),
        pytest.param(
            f"0 0 {HIGH + 65535}", f"0 0 {HIGH + 65536}", (998277119, 998276096), id="a user too few for the high ones"
        ),
        pytest.param("0 0 4294967295", f"{HIGH} {HIGH} 65536", (HIGH, 65536), id="groups that begin there"),
        pytest.param("0 0 4294967295", f"{HIGH} {HIGH} 65535", None, id="a group too few"),
        pytest.param("0 1000 4096", "0 1000 4096", (2048, 1024), id="just enough"),
        pytest.param("0 1000 4094", "0 1000 4094", None, id="not quite enough"),
        pytest.param("0 1000 1", "0 1000 1", None, id="one id"),
        pytest.param("0 0 4294967295", "0 0 1", None, id="no groups"),
        pytest.param("0 1000 1\n1 100000 65536", "0 1000 1\n1 100000 65536", (32769, 31744), id="rootless podman"),
    ],
)
def test_spare_ids_exist_and_are_nobody(users: str, groups: str, expected: tuple[int, int] | None) -> None:
    assert spare_ids(users, groups) == expected
