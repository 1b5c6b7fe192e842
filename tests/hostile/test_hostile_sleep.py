"""Between runs a session sleeps, whatever its program left behind to wake it."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.hostile.arena import Arena, Session
from tests.hostile.sleepers import LEAVES, PRELUDE


def _beats(session: Session) -> int:
    return (session.sandbox.home.workspace / "count").stat().st_size


HOARD = """
import os, time
made, tell = os.pipe()
if os.fork() == 0:
    pipes = [os.pipe() for _ in range(100)]
    os.write(tell, b".")
    time.sleep(60)
os.read(made, 1)
pipes = [os.pipe() for _ in range(100)]
"""
"""Neither of its processes holds too much, both together do."""


CROWD = """
import os, time
for _ in range({count}):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
"""


@pytest.mark.parametrize("left", LEAVES)
def test_nothing_works_in_a_session_that_sleeps(arena: Arena, left: str) -> None:
    with arena.session() as session:
        assert session.run(f"{PRELUDE}\n{LEAVES[left]}\ntime.sleep(0.1)\n").error == ""
        # Where nothing can hold it, it is ended as soon as it is seen to work.
        session.fall_asleep()
        before = _beats(session)
        assert before > 0
        time.sleep(0.5)
        assert _beats(session) == before


def test_a_session_does_not_sleep_on_a_hoard(arena: Arena) -> None:
    """The run is too short to be looked at; what it holds it would hold for hours."""
    with arena.session() as session:
        assert session.run("import os\npipes = [os.pipe() for _ in range(100)]").error == ""
        session.fall_asleep()
        assert session.sandbox.alive
    with arena.session() as session:
        session.run(HOARD)
        session.arena.wait_for(_ended(session), 60)


def test_a_session_ends_with_a_program_that_fails_and_leaves_a_crowd(arena: Arena) -> None:
    with arena.session() as session:
        assert session.run(f"{CROWD.format(count=4)}1 / 0").error
        assert session.sandbox.alive
    with arena.session() as session:
        assert "ZeroDivisionError" in session.run(f"{CROWD.format(count=30)}1 / 0").error
        assert not session.sandbox.alive, "at once: the next run may come before it sleeps"
    with arena.session() as session:
        assert session.run(CROWD.format(count=30)).error == ""
        session.arena.wait_for(_ended(session), 60)


async def _ended(session: Session) -> None:
    while session.sandbox.alive:
        await asyncio.sleep(0.01)


def test_a_session_goes_on_after_its_sleep(arena: Arena) -> None:
    with arena.session() as session:
        session.run(f"{PRELUDE}\nstart(beat)\nfork(beat)\ntime.sleep(0.05)\n")
        session.fall_asleep()
        before = _beats(session)
        assert session.run("time.sleep(0.1); 'awake'").value == "awake"
        assert _beats(session) > before
