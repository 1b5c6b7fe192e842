"""The six scenarios: what is asked, how a model does it with direct calls, and the program that does it folded.

Both ways must end in the same answer. The direct way is the best one that a careful model would take: it lets the
server filter where the server can, and sends independent calls together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio

from toolfold.demo.direct import Direct, call


@dataclass(frozen=True, kw_only=True)
class Scenario:
    name: str
    question: str
    searches: tuple[str, ...]
    """What a model that does not know the tools looks for. All searches are sent in one round trip."""
    program: str
    tools: tuple[str, ...]
    """`server.tool` for each tool that the program imports: the searches must bring all of them."""
    direct: Callable[[Direct], Awaitable[str]]

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(tool.partition(".")[0] for tool in self.tools))


async def _one_call(model: Direct) -> str:
    said = "The load test has moved to Tuesday."
    (posted,) = await model.turn(call("slack", "post_message", channel="#general", text=said))
    return f"posted as {posted['ts']}"


ONE_CALL = """
from servers.slack import post_message

posted = await post_message(channel="#general", text="The load test has moved to Tuesday.")
print("posted as", posted["ts"])
"""


async def _filter_rows(model: Direct) -> str:
    (sheet,) = await model.turn(call("google_drive", "get_sheet", sheet_id="orders-2026"))
    pending = [row for row in sheet["rows"] if row["status"] == "pending"]
    total = sum(row["amount"] for row in pending)
    largest = sorted(pending, key=lambda row: row["amount"], reverse=True)[:5]
    return "\n".join(
        [f"{len(pending)} of {sheet['row_count']} orders are pending, worth {total:.2f} euros"]
        + [f"{row['order']} {row['customer']} {row['amount']:.2f}" for row in largest]
    )


FILTER_ROWS = """
from servers.google_drive import get_sheet

sheet = await get_sheet(sheet_id="orders-2026")
pending = [row for row in sheet["rows"] if row["status"] == "pending"]
total = sum(row["amount"] for row in pending)
print(f"{len(pending)} of {sheet['row_count']} orders are pending, worth {total:.2f} euros")
for row in sorted(pending, key=lambda row: row["amount"], reverse=True)[:5]:
    print(f"{row['order']} {row['customer']} {row['amount']:.2f}")
"""


async def _document_to_issue(model: Direct) -> str:
    (document,) = await model.turn(call("google_drive", "get_document", document_id="incident-2291"))
    report: str = document["content"]
    components = report.split("**Components:**")[1].splitlines()[0]
    (issue,) = await model.turn(
        call(
            "github",
            "create_issue",
            owner="acme",
            repo="payments",
            title=report.splitlines()[0].lstrip("# "),
            body=report,
            labels=[name.strip() for name in components.split(",")],
        )
    )
    return f"#{issue['number']} {issue['title']}\nlabels: {', '.join(issue['labels'])}"


DOCUMENT_TO_ISSUE = """
from servers.github import create_issue
from servers.google_drive import get_document

report = (await get_document(document_id="incident-2291"))["content"]
components = report.split("**Components:**")[1].splitlines()[0]
issue = await create_issue(
    owner="acme",
    repo="payments",
    title=report.splitlines()[0].lstrip("# "),
    body=report,
    labels=[name.strip() for name in components.split(",")],
)
print(f"#{issue['number']} {issue['title']}")
print("labels:", ", ".join(issue["labels"]))
"""


async def _salesforce_records(model: Direct) -> str:
    soql = "SELECT Id, Name, Email, Company, Website FROM Lead LIMIT 1000"
    (answer,) = await model.turn(call("salesforce", "query", query=soql))
    verified = [lead for lead in answer["records"] if lead["Website"].endswith("." + lead["Email"].split("@")[1])]
    contacts = [
        {"Name": lead["Name"], "Email": lead["Email"], "Company": lead["Company"], "LeadId": lead["Id"]}
        for lead in verified
    ]
    converted = [{"Id": lead["Id"], "Status": "Converted"} for lead in verified]
    created, updated = await model.turn(
        call("salesforce", "create_contacts", contacts=contacts),
        call("salesforce", "update_records", object_type="Lead", records=converted),
    )
    return (
        f"{answer['total_size']} leads read, {created['created']} contacts created, "
        f"{updated['updated']} leads converted"
    )


SALESFORCE_RECORDS = """
from servers.salesforce import create_contacts, query, update_records

leads = await query(query="SELECT Id, Name, Email, Company, Website FROM Lead LIMIT 1000")
verified = [lead for lead in leads["records"] if lead["Website"].endswith("." + lead["Email"].split("@")[1])]
created = await create_contacts(
    contacts=[
        {"Name": lead["Name"], "Email": lead["Email"], "Company": lead["Company"], "LeadId": lead["Id"]}
        for lead in verified
    ]
)
updated = await update_records(
    object_type="Lead", records=[{"Id": lead["Id"], "Status": "Converted"} for lead in verified]
)
print(
    f"{leads['total_size']} leads read, {created['created']} contacts created, "
    f"{updated['updated']} leads converted"
)
"""


async def _polling(model: Direct) -> str:
    for look in range(1, 31):
        (history,) = await model.turn(call("slack", "get_channel_history", channel="#deployments", limit=3))
        for message in history["messages"]:
            if "deployment complete" in message["text"]:
                return f"look {look}: {message['text']}"
        await anyio.sleep(0.05)
    return "still running after 30 looks"


POLLING = """
import asyncio
from servers.slack import get_channel_history

for look in range(1, 31):
    history = await get_channel_history(channel="#deployments", limit=3)
    done = [m["text"] for m in history["messages"] if "deployment complete" in m["text"]]
    if done:
        print(f"look {look}: {done[0]}")
        break
    await asyncio.sleep(0.05)
else:
    print("still running after 30 looks")
"""


async def _three_servers(model: Direct) -> str:
    sql = (
        "SELECT service, sum(amount) AS euros FROM expenses "
        "WHERE category = 'cloud' AND day LIKE '2026-10-%' GROUP BY service"
    )
    spent, traffic = await model.turn(
        call("supabase", "execute_sql", query=sql),
        call("grafana", "query_prometheus", expr="http_requests_per_second"),
    )
    millions = {
        series["metric"]["service"]: sum(value for _, value in series["values"]) * 300 / 1e6
        for series in traffic["result"]
    }
    costs: dict[str, float] = {row["service"]: row["euros"] / 31 / millions[row["service"]] for row in spent}
    lines = [
        f"{service}: {costs[service]:.2f} euros per million requests"
        for service in sorted(costs, key=lambda service: costs[service], reverse=True)
    ]
    await model.turn(call("slack", "post_message", channel="#finance-ops", text="\n".join(lines)))
    return "\n".join(lines)


THREE_SERVERS = """
import asyncio
from servers.grafana import query_prometheus
from servers.slack import post_message
from servers.supabase import execute_sql

spent, traffic = await asyncio.gather(
    execute_sql(
        query="SELECT service, sum(amount) AS euros FROM expenses "
        "WHERE category = 'cloud' AND day LIKE '2026-10-%' GROUP BY service"
    ),
    query_prometheus(expr="http_requests_per_second"),
)
millions = {
    series["metric"]["service"]: sum(value for _, value in series["values"]) * 300 / 1e6
    for series in traffic["result"]
}
costs = {row["service"]: row["euros"] / 31 / millions[row["service"]] for row in spent}
report = "\\n".join(
    f"{service}: {costs[service]:.2f} euros per million requests"
    for service in sorted(costs, key=costs.get, reverse=True)
)
await post_message(channel="#finance-ops", text=report)
print(report)
"""


def _scenario(name: str, program: str, direct: Callable[[Direct], Awaitable[str]], **more: Any) -> Scenario:
    return Scenario(name=name, program=program.strip() + "\n", direct=direct, **more)


SCENARIOS = (
    _scenario(
        "one simple call",
        ONE_CALL,
        _one_call,
        question="Tell #general that the load test has moved to Tuesday.",
        searches=("post a message to a Slack channel",),
        tools=("slack.post_message",),
    ),
    _scenario(
        "filter 10,000 rows",
        FILTER_ROWS,
        _filter_rows,
        question="How many orders in the sheet are pending, and which five are the largest?",
        searches=("read the rows of a Google sheet",),
        tools=("google_drive.get_sheet",),
    ),
    _scenario(
        "document → issue",
        DOCUMENT_TO_ISSUE,
        _document_to_issue,
        question="File the incident report as an issue on acme/payments, labelled with its components.",
        searches=("read a Google document", "create a GitHub issue"),
        tools=("google_drive.get_document", "github.create_issue"),
    ),
    _scenario(
        "1,000 Salesforce records",
        SALESFORCE_RECORDS,
        _salesforce_records,
        question="Turn every lead whose e-mail is at its company's own domain into a contact.",
        searches=("query, update and create Salesforce records and contacts",),
        tools=("salesforce.query", "salesforce.create_contacts", "salesforce.update_records"),
    ),
    _scenario(
        "polling loop of ten",
        POLLING,
        _polling,
        question="Wait until #deployments says that the deployment is complete.",
        searches=("read a Slack channel's history",),
        tools=("slack.get_channel_history",),
    ),
    _scenario(
        "three-server workflow",
        THREE_SERVERS,
        _three_servers,
        question="Post to #finance-ops what a million requests cost, service by service.",
        searches=("execute SQL on the expenses", "query Prometheus metrics", "post a Slack message"),
        tools=("supabase.execute_sql", "grafana.query_prometheus", "slack.post_message"),
    ),
)
