"""Places for runs: whatever comes, waits and gives up, none is lost or given twice, and callers are served fairly."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolfold.session.places import Places

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.sampled_from("abc"), st.booleans()),
        st.tuples(st.sampled_from(["give back", "give up"]), st.integers(0, 30), st.booleans()),
    ),
    min_size=20,
    max_size=80,
)
"""The last is whether all that follows from it happens before the next step."""


@given(count=st.integers(1, 4), steps=STEPS)
def test_no_place_is_lost_or_given_twice_and_the_caller_with_the_fewest_is_next(
    count: int, steps: list[tuple[str, str | int, bool]]
) -> None:
    async def all_steps() -> None:
        places = Places(count)
        held: list[str] = []
        line: list[tuple[str, asyncio.Task[None]]] = []
        is_calm = True

        async def take(caller: str) -> None:
            await places.take(caller)
            taken = Counter(held)
            waiting = {other for other, task in line if not task.done() and task is not asyncio.current_task()}
            assert not is_calm or all(taken[caller] <= taken[other] for other in waiting), "another has fewer and waits"
            held.append(caller)

        async def settle() -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            for _, task in line:
                assert not task.done() or task.cancelled() or task.exception() is None, task.exception()
            line[:] = [(caller, task) for caller, task in line if not task.done()]
            assert len(held) == count if line else len(held) <= count
            assert places.full is (len(held) == count)
            assert places.waiting == len(line)
            assert all(places.waiting_of(who) == [caller for caller, _ in line].count(who) for who in "abc")

        for step, which, is_settled in steps:
            if isinstance(which, str):
                line.append((which, asyncio.create_task(take(which))))
            elif step == "give back" and held:
                places.give_back(held.pop(which % len(held)))
            elif step == "give up" and line:
                line[which % len(line)][1].cancel()
            if is_settled:
                await settle()
            is_calm = is_settled
        await settle()
        while held:
            places.give_back(held.pop())
            await settle()
        assert (places.waiting, places.full) == (0, False)

    asyncio.run(all_steps())


def test_one_who_gives_up_in_the_moment_of_being_served_passes_the_place_on() -> None:
    async def moment() -> None:
        places = Places(1)
        await places.take("a")
        first, second = asyncio.create_task(places.take("b")), asyncio.create_task(places.take("c"))
        await asyncio.sleep(0)
        places.give_back("a")
        first.cancel()
        async with asyncio.timeout(10):
            await second
        assert first.cancelled()
        places.give_back("c")
        assert (places.waiting, places.full) == (0, False)

    asyncio.run(moment())


@pytest.mark.parametrize(("come", "served"), [("aaaa", [0, 1, 2, 3]), ("aaabbbccc", [0, 3, 6, 1, 4, 7, 2, 5, 8])])
def test_callers_are_served_in_turn_and_each_in_the_order_of_its_runs(come: str, served: list[int]) -> None:
    async def in_turn() -> list[int]:
        places = Places(1)
        begun: list[int] = []

        async def run(number: int, caller: str) -> None:
            async with places.of(caller):
                begun.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*(run(number, caller) for number, caller in enumerate(come)))
        return begun

    assert asyncio.run(in_turn()) == served
