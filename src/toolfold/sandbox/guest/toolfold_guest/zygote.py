"""A warm interpreter that clones itself into sandboxes on request. It never runs a program of an agent.

The host sends one packet for each sandbox, with three descriptors: the sandbox's channel, its output, and a pipe that
tells how it ended. The clone's handle goes back on that channel; everything else about the sandbox (which folder is its
home) goes from the host to the clone directly and is never in this process's memory, which every clone can read.

A clone is process 1 of its own namespaces. It mounts its root and leaves ours, waits until the host has put it into its
control group, gives up every right, and starts the guest by an ordinary fork. Then it only reaps.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import struct
import sys

from . import boot, kernel

TYPE_CHECKING = False  # importing typing costs milliseconds; type checkers know the name

if TYPE_CHECKING:
    from typing import Any, NoReturn

_ROOT = b"/tmp/root"
"""Where the zygote's view has the sandbox's root: runtime, devices, API tree."""
_USER = 1000
_PATH = 4096
"""Bytes for each of the two paths of an order, ended by zeros: workspace, skills."""
_REQUEST = struct.Struct("=I")
"""The user, in the zygote's user namespace, that the clone is to be."""
_REPLY = struct.Struct("=i")
"""An errno, or 0 and the clone's handle."""
_ENDING = struct.Struct("=i")
"""How the guest ended: its exit code, or the signal's number, negative."""
_CHANNEL, _STATUS = 3, 4
_GIVEN = struct.Struct("=3i")
_SPACE = socket.CMSG_SPACE(_GIVEN.size)
_FAMILY, _KIND, _SOCKET, _RIGHTS = int(socket.AF_UNIX), int(socket.SOCK_STREAM), socket.SOL_SOCKET, socket.SCM_RIGHTS
_WARM_UP = "import asyncio\nprint('warm')\nawait asyncio.gather(asyncio.sleep(0))\n[1]"
_TEMPORARY = kernel.NO_SETUID | kernel.NO_DEVICES


def main() -> NoReturn:
    options = json.loads(sys.argv[1])
    control = socket.socket(fileno=options["control"])
    boot.keep_only(0, 1, 2, control.fileno())
    boot.load()
    _warm_up()
    kernel.new_session_keyring()
    rules = kernel.Filter(control.recv(1 << 20))
    boot.freeze()
    # The kernel reaps clones by itself. How one ended is told by the clone, on its own pipe.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    control.send(b"ready")
    while True:
        request, given, _, _ = control.recvmsg(_REQUEST.size, _SPACE)
        if not request:
            os._exit(0)  # the host is gone; with this process every clone ends
        channel, output, status = _GIVEN.unpack(given[0][2])
        if _clone(_REQUEST.unpack(request)[0], channel) == 0:
            control.detach()
            _be_the_clone(options, rules, channel, output, status)
        os.close(channel)
        os.close(output)
        os.close(status)


def _warm_up() -> None:
    """Run one program of our own, so that what the first one sets up in every clone is set up already."""
    import asyncio
    import linecache

    from . import program

    output = sys.stdout = program.StandardOutput(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))
    program.Programs().run(_WARM_UP)
    asyncio.get_event_loop().close()
    asyncio.set_event_loop(None)
    linecache.clearcache()
    sys.stdout = sys.__stdout__
    os.close(output.fileno())


def _clone(user: int, channel: int) -> int:
    """0 in the clone. In the zygote the host is told the clone's handle, or why there is none."""
    pid, handle, problem = -1, -1, 0
    try:
        pid, handle = kernel.clone()
        if pid == 0:
            return 0
        kernel.map_user(pid, _USER, user)
    except OSError as error:
        problem = error.errno or errno.EPERM
    host = socket.SocketType(_FAMILY, _KIND, 0, channel)
    try:
        if problem:
            host.send(_REPLY.pack(problem))
        else:
            host.sendmsg([_REPLY.pack(0)], [(_SOCKET, _RIGHTS, _REPLY.pack(handle))])
    except OSError:
        pass  # A host that gave up has closed the channel, and the clone ends by that.
    host.detach()
    if handle >= 0:
        if problem:
            with contextlib.suppress(ProcessLookupError):  # it has ended already
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
    return pid


def _be_the_clone(options: dict[str, Any], rules: kernel.Filter, channel: int, output: int, status: int) -> NoReturn:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _take_descriptors(channel, output, status)
        _mount_root()
        if os.read(_CHANNEL, 1) != b"g":
            os._exit(1)
        # In the control group now.
        kernel.new_cgroup_namespace()
        kernel.drop_capabilities()
        kernel.no_new_privileges()
        os.setsid()
        # The kernel keeps from process 1 every signal sent inside that it has no handler for.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        rules.install()
        guest = os.fork()
        if guest == 0:
            _be_the_guest(options)
        # From here on as little as possible: every page that is written to is kept for as long as the sandbox lives.
        os.closerange(0, _STATUS)
        os.write(_STATUS, _ENDING.pack(_wait(guest)))
        os._exit(0)
    except BaseException as error:  # a clone that cannot start must say why
        _complain(error)
        os.write(_STATUS, _ENDING.pack(1))
    os._exit(1)


def _take_descriptors(channel: int, output: int, status: int) -> None:
    """Standard input is empty, standard output and error are the output; channel and status follow; no others."""
    high = [fcntl.fcntl(number, fcntl.F_DUPFD, 64) for number in (channel, output, status)]
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, place in ((nothing, 0), (high[1], 1), (high[1], 2), (high[0], _CHANNEL), (high[2], _STATUS)):
        os.dup2(number, place)
    boot.keep_only(0, 1, 2, _CHANNEL, _STATUS)


def _mount_root() -> None:
    """Leave the zygote's view for the sandbox's own: the same root for all, with a home that is told here.

    The order's paths are used where they were received, and wiped: no copy of them is made in this memory.
    """
    order = (ctypes.c_char * (2 * _PATH))()
    received = 0
    while received < len(order):
        more = os.readv(_CHANNEL, [memoryview(order)[received:]])
        if not more:
            os._exit(1)
        received += more
    kernel.become(_USER)
    kernel.set_readable(readable=False)
    # Nothing that is mounted outside later appears in here.
    kernel.mount(None, b"/", None, kernel.RECURSIVE | kernel.PRIVATE)
    # A mount of our own: those that came with the namespace are locked in their place.
    kernel.mount(_ROOT, _ROOT, None, kernel.BIND | kernel.RECURSIVE)
    kernel.mount(b"proc", _ROOT + b"/proc", b"proc", _TEMPORARY | kernel.NO_PROGRAMS)
    for folder in (b"/tmp", b"/dev/shm"):
        kernel.mount(b"tmpfs", _ROOT + folder, b"tmpfs", _TEMPORARY, b"mode=1777,size=67108864")
    for number, folder in enumerate((b"/agent/workspace", b"/agent/skills")):
        source = ctypes.c_void_p(ctypes.addressof(order) + number * _PATH)
        kernel.mount(source, _ROOT + folder, None, kernel.BIND)
    ctypes.memset(order, 0, len(order))
    kernel.change_root(_ROOT)
    limit = os.open("/proc/sys/user/max_user_namespaces", os.O_WRONLY)
    os.write(limit, b"0")
    os.close(limit)


def _be_the_guest(options: dict[str, Any]) -> NoReturn:
    try:
        os.close(_STATUS)
        # Programs look at themselves in /proc; process 1 stays closed to them.
        kernel.set_readable(readable=True)
        boot.serve(options, _CHANNEL, rehearse=True)
    except SystemExit as stop:
        os._exit(stop.code if isinstance(stop.code, int) else 0)
    except BaseException as error:  # a guest that cannot start must say why
        _complain(error)
    os._exit(1)


def _complain(error: BaseException) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))


def _wait(guest: int) -> int:
    """Reap whatever ends here until the guest itself does."""
    while True:
        pid, status = os.wait()
        if pid == guest:
            return os.waitstatus_to_exitcode(status)
