"""The gateway under test: `toolfold serve --http`, which is killed and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SERVERS = HERE.parent / "servers"


def write_config(folder: Path) -> Path:
    """A config with a server that writes down every call, and one with all kinds of answers.

    Unused sessions are closed soon, so that a gateway without load is as it was at its start.
    """
    config = folder / "toolfold.toml"
    config.write_text(f"""
session_idle = 2
[sandbox]
timeout = 5
pool = 2
[servers.ledger]
command = {json.dumps(sys.executable)}
args = {json.dumps([str(SERVERS / "ledger.py"), str(folder / "ledger.jsonl")])}
[servers.lab]
command = {json.dumps(sys.executable)}
args = {json.dumps([str(SERVERS / "lab.py")])}
""")
    return config


class Gateway:
    def __init__(self, folder: Path, data: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.slow = folder / "slow-disk"
        self.pids: set[int] = set()
        self.lines: list[str] = []
        """What every one of them printed."""
        self.data = data
        self.config = write_config(folder)
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it and wait until it listens."""
        command = ["-m", "toolfold", "serve", "--config", str(self.config), "--data", str(self.data)]
        env = {**os.environ, "PYTHONPATH": str(HERE / "slow"), "TOOLFOLD_SLOW_DISK": str(self.slow)}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            *("--http", f"127.0.0.1:{self.port}", "--no-token"),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=env,
        )
        self.pids.add(self._process.pid)
        assert self._process.stderr is not None
        while True:
            line = (await self._process.stderr.readline()).decode()
            assert line, f"the gateway did not start: {self.lines[-5:]}"
            self.lines.append(line)
            if "listens at" in line:
                break
        self._reading = asyncio.create_task(self._read(self._process.stderr))

    async def _read(self, stderr: asyncio.StreamReader) -> None:
        while line := await stderr.readline():
            self.lines.append(line.decode())

    async def end(self, number: signal.Signals) -> int:
        """Send a signal and wait until it has ended; answers its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        code = await self._process.wait()
        if self._reading is not None:
            await self._reading
        return code
