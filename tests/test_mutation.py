"""`scripts/mutate` makes plausible mistakes, the same ones for a seed, and leaves alone what no behaviour hangs on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.__main__ import FEWEST, NOT_OURS, ROOMS, sampled
from tests.mutation.mutants import mutants_of

SOURCE = Path(__file__).parents[1] / "src" / "toolfold"


def changed(code: str) -> set[str]:
    """Every mutant of one statement in a function, as it reads."""
    source = f"async def f(self) -> None:\n    '''Doc: 1 < 2.'''\n    {code}\n".encode()
    found = [mutant for mutant in mutants_of("x.py", source) if mutant.kind != "returns at once"]
    return {mutant.apply(source).decode().split("'''\n    ", 1)[1].strip() for mutant in found}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = a < b", {"x = (a <= b)"}),
        ("x = a and b", {"x = (a or b)"}),
        ("x = not a", {"x = (a)"}),
        ("x = min(a, b)", {"x = (max(a, b))"}),
        ("x = f(a, b)", {"x = (f(b, a))"}),
        ("x = 7", {"x = 8"}),
        ("x = 5000", {"x = 5000000"}),
        ("x = True", {"x = False"}),
        ("await self.close()", {"pass", "self.close()"}),
        ("self.x += y", {"pass"}),
        ("self.x = y", {"pass"}),
        ("raise error", {"pass"}),
        ("x = await asyncio.shield(task)", {"x = await (task)"}),
        ("if a: b = c", {"if (not (a)): b = c"}),
        ("return a", {"return None"}),
    ],
)
def test_a_mistake_is_one_small_change(code: str, expected: set[str]) -> None:
    assert changed(code) == expected


@pytest.mark.parametrize(
    "code",
    ["x: Literal[1] = y", "_log.info('%s', 1)", "x = f'{1 + 2}'", "assert a is not None", "import a", "'''Another.'''"],
)
def test_what_no_behaviour_hangs_on_is_left_alone(code: str) -> None:
    assert changed(code) == set()


def test_a_finally_is_taken_away_with_its_block() -> None:
    assert "a = b" in changed("try:\n        a = b\n    finally:\n        c()")


def test_the_sample_is_the_same_for_a_seed() -> None:
    first, same, other = ([mutant.key for mutant in sampled(SOURCE, seed, 20, "guards/")] for seed in ("1", "1", "2"))
    assert first == same
    assert {*first} != {*other}


def test_the_sample_holds_every_room() -> None:
    sample = sampled(SOURCE, "1", 320)
    assert len(sample) >= 300
    for room in ROOMS:
        assert sum(mutant.file.startswith(f"{room}/") for mutant in sample) >= FEWEST - 5
    assert not any(mutant.file.startswith(NOT_OURS) for mutant in sample)
    for mutant in sample:
        compile(mutant.apply((SOURCE / mutant.file).read_bytes()), mutant.file, "exec")


def test_only_one_module_can_be_asked_for() -> None:
    sample = sampled(SOURCE, "1", 20, "sandbox/pool.py")
    assert {mutant.file for mutant in sample} == {"sandbox/pool.py"}
    assert len(sample) == 20
