"""Values that the application gives with a run: read by programs, filled in for them, never theirs to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.office import office
from toolfold.errors import InvalidRequest

pytestmark = pytest.mark.anyio

INJECT = {"inject": {"office.*": {"user_id": "context.user_id"}}}


async def test_a_program_reads_its_context(runtime_dir: Path) -> None:
    program = (
        "from toolfold import context\nprint(context.user_id, context['team'], dict(context))\n"
        "try: context.user_id = '8'\n"
        "except AttributeError as error: print(error)\n"
        "context.email"
    )
    async with office(runtime_dir) as lab:
        result = await lab.fold.run(program, session="s", context={"user_id": "7", "team": "é\ud800"})
        later = await lab.fold.run("print(dict(context))", session="s", context={"user_id": "9"})
        without = await lab.fold.run("print(dict(context))", session="s")
    assert result.output == "7 é? {'user_id': '7', 'team': 'é?'}\nthe run's context cannot be changed\n"
    assert "the run's context has no 'email'; it has team, user_id" in str(result.error)
    assert later.output == "{'user_id': '9'}\n"
    assert without.output == "{}\n"


async def test_a_value_is_filled_in_and_the_model_never_writes_it(runtime_dir: Path) -> None:
    async with office(runtime_dir, context=INJECT) as lab:
        found = await lab.fold.search("rows", detail="full")
        result = await lab.fold.run(
            "from servers.office import rows\nhelp(rows)\nprint(await rows(table='t'))", context={"user_id": "7"}
        )
        same = await lab.call("office.rows", {"table": "t", "user_id": 7}, context={"user_id": "7"})
    assert "user_id" not in found.text
    assert "user_id" not in result.output
    assert result.output.endswith("did rows\n"), result.error
    assert same == "did rows"
    assert lab.done == [["rows", {"table": "t", "user_id": 7}]] * 2


@pytest.mark.parametrize("given", [8, "7", True, None, [7], {"a": 7}])
async def test_another_value_is_refused(runtime_dir: Path, given: object) -> None:
    async with office(runtime_dir, context=INJECT, sandbox={"pool": 0}) as lab:
        said = await lab.call("office.rows", {"table": "t", "user_id": given}, context={"user_id": "7"})
    assert said.startswith("PolicyDenied(policy_denied): office.rows: 'user_id' is filled in from context.user_id")
    assert lab.done == []


async def test_another_spelling_is_refused(runtime_dir: Path) -> None:
    async with office(runtime_dir, context=INJECT) as lab:
        said = await lab.call("office.rows", {"table": "t", "User-ID": 8}, context={"user_id": "7"})
    assert said.startswith("PolicyDenied")
    assert lab.done == []


async def test_without_the_value_nothing_is_called(runtime_dir: Path) -> None:
    async with office(runtime_dir, context=INJECT) as lab:
        said = await lab.call("office.rows", {"table": "t"})
        other = await lab.call("office.create_note", {})
    assert said.startswith("PolicyDenied(policy_denied): office.rows needs context.user_id, which was not given")
    assert other == "did create_note"


async def test_rules_see_what_was_filled_in(runtime_dir: Path) -> None:
    rules = [{"match": "office.rows", "args": {"user_id": 7}, "do": "deny"}]
    async with office(runtime_dir, context=INJECT, policy={"rules": rules}) as lab:
        seven = await lab.call("office.rows", {"table": "t"}, context={"user_id": "7"})
        eight = await lab.call("office.rows", {"table": "t"}, context={"user_id": "8"})
    assert "rule 1" in seven
    assert eight == "did rows"


async def test_context_values_are_texts(runtime_dir: Path) -> None:
    async with office(runtime_dir) as lab:
        with pytest.raises(InvalidRequest, match=r"context\['user_id'\].* must be a string, not int"):
            await lab.fold.run("1", context={"user_id": 7})  # pyright: ignore[reportArgumentType]
