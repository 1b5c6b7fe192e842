"""How `toolfold dashboard` reaches the gateways that run on this machine: by a socket that only their owner can open.

Each gateway has one, `gateways/PID-….sock` in its data folder. One line is asked, one line of JSON is the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import socket
import struct
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import msgspec

FOLDER = "gateways"
_LONGEST_PATH = 100
"""Bytes of a path that every system takes for a socket."""
_ASK_TIMEOUT = 5.0
_LINK_TIMEOUT = 30.0
_LINE_LIMIT = 4096

_log = logging.getLogger(__name__)


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway as it describes itself."""

    pid: int
    since: float
    """Seconds since 1970."""
    kind: str
    """`stdio` or `http`."""
    cwd: str
    servers: int
    file: str = ""
    """Its socket."""


@contextlib.asynccontextmanager
async def reachable(
    data_dir: Path, kind: str, servers: int, make_link: Callable[[], Awaitable[str]]
) -> AsyncGenerator[None]:
    """Meanwhile this process can be asked what it is, and for a link to its dashboard.

    Where the data folder cannot be written, that is logged, and the gateway serves without it.
    """
    about = Running(pid=os.getpid(), since=time.time(), kind=kind, cwd=_folder(), servers=servers)
    folder = data_dir / FOLDER
    file = folder / f"{os.getpid()}-{secrets.token_hex(4)}.sock"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.CancelledError):
            async with asyncio.timeout(_LINK_TIMEOUT):
                if _is_own(writer.get_extra_info("socket")):
                    line = await reader.readline()
                    writer.write(await _answer(line.strip(), about, make_link) + b"\n")
                    await writer.drain()
        writer.close()

    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _near(folder) as near:
            sock.bind(f"{near}/{file.name}.new")
        unheard = file.with_name(f"{file.name}.new")
        unheard.chmod(0o600)
        server = await asyncio.start_unix_server(answer, sock=sock, limit=_LINE_LIMIT)
        unheard.rename(file)  # whoever finds it before it listens would take it for one of a dead process
    except OSError as error:
        _log.warning("`toolfold dashboard` will not find this gateway: %s", error)
        yield
        return
    try:
        yield
    finally:
        server.close()
        file.unlink(missing_ok=True)


async def _answer(line: bytes, about: Running, make_link: Callable[[], Awaitable[str]]) -> bytes:
    match line:
        case b"about":
            return msgspec.json.encode(about)
        case b"dashboard":
            try:
                return msgspec.json.encode({"link": await make_link()})
            except Exception as error:
                _log.exception("no link to the dashboard could be made")
                return msgspec.json.encode({"error": str(error) or type(error).__name__})
        case _:
            return msgspec.json.encode({"error": "unknown request"})


def running(data_dir: Path) -> list[Running]:
    """The gateways of a data folder, the newest first. The sockets of those that have ended are removed."""
    found: list[Running] = []
    for file in (data_dir / FOLDER).glob("*.sock"):
        try:
            about = msgspec.convert(_ask(file, b"about"), Running)
            found.append(msgspec.structs.replace(about, file=str(file)))
        except ConnectionRefusedError:
            file.unlink(missing_ok=True)
        except (OSError, ValueError, msgspec.ValidationError) as error:
            _log.warning("%s did not answer: %s", file.name, error)
    return sorted(found, key=lambda each: each.since, reverse=True)


def ask_for_link(gateway: Running) -> str:
    """A link to its dashboard. Raises OSError or ValueError where it gives none."""
    told = _ask(Path(gateway.file), b"dashboard")
    if "link" not in told:
        raise ValueError(told.get("error", "no link"))
    return str(told["link"])


def _ask(file: Path, line: bytes) -> Any:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(_LINK_TIMEOUT if line == b"dashboard" else _ASK_TIMEOUT)
        with _near(file.parent) as near:
            sock.connect(f"{near}/{file.name}")
        sock.sendall(line + b"\n")
        with sock.makefile("rb") as answer:
            return json.loads(answer.readline(_LINE_LIMIT))


@contextlib.contextmanager
def _near(folder: Path) -> Generator[str]:
    """A short path to the folder: systems take about a hundred bytes for a socket's."""
    if len(os.fsencode(folder)) < _LONGEST_PATH - 30 or sys.platform != "linux":
        yield str(folder)
        return
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _is_own(sock: Any) -> bool:
    """Whether a process of this user is at the other end; where the system cannot tell, the folder keeps others out."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1] == os.getuid()


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return ""
