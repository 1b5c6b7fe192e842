"""Why bubblewrap cannot run on this machine, and the exact command that would let it."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from toolfold.errors import SandboxUnavailable

_TRIAL = ("--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--proc", "/proc", "--")


@dataclass(frozen=True)
class Switch:
    """A kernel setting that forbids unprivileged user namespaces when it has the value `closed`."""

    path: str
    closed: str
    why: str
    fix: str


_SWITCHES = (
    Switch(
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor forbids unprivileged user namespaces here (Ubuntu 23.10 and later)",
        "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    Switch(
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "this kernel forbids unprivileged user namespaces",
        "sudo sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    Switch(
        "/proc/sys/user/max_user_namespaces",
        "0",
        "the number of user namespaces is limited to 0",
        "sudo sysctl -w user.max_user_namespaces=15000",
    ),
)
_IN_A_CONTAINER = (Path("/.dockerenv"), Path("/run/.containerenv"))


def bubblewrap_version(bwrap: Path) -> str:
    """The version, from a trial run that makes real namespaces. Raises SandboxUnavailable with the fix."""
    try:
        shown = _run([str(bwrap), "--version"]).stdout
        trial = _run([str(bwrap), *_TRIAL, str(bwrap), "--version"])
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxUnavailable(f"bubblewrap ({bwrap}) could not be started: {error}.") from error
    if trial.returncode != 0:
        said = next(iter(trial.stderr.strip().splitlines()), f"exit code {trial.returncode}")
        why, fix = obstacle()
        raise SandboxUnavailable(f"bubblewrap cannot make a sandbox: {said[:300]}{why}.", hint=fix)
    found = re.search(r"\d+(?:\.\d+)+", shown)
    return found[0] if found else "of unknown version"


def obstacle(switches: tuple[Switch, ...] = _SWITCHES) -> tuple[str, str]:
    for switch in switches:
        try:
            value = Path(switch.path).read_text().strip()
        except OSError:
            continue
        if value == switch.closed:
            return f"; {switch.why}", f"Run: {switch.fix}"
    if any(mark.exists() for mark in _IN_A_CONTAINER):
        options = "--security-opt seccomp=unconfined --security-opt systempaths=unconfined"
        return "; this is a container whose engine forbids namespaces", f"Start the container with: {options}"
    return "", ""


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10, errors="replace")
