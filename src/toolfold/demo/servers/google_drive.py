"""`google_drive`: an incident report, meeting notes, and a sheet of 10,000 orders."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from toolfold.demo.servers.draw import Draw
from toolfold.demo.servers.hosting import Arguments, DemoServer, DemoTool, Refusal
from toolfold.demo.servers.schema import listing, number, record, text, whole

SHEET_ROWS = 10_000

_COMPONENTS = ("ledger", "checkout", "webhooks", "fraud-rules")
_OBSERVED = (
    "saw the retry queue grow to {n} messages",
    "measured a p95 of {n} ms on the authorisation path",
    "found {n} payments stuck between capture and settlement",
    "counted {n} webhook deliveries that had timed out",
)
_DONE = (
    "raised the connection pool and watched it fill again within two minutes",
    "turned the feature flag off for one region and compared both",
    "asked the database team to look at the lock table",
    "replayed a sample of the failed calls against staging, where all of them passed",
    "paused the nightly reconciliation so that it could not add load",
    "informed support, who posted a notice on the status page",
)
_LEARNT = (
    "The symptom moved with the traffic, so the cause was not tied to one machine.",
    "Nothing in the release notes of that morning touched this path.",
    "The graph that would have shown it was not on the team's dashboard.",
    "The alarm was set on the mean, and the mean hid it.",
    "Two people had the same idea independently, which made the next step easy to choose.",
)
_PEOPLE = ("Noor", "Marc", "Lena", "Idris", "Sofia")


def incident_report() -> str:
    """A long report in Markdown: the kind of text that nobody wants to pass through a model twice."""
    draw = Draw("incident-2291")
    lines = [
        "# Incident 2291: payments held back after the ledger migration",
        "",
        "**Severity:** 2  ",
        f"**Components:** {', '.join(_COMPONENTS)}  ",
        "**Duration:** 3 h 40 min",
        "",
        "## Timeline",
        "",
    ]
    minute = 9 * 60 + 12
    for _ in range(44):
        minute += draw.whole(2, 8)
        who, component = draw.pick(_PEOPLE), draw.pick(_COMPONENTS)
        observed = draw.pick(_OBSERVED).format(n=draw.whole(120, 9800))
        lines.append(
            f"- {minute // 60:02d}:{minute % 60:02d} {who} ({component}) {observed}, "
            f"then {draw.pick(_DONE)}. {draw.pick(_LEARNT)}"
        )
    lines += [
        "",
        "## Cause",
        "",
        "The migration added an index while the table was in use. The lock it took was short, but every",
        "waiting payment held a connection, and the pool was smaller than the payments of that time.",
        "",
        "## Actions",
        "",
        "- [ ] ledger: create indexes without blocking writers",
        "- [ ] checkout: give up on a connection after 2 s and queue the payment",
        "- [ ] webhooks: alarm on the 95th percentile, not on the mean",
        "- [ ] fraud-rules: read from the replica",
        "",
    ]
    return "\n".join(lines)


def orders() -> list[dict[str, Any]]:
    """The sheet's rows. About one in fourteen is still pending."""
    draw = Draw("orders-2026")
    first = date(2026, 1, 1)
    statuses = ("shipped",) * 8 + ("delivered",) * 3 + ("cancelled",) * 2 + ("pending",)
    return [
        {
            "order": f"O-{100_000 + at}",
            "date": str(first + timedelta(days=at * 300 // SHEET_ROWS)),
            "customer": f"cust-{draw.whole(1, 900):03d}",
            "region": draw.pick(("EMEA", "AMER", "APAC")),
            "status": draw.pick(statuses),
            "amount": draw.money(15, 2400),
        }
        for at in range(SHEET_ROWS)
    ]


_NOTES = """# Planning, week 41

Present: Noor, Marc, Lena, Idris

- Noor takes the rate limiter; it must be in place before the sale starts.
- Marc asks for a second reviewer on everything that touches the ledger.
- Lena shows the new order page. Open question: what does it show when a payment is held back?
- Idris moves the load test to Tuesday.
"""
_DOCUMENTS = {
    "incident-2291": ("Incident 2291", incident_report),
    "planning-w41": ("Planning, week 41", lambda: _NOTES),
}
_SHEETS = {"orders-2026": ("Orders 2026", orders)}


def _document(arguments: Arguments) -> dict[str, Any]:
    identifier = arguments["document_id"]
    if identifier not in _DOCUMENTS:
        raise Refusal(f"no document {identifier}; there are {', '.join(_DOCUMENTS)}")
    title, content = _DOCUMENTS[identifier]
    return {"document_id": identifier, "title": title, "content": content()}


def _sheet(arguments: Arguments) -> dict[str, Any]:
    identifier = arguments["sheet_id"]
    if identifier not in _SHEETS:
        raise Refusal(f"no sheet {identifier}; there are {', '.join(_SHEETS)}")
    title, content = _SHEETS[identifier]
    rows = content()
    return {"sheet_id": identifier, "title": title, "row_count": len(rows), "rows": rows}


def server() -> DemoServer:
    return DemoServer(
        "google_drive",
        (
            DemoTool(
                name="get_document",
                title="Read a document",
                description="Read a Google Docs document as Markdown: its id, title and whole content.",
                arguments=record({"document_id": text("The document's id, for example incident-2291")}),
                output_schema=record({"document_id": text(), "title": text(), "content": text("Markdown")}),
                run=_document,
            ),
            DemoTool(
                name="get_sheet",
                title="Read a sheet",
                description="Read all rows of a Google Sheets spreadsheet, as objects keyed by the header.",
                arguments=record({"sheet_id": text("The spreadsheet's id, for example orders-2026")}),
                output_schema=record(
                    {
                        "sheet_id": text(),
                        "title": text(),
                        "row_count": whole(),
                        "rows": listing(
                            record(
                                {
                                    "order": text(),
                                    "date": text("YYYY-MM-DD"),
                                    "customer": text(),
                                    "region": text(enum=["EMEA", "AMER", "APAC"]),
                                    "status": text(enum=["pending", "shipped", "delivered", "cancelled"]),
                                    "amount": number("In euros"),
                                }
                            )
                        ),
                    }
                ),
                run=_sheet,
            ),
        ),
    )
