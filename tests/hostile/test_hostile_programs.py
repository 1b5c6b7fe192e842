"""Every hostile program, in a sandbox where it must fail, and outside of one, where it must succeed."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.arena import Arena, Outcome
from tests.hostile.attempt import MACHINE, Attempt
from tests.hostile.baits import Baits
from tests.hostile.files import FILES
from tests.hostile.kernel import KERNEL
from tests.hostile.neighbours import NEIGHBOURS
from tests.hostile.network import NETWORK
from tests.hostile.resources import RESOURCES
from toolfold.sandbox.sandbox import Sandbox
from toolfold.session.removal import remove_tree

ATTEMPTS = [attempt for attempt in (*FILES, *NETWORK, *NEIGHBOURS, *KERNEL, *RESOURCES) if MACHINE in attempt.machines]
every_attempt = pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)


@every_attempt
def test_a_sandboxed_program_fails_to(arena: Arena, baits: Baits, attempt: Attempt) -> None:
    if attempt.only and arena.backend not in attempt.only:
        pytest.skip(f"only {', '.join(attempt.only)} promises this")
    baits.reset()
    victim = baits.victim() if "victim" in attempt.code else None
    values: dict[str, Any] = {**baits.values, "victim": victim.pid if victim is not None else 0}
    left: dict[str, Any] = {}

    def before(sandbox: Sandbox) -> None:
        if "socket_in_workspace" in attempt.extra:
            baits.leave_socket(sandbox.home.workspace / "host.sock")

    def after(sandbox: Sandbox) -> None:
        heartbeat = sandbox.home.workspace / "heartbeat"
        left["heartbeat"] = _grows(heartbeat)

    outcome = arena.run(attempt.inside_program(values), timeout=attempt.timeout, before=before, after=after)

    if attempt.ends and not _refused(attempt, outcome):
        assert outcome.limit in attempt.ends.split(" or "), outcome
    elif "untouched" in attempt.extra:
        assert attempt.extra["untouched"] not in baits.touched, outcome
    elif "heartbeat" not in attempt.extra:
        assert outcome.value is not True, f"the sandbox let it {attempt.tries}"
        assert not outcome.limit or attempt.ends, outcome
    assert not left["heartbeat"]
    assert not Path(values["free"]).exists()
    assert "workspace" not in baits.touched
    if victim is not None:
        assert victim.poll() is None


def _refused(attempt: Attempt, outcome: Outcome) -> bool:
    return bool(attempt.extra.get("refused_is_fine")) and isinstance(outcome.value, str) and not outcome.error


@every_attempt
def test_a_program_outside_manages_to(baits: Baits, attempt: Attempt, tmp_path: Path) -> None:
    if attempt.needs_root and os.geteuid() != 0:
        pytest.skip("only root can show that this works outside: run the tests as root")
    baits.reset()
    program = attempt.outside or attempt.code
    values = {**baits.values, "scratch": str(tmp_path)}
    if "victim" in program:
        values["victim"] = baits.victim().pid
    if "port6" in program and "port6" not in values:
        pytest.skip("no IPv6 here: sysctl net.ipv6.conf.all.disable_ipv6=0")
    try:
        outcome = _run_outside(attempt, values)
    finally:
        # What these leave is more than pytest can clear away.
        remove_tree(tmp_path)
    if attempt.needs and outcome == attempt.needs:
        # It was asked and has none: there is nothing here that a sandbox would have to stop.
        warnings.warn(f"{attempt.name}: this kernel has {outcome}, which proves nothing", stacklevel=1)
        return
    assert outcome is True
    if "untouched" in attempt.extra:
        _eventually(lambda: attempt.extra["untouched"] in baits.touched)
    if "heartbeat" in attempt.extra:
        assert _grows(Path(values["heartbeat"]))


def _run_outside(attempt: Attempt, values: dict[str, Any]) -> Any:
    """In an ordinary process with an ordinary environment; whatever it started ends with this test."""
    inherited = [os.open(attempt.extra["inherit"], os.O_RDONLY)] if "inherit" in attempt.extra else []
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", attempt.outside_program(values)],
        env={"TOKEN": values["token"], "PATH": os.environ.get("PATH", "")},
        stdout=subprocess.PIPE,
        pass_fds=inherited,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        return json.loads(process.stdout.readline())
    finally:
        for number in inherited:
            os.close(number)
        if "heartbeat" not in attempt.extra:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture(autouse=True)
def end_daemons(baits: Baits) -> Any:
    """The daemon's proof really leaves a process behind; its session is not ours, so it is found by its baits."""
    yield
    token = str(baits.values["token"]).encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
            ours = b"BAITS = {" in words and token in words and path.stat().st_uid == os.geteuid()
        except OSError:
            continue
        if ours and int(path.parent.name) != os.getpid():
            os.kill(int(path.parent.name), signal.SIGKILL)


def _grows(path: Path) -> bool:
    """Whether something still writes to it: several times the interval at which it would."""
    if not path.exists():
        return False
    before = path.stat().st_size
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        if path.stat().st_size != before:
            return True
        time.sleep(0.02)
    return False


def _eventually(condition: Any) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_there_are_many_and_each_says_what_it_tries() -> None:
    assert len(ATTEMPTS) >= 60
    assert len({attempt.name for attempt in ATTEMPTS}) == len(ATTEMPTS)
    assert all(attempt.tries for attempt in ATTEMPTS)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 64
