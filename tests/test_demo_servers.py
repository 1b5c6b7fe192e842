"""The demo's servers, asked over real pipes by the SDK's client."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import jsonschema_rs
import pytest
from mcp import Client, StdioServerParameters, types

from toolfold.demo.fleet import SERVERS, build, demo_servers
from toolfold.demo.servers.hosting import DemoTool

pytestmark = pytest.mark.anyio

NAMED_TOOLS = {
    "google_drive": {"get_document", "get_sheet"},
    "salesforce": {"query", "update_records", "create_contacts"},
    "slack": {"get_channel_history", "post_message"},
    "github": {
        "create_issue",
        "get_file_contents",
        "create_pull_request",
        "push_files",
        "search_repositories",
    },
    "supabase": {"execute_sql"},
    "grafana": {"query_prometheus", "get_dashboard"},
    "context7": {"resolve_library_id", "get_library_docs"},
}
EXAMPLES: dict[str, dict[str, dict[str, Any]]] = {
    "google_drive": {
        "get_document": {"document_id": "planning-w41"},
        "get_sheet": {"sheet_id": "orders-2026"},
    },
    "salesforce": {
        "query": {"query": "SELECT Id, Name FROM Lead LIMIT 3"},
        "update_records": {"object_type": "Lead", "records": [{"Id": "00Q5f0000000000AAA", "Status": "Won"}]},
        "create_contacts": {"contacts": [{"Name": "Ada", "Email": "ada@one.example", "Company": "One"}]},
    },
    "grafana": {
        "query_prometheus": {"expr": 'http_error_ratio{service="ledger"}', "step": 3600},
        "get_dashboard": {"uid": "services"},
    },
}


@asynccontextmanager
async def connected(name: str, mode: str = "auto") -> AsyncGenerator[Client]:
    with anyio.fail_after(60):
        async with Client(StdioServerParameters(**demo_servers()[name]), mode=mode) as client:
            yield client


async def ask(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    assert not result.is_error, block.text
    return json.loads(block.text)


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    assert result.is_error, block.text
    return block.text


def tool(server: str, name: str) -> DemoTool:
    return next(tool for tool in build(server).tools if tool.name == name)


def run(server: str, name: str, **arguments: Any) -> Any:
    text, _, is_error = tool(server, name).answer(arguments)
    assert not is_error, text
    return json.loads(text)


def test_the_fleet_offers_exactly_the_named_tools():
    offered = {name: {tool.name for tool in build(name).tools} for name in SERVERS}
    assert offered == NAMED_TOOLS


@pytest.mark.parametrize("name", SERVERS)
def test_every_schema_is_valid_and_every_argument_is_described(name: str):
    for tool in build(name).tools:
        jsonschema_rs.meta.validate(tool.arguments)
        jsonschema_rs.meta.validate(tool.output_schema or {})
        assert tool.description
        for argument, schema in tool.arguments["properties"].items():
            assert schema.get("description") or schema["type"] == "array", (tool.name, argument)


@pytest.mark.parametrize(("server", "name"), [(server, name) for server, tools in EXAMPLES.items() for name in tools])
def test_structured_answers_match_their_own_output_schema(server: str, name: str):
    asked = tool(server, name)
    text, structured, is_error = asked.answer(EXAMPLES[server][name])
    assert not is_error, text
    assert asked.output_schema is not None
    jsonschema_rs.validate(asked.output_schema, structured)
    assert json.loads(text) == structured


def test_every_tool_with_an_output_schema_has_an_example_here():
    typed = {name: {t.name for t in build(name).tools if t.output_schema} for name in SERVERS}
    assert {name: tools for name, tools in typed.items() if tools} == {
        name: set(tools) for name, tools in EXAMPLES.items()
    }


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_server_speaks_both_protocol_eras_over_stdio(mode: str):
    async with connected("slack", mode) as client:
        listed = await client.list_tools()
        assert {tool.name for tool in listed.tools} == NAMED_TOOLS["slack"]
        annotations = {tool.name: tool.annotations for tool in listed.tools}
        assert annotations["get_channel_history"] is not None
        assert annotations["get_channel_history"].read_only_hint is True
        assert annotations["post_message"] is not None
        assert annotations["post_message"].read_only_hint is False


async def test_the_deployment_completes_at_the_tenth_look_and_other_channels_do_not_count():
    async with connected("slack") as client:
        seen: list[bool] = []
        for _ in range(11):
            await ask(client, "get_channel_history", channel="#sales")
            history = await ask(client, "get_channel_history", channel="#deployments")
            seen.append(any("deployment complete" in message["text"] for message in history["messages"]))
        assert seen == [False] * 9 + [True, True]


async def test_a_posted_message_is_the_newest_in_its_channel():
    async with connected("slack") as client:
        posted = await ask(client, "post_message", channel="#sales", text="We won the bid.")
        history = await ask(client, "get_channel_history", channel="C0SALES", limit=1)
        assert history["messages"] == [{"user": "U0AGENT", "text": "We won the bid.", "ts": posted["ts"]}]
        assert "#deployments" in await refusal(client, "post_message", channel="#nowhere", text="hello")


async def test_a_wrong_argument_is_refused_with_the_reason():
    async with connected("slack") as client:
        assert '"text" is a required property' in await refusal(client, "post_message", channel="#sales")
        assert "at limit" in await refusal(client, "get_channel_history", channel="#sales", limit=0)
        assert "there are get_channel_history, post_message" in await refusal(client, "delete_channel")


def test_the_sheet_has_ten_thousand_rows_and_is_the_same_every_time():
    first, second = (run("google_drive", "get_sheet", sheet_id="orders-2026") for _ in range(2))
    assert first == second
    assert first["row_count"] == len(first["rows"]) == 10_000
    assert {row["status"] for row in first["rows"]} == {"pending", "shipped", "delivered", "cancelled"}


async def test_salesforce_answers_a_thousand_records_and_keeps_what_is_written():
    async with connected("salesforce") as client:
        leads = (await ask(client, "query", query="SELECT Id, Name, Email, Company FROM Lead"))["records"]
        assert len(leads) == 1000
        change = [{"Id": lead["Id"], "Status": "Converted"} for lead in leads[:3]]
        updated = await ask(
            client, "update_records", object_type="Lead", records=[*change, {"Id": "nobody", "Status": "New"}]
        )
        assert updated["updated"] == 3
        assert updated["results"][-1] == {"id": "nobody", "success": False, "error": "ENTITY_NOT_FOUND"}
        contacts = [
            {name: lead[name] for name in ("Name", "Email", "Company")} | {"LeadId": lead["Id"]} for lead in leads[:3]
        ]
        created = await ask(client, "create_contacts", contacts=contacts)
        found = await ask(client, "query", query="SELECT Id, LeadId FROM Contact")
        assert [(row["Id"], row["LeadId"]) for row in found["records"]] == [
            (identifier, lead["Id"]) for identifier, lead in zip(created["ids"], leads, strict=False)
        ]
        converted = await ask(client, "query", query="SELECT count(Id) AS n FROM Lead WHERE Status = 'Converted'")
        assert converted["records"] == [{"n": 3}]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("DELETE FROM Lead", "SELECT"),
        ("SELECT Id FROM Account", "Lead or Contact"),
        ("SELECT Phone FROM Lead", "no such column: Phone"),
        ("SELECT Id FROM Lead WHERE Email = Website", "cannot compare two fields"),
        ("SELECT Id FROM Lead WHERE upper(Status) = 'NEW'", "not authorized to use function: upper"),
        ("SELECT Id FROM Lead; DELETE FROM Lead", "one statement"),
    ],
)
def test_salesforce_refuses_what_soql_cannot_say(query: str, reason: str):
    text, _, is_error = tool("salesforce", "query").answer({"query": query})
    assert is_error
    assert reason in text


def test_sql_reads_and_writes_the_expenses_but_never_a_file(tmp_path: Any):
    execute = tool("supabase", "execute_sql")

    def sql(query: str) -> tuple[Any, bool]:
        text, _, is_error = execute.answer({"query": query})
        return (text if is_error else json.loads(text)), is_error

    assert sql("SELECT count(*) AS n FROM expenses") == ([{"n": 3000}], False)
    assert sql("DELETE FROM expenses WHERE id <= 10") == ({"rows_affected": 10}, False)
    assert sql("SELECT count(*) AS n FROM expenses") == ([{"n": 2990}], False)
    for escape in ("VACUUM INTO '{}'", "ATTACH '{}' AS other"):
        text, is_error = sql(escape.format(tmp_path / "written.db"))
        assert is_error, text
    assert not list(tmp_path.iterdir())
    text, is_error = sql("SELECT nothing FROM expenses")
    assert is_error
    assert "expenses (id INTEGER" in text


async def test_files_pushed_to_a_new_branch_make_a_pull_request():
    async with connected("github") as client:
        where = {"owner": "acme", "repo": "payments"}
        before = await ask(client, "get_file_contents", **where, path="src/limits.py")
        await ask(
            client,
            "push_files",
            **where,
            branch="lower-limit",
            files=[{"path": "src/limits.py", "content": before["content"].replace("40", "20")}],
            message="Lower the limit",
        )
        pull = await ask(client, "create_pull_request", **where, title="Lower the limit", head="lower-limit")
        issue = await ask(client, "create_issue", **where, title="Watch the limit", labels=["ops"])
        assert pull["changed_files"] == ["src/limits.py"]
        assert issue["number"] == pull["number"] + 1
        assert issue["labels"] == ["ops"]
        unchanged = await ask(client, "get_file_contents", **where, path="src/limits.py")
        assert unchanged == before
        assert "already exists" in await refusal(
            client, "create_pull_request", **where, title="Again", head="lower-limit"
        )
        assert "404" in await refusal(client, "get_file_contents", owner="acme", repo="nothing", path="")


def test_repositories_are_found_by_all_words_and_by_language():
    found = run("github", "search_repositories", query="webhook")
    assert {item["full_name"] for item in found["items"]} == {
        f"acme/webhook-{kind}" for kind in ("service", "client", "tools", "docs")
    }
    stars = [item["stargazers_count"] for item in found["items"]]
    assert stars == sorted(stars, reverse=True)
    language = found["items"][0]["language"]
    narrowed = run("github", "search_repositories", query=f"webhook language:{language.lower()}")
    assert {item["language"] for item in narrowed["items"]} == {language}


def test_prometheus_gives_one_series_per_selected_service_with_a_day_of_points():
    matrix = run("grafana", "query_prometheus", expr='http_error_ratio{service=~"payments|ledger"}')
    assert [series["metric"]["service"] for series in matrix["result"]] == ["payments", "ledger"]
    assert all(len(series["values"]) == 288 for series in matrix["result"])
    others = run("grafana", "query_prometheus", expr='http_error_ratio{service!="payments"}', step=3600)
    assert "payments" not in [series["metric"]["service"] for series in others["result"]]
    for wrong in ("sum(http_error_ratio)", "nothing", 'http_error_ratio{pod="a"}'):
        text, _, is_error = tool("grafana", "query_prometheus").answer({"expr": wrong})
        assert is_error
        assert "parse error" in text


async def test_documentation_is_found_by_purpose_and_read_as_plain_text():
    async with connected("context7") as client:
        (library,) = await ask(client, "resolve_library_id", library_name="rate limits")
        result = await client.call_tool("get_library_docs", {"library_id": library["library_id"], "topic": "testing"})
        (block,) = result.content
        assert isinstance(block, types.TextContent)
        assert block.text.startswith("# Quillfort")
        assert "freeze" in block.text
        assert "Sharing" not in block.text
