"""A Python that is warm: `python()` names an executable that starts `-m toolfold …` or a file like the interpreter of
the tests does, but in a copy of a process that has everything imported. Two thirds of what a start costs are imports.

It is for tests of what a command does. Tests of the process itself (its memory, its descriptors, its parent, how it is
killed) use `sys.executable`: the process that they would see here is a small one that stands for the copy.
"""

from __future__ import annotations

import atexit
import functools
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


@functools.cache
def python() -> str:
    """Starts the nest when it is first asked for. It ends with this process, however that ends, and leaves nothing."""
    if sys.platform != "linux":
        return sys.executable
    folder = Path(tempfile.mkdtemp(prefix="toolfold-warm-"))
    nest = subprocess.Popen(
        [sys.executable, "-P", HERE / "nest.py", folder / "nest"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
    )
    assert nest.stdout is not None
    assert nest.stdout.readline() == b"ready\n"
    words = [sys.executable, "-I", "-S", str(HERE / "shim.py"), str(folder / "nest"), sys.executable]
    launcher = folder / "python"
    launcher.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    launcher.chmod(0o755)

    def end() -> None:
        assert nest.stdin is not None
        nest.stdin.close()
        nest.wait(timeout=30)

    atexit.register(end)
    return str(launcher)
