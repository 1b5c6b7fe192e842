"""What a hostile program is, as data: what it tries, how one sees that it succeeded, and that it can succeed at all."""

from __future__ import annotations

import platform
import textwrap
from dataclasses import dataclass, field
from typing import Any

from toolfold.sandbox.walls.syscalls import numbers

MACHINE = platform.machine()

# Both inside and outside: `BAITS` is what the host laid out, `call` makes a raw system call and raises OSError.
_PRELUDE = """
import ctypes, errno, json, os, signal, socket, stat, struct, subprocess, sys, tempfile, threading, time
BAITS = {baits!r}
NR = {numbers!r}
HERE = "workspace" if os.path.isdir("workspace") else tempfile.mkdtemp(dir=BAITS["scratch"])
_libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    result = _libc.syscall(NR[name], *(ctypes.c_long(item) if isinstance(item, int) else item for item in arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), name + ": " + os.strerror(ctypes.get_errno()))
    return result
def survives(action):
    "Run `action` in a child; whether the child lived to say yes."
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if action() else 1)
        except BaseException:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0
"""

_VERDICT = """
try:
    outcome = attempt()
except BaseException as error:
    outcome = type(error).__name__ + ": " + str(error)
"""


@dataclass(frozen=True)
class Attempt:
    """`attempt()` in `code` answers True only when the harm was done. Outside of a sandbox it must answer True."""

    name: str
    tries: str
    code: str
    outside: str = ""
    """Another `attempt` for the proof, where doing the whole thing outside would hurt this machine."""
    needs_root: bool = False
    """The proof does; the attempt itself is made as whoever the sandbox is."""
    needs: str = ""
    """A kernel feature that the proof depends on: the attempt answers this text where the kernel lacks it."""
    ends: str = ""
    """The limit that ends the run (or another: `a or b`), for attempts that cannot be refused one by one."""
    timeout: float = 20.0
    machines: tuple[str, ...] = ("x86_64", "aarch64")
    only: tuple[str, ...] = ()
    """Backends that promise to hold this; empty means all."""
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    def inside_program(self, baits: dict[str, Any]) -> str:
        return f"{_prelude(baits)}\n{textwrap.dedent(self.code)}\n{_VERDICT}\noutcome\n"

    def outside_program(self, baits: dict[str, Any]) -> str:
        code = textwrap.dedent(self.outside or self.code)
        return f"{_prelude(baits)}\n{code}\n{_VERDICT}\nprint(json.dumps(outcome))\nsys.stdout.flush()\nos._exit(0)\n"


def _prelude(baits: dict[str, Any]) -> str:
    table = numbers("aarch64" if MACHINE == "aarch64" else "x86_64")
    return _PRELUDE.format(baits=baits, numbers=table)
