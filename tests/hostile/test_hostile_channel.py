"""Programs that speak on the channel themselves: the run ends, the host does not, and what it holds stays bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.arena import Arena
from tests.hostile.channel import CHANNEL, Speech

_HOST_MAY_GROW = 250_000_000
"""Bytes. Open requests may hold 64 MB twice (as bytes and as values), and the interpreter keeps some of it."""


@pytest.mark.parametrize("speech", CHANNEL, ids=lambda speech: speech.name)
def test_the_host_survives_a_program_that(arena: Arena, speech: Speech) -> None:
    before = _reset_peak()
    outcome = arena.run(speech.program, timeout=speech.timeout, slow=speech.slow_replies)
    if speech.ends:
        assert speech.ends in (outcome.error or "it went on"), outcome
    else:
        assert outcome.value == "still here", outcome
    assert _peak() - before < _HOST_MAY_GROW
    assert arena.run("6 * 7").value == 42


def test_raw_bytes_reach_the_host(arena: Arena) -> None:
    """The proof for all of the above: what these programs write really arrives."""
    say = Speech("proof", "", """raw(frame({"t": "progress", "text": "hello"}))""", ends="")
    assert arena.run(say.program).progress == ["hello"]


def _reset_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
