"""Programs that speak on the channel themselves: the run ends, the host does not, and what it holds stays bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.arena import Arena
from tests.hostile.channel import CHANNEL, FLOOD, Speech
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


def test_a_flood_of_messages_ends_the_run(arena: Arena, tmp_path: Path) -> None:
    # So few that one look at the channel finds more of them, however slow this machine is.
    settings = arena.settings.model_copy(update={"messages": 200, "pool": 1})
    (tmp_path / "runtime").symlink_to(arena.data_dir / "runtime")
    few = Arena(arena.backend, tmp_path, settings)
    few.open()
    try:
        before = reset_peak()
        assert few.run(FLOOD.program, timeout=60).limit == FLOOD.ends
        assert peak() - before < _HOST_MAY_GROW
        assert few.run("6 * 7").value == 42
    finally:
        few.close()


def test_raw_bytes_reach_the_host(arena: Arena) -> None:
    """The proof for all of the above: what these programs write really arrives."""
    say = Speech("proof", "", """raw(frame({"t": "progress", "text": "hello"}))""", ends="")
    assert arena.run(say.program).progress == ["hello"]
