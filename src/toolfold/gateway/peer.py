"""Whose process is at the other end of a loopback connection."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.datastructures import Address

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOOPBACK = "0100007F"
"""127.0.0.1 as the kernel writes it; in the table for IPv6 it ends an address that stands for it."""


def is_own_process(client: Address | None, port: int) -> bool:
    """Whether a connection to `port` on 127.0.0.1 was made by this user. True where the system has no way to tell.

    A link that a browser is started with can be read by every user of the machine in the list of processes.
    """
    if client is None or client.host != "127.0.0.1":
        return False
    if not _TABLES[0].exists():
        return True
    ends = f"{_LOOPBACK}:{client.port:04X}", f"{_LOOPBACK}:{port:04X}"
    for table in _TABLES:
        if not table.exists():
            continue
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            columns = line.split()
            if columns[1].endswith(ends[0]) and columns[2].endswith(ends[1]):
                return int(columns[7]) == os.getuid()
    return False
