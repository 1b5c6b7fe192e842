"""Starts a command and copies what it prints to a file as well: `tee.py FILE COMMAND…`. Started by path, by tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def main() -> int:
    with (
        Path(sys.argv[1]).open("wb", buffering=0) as copy,
        subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        while data := os.read(process.stdout.fileno(), 65536):
            copy.write(data)
            os.write(1, data)
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
