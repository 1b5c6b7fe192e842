"""Whose process is at the other end of a loopback connection."""

from __future__ import annotations

import ipaddress
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.datastructures import Address

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def is_own_process(client: Address | None, port: int) -> bool:
    """Whether a loopback connection to `port` was made by this user. True where the system has no way to tell.
    Blocks: on a busy machine the table of connections is long.

    A link that a browser is started with can be read by every user of the machine in the list of processes.
    """
    try:
        address = ipaddress.ip_address(client.host if client is not None else "")
    except ValueError:
        return False
    if client is None or not address.is_loopback:
        return False
    if not _TABLES[0].exists():
        return True
    # As the kernel writes it; in the table for IPv6 an address of IPv4 is the end of one that stands for it.
    words = struct.unpack(f"<{len(address.packed) // 4}I", address.packed)
    near = "".join(f"{word:08X}" for word in words) + f":{client.port:04X}"
    for table in _TABLES:
        if not table.exists():
            continue
        # There may be tens of thousands of lines: only those that have the address in them are looked at.
        rows = table.read_text(encoding="ascii")
        at = -1
        while (at := rows.find(f"{near} ", at + 1)) >= 0:
            columns = rows[rows.rfind("\n", 0, at) + 1 :].partition("\n")[0].split()
            if columns[1].endswith(near) and columns[2].endswith(f":{port:04X}"):
                return int(columns[7]) == os.getuid()
    return False
