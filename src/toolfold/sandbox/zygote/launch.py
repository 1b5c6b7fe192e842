"""How a zygote is started: bwrap's arguments, and the users of its user namespace when the host is root.

The zygote's view is the sandbox's own root at `/`, and in /tmp what it makes sandboxes of: a second copy of that root
with devices, API tree and packages, which every clone makes its own, and the folders in which homes are.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from toolfold.sandbox.bubblewrap.launcher import Launcher
from toolfold.sandbox.bubblewrap.process import BwrapProcess
from toolfold.sandbox.exits import readable

SHELVES = "/tmp/homes"  # noqa: S108 - inside
_ROOT = "/tmp/root"  # noqa: S108 - inside
_MADE_BY_BWRAP = ("--unshare-all", "--unshare-user", "--as-pid-1", "--new-session", "--cap-drop", "ALL")
"""The zygote is process 1: its end is the end of all clones, and it ends when the host does, as its control socket is
closed then. So there is no `--die-with-parent`, which may kill bwrap while the process inside still waits to be told to
go on, and that one waits for ever then.
"""


@dataclass(frozen=True)
class Launched:
    """bwrap, and the zygote in it, with a handle: when that has ended, everything inside has."""

    process: BwrapProcess
    pid: int
    handle: int


async def launch(launcher: Launcher, api: Path, folders: Sequence[Path], control: int, output: int) -> Launched:
    """Start bwrap around a zygote that listens on `control` and writes errors to `output`. Raises OSError."""
    with contextlib.ExitStack() as ours:
        with contextlib.ExitStack() as theirs:
            arguments_read, arguments_write = _pipe(theirs, ours)
            info, inform = _pipe(ours, theirs)
            blocked, unblock = _pipe(theirs, ours)
            command = ["--args", str(arguments_read.fileno()), "--", *launcher.program("zygote", {"control": control})]
            given = (control, arguments_read.fileno(), inform.fileno(), blocked.fileno())
            user = launcher.users.take_for_zygote() if launcher.users is not None else 0
            process, names = await launcher.start(command, api, folders, output, given, user)
            arguments = _arguments(launcher, inform.fileno(), blocked.fileno())
        arguments += [*launcher.root(names, api), "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108 - inside
        arguments += [*launcher.root(names, api, _ROOT), "--perms", "0755", "--dir", SHELVES]
        for number, folder in enumerate(folders):
            arguments += ["--bind", names[folder], f"{SHELVES}/{number}"]
        with contextlib.ExitStack() as undo:
            undo.callback(process.wait)
            undo.callback(process.kill)
            arguments_write.write(b"\0".join(map(os.fsencode, arguments)))
            arguments_write.close()
            pid = await _first_process(info)
            handle = os.pidfd_open(pid)
            undo.callback(os.close, handle)
            if launcher.users is not None:
                launcher.users.let_all_exist(pid)
                unblock.write(b"1")
            undo.pop_all()
    return Launched(process, pid, handle)


def _arguments(launcher: Launcher, info: int, blocked: int) -> list[str]:
    """Everything but the mounts. Nested user namespaces are not disabled: making them is a zygote's work.

    As root the zygote has two capabilities in its own user namespace, to give each clone its user; otherwise none.
    """
    arguments = [*_MADE_BY_BWRAP, "--hostname", "sandbox", "--chdir", "/", *launcher.environment()]
    arguments += ["--info-fd", str(info)]
    if launcher.users is None:
        return [*arguments, "--uid", "1000", "--gid", "1000"]
    arguments += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [*arguments, "--userns-block-fd", str(blocked)]


def _pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[BinaryIO, BinaryIO]:
    """A pipe whose ends are closed with the stacks they belong to, or before."""
    read, write = os.pipe2(os.O_CLOEXEC)
    return reader.enter_context(os.fdopen(read, "rb", 0)), writer.enter_context(os.fdopen(write, "wb", 0))


async def _first_process(info: BinaryIO) -> int:
    """The first process inside, which bwrap names before it lets it go on. Raises OSError when bwrap has ended."""
    text = b""
    while not text.rstrip().endswith(b"}"):
        await readable(info.fileno())
        more = info.read(4096)
        if not more:
            raise ProcessLookupError("bwrap ended")
        text += more
    return int(json.loads(text)["child-pid"])
