"""The ledger of tokens: every number can be counted again, and nothing is lost or counted twice."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests import warm
from tests.lab import lab_fold
from toolfold import ConfigError, Toolfold
from toolfold.config.callers import Mode
from toolfold.errors import UpstreamError
from toolfold.gateway.offers import Offers, definition_cost
from toolfold.gateway.texts import TOOLS, instructions
from toolfold.telemetry.counting import CountingProcess
from toolfold.telemetry.ledger import OTHERS, OWN_TOKENS, Ledger
from toolfold.telemetry.ledger_files import Catalogued, Counts, Key, LedgerFiles
from toolfold.telemetry.ledger_reader import LedgerReader
from toolfold.telemetry.observe import SeenRun, SeenSearch
from toolfold.telemetry.savings import definition_tokens
from toolfold.telemetry.tokens import count, estimate, load_tokenizer
from toolfold.telemetry.totals import Totals

pytestmark = pytest.mark.anyio

PROGRAM = """
import asyncio
from servers.lab import add, sleep
_, one, two = await asyncio.gather(sleep(seconds=1), add(a=1, b=1), add(a=2, b=1))
print((await add(a=100, b=200))["sum"] + one["sum"] + two["sum"])
"""


async def counted(ledger: Ledger) -> None:
    await asyncio.to_thread(ledger.count)


@pytest.mark.parametrize("mode", ["code", "hybrid"])
def test_the_cost_of_our_own_definitions_is_what_it_says(mode: Mode) -> None:
    own = ((tool["name"], tool["description"], tool["inputSchema"]) for tool in TOOLS)
    assert OWN_TOKENS[mode] == definition_tokens(own, instructions(mode) or "")


@pytest.mark.parametrize("space", ["\t", " \t", "\r", "\xa0\t", " "])
def test_an_estimate_of_white_space_takes_no_more_than_one_look(space: str) -> None:
    """Programs print it, and estimating holds up everything else. At two looks for each place this would take hours."""
    assert estimate(f"{space * 300_000}.\n") <= 300_002


async def test_every_number_can_be_counted_again(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir) as fold:
        answer = await fold.search("add numbers")
        result = await fold.run(PROGRAM, session="work")
        before = fold.ledger.totals()
        await counted(fold.ledger)
        totals = fold.ledger.totals()
        tools = [(tool.name, tool.description, tool.input_schema) for tool in fold.catalog.tools]
    assert result.output == "305\n"
    assert (before.labels["tokens_code"], before.label) == ("estimated", "estimated")
    assert before.tokens_code == pytest.approx(totals.tokens_code, rel=0.2)
    assert (totals.runs, totals.failed, totals.searches, totals.calls, totals.call_errors) == (1, 0, 1, 4, 0)
    assert totals.tokens_code == count(PROGRAM)
    assert totals.tokens_outputs == count(result.text)
    assert totals.tokens_searches == count("add numbers") + count(answer.text)
    results = [*(json.dumps({"sum": n}) for n in (2, 3, 300)), "slept"]
    assert totals.tokens_results == sum(map(count, results))
    # A search, a run, and the answer; directly: three calls at once, one call, and the answer.
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


async def test_a_tokenizer_that_fails_loses_no_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(text: str) -> int:
        raise RuntimeError("no vocabulary")

    async with Toolfold.open({"servers": {}}, data_dir=tmp_path, tokenizer=broken) as fold:
        await fold.search("anything")
        totals = fold.ledger.totals()
    assert (totals.searches, totals.labels["tokens_searches"]) == (1, "estimated")
    assert "RuntimeError: no vocabulary" in caplog.text


async def test_a_gateway_that_has_counted_before_counts_the_rest_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolfold.telemetry.ledger._CLOSING_TIMEOUT", 60)  # a busy machine counts slowly
    async with Toolfold.open({"servers": {}}, data_dir=tmp_path) as fold:
        await fold.search("one")
        await counted(fold.ledger)
        answer = await fold.search("two")
        assert fold.ledger.totals().label == "estimated"
    totals = LedgerReader(fold.settings).totals()
    assert totals.label == "computed"
    assert totals.tokens_searches == count("one") + count("two") + 2 * count(answer.text)


async def test_what_other_modes_offer_is_what_was_sent(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir) as fold:
        await fold.listed()
        fold.ledger.mode = "direct"
        await fold.call("lab", "echo", {"value": "x"})
        await counted(fold.ledger)
        direct = fold.ledger.totals()
        fold.ledger.mode = "hybrid"
        offered, _ = await Offers(fold, "hybrid").page("local", None, "2025-11-25")
        await fold.call("lab", "echo", {"value": "x"}, caller="other")
        hybrid = fold.ledger.totals(caller="other")
        definitions = definition_tokens((tool.name, tool.description, tool.input_schema) for tool in fold.catalog.tools)
    # The call and the answer, with all definitions: nothing is saved.
    assert direct.tokens_definitions == direct.tokens_direct_definitions == 2 * definitions
    assert direct.labels["tokens_definitions"] == "computed"
    assert direct.tokens_saved == -direct.tokens_code
    beside = sum(definition_cost(tool.name, tool.description or "", tool.input_schema) for tool in offered)
    assert hybrid.tokens_definitions == 2 * (beside + OWN_TOKENS["hybrid"])
    assert hybrid.labels["tokens_definitions"] == "estimated"


async def test_results_are_estimated_by_their_size_where_values_are_private(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir, privacy=True) as fold:
        await fold.run("from servers.lab import big\nprint(len(await big(size=4000)))")
        await counted(fold.ledger)
        totals = fold.ledger.totals()
    assert (totals.tokens_results, totals.labels["tokens_results"]) == (1000, "estimated")
    assert totals.labels["tokens_code"] == "measured"


async def test_the_setting_names_a_tokenizer(runtime_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = {"servers": {}, "sandbox": {"pool": 1}, "tokenizer": "builtins:len"}
    async with Toolfold.open(config, data_dir=runtime_dir) as fold:
        await fold.run("print('four')")
        await counted(fold.ledger)
        assert (fold.ledger.totals().tokens_code, fold.ledger.totals().label) == (len("print('four')"), "computed")
    async with Toolfold.open({**config, "tokenizer": "nowhere:nothing"}, data_dir=runtime_dir) as fold:
        with caplog.at_level("INFO", "toolfold"):
            await fold.run("print('more')", caller="other")
            await counted(fold.ledger)
        assert fold.ledger.totals(caller="other").labels["tokens_code"] == "estimated"
    assert "tokens stay estimated: The tokenizer 'nowhere:nothing' cannot be loaded" in caplog.text
    with pytest.raises(ConfigError):
        load_tokenizer("builtins:nothing")
    wrong = Toolfold.open({"servers": {}, "tokenizer": "os.system"}, data_dir=runtime_dir)
    assert "tokenizer" in str(wrong.loaded.problems[0])
    assert not wrong.settings.tokenizer


async def test_counts_are_written_while_the_gateway_runs(lab: Toolfold) -> None:
    await lab.run("print(1)", session="written", caller="writer")
    elsewhere = LedgerReader(lab.settings)
    async with asyncio.timeout(20):
        while not elsewhere.totals(caller="writer").runs:
            await asyncio.sleep(0.05)


async def test_what_is_noted_during_a_write_is_written_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, writing, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    add = LedgerFiles.add

    def slow(files: LedgerFiles, day: str, counts: Mapping[Key, Counts]) -> None:
        add(files, day, counts)
        loop.call_soon_threadsafe(writing.set)
        go_on.wait(20)

    async with Toolfold.open({"servers": {}}, data_dir=tmp_path) as fold:
        monkeypatch.setattr("toolfold.telemetry.ledger._COUNT_AFTER", 3600)  # a count writes as well
        monkeypatch.setattr(LedgerFiles, "add", slow)
        await fold.search("one")
        await asyncio.wait_for(writing.wait(), 20)
        await fold.search("two")
        go_on.set()
        elsewhere = LedgerReader(fold.settings)
        async with asyncio.timeout(20):
            while elsewhere.totals().searches < 2:
                await asyncio.sleep(0.05)


async def test_what_is_noted_during_a_count_is_counted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, counting, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def slow(process: CountingProcess, texts: Sequence[str]) -> list[int]:
        loop.call_soon_threadsafe(counting.set)
        go_on.wait(20)
        return [1] * len(texts)

    monkeypatch.setattr("toolfold.telemetry.ledger._COUNT_AFTER", 0.01)
    monkeypatch.setattr(CountingProcess, "count", slow)
    async with Toolfold.open({"servers": {}}, data_dir=tmp_path) as fold:
        await fold.search("one")
        await asyncio.wait_for(counting.wait(), 20)
        await fold.search("two")
        elsewhere = LedgerReader(fold.settings)
        async with asyncio.timeout(20):
            while elsewhere.totals().searches < 2:
                await asyncio.sleep(0.05)
            go_on.set()
            while elsewhere.totals().label == "estimated":
                await asyncio.sleep(0.05)


async def test_a_changed_catalog_begins_no_conversation(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir) as fold:
        for number in range(2):
            run = SeenRun(str(number), "local", "work", "python", "1", ok=True)
            fold.ledger.searched(SeenSearch("local", "add", "", 0.1))
            fold.ledger.run_started(run)
            fold.ledger.run_ended(run)
            await fold.listed()
        totals = fold.ledger.totals()
        days = fold.ledger.by_day()
    versions = {key.catalog for day in days for key in LedgerFiles(runtime_dir).of_day(day)}
    assert len(versions) == 2
    assert (totals.conversations, totals.requests) == (1, 5)


async def test_errors_that_end_a_run_are_read_too(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir) as fold:
        with pytest.raises(UpstreamError) as raised:
            await fold.call("lab", "die", {})
        await counted(fold.ledger)
        totals = fold.ledger.totals()
    assert (totals.failed, totals.tokens_outputs) == (1, count(str(raised.value)))


async def test_a_name_that_is_no_text_loses_no_counts(tmp_path: Path) -> None:
    async with Toolfold.open({"servers": {}}, data_dir=tmp_path) as fold:
        for session in ("good", "bad \ud800"):
            fold.ledger.run_ended(SeenRun(session, "local", session, "python", "1", ok=True))
        assert fold.ledger.totals().runs == 2
        assert [name for _, name in fold.ledger.by_session()] == ["bad ?", "good"]


async def test_names_that_clients_choose_cannot_fill_the_ledger(runtime_dir: Path) -> None:
    async with Toolfold.open({"servers": {}}, data_dir=runtime_dir) as fold:
        for number in range(4000):
            run = SeenRun(str(number), f"caller {number % 2}" if number < 3990 else "late", f"s{number}", "python", "1")
            run.ok = True
            fold.ledger.run_started(run)
            fold.ledger.run_ended(run)
        assert len(fold.ledger.by_session()) <= 2010
        assert fold.ledger.totals().runs == 4000
        assert {name: each.runs for name, each in fold.ledger.by_caller().items()} == {
            "caller 0": 1995,
            "caller 1": 1995,
            OTHERS: 10,
        }


async def test_what_cannot_be_written_is_written_later(runtime_dir: Path) -> None:
    (runtime_dir / "ledger").write_text("in the way")
    async with Toolfold.open({"servers": {}}, data_dir=runtime_dir) as fold:
        await fold.search("anything")
        assert fold.ledger.totals().searches == 0
        (runtime_dir / "ledger").unlink()
        assert fold.ledger.totals().searches == 1
    assert LedgerReader(fold.settings).totals().searches == 1


WRITER = """
import sys
from pathlib import Path
from toolfold.telemetry import ledger_files
ledger_files._LARGE = 5000
files = ledger_files.LedgerFiles(Path(sys.argv[1]))
number = 0
while number < int(sys.argv[2]):
    number += 1
    files.add("2026-11-16", {ledger_files.Key(sys.argv[3], f"s{number % 5}"): ledger_files.Counts(runs=1, code=3)})
    print(number, flush=True)
"""


def test_writers_that_are_killed_lose_nothing_that_was_written_and_spoil_nothing(tmp_path: Path) -> None:
    def start(name: str, number: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(number), name]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    whole = start("whole", 2000)
    done: list[int] = []
    for moment in (7, 100, 300):
        killed = start(f"killed {moment}", 10**6)
        assert killed.stdout is not None
        for _ in range(moment):
            killed.stdout.readline()
        killed.kill()
        done.append(moment + len(killed.stdout.read().split()))
        killed.wait()
    whole.communicate(timeout=200)
    start("later", 300).communicate(timeout=60)  # tidies up
    files = LedgerFiles(tmp_path)
    runs: Counter[str] = Counter()
    for key, counts in files.of_day("2026-11-16").items():
        assert counts.code == 3 * counts.runs
        runs[key.caller] += counts.runs
    assert (runs.pop("whole"), runs.pop("later")) == (2000, 300)
    # The last one may have been written and not told any more.
    assert [written - told for written, told in zip(runs.values(), done, strict=True)] in _ZERO_OR_ONE
    assert (tmp_path / "ledger" / "2026-11-16.jsonl").stat().st_size < 20_000
    assert [path.name for path in (tmp_path / "ledger").glob("*.new")] == []


_ZERO_OR_ONE = [[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)]


def test_a_line_that_was_cut_off_costs_that_line_only(tmp_path: Path) -> None:
    files = LedgerFiles(tmp_path)
    files.add("2026-11-16", {Key("a"): Counts(runs=1)})
    day = tmp_path / "ledger" / "2026-11-16.jsonl"
    day.write_bytes(day.read_bytes().rstrip() + b'\n{"key":["a","","",""],"cou')
    files.add("2026-11-16", {Key("a"): Counts(runs=1)})
    assert files.of_day("2026-11-16") == {Key("a"): Counts(runs=2)}
    files.add("2026-11-15", {Key("a"): Counts(runs=4)})
    assert files.days() == ["2026-11-15", "2026-11-16"]
    files.drop_before("2026-11-16")
    assert files.days("2026-01-01") == ["2026-11-16"]
    assert files.of_day("2026-11-15") == {}


def test_stats_are_printed_without_a_gateway(tmp_path: Path) -> None:
    def stats(*words: str) -> subprocess.CompletedProcess[str]:
        command = [warm.python(), "-m", "toolfold", "stats", *words, "--data", str(tmp_path)]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, cwd=tmp_path)

    empty = stats()
    assert (empty.returncode, empty.stdout) == (0, "")
    assert "Nothing has been run" in empty.stderr
    files = LedgerFiles(tmp_path)
    files.add_catalog(Catalogued("v", 30, 5000, exact=True))
    once = Counts(runs=2, failed=1, calls=3, rounds=3, conversations=1, own=465, own_once=155, code=40, result=900)
    files.add("2026-11-15", {Key("local", "[red]\x1b[31m", "v"): once, Key("local", tool="lab.echo"): Counts(calls=3)})
    files.add("2026-11-16", {Key("ci", "", "v"): Counts(runs=1, rounds=1, code_est=7)})
    told = json.loads(stats("--json").stdout)
    assert told["totals"]["tokens_direct"] == 5 * 5000 + 900
    assert told["totals"]["tokens_sent"] == 465 + 40 + 7
    assert told["totals"]["dollars_saved"] == pytest.approx(3 * (25_900 - 512) / 1e6)
    assert told["totals"]["labels"]["tokens_sent"] == "estimated"
    assert [row["day"] for row in told["days"]] == ["2026-11-15", "2026-11-16"]
    assert {row["caller"]: row["runs"] for row in told["callers"]} == {"local": 2, "ci": 1}
    assert told["tools"] == [{"tool": "lab.echo", "calls": 3, "errors": 0, "tokens_results": 0, "label": "measured"}]
    shown = stats()
    assert shown.returncode == 0, shown.stderr
    assert "25,900" in shown.stdout
    assert "lab.echo" in shown.stdout
    assert "[red]" in shown.stdout
    assert "\x1b" not in shown.stdout
    told = json.loads(stats("--since", "2026-11-16", "--caller", "ci", "--json").stdout)
    assert (told["totals"]["runs"], told["totals"]["tokens_direct"]) == (1, 5000)
    told = json.loads(stats("--session", "", "--json").stdout)
    assert [(row["caller"], row["runs"]) for row in told["callers"]] == [("ci", 1)]
    assert [(row["caller"], row["session"]) for row in told["sessions"]] == [("ci", "")]
    assert told["tools"] == []


async def test_names_that_programs_make_up_take_no_place_of_others(runtime_dir: Path) -> None:
    code = """
from toolfold import get_prompt, read_resource
for number in range(20):
    for call, server in ((get_prompt, "lab"), (get_prompt, f"no {number}"), (read_resource, f"no {number}")):
        try:
            await call(server, f"x:{number}")
        except Exception:
            pass
"""
    async with lab_fold(runtime_dir) as fold:
        assert (await fold.run(code)).success
        tools = fold.ledger.by_tool()
    assert {each.tool: (each.calls, each.errors) for each in tools} == {OTHERS: (40, 40), "prompt:lab": (20, 20)}
