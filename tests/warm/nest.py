"""A Python that has everything imported. For each request it becomes, in a copy of itself, `python WORD…`."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
from typing import Any

IMPORTED = (
    "mcp",
    "rich.markup",
    "toolfold.catalog.search.vectors",
    "toolfold.cli.live",
    "toolfold.cli.main",
    "toolfold.fold",
    "toolfold.gateway.http",
    "toolfold.gateway.server",
    "toolfold.guards.audit",
    "toolfold.guards.privacy",
    "toolfold.review.review",
    "toolfold.sandbox.zygote.backend",
    "toolfold.session.start",
)
READ_AT_THE_START = ("PYTHONPATH", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONWARNINGS")


def main() -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # only a process with one thread can be copied whole
    for module in IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what was made until now stays as it is, so that copies share its memory
    request = wait_for_request(sys.argv[1])
    if request is None:
        shutil.rmtree(os.path.dirname(sys.argv[1]))  # noqa: PTH120
    else:
        become(request)


def wait_for_request(path: str) -> dict[str, Any] | None:
    """The request, in the copy that is made for it; in the nest nothing, when its input ends."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(path)
    listening.listen(100)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to collect the keepers
    print("ready", flush=True)
    while 0 not in select.select([0, listening], [], [])[0]:
        connection, _ = listening.accept()
        if os.fork() == 0:
            return keep(connection)
        connection.close()
    return None


def keep(connection: socket.socket) -> dict[str, Any]:
    """Make a copy, wait for its end and tell how it ended. Who asked for it was killed? Then it is killed as well."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    request = json.loads(message)
    if not possible(request):
        connection.send(b"0")
        os._exit(0)
    pid = os.fork()
    if pid == 0:
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        os.closerange(3, 1024)
        return request
    for fd in streams:
        os.close(fd)
    with contextlib.suppress(OSError):  # gone already: then the connection has ended, too
        connection.send(str(pid).encode())
    end = os.pidfd_open(pid)
    if end not in select.select([connection, end], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def possible(request: dict[str, Any]) -> bool:
    """Whether a Python that has begun already can do this."""
    words, environment = request["words"], request["environment"]
    same = all(environment.get(name) == os.environ.get(name) for name in READ_AT_THE_START)
    return same and ("toolfold" in words[1:3] or words[0].endswith(".py"))


def become(request: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    words = [word for word in request["words"] if word != "-P"]
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path.insert(0, os.path.dirname(words[0]))  # noqa: PTH120
        runpy.run_path(words[0], run_name="__main__")


main()
