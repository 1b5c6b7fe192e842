"""A skill from the program of a past run."""

from __future__ import annotations

import pytest

from toolfold.errors import SkillError
from toolfold.skills.function import read_function
from toolfold.skills.promote import promoted


def test_one_function_is_taken_with_what_is_defined_around_it() -> None:
    code = (
        "import json\nLIMIT = 3\nrows = fetch()\n\n@cached\ndef helper(x):\n    return x\n\n"
        "async def report(n: int) -> list:\n    return helper(n)[:LIMIT]\n\nprint(await report(1))"
    )
    name, source = promoted(code, "report")
    assert name == "report"
    assert "fetch()" not in source
    assert "print(" not in source
    assert "@cached" in source
    assert read_function(source, "report").signature == "async report(n: int) -> list"


def test_the_only_function_gives_its_name_and_may_get_another() -> None:
    code = "def total(rows):\n    return sum(rows)\ntotal([1])"
    assert promoted(code)[0] == "total"
    name, source = promoted(code, "weekly-total")
    assert name == "weekly_total"
    assert "async def weekly_total():\n    def total(rows):" in source
    assert source.rstrip().endswith("return total([1])")


def test_a_program_without_functions_becomes_one() -> None:
    code = "from servers.office import rows\nfound = await rows(user_id=1, table='x')\nlen(found)"
    with pytest.raises(SkillError, match="needs a name"):
        promoted(code)
    name, source = promoted(code, "row_count")
    assert source == (
        "async def row_count():\n    from servers.office import rows\n"
        "    found = await rows(user_id=1, table='x')\n    return len(found)\n"
    )
    assert read_function(source, name).is_async


@pytest.mark.parametrize("code", ["def f(:", "\x00", "(" * 1000])
def test_what_is_no_program_is_refused(code: str) -> None:
    with pytest.raises(SkillError, match="no Python"):
        promoted(code, "x")
