"""One call without a program: the same result, cut to what fits, with all of it in a file."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.lab import lab_fold
from toolfold import Toolfold
from toolfold.definitions import TextPart, ToolResult
from toolfold.guards.events import RunResult
from toolfold.session.homes import homes_in, state_of

pytestmark = pytest.mark.anyio


def text(result: ToolResult) -> str:
    return "\n".join(part.text for part in result.parts if isinstance(part, TextPart))


def kept(fold: Toolfold, session: str, file: str) -> str:
    (home,) = [home for home, _ in homes_in(fold.settings.data_dir) if (s := state_of(home)) and s.name == session]
    return (home.path / file).read_text()


@pytest.fixture
def records(lab: Toolfold, monkeypatch: pytest.MonkeyPatch) -> list[RunResult]:
    """The runs that calls were, as an audit log would have them."""
    found: list[RunResult] = []
    chain = lab._chain  # pyright: ignore[reportPrivateUsage] - there is one record, and no log in this fold
    recorded = chain.recorded

    async def watched(code: str, run: object, work: object) -> RunResult:
        found.append(await recorded(code, run, work))  # pyright: ignore[reportArgumentType]
        return found[-1]

    monkeypatch.setattr(chain, "recorded", watched)
    return found


async def test_a_short_result_is_what_the_server_sent(lab: Toolfold, records: list[RunResult]) -> None:
    result = await lab.call("lab", "add", {"a": 1, "b": 2})
    assert (result.structured, text(result), result.is_error) == ({"sum": 3}, '{"sum": 3}', False)
    failed = await lab.call("lab", "fail", {"message": "no"})
    assert (text(failed), failed.is_error) == ("no", True)
    echoed = await lab.call("lab", "echo", {"value": [1, "a"]})
    assert text(echoed) == '{"value":[1,"a"]}', "clients that do not read structured content see it too"
    assert echoed.structured == {"value": [1, "a"]}
    assert [record.success for record in records] == [True, False, True]
    assert [record.output for record in records] == ['{"sum": 3}', "no", '{"value":[1,"a"]}']
    assert [call.tool for record in records for call in record.tool_calls] == ["add", "fail", "echo"]
    assert not any(record.truncated or record.output_file for record in records)


async def test_resources_and_prompts_are_not_cut(lab: Toolfold) -> None:
    assert "the lab's notes" in str(await lab.call("lab", "lab://notes", kind="resource"))
    assert "Hello Ada" in str(await lab.call("lab", "greet", {"who": "Ada"}, kind="prompt"))


async def test_a_result_that_just_fits_is_whole_and_one_more_character_is_cut(
    lab: Toolfold, records: list[RunResult]
) -> None:
    budget = lab.settings.output_chars
    assert text(await lab.call("lab", "big", {"size": budget})) == "x" * budget
    cut = text(await lab.call("lab", "big", {"size": budget + 1}))
    assert len(cut) < budget + 300
    found = re.search(r"all of it, in session '(run-[0-9a-f]{8})': (\S+\.txt)", cut)
    assert found is not None, cut
    assert kept(lab, found[1], found[2]) == "x" * (budget + 1)
    assert [record.truncated for record in records] == [False, True]
    assert (records[1].session, records[1].output_file) == (found[1], found[2])


async def test_a_session_keeps_its_own_results(lab: Toolfold, records: list[RunResult]) -> None:
    assert (await lab.run("x = 1", session="mine")).success
    cut = text(await lab.call("lab", "big", {"size": 9000}, session="mine"))
    found = re.search(r"all of it: (\S+\.txt)", cut)
    assert found is not None, cut
    assert kept(lab, "mine", found[1]) == "x" * 9000
    assert records[-1].session == "mine"
    code = f"print(len(open({found[1]!r}).read()))"
    assert (await lab.run(code, session="mine")).output == "9000\n", "the session's programs can read it"


async def test_long_structured_content_is_cut_too(lab: Toolfold) -> None:
    rows = [{"name": "n" * 300, "number": number} for number in range(50)]
    result = await lab.call("lab", "echo", {"value": rows})
    assert (result.has_structured, result.structured) == (False, None), "nothing says what it must look like"
    found = re.search(r"in session '(run-[0-9a-f]{8})': (\S+\.txt)", text(result))
    assert found is not None
    assert kept(lab, found[1], found[2]).startswith('{"value":[{"name":"nnn')


async def test_structured_content_of_a_declared_kind_is_shortened_and_stays_of_that_kind(
    runtime_dir: Path,
) -> None:
    shelf = {"command": sys.executable, "args": [str(Path(__file__).parent / "servers" / "shelf.py")]}
    async with lab_fold(runtime_dir, servers={"shelf": shelf}, output_chars=2000, sandbox={"pool": 0}) as fold:
        whole = await fold.call("shelf", "wrapped", {"size": 1000})
        assert whole.structured == {"result": "y" * 1000}
        cut = await fold.call("shelf", "wrapped", {"size": 5000})
        assert cut.structured == {"result": "y" * 200 + "[… cut …]"}
        assert cut.has_structured
        found = re.search(r"in session '(run-[0-9a-f]{8})': (\S+\.txt)", text(cut))
        assert found is not None
        assert kept(fold, found[1], found[2]) == "y" * 5000


async def test_a_name_that_is_not_quite_one_is_found(lab: Toolfold) -> None:
    assert (await lab.call("lab", "json_text")).is_error is False
