"""A guest that says exactly what a test lets it say."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from typing import Any


def frame(message: dict[str, Any]) -> bytes:
    body = json.dumps(message).encode()
    return struct.pack(">I", len(body)) + body


class Guest:
    """A cell without a process: both ends of a real channel and of a real pipe are in the test's hands."""

    def __init__(self, ending: str = "exit code 0") -> None:
        self.channel, self._theirs = socket.socketpair()
        self.output, self._print = os.pipe()
        self._ending = ending
        self._ended = asyncio.Event()
        self.kills = 0
        self._received = b""

    def kill(self) -> None:
        self.kills += 1
        self._ended.set()

    async def wait(self) -> str:
        await self._ended.wait()
        return self._ending

    def say(self, *messages: dict[str, Any], more: bytes = b"") -> None:
        self._theirs.setblocking(True)
        self._theirs.sendall(b"".join(map(frame, messages)) + more)

    async def say_much(self, message: dict[str, Any]) -> None:
        """More than the channel takes at once."""
        self._theirs.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(self._theirs, frame(message))

    def print(self, data: bytes) -> None:
        os.write(self._print, data)

    def end(self) -> None:
        self._ended.set()
        self._theirs.close()

    async def hear(self) -> dict[str, Any]:
        """The next frame from the host."""
        self._theirs.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(60):
            while len(self._received) < 4 or len(self._received) < 4 + struct.unpack(">I", self._received[:4])[0]:
                more = await loop.sock_recv(self._theirs, 1 << 16)
                assert more, "the host hung up"
                self._received += more
        size = 4 + struct.unpack(">I", self._received[:4])[0]
        body, self._received = self._received[4:size], self._received[size:]
        return json.loads(body)

    def close(self) -> None:
        self._theirs.close()
        os.close(self._print)
