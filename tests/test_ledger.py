"""The ledger of tokens: every number can be counted again, and nothing is lost or counted twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.lab import lab_fold
from toolfold import Toolfold
from toolfold.config.callers import Mode
from toolfold.gateway.texts import TOOLS, instructions
from toolfold.telemetry.ledger import OWN_TOKENS, Ledger
from toolfold.telemetry.ledger_reader import LedgerReader
from toolfold.telemetry.savings import definition_tokens
from toolfold.telemetry.tokens import count
from toolfold.telemetry.totals import Totals

pytestmark = pytest.mark.anyio

PROGRAM = """
import asyncio
from servers.lab import add, sleep
sums = await asyncio.gather(*(add(a=n, b=1) for n in range(4)))
total = (await add(a=100, b=200))["sum"]
print(total + sum(each["sum"] for each in sums))
"""


async def counted(ledger: Ledger) -> None:
    await asyncio.to_thread(ledger.count)


@pytest.mark.parametrize("mode", ["code", "hybrid"])
def test_the_cost_of_our_own_definitions_is_what_it_says(mode: Mode) -> None:
    own = ((tool["name"], tool["description"], tool["inputSchema"]) for tool in TOOLS)
    assert OWN_TOKENS[mode] == definition_tokens(own, instructions(mode) or "")


async def test_every_number_can_be_counted_again(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir) as fold:
        answer = await fold.search("add numbers")
        result = await fold.run(PROGRAM, session="work")
        before = fold.ledger.totals()
        await counted(fold.ledger)
        totals = fold.ledger.totals()
        tools = [(tool.name, tool.description, tool.input_schema) for tool in fold.catalog.tools]
    assert result.output == "310\n"
    assert (before.labels["tokens_code"], before.label) == ("estimated", "estimated")
    assert before.tokens_code == pytest.approx(totals.tokens_code, rel=0.2)
    assert (totals.runs, totals.failed, totals.searches, totals.calls, totals.call_errors) == (1, 0, 1, 5, 0)
    assert totals.tokens_code == count(PROGRAM)
    assert totals.tokens_outputs == count(result.text)
    assert totals.tokens_searches == count("add numbers") + count(answer.text)
    results = [json.dumps({"sum": n}) for n in (1, 2, 3, 4, 300)]
    assert totals.tokens_results == sum(map(count, results))
    # A search, a run, and the answer; directly: four calls at once, one call, and the answer.
    assert (totals.conversations, totals.requests, totals.requests_direct) == (1, 3, 3)
    definitions = definition_tokens(tools)
    assert totals.tokens_definitions == 3 * OWN_TOKENS["code"]
    assert totals.tokens_direct_definitions == 3 * definitions
    assert totals.tokens_sent == totals.tokens_definitions + sum(map(count, [PROGRAM, result.text])) + (
        totals.tokens_searches
    )
    assert totals.tokens_direct == 3 * definitions + totals.tokens_results
    assert totals.tokens_saved == totals.tokens_direct - totals.tokens_sent
    assert totals.cached_direct == definitions + totals.tokens_results
    assert totals.cached_sent == totals.tokens_sent - 2 * OWN_TOKENS["code"]
    assert set(totals.labels.values()) == {"measured", "computed"}
    assert totals.label == totals.labels["tokens_saved"] == "computed"
    assert totals.cost(1_000_000) == 3.0


async def test_counts_are_told_apart_and_outlive_the_fold(runtime_dir: Path) -> None:
    call = "from servers.lab import echo\nprint(await echo(value='x'))"
    async with lab_fold(runtime_dir) as fold:
        await fold.run(call, session="one")
        await fold.run(call, session="one")
        await fold.run("from servers.lab import fail\nawait fail(message='no')", session="two", caller="ci")
        await fold.search("echo", caller="ci")
        today = fold.ledger.by_day()
    kept = LedgerReader(fold.settings)
    assert kept.totals() == fold.ledger.totals()
    assert kept.by_day() == today
    assert len(today) == 1
    assert {name: each.runs for name, each in kept.by_caller().items()} == {"local": 2, "ci": 1}
    assert list(kept.by_session()) == [("local", "one"), ("ci", ""), ("ci", "two")]
    assert kept.totals(caller="ci", session="two").failed == 1
    assert kept.totals(caller="ci").call_errors == 1
    assert kept.totals(session="one").runs == 2
    assert kept.totals(since="2999-01-01") == Totals(price=3.0)
    assert [(each.tool, each.calls, each.errors) for each in kept.by_tool()] == [("lab.echo", 2, 0), ("lab.fail", 1, 1)]
    assert [each.tool for each in kept.by_tool(caller="ci")] == ["lab.fail"]


async def test_a_tokenizer_of_ones_own_counts(runtime_dir: Path) -> None:
    config = {"servers": {}, "sandbox": {"pool": 1}}
    async with Toolfold.open(config, data_dir=runtime_dir, tokenizer=len) as fold:
        result = await fold.run("print('four')")
        totals = fold.ledger.totals()
    assert (totals.tokens_code, totals.tokens_outputs) == (len("print('four')"), len(result.text))
    assert totals.labels["tokens_code"] == "measured"
