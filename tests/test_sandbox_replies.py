"""What the host holds for a guest that does not read, and what a guest's large messages cost others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.lab import lab_fold
from toolfold.sandbox.replies import ReplyBudget, give_back_memory

pytestmark = pytest.mark.anyio

UNREAD = """
import asyncio, sys, time
from toolfold_guest.channel import channel
here = channel()
for number in range(1_000_000, 1_000_400):
    here.send({"t": "call", "id": number, "server": "lab", "tool": "big", "arguments": {"size": 2_000_000}})
print("asked", flush=True)
time.sleep(8)
"""


def resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) // 1024


class TestBudget:
    async def test_nothing_more_is_fetched_while_replies_lie_unread(self) -> None:
        budget = ReplyBudget(most=1000)
        unread = asyncio.Event()

        async def hold() -> None:
            async with budget.writing(1000):
                await unread.wait()

        async def fetch() -> str:
            async with budget.fetching():
                return "fetched"

        holding = asyncio.create_task(hold())
        await asyncio.sleep(0)
        fetches = [asyncio.create_task(fetch()) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in fetches)
        fetches[0].cancel()
        unread.set()
        await holding
        assert await asyncio.gather(*fetches[1:]) == ["fetched"] * 2
        assert fetches[0].cancelled()

    async def test_who_is_cancelled_takes_no_place_with_it(self) -> None:
        """Neither while it waits for its turn nor in the moment in which it gets one."""
        budget, running, most = ReplyBudget(most=1000), 0, 0

        async def fetch() -> None:
            nonlocal running, most
            async with budget.fetching():
                running += 1
                most = max(most, running)
                await asyncio.sleep(0)
                running -= 1

        async with budget.fetching():
            fetches = [asyncio.create_task(fetch()) for _ in range(4)]
            await asyncio.sleep(0)
            fetches[0].cancel()
            await asyncio.wait(fetches[:1])
            assert most == 0
        fetches[1].cancel()  # it has its turn, and has not run since
        async with asyncio.timeout(10):
            await asyncio.gather(*fetches[2:])
            await fetch()
        assert [task.cancelled() for task in fetches] == [True, True, False, False]
        assert most == 1

    async def test_one_result_is_always_fetched_however_large_the_last_was(self) -> None:
        budget = ReplyBudget(most=1000)
        async with budget.writing(10**9):
            pass
        async with asyncio.timeout(5), budget.fetching():
            pass

    async def test_replies_are_written_one_after_the_other(self) -> None:
        budget, order = ReplyBudget(), list[str]()

        async def write(name: str) -> None:
            async with budget.writing(1):
                order.append(f"{name} begins")
                await asyncio.sleep(0)
                order.append(f"{name} ends")

        await asyncio.gather(write("a"), write("b"))
        assert order == ["a begins", "a ends", "b begins", "b ends"]


async def test_a_guest_that_does_not_read_makes_the_host_hold_little(runtime_dir: Path) -> None:
    """800 MB are asked for; the host holds what 64 calls at once bring, and gives it back."""
    async with lab_fold(runtime_dir) as fold:
        await fold.run("from servers.lab import big\nawait big(size=10)", session="s")
        before, most = resident(), 0
        run = asyncio.create_task(fold.run(UNREAD, session="s", timeout=60))
        while not run.done():
            most = max(most, resident())
            await asyncio.sleep(0.05)
        result = await run
        assert result.output == "asked\n", result.error
        await asyncio.to_thread(give_back_memory)
        after = resident()
    assert most - before < 350
    assert after - before < 100


@pytest.mark.parametrize(
    "code",
    [
        "await echo(value=[[]] * 495_000)",
        "await echo(value={str(n): 0 for n in range(900_000)})",
    ],
)
async def test_a_message_of_too_many_values_is_refused_and_the_program_told(runtime_dir: Path, code: str) -> None:
    async with lab_fold(runtime_dir) as fold:
        result = await fold.run(f"from servers.lab import echo\n{code}", session="s")
        after = await fold.run("print('still here')", session="s")
    assert "values" in str(result.error)
    assert after.output == "still here\n"


async def test_a_large_wrong_argument_is_explained_by_its_first_mistake(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir) as fold:
        result = await fold.run(
            "from servers.lab import add\nvalue = ['x'] * 50_000\nawait add(a=value, b=1)", session="s"
        )
    assert "a: must be number, not array" in str(result.error)


async def test_a_large_structured_result_arrives_as_data(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir) as fold:
        result = await fold.run(
            "from servers.lab import echo\n"
            "rows = [{'id': n, 'name': f'row {n}'} for n in range(10_000)]\n"
            "back = await echo(value=rows)\nprint(back['value'] == rows)"
        )
    assert result.output == "True\n", result.error
