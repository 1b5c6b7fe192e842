"""Values that the application gives with a run: read by programs, filled in for them, never theirs to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.office import office
from toolfold.config.policy import ContextSettings
from toolfold.definitions import ToolDefinition, ToolResult
from toolfold.errors import InvalidRequest, PolicyDenied
from toolfold.guards.context import Deadline, RunContext, make_context
from toolfold.guards.guard import Call
from toolfold.guards.inject import Inject

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


async def test_true_is_not_one() -> None:
    tool = ToolDefinition(server="office", name="rows", input_schema={"properties": {"user_id": {"type": "integer"}}})
    assert await filled("tool", {"user_id": 1}, {"user_id": "1"}, tool) == {"user_id": 1}
    with pytest.raises(PolicyDenied, match="another value is not allowed"):
        await filled("tool", {"user_id": True}, {"user_id": "1"}, tool)


@pytest.mark.parametrize(
    ("schema", "value", "sent"),
    [
        ({"type": "string"}, "7", "7"),
        ({"type": "integer"}, "7", 7),
        ({"type": "number"}, "7.5", 7.5),
        ({"type": "integer"}, "seven", "seven"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "7", "7"),
        ({}, "7", "7"),
    ],
)
async def test_a_value_is_filled_in_as_what_the_tool_takes(schema: dict[str, Any], value: str, sent: Any) -> None:
    tool = ToolDefinition(server="office", name="rows", input_schema={"properties": {"user_id": schema}})
    assert await filled("tool", {}, {"user_id": value}, tool) == {"user_id": sent}


async def test_a_prompt_is_filled_in_and_a_resource_has_no_arguments() -> None:
    assert await filled("prompt", {"to": "x"}, {"user_id": "7"}) == {"to": "x", "user_id": "7"}
    assert await filled("resource", {}, {}) == {}
    with pytest.raises(PolicyDenied, match=r"prompt:office:rows needs context\.user_id"):
        await filled("prompt", {}, {})


async def test_a_tool_that_does_not_have_the_argument_is_left_alone_unless_it_is_given() -> None:
    tool = ToolDefinition(server="office", name="rows", input_schema={"properties": {"table": {}}})
    assert await filled("tool", {"table": "t"}, {"user_id": "7"}, tool) == {"table": "t"}
    with pytest.raises(PolicyDenied, match="another value is not allowed"):
        await filled("tool", {"user_id": "8"}, {"user_id": "7"}, tool)
    with pytest.raises(PolicyDenied, match="another value is not allowed"):
        await filled("tool", {"user_id": "7", "USER-ID": "8"}, {"user_id": "7"}, tool)


async def filled(kind: Any, arguments: Any, values: dict[str, str], tool: ToolDefinition | None = None) -> Any:
    """The arguments that are sent for these, where `user_id` is filled in for everything of the office."""
    sent: list[Call] = []

    async def upstream(call: Call) -> ToolResult:
        sent.append(call)
        return ToolResult()

    inject = {"office.*": {"user_id": "context.user_id"}, "prompt:office:*": {"user_id": "context.user_id"}}
    inject["resource:office:*"] = {"user_id": "context.user_id"}
    run = RunContext("ada", None, Deadline(10), values=values)
    guard = Inject(ContextSettings.model_validate({"inject": inject}))
    await guard(Call("1", kind, "office", "rows", arguments, run, tool), upstream)
    return sent[0].arguments


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


@pytest.mark.parametrize(
    ("options", "wrong"),
    [({"caller": 7}, "caller"), ({"session": 7}, "session"), ({"context": {7: "x"}}, "context")],
)
async def test_names_are_texts(options: Any, wrong: str) -> None:
    with pytest.raises(InvalidRequest, match=f"`{wrong}` must be a string, not int"):
        make_context("", Deadline(10), **options)


async def test_what_a_run_is_started_with_is_in_its_context() -> None:
    plain = make_context("1", Deadline(10))
    assert (plain.caller, plain.session, plain.language, plain.direct) == ("local", None, "python", False)
    assert (plain.groups, plain.values, plain.on_event, plain.asker) == (frozenset(), {}, None, None)
    direct = make_context("lab.add", Deadline(10), direct=True, caller="ci", groups=["ops"], context={"a": "b"})
    assert (direct.caller, direct.language, direct.direct, direct.code) == ("ci", "direct", True, "lab.add")
    assert (direct.groups, direct.values) == ({"ops"}, {"a": "b"})
