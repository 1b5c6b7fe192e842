"""Nothing that a program can read names a path of the host, its user, or another session."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.hostile.arena import Arena

# Reads every file, link and name in the sandbox, /proc included, and answers which of them hold one of the texts.
SEARCH = """
import os, stat, sys, threading
TEXTS = [text[::-1].encode() for text in {reversed!r}]
found = []
def look(path, data):
    if any(text in data for text in TEXTS):
        found.append(path)
def read(path):
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            look(path, os.fsencode(os.readlink(path)))
        elif stat.S_ISREG(status.st_mode):
            with open(path, "rb", buffering=0) as file:
                for _ in range(8):
                    look(path, file.read(8_000_000))
    except OSError:
        pass
def walk(folder, depth):
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        path = folder.rstrip("/") + "/" + name
        look(path, os.fsencode(name))
        read(path)
        if depth and os.path.isdir(path) and not os.path.islink(path):
            walk(path, depth - 1)
for name in os.listdir("/"):
    if name not in ("proc", "sys"):
        read("/" + name)
        walk("/" + name, 20)
# Of /proc what is about processes and threads, theirs and ours, and every file beside.
threading.Thread(target=threading.Event().wait, daemon=True).start()
numbers = [str(number) for number in range(1, 40)]
for process in ("self", "thread-self", *numbers):
    walk("/proc/" + process, 1)
    for thread in numbers:
        walk("/proc/" + process + "/task/" + thread, 1)
for name in os.listdir("/proc"):
    if not name.isdigit():
        read("/proc/" + name)
walk("/proc/sys/kernel", 1)
walk("/sys", 3)
look("environ", repr(dict(os.environ)).encode())
look("uname", repr(os.uname()).encode())
import sysconfig
look("sysconfig", repr(sysconfig.get_config_vars()).encode() + repr(sysconfig.get_paths()).encode())
look("sys", repr([sys.path, sys.prefix, sys.exec_prefix, sys.executable, sys._base_executable, sys.argv]).encode())
look("code", os.path.join.__code__.co_filename.encode())
sorted(set(found))
"""


def _names(arena: Arena) -> list[str]:
    names = [str(arena.data_dir), arena.data_dir.name, "name-of-a-session", "overlay2", "toolfold-guest"]
    # Where Python itself is, unless it is where the sandbox has it as well.
    names += [
        path for path in (sys.base_prefix, str(Path.home() / "")) if not path.startswith("/usr") and len(path) > 5
    ]
    return names


def test_no_file_inside_names_the_host(arena: Arena) -> None:
    texts = [name[::-1] for name in _names(arena)]
    with arena.session("name-of-a-session") as session:
        (session.sandbox.home.workspace / "planted").write_text(f"… {arena.data_dir} …")
        outcome = session.run(SEARCH.format(reversed=texts), timeout=120)
    assert outcome.error == ""
    assert outcome.value == ["/agent/workspace/planted"]


def test_no_container_tells_its_number(arena: Arena) -> None:
    """What a program can read of its own process names neither the engine's container nor a group of it."""
    places = ("cgroup", "cmdline", "cpuset", "mountinfo", "mounts", "mountstats", "environ", "uid_map", "net/unix")
    code = f"""
import os
def read(path):
    try:
        return open(path, "rb").read().decode(errors="replace")
    except OSError:
        return ""
"".join(read(f"/proc/{{process}}/{{place}}") for process in ("self", "thread-self", "1") for place in {places!r})
"""
    with arena.session() as session:
        outcome = session.run(code)
    assert "toolfold_guest" in outcome.value
    for text in ("docker/", "libpod", "toolfold-", str(os.getpid())):
        assert text not in outcome.value.replace("/opt/toolfold", ""), text


@pytest.mark.parametrize(
    "path",
    ["/etc/resolv.conf", "/sys/kernel/mm/transparent_hugepage/enabled", "/proc/version", "/etc/mtab", "/proc/mounts"],
)
def test_a_fact_about_the_host_is_not_readable(arena: Arena, path: str) -> None:
    with arena.session() as session:
        outcome = session.run(f"open({path!r}).read()")
    assert "PermissionError" in outcome.error or "FileNotFoundError" in outcome.error
