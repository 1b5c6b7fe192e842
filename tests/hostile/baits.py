"""What the host lays out for hostile programs to find: things that are reachable for every ordinary process here."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any


class Baits:
    """A context manager. `touched` holds the names of the sockets that something connected to or sent to."""

    def __init__(self, folder: Path, *, scratch: Path) -> None:
        """`folder` is a folder that sandboxes must not see; `scratch` is where proofs outside may write."""
        self._folder = folder
        self._scratch = scratch
        self._stack = contextlib.ExitStack()
        self._loose = contextlib.ExitStack()
        self.touched: set[str] = set()
        self.values: dict[str, Any] = {}

    def __enter__(self) -> Baits:
        token = secrets.token_hex(12)
        self._folder.mkdir(parents=True)
        (self._folder / "secret").write_text(token)
        (self._folder / "neighbour").write_text(token)
        (self._folder / "module.py").write_text("")
        (self._folder / "api").mkdir()
        process = self._start(token)
        self.values = {
            "token": token,
            "secret": str(self._folder / "secret"),
            "neighbour": str(self._folder / "neighbour"),
            "module": str(self._folder / "module.py"),
            "api": str(self._folder / "api"),
            "free": str(self._folder / "free"),
            "heartbeat": str(self._scratch / "heartbeat"),
            "scratch": str(self._scratch),
            "process": process.pid,
            "port": self._listen("tcp", socket.AF_INET, ("127.0.0.1", 0))[1],
            "udp": self._listen("udp", socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM)[1],
            "abstract": f"toolfold-{token}",
            "abstract_datagram": f"toolfold-datagram-{token}",
            "unix": str(self._folder / "host.sock"),
            "devices": [str(path) for path in Path("/dev").iterdir() if path.is_block_device() or path.name == "mem"],
        }
        with contextlib.suppress(OSError):
            self.values["port6"] = self._listen("tcp6", socket.AF_INET6, ("::1", 0))[1]
        self._listen("abstract", socket.AF_UNIX, f"\0{self.values['abstract']}")
        datagram = f"\0{self.values['abstract_datagram']}"
        self._listen("abstract_datagram", socket.AF_UNIX, datagram, socket.SOCK_DGRAM)
        self._listen("unix", socket.AF_UNIX, self.values["unix"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loose.close()
        self._stack.close()

    def victim(self) -> subprocess.Popen[bytes]:
        """A process of the host, in a group of its own."""
        return self._start("victim")

    def leave_socket(self, path: Path) -> None:
        # By way of the folder's descriptor: the whole path may be longer than a socket's address.
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._listen("workspace", socket.AF_UNIX, f"/proc/self/fd/{folder}/{path.name}", stack=self._loose)
        finally:
            os.close(folder)

    def reset(self) -> None:
        self.touched.clear()
        self._loose.close()
        for name in ("free", "second"):
            (self._folder / name).unlink(missing_ok=True)

    def _start(self, token: str) -> subprocess.Popen[bytes]:
        code = "import sys; sys.stdout.write('up'); sys.stdout.flush(); sys.stdin.read()"
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code, token],
            env={"TOKEN": token},
            stdin=subprocess.PIPE,  # it ends with this process, however long the tests take
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        process.stdout.read(2)
        self._stack.callback(_end, process)
        return process

    def _listen(
        self,
        name: str,
        family: socket.AddressFamily,
        address: Any,
        kind: socket.SocketKind = socket.SOCK_STREAM,
        stack: contextlib.ExitStack | None = None,
    ) -> Any:
        server = socket.socket(family, kind)
        server.bind(address)
        if kind == socket.SOCK_STREAM:
            server.listen()
        (stack or self._stack).callback(_shut, server)
        threading.Thread(target=self._hear, args=(name, server, kind), daemon=True).start()
        return server.getsockname()

    def _hear(self, name: str, server: socket.socket, kind: socket.SocketKind) -> None:
        with contextlib.suppress(OSError):
            while True:
                if kind == socket.SOCK_STREAM:
                    server.accept()[0].close()
                elif not server.recv(100):
                    return
                self.touched.add(name)


def _shut(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)
    server.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.communicate(timeout=60)
