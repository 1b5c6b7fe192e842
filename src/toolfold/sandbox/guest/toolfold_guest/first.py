"""The first process in a container: starts the guest, carries its bytes over the engine's pipes, ends with it.

An engine gives a container pipes for standard input and output and promises no order between two of them. So what
the program prints and what it sends travel as records on standard output: one byte that says which, four bytes of
length, the bytes. The guest itself never holds these pipes: it has a socket and an output pipe, as in every backend.

The host going away closes standard input. Then this process ends, and as it is process 1, the kernel ends all others.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import socket
import struct
import sys
import threading
import time
from typing import Any, NoReturn

_OUTPUT = b"o"
_CHANNEL = b"c"
_OUT_OF_MEMORY = b"m"
_RECORD = struct.Struct(">cI")
_CHUNK = 1 << 18
_DRAIN_SECONDS = 1.0
"""For what a guest that has ended has sent and printed to be forwarded."""
_EXIT_SECONDS = 0.5
"""For a guest that has closed its channel to end by itself."""
_LOOK = 200
"""Milliseconds between looks at whether memory ran out."""
_SET_DUMPABLE, _SET_SECCOMP, _FILTER = 4, 22, 2
_MEMORY_KILLS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")


_writing = threading.Lock()


def main() -> NoReturn:
    options = json.loads(sys.argv[1])
    ours, theirs = socket.socketpair()
    printed, output = os.pipe()
    guest = os.fork()
    if guest == 0:
        ours.close()
        os.close(printed)
        _be_the_guest(options, theirs.detach(), output)
    theirs.close()
    os.close(output)
    _keep_the_guest_out()
    threading.Thread(target=_bring_in, args=(ours,), daemon=True).start()
    drained = threading.Event()
    threading.Thread(target=_carry_out, args=(ours, printed, drained), daemon=True).start()
    code = _wait(guest)
    _tell_memory()
    # Its last output is still on its way; a child that keeps the channel open must not keep us.
    drained.wait(_DRAIN_SECONDS)
    os._exit(code if code >= 0 else 128 - code)


def _be_the_guest(options: dict[str, Any], channel: int, output: int) -> NoReturn:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(nothing)
    os.close(output)
    os.setsid()
    _filter_calls(options.pop("filters"))
    # Engines and images add variables of their own; programs see the same ones in every backend.
    os.environ.clear()
    os.environ.update(options.pop("environment"))
    sys.argv[1] = json.dumps({**options, "channel": channel})
    from .boot import main as boot

    try:
        boot()
    except SystemExit as stop:
        os._exit(stop.code if isinstance(stop.code, int) else 0)
    except BaseException as error:  # a guest that cannot start must say why
        os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
    os._exit(1)


def _filter_calls(filters: dict[str, str]) -> None:
    """Our own list of system calls on top of the engine's, for the guest and everything it starts."""
    import ctypes

    program = base64.b64decode(filters.get(os.uname().machine, ""))
    if not program:
        return

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]

    rules = Program(len(program) // 8, program)
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_SECCOMP, _FILTER, ctypes.byref(rules), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP)")


def _keep_the_guest_out() -> None:
    """Same user, so the guest could trace this process or open its pipes under /proc, were it not for this."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")


def _bring_in(channel: socket.socket) -> None:
    while data := os.read(0, _CHUNK):
        try:
            channel.sendall(data)
        except OSError:
            return
    os._exit(0)


def _carry_out(channel: socket.socket, printed: int, drained: threading.Event) -> None:
    """Forward both ways out until the guest closes the channel, which is its end whether or not it wants to go."""
    with contextlib.suppress(OSError):  # the host is gone, which standard input tells as well
        _forward(channel, printed)
    drained.set()
    # A guest that is ending has this long to do it, so that the way it ended is known.
    time.sleep(_EXIT_SECONDS)
    os._exit(0)


def _forward(channel: socket.socket, printed: int) -> None:
    """Of two that are ready what was printed goes first: it was printed before it was sent."""
    os.set_blocking(printed, False)
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(printed, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll(_LOOK)}
        _tell_memory()
        if printed in ready and not _forward_printed(printed):
            poll.unregister(printed)
        if channel.fileno() in ready:
            data = channel.recv(_CHUNK)
            _forward_printed(printed)
            if not data:
                return
            _record(_CHANNEL, data)


def _forward_printed(printed: int) -> bool:
    """Everything that is there now. False when the pipe has no writer any more."""
    while True:
        try:
            data = os.read(printed, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        _record(_OUTPUT, data)


def _tell_memory() -> None:
    """Tell the host when the kernel has ended something in here for want of memory, before the program goes on."""
    if _memory_kills() > 0:
        _record(_OUT_OF_MEMORY, b"")


def _memory_kills() -> int:
    for path in _MEMORY_KILLS:
        try:
            with open(path) as file:  # noqa: PTH123 - this runs with every message
                return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
        except (OSError, ValueError, IndexError):
            continue
    return 0


def _record(kind: bytes, data: bytes) -> None:
    with _writing:
        view = memoryview(_RECORD.pack(kind, len(data)) + data)
        while view:
            view = view[os.write(1, view) :]


def _wait(guest: int) -> int:
    """Reap whatever ends here until the guest itself does."""
    while True:
        pid, status = os.wait()
        if pid == guest:
            return os.waitstatus_to_exitcode(status)
