"""The process supervisor: starts stdio servers, owns them, and ends them when the gateway is gone.

It runs as a script (`python -I -S`, standard library only) with a socket to the gateway as its standard input.
Because it is a separate process, no server outlives the gateway, however that ends: when the socket closes, the
supervisor ends everything it started and then itself. On Linux it is a child subreaper, so a grandchild that called
`setsid`, or whose parent died, is still its descendant and is found.

Requests and events are lines of JSON. `start` carries two file descriptors: the server's stdin and stdout. The
supervisor writes the server's stderr to a log file of bounded size, so a flood of it costs the gateway nothing.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import selectors
import signal
import socket
import sys
import time
from typing import Any

LINUX = sys.platform.startswith("linux")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MARK = "TOOLFOLD_UPSTREAM"
"""Set in the environment of every server, and inherited by what it starts unless that is cleaned."""

LOG_BYTES = 2_000_000
TAIL_BYTES = 4_000
EXIT_GRACE = 0.5
TERM_GRACE = 1.0
KILL_GRACE = 3.0
TICK = 0.02

Process = tuple[int, int, int]
"""Parent, process group, session."""


def prctl(option: int, value: int) -> None:
    if LINUX:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def read_file(path: str) -> bytes:
    # By descriptor: `pathlib` is not worth its import here, and this runs for every process of the machine.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while chunk := os.read(fd, 1 << 16):
            data += chunk
        return data
    finally:
        os.close(fd)


def processes() -> dict[int, Process]:
    """Every live process that may be seen, without zombies."""
    return _from_proc() if LINUX else _from_ps()


def _from_proc() -> dict[int, Process]:
    table: dict[int, Process] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name in parentheses may hold anything, so fields count from the last one.
                fields = read_file(f"/proc/{entry}/stat").rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    table[int(entry)] = (int(fields[1]), int(fields[2]), int(fields[3]))
    return table


def _from_ps() -> dict[int, Process]:
    import subprocess

    table: dict[int, Process] = {}
    listing = subprocess.Popen(
        ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat="], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    for line in listing.communicate()[0].decode("ascii", "replace").splitlines():
        with contextlib.suppress(ValueError):
            pid, parent, group, state = line.split(None, 3)
            if not state.startswith("Z") and int(pid) != listing.pid:
                table[int(pid)] = (int(parent), int(group), int(group))
    return table


def descendants(table: dict[int, Process], root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, (parent, _, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found


def carries(pid: int, mark: bytes) -> bool:
    with contextlib.suppress(OSError):
        return mark in read_file(f"/proc/{pid}/environ").split(b"\0")
    return False


def send_signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


class Log:
    """A file that keeps the newest lines: at its limit it becomes `NAME.1` and starts again."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.tail = b""
        self._open()

    def _open(self) -> None:
        self.fd = -1
        with contextlib.suppress(OSError):
            self.fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # A log that is in use does not expire.
            fcntl.flock(self.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def write(self, data: bytes) -> None:
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        if self.fd < 0:
            return
        # A full disk must not stop the server.
        with contextlib.suppress(OSError):
            os.write(self.fd, data)
            if os.fstat(self.fd).st_size > LOG_BYTES:
                os.replace(self.path, self.path + ".1")  # noqa: PTH105
                os.close(self.fd)
                self._open()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Child:
    """One server: the process that was started, its stderr, and its descendants."""

    def __init__(self, number: int, pid: int, mark: bytes, log: Log, stderr: int) -> None:
        self.number = number
        self.pid = pid
        self.mark = mark
        self.log = log
        self.stderr = stderr
        self.status: int | None = None
        self.members: set[int] = set()
        self.kill_at: float | None = None
        self.give_up_at = 0.0

    def find_members(self, table: dict[int, Process], ours: set[int]) -> set[int]:
        """The server's live processes, also those whose parent is gone, if they were seen before."""
        known = {self.pid} | descendants(table, self.pid) | self.members
        known |= {pid for pid in ours if self.pid in table[pid][1:] or carries(pid, self.mark)}
        # The number of a server that ended may be that of somebody else's process by now.
        self.members = known & ours
        return self.members


class SupervisorProcess:
    """Answers the gateway's requests until the socket closes, then ends every server."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.children: dict[int, Child] = {}
        self.selector = selectors.DefaultSelector()
        self.received = b""
        self.passed: list[list[int]] = []
        """The descriptors of starts that are still to be read: two each, or fewer if there was no space for them."""
        self.closing = False
        self.pace = TICK
        self.look_at = 0.0

    def run(self) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        wake_read, wake_write = os.pipe()
        for fd in (wake_read, wake_write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, self._on_sigchld)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        # The gateway handles Ctrl-C and a closed terminal; we learn of its end from the socket.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.selector.register(self.control, selectors.EVENT_READ, None)
        self.selector.register(wake_read, selectors.EVENT_READ, wake_read)
        while not self.closing:
            self.turn(self.timeout())
        self.end_everything()

    def _on_sigchld(self, *_: object) -> None:
        """Nothing to do: the wake-up pipe ends the wait, and `reap` collects the child."""

    def _on_sigterm(self, *_: object) -> None:
        self.closing = True

    def timeout(self) -> float | None:
        return self.pace if any(child.kill_at is not None for child in self.children.values()) else None

    def turn(self, timeout: float | None) -> None:
        for key, _ in self.selector.select(timeout):
            if key.fileobj is self.control:
                self.receive()
            elif isinstance(key.data, Child):
                self.pump(key.data)
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(key.fd, 4096)
        self.reap()
        self.finish_stops()

    def survey(self) -> tuple[dict[int, Process], set[int]]:
        """All processes, and which of them are ours. How often it is called depends on how long it takes."""
        began = time.monotonic()
        table = processes()
        ours = descendants(table, os.getpid())
        now = time.monotonic()
        self.pace = max(TICK, 4 * (now - began))
        self.look_at = now + self.pace
        return table, ours

    def send_event(self, **event: Any) -> None:
        with contextlib.suppress(OSError):
            self.control.sendall(json.dumps(event).encode() + b"\n")

    def receive(self) -> None:
        try:
            data, ancillary, flags, _ = self.control.recvmsg(65536, socket.CMSG_SPACE(16 * 4))
        except OSError:
            data, ancillary, flags = b"", [], 0
        fds = array.array("i")
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(payload[: len(payload) - len(payload) % 4])
        for fd in fds:
            os.set_inheritable(fd, False)
        if fds or flags & socket.MSG_CTRUNC:
            self.passed.append([*fds])
        if not data:
            self.closing = True
            return
        *lines, self.received = (self.received + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message["do"] == "start":
                self.start(message)
            elif (child := self.children.get(message["id"])) is not None:
                self.stop(child, message["grace"])

    def start(self, message: dict[str, Any]) -> None:
        mark = f"{MARK}={message['mark']}"
        ours: list[int] = []
        theirs = self.passed.pop(0)
        try:
            if len(theirs) < 2:
                raise OSError(errno.EMFILE, "")
            for _ in ("stderr", "failure"):
                read, write = os.pipe()
                ours.append(read)
                theirs.append(write)
            pid = os.fork()
        except OSError as error:
            # No descriptor or process to be had: that costs this server, not those that run.
            for fd in (*ours, *theirs):
                os.close(fd)
            self.send_event(event="refused", id=message["id"], errno=error.errno, step="start")
            return
        if pid == 0:
            self._exec(message, theirs[:3], theirs[3])
        for fd in theirs:
            os.close(fd)
        error_read, failed_read = ours
        # The pipe closes when the new program is in place, so an empty answer means it started.
        failure = os.read(failed_read, 100)
        os.close(failed_read)
        if failure:
            os.close(error_read)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            number, _, step = failure.partition(b" ")
            self.send_event(event="refused", id=message["id"], errno=int(number), step=step.decode())
            return
        os.set_blocking(error_read, False)
        child = Child(message["id"], pid, mark.encode(), Log(message["log"]), error_read)
        self.children[child.number] = child
        self.selector.register(error_read, selectors.EVENT_READ, child)
        self.send_event(event="started", id=child.number, pid=pid)

    def _exec(self, message: dict[str, Any], streams: list[int], failed: int) -> None:
        """In the forked child: become the server, or report why that failed."""
        step = "start"
        try:
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            if hasattr(signal, "SIGXFSZ"):
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            for target, fd in enumerate(streams):
                os.dup2(fd, target)
            if message["cwd"]:
                step = "cwd"
                os.chdir(message["cwd"])
            step = "command"
            argv = message["argv"]
            os.execve(argv[0], argv, {**message["env"], MARK: message["mark"]})  # noqa: S606
        except OSError as error:
            os.write(failed, f"{error.errno or 0} {step}".encode())
        except Exception:
            os.write(failed, f"22 {step}".encode())
        finally:
            os._exit(127)

    def pump(self, child: Child) -> bool:
        """Move the server's stderr to its log; False when there is nothing more to read for now."""
        try:
            data = os.read(child.stderr, 65536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(child.stderr)
            os.close(child.stderr)
            child.stderr = -1
            return False
        child.log.write(data)
        return True

    def reap(self) -> None:
        """Collect every child that has exited, also orphans that were reparented to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for child in self.children.values():
                if child.pid == pid and child.status is None:
                    child.status = os.waitstatus_to_exitcode(status)
                    self.on_exit(child)

    def on_exit(self, child: Child) -> None:
        # Bounded: a descendant that keeps writing must not keep us here.
        for _ in range(64):
            if child.stderr < 0 or not self.pump(child):
                break
        tail = child.log.tail.decode("utf-8", "replace")
        self.send_event(event="exited", id=child.number, status=child.status, tail=tail)
        if child.kill_at is None:
            self.stop(child, TERM_GRACE)

    def stop(self, child: Child, grace: float) -> None:
        send_signal(child.find_members(*self.survey()), signal.SIGTERM)
        child.kill_at = time.monotonic() + grace
        child.give_up_at = child.kill_at + KILL_GRACE

    def finish_stops(self) -> None:
        stopping = [child for child in self.children.values() if child.kill_at is not None]
        if not stopping or time.monotonic() < self.look_at:
            return
        table, ours = self.survey()
        now = time.monotonic()
        for child in stopping:
            members = child.find_members(table, ours)
            assert child.kill_at is not None
            if members and now >= child.kill_at:
                send_signal(members, signal.SIGKILL)
            if (not members and child.status is not None) or now >= child.give_up_at:
                self.remove(child)

    def remove(self, child: Child) -> None:
        if child.stderr >= 0:
            self.selector.unregister(child.stderr)
            os.close(child.stderr)
        child.log.close()
        del self.children[child.number]
        self.send_event(event="stopped", id=child.number)

    def end_everything(self) -> None:
        """The gateway is gone or closing. Its pipes are closed too, so well-behaved servers exit by themselves."""
        with contextlib.suppress(KeyError):
            self.selector.unregister(self.control)
        seen: set[int] = set()
        for grace, number in ((EXIT_GRACE, 0), (TERM_GRACE, signal.SIGTERM), (KILL_GRACE, signal.SIGKILL)):
            until = time.monotonic() + grace
            signalled: set[int] = set()
            while True:
                table, ours = self.survey()
                # Without a subreaper an orphan leaves our tree, so what was seen once is remembered.
                seen = {pid for pid in seen if pid in table} | ours
                if not seen:
                    self.reap()
                    return
                if number:
                    send_signal(seen if number == signal.SIGKILL else seen - signalled, number)
                    signalled |= seen
                if time.monotonic() >= until:
                    break
                self.turn(self.pace)


def main() -> None:
    SupervisorProcess(socket.socket(fileno=0)).run()


if __name__ == "__main__":
    main()
