"""The review and the sandbox read the arguments of a call alike: what one refuses the other refuses too."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.typed_api import CALLS, FORMS, run_with_tree
from toolfold.codegen.names import ApiNames
from toolfold.codegen.tree import write_tree
from toolfold.review.finding import Finding
from toolfold.review.review import review
from toolfold.schema.validation import Validators

NAMES = ApiNames.of(FORMS)
BY_NAME = {(tool.server, tool.name): tool for tool in FORMS}
IMPORT = f"from functools import partial\nfrom servers.s import {', '.join(tool.name for tool in FORMS)}\n"
VALUES = ["'x'", "5", "None", "True", "['a']", "{'city': 'x'}", "{'a': 1}", "[{'city': 1}]", "{}", "..."]
WORDS = [
    "owner",
    "repo",
    "labels",
    "place",
    "when",
    "id",
    "data",
    "filter",
    "limit",
    "value",
    "If_Match",
    "from_",
    "ownr",
]
KEYS = [*WORDS[:-3], "ownr", "city", "zip", "a", "If-Match", "from"]


def found(call: str) -> list[Finding]:
    validators = Validators()
    return review(f"{IMPORT}await {call}", NAMES, lambda server, tool: BY_NAME.get((server, tool)), validators)


def random_call(chance: random.Random) -> str:
    """A call of one of the tools with literal arguments: in order, by keyword, in a dict, and often wrong."""
    tool = chance.choice(FORMS)
    known = list(tool.input_schema["properties"])
    words = [{"If-Match": "If_Match", "from": "from_"}.get(name, name) for name in known]
    parts = [chance.choice(VALUES) for _ in range(chance.choice([0, 0, 1, 2, 3]))]
    if chance.random() < 0.4:
        keys = chance.choices([*known, *known, *chance.sample(KEYS, 2)], k=chance.randint(0, 3))
        parts = ["{" + ", ".join(f"{key!r}: {chance.choice(VALUES[:-1])}" for key in dict.fromkeys(keys)) + "}"]
    given = chance.choices([*words, *words, chance.choice(WORDS)], k=chance.randint(0, 3))
    parts += [f"{word}={chance.choice(VALUES)}" for word in dict.fromkeys(given)]
    return f"{NAMES.function(tool.server, tool.name)}({', '.join(parts)})"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each call sends, or the error that it raises."""
    folder = tmp_path_factory.mktemp("calls")
    write_tree(FORMS, folder)
    chance = random.Random(9)
    program = """
from servers.s import *
async def outcome(call):
    try:
        return (await eval(call))[1:]
    except TypeError as error:
        return str(error)
async def main():
    return {call: await outcome(call) for call in given}
answer = asyncio.run(main())
"""
    return run_with_tree(folder, program, [random_call(chance) for _ in range(3000)])


@pytest.mark.parametrize(("call", "sent"), CALLS)
def test_what_a_call_may_look_like_passes_and_what_it_may_not_is_refused(call: str, sent: Any) -> None:
    assert bool(found(call)) == isinstance(sent, str)


def test_a_random_call_is_refused_exactly_where_the_sandbox_would_refuse_it(outcomes: dict[str, Any]) -> None:
    validators = Validators()
    refused = 0
    for call, outcome in outcomes.items():
        findings = found(call)
        if isinstance(outcome, str):
            fails = True
        else:
            name, arguments = outcome
            fails = bool(validators.argument_problems(BY_NAME["s", name], arguments))
        assert bool(findings) == fails, (call, outcome, findings)
        refused += fails
    assert 500 < refused < len(outcomes) - 100
