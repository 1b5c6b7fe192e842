"""`python -m tests.clients.loopback COMMAND…`: switch the loopback interface on and become the command.

In a new network namespace it is off, and there is no other.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys

_SET_FLAGS = 0x8914
_UP = 0x1


def main(command: list[str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
