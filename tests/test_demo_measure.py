"""How the demo counts and what it says about the counts."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import types
from rich.console import Console

from toolfold.demo.__main__ import main
from toolfold.demo.catalogs import CatalogCost, catalog_cost
from toolfold.demo.connection import connect
from toolfold.demo.context import Context, result_text
from toolfold.demo.direct import Direct, call, definitions
from toolfold.demo.fleet import SERVERS, demo_servers
from toolfold.demo.folded import fold
from toolfold.demo.run import Report, Row, Way
from toolfold.demo.scenarios import SCENARIOS
from toolfold.demo.table import as_data, show
from toolfold.errors import ConfigError, ToolfoldError, UpstreamError, UpstreamUnavailable
from toolfold.telemetry.savings import definition_tokens
from toolfold.telemetry.tokens import count

pytestmark = pytest.mark.anyio


def way(tokens: int, round_trips: int = 1, answer: str = "42") -> Way:
    return Way(tokens=tokens, tokens_sent=tokens * 2, round_trips=round_trips, calls=1, answer=answer)


def report(*rows: Row, catalog: CatalogCost | None = None) -> Report:
    return Report(7, 17, 2000, 180, rows, 1.0, catalog)


def shown(given: Report) -> str:
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    show(given, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_context_holds_the_definitions_once_and_everything_that_was_said():
    context = Context(100)
    context.turn([("add", {"a": 1})], ["one"])
    context.turn([("add", {"a": 2}), ("add", {"a": 3})], ["two", "three"])
    first = count('{"name":"add","arguments":{"a":1}}') + count("one")
    second = sum(
        map(count, ['{"name":"add","arguments":{"a":2}}', "two", '{"name":"add","arguments":{"a":3}}', "three"])
    )
    assert context.turns == [first, second]
    assert context.calls == 3
    assert context.tokens == 100 + first + second
    assert context.written == sum(count(f'{{"name":"add","arguments":{{"a":{n}}}}}') for n in (1, 2, 3))
    # Three requests: before the first turn, after it, after the second.
    assert context.sent == 100 + (100 + first) + (100 + first + second)


def test_a_definition_is_its_name_description_and_schema():
    tool = ("add", "Add.", {"type": "object"})
    plain = count('{"name":"add","description":"Add.","input_schema":{"type":"object"}}')
    assert definition_tokens([tool]) == plain
    assert definition_tokens([tool, tool], "Be kind.") == 2 * plain + count("Be kind.")


def test_a_result_is_counted_once_though_the_wire_carries_it_twice():
    text = types.TextContent(text='{"a":1}')
    assert result_text(types.CallToolResult(content=[text], structured_content={"a": 1})) == '{"a":1}'
    assert result_text(types.CallToolResult(content=[], structured_content={"b": "é"})) == '{"b":"é"}'
    assert result_text(types.CallToolResult(content=[text, text])) == '{"a":1}\n{"a":1}'


async def test_direct_calls_are_measured_and_an_error_result_is_raised(tmp_path: Path):
    with anyio.fail_after(60):
        async with connect({"slack": demo_servers()["slack"]}, tmp_path / "log") as clients:
            tools, tokens = await definitions(clients["slack"])
            assert tools == 2
            context = Context(tokens)
            model = Direct(clients, context)
            sales = call("slack", "get_channel_history", channel="#sales")
            first, second = await model.turn(sales, call("slack", "get_channel_history", channel="#general"))
            assert (first["channel"], second["channel"]) == ("C0SALES", "C0GENERAL")
            assert len(context.turns) == 1
            assert context.calls == 2
            assert context.tokens > tokens + count(json.dumps(first, separators=(",", ":")))
            with pytest.raises(UpstreamError, match="channel_not_found"):
                await model.turn(call("slack", "post_message", channel="#nowhere", text="hello"))


class Forgetful:
    """A gateway whose search does not show the wanted tool among the first three."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.limits: list[int] = []

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        text = "posted"
        if name == "search_tools":
            self.limits.append(arguments["limit"])
            text = self.line if arguments["limit"] > 3 else "from servers.fax import send"
        return types.CallToolResult(content=[types.TextContent(text=text)])


async def test_a_search_that_misses_is_sent_again_for_more_and_counted():
    client: Any = Forgetful("from servers.slack import post_message")
    context = Context(100)
    assert await fold(client, SCENARIOS[0], context) == "posted"
    assert client.limits == [3, 6]
    assert len(context.turns) == 3
    client = Forgetful("from servers.fax import send")
    with pytest.raises(ToolfoldError, match=r"did not bring slack\.post_message"):
        await fold(client, SCENARIOS[0], Context(100))
    assert client.limits == [3, 6, 12, 24]


async def test_a_server_that_does_not_start_is_named_with_its_last_words(tmp_path: Path):
    broken = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no licence found')"]}
    with anyio.fail_after(60), pytest.raises(UpstreamUnavailable, match=r"broken.*no licence found"):
        async with connect({"slack": demo_servers()["slack"], "broken": broken}, tmp_path / "log"):
            pytest.fail("it must not get here")


async def test_an_error_inside_the_connection_arrives_as_itself(tmp_path: Path):
    with anyio.fail_after(60), pytest.raises(KeyError, match="mine"):
        async with connect({"slack": demo_servers()["slack"]}, tmp_path / "log"):
            raise KeyError("mine")


def test_the_table_says_where_direct_calls_are_cheaper():
    simple = Row("one call", "?", ("slack",), way(2000), way(600, 2), 300)
    large = Row("many rows", "?", ("drive",), way(400_000), way(800, 1), 399_000)
    text = shown(report(simple, large))
    assert "one call: 300 tokens against 600 if only slack is connected; 1 round trip against 2" in text
    assert "many rows:" not in text
    assert "400,000" in text
    assert "30.0%" in text
    assert "none of these" not in text
    worse = replace(simple, direct=way(500))
    assert "one call: 500 tokens against 600; 1 round trip against 2" in shown(report(worse))
    assert "Direct calls are cheaper or shorter in none" in shown(report(large))


def test_different_answers_are_seen_in_the_table_and_in_the_data():
    row = Row("one call", "?", ("slack",), way(10), way(10, answer="43"), 10)
    assert not report(row).same_answers
    assert "NO" in shown(report(row))
    data = as_data(report(row))
    assert data["same_answers"] is False
    assert data["rows"][0]["same_answer"] is False
    assert json.loads(json.dumps(data))["rows"][0]["folded"]["answer"] == "43"


def test_the_table_has_no_colours_when_nobody_looks():
    assert "\x1b" not in shown(report(Row("one call", "?", ("slack",), way(10), way(5), 10)))


def test_a_folder_of_catalogs_is_compared_with_our_two_tools(tmp_path: Path):
    folder = tmp_path / "catalogs"
    folder.mkdir()
    schema = {"type": "object"}
    tools = [{"name": name, "description": "Add.", "inputSchema": schema, "title": "T"} for name in ("add", "sum")]
    for server in ("one", "two"):
        (folder / f"{server}.json").write_text(json.dumps({"server": server, "tools": tools}))
    (folder / "three.json").write_text("[]")
    cost = catalog_cost(folder, tmp_path / "data")
    expected = 2 * definition_tokens([("add", "Add.", schema), ("sum", "Add.", schema)])
    assert (cost.servers, cost.tools, cost.tokens) == (2, 4, expected)
    row = Row("one call", "?", ("slack",), way(10), way(5), 10)
    text = " ".join(shown(report(row, catalog=cost)).split())
    assert f"2 servers, 4 tools, {cost.tokens:,} tokens" in text
    assert "Not counted:" in text
    assert "three.json" in text


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"server": "a", "tools": 3}', '{"server": "a", "tools": ["b"]}'])
def test_a_file_that_is_no_catalog_is_named(tmp_path: Path, content: str):
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(ConfigError, match=r"bad\.json"):
        catalog_cost(tmp_path, tmp_path / "data")


def test_a_folder_without_catalogs_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="holds no catalog"):
        catalog_cost(tmp_path, tmp_path / "data")
    with pytest.raises(ConfigError, match="missing"):
        catalog_cost(tmp_path / "missing", tmp_path / "data")


def test_every_real_catalog_can_be_counted(shared: Path, tmp_path: Path):
    cost = catalog_cost(shared / "catalogs", tmp_path)
    files = list((shared / "catalogs").glob("*.json"))
    assert cost.servers == len(files)
    assert cost.tools == sum(len(json.loads(file.read_bytes())["tools"]) for file in files)


def test_the_scenarios_cover_real_servers_and_compile():
    assert len({scenario.name for scenario in SCENARIOS}) == 6
    for scenario in SCENARIOS:
        assert set(scenario.servers) <= set(SERVERS)
        for tool in scenario.tools:
            server, _, name = tool.partition(".")
            assert f"from servers.{server} import" in scenario.program
            assert name in scenario.program


def test_the_config_command_prints_a_config_of_all_servers(capsys: pytest.CaptureFixture[str]):
    done = subprocess.run(
        [sys.executable, "-m", "toolfold.demo", "config"], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout)["mcpServers"] == demo_servers()
    wrong = subprocess.run(
        [sys.executable, "-m", "toolfold.demo", "serve", "nobody"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert wrong.returncode == 2
    assert "slack" in wrong.stderr
    assert main(["serve", "slack", "post_message", "fax"]) == 2
    assert capsys.readouterr().err == "slack has no tool fax\n"
