"""Programs that speak on the channel themselves: the run ends, the host does not, and what it holds stays bounded."""

from __future__ import annotations

import pytest

from tests.hostile.arena import Arena
from tests.hostile.channel import CHANNEL, Speech
from tests.hostile.memory import peak, reset_peak

_HOST_MAY_GROW = 250_000_000
"""Bytes. Open requests may hold 64 MB twice (as bytes and as values), and the interpreter keeps some of it."""


@pytest.mark.parametrize("speech", CHANNEL, ids=lambda speech: speech.name)
def test_the_host_survives_a_program_that(arena: Arena, speech: Speech) -> None:
    before = reset_peak()
    outcome = arena.run(speech.program, timeout=speech.timeout, slow=speech.slow_replies)
    if speech.ends:
        assert speech.ends in (outcome.error or "it went on"), outcome
    else:
        assert outcome.value == "still here", outcome
    assert peak() - before < _HOST_MAY_GROW
    assert arena.run("6 * 7").value == 42


def test_raw_bytes_reach_the_host(arena: Arena) -> None:
    """The proof for all of the above: what these programs write really arrives."""
    say = Speech("proof", "", """raw(frame({"t": "progress", "text": "hello"}))""", ends="")
    assert arena.run(say.program).progress == ["hello"]
