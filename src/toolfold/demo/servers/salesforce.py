"""`salesforce`: 1,000 leads and the contacts made from them. SQLite answers the queries."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from toolfold.demo.servers.database import READING, Database
from toolfold.demo.servers.draw import Draw
from toolfold.demo.servers.hosting import Arguments, DemoServer, DemoTool, Refusal
from toolfold.demo.servers.schema import flag, listing, record, text, whole

LEADS = 1000

_FIELDS = {
    "Lead": ("Id", "Name", "Email", "Company", "Website", "Employees", "Status", "Source", "LastActivity"),
    "Contact": ("Id", "Name", "Email", "Company", "LeadId"),
}
_PREFIX = {"Lead": "00Q", "Contact": "003"}
_FIRST = ("Ada", "Bo", "Chidi", "Dana", "Emre", "Farah", "Goran", "Hana", "Ines", "Jonas", "Kavya", "Liam")
_LAST = (
    "Achterberg",
    "Brandt",
    "Castillo",
    "Dimitrov",
    "Eriksen",
    "Fontaine",
    "Gupta",
    "Haddad",
    "Ito",
    "Jansen",
)
_FIRMS = (
    "Alder",
    "Basalt",
    "Cobalt",
    "Dune",
    "Ember",
    "Fjord",
    "Granite",
    "Harbor",
    "Islet",
    "Juniper",
    "Kelp",
)
_TRADES = ("Logistics", "Foods", "Robotics", "Textiles", "Energy", "Clinics", "Media")
_MAILERS = ("mailbox.example", "postfach.example", "inbox.example")
_SELECT = re.compile(r"\s*SELECT\s+[\w\s,()*]+?\s+FROM\s+(\w+)\b", re.IGNORECASE)

_NAMES = "|".join(sorted({name for fields in _FIELDS.values() for name in fields}))
_TWO_FIELDS = re.compile(rf"\b({_NAMES})\s*(?:[<>!=]+|LIKE)\s*({_NAMES})\b", re.IGNORECASE)


class _Org:
    def __init__(self) -> None:
        self._db = Database()
        for kind, fields in _FIELDS.items():
            self._db.execute(f"CREATE TABLE {kind} ({', '.join(fields)})")
        self._insert("Lead", _leads())

    def query(self, arguments: Arguments) -> dict[str, Any]:
        soql = arguments["query"]
        found = _SELECT.match(soql)
        if found is None or found[1].title() not in _FIELDS:
            raise Refusal(f"MALFORMED_QUERY: a query is SELECT, fields, FROM, {' or '.join(_FIELDS)}")
        if compared := _TWO_FIELDS.search(soql):
            raise Refusal(f"MALFORMED_QUERY: cannot compare two fields: {compared[0]}")
        try:
            rows = [dict(row) for row in self._db.execute(soql, allowed=READING)]
        except (sqlite3.Error, sqlite3.Warning) as problem:
            fields = ", ".join(_FIELDS[found[1].title()])
            raise Refusal(f"MALFORMED_QUERY: {problem}; {found[1]} has {fields}") from problem
        return {"total_size": len(rows), "done": True, "records": rows}

    def update(self, arguments: Arguments) -> dict[str, Any]:
        kind = arguments["object_type"]
        results: list[dict[str, Any]] = []
        for change in arguments["records"]:
            fields = {name: value for name, value in change.items() if name != "Id"}
            if unknown := sorted(fields.keys() - set(_FIELDS[kind])):
                results.append({"id": change["Id"], "success": False, "error": f"INVALID_FIELD: {unknown[0]}"})
                continue
            assigned = ", ".join(f"{name} = :{name}" for name in fields) or "Id = Id"
            # The names were just checked against the object's own fields; the values are bound.
            done = self._db.execute(f"UPDATE {kind} SET {assigned} WHERE Id = :Id", change)  # noqa: S608
            missing = "" if done.rowcount else "ENTITY_NOT_FOUND"
            results.append({"id": change["Id"], "success": not missing} | ({"error": missing} if missing else {}))
        return {"updated": sum(result["success"] for result in results), "results": results}

    def create_contacts(self, arguments: Arguments) -> dict[str, Any]:
        (taken,) = self._db.execute("SELECT count(*) FROM Contact").fetchone()
        created = [
            {"Id": _identifier("Contact", taken + at), "LeadId": None} | contact
            for at, contact in enumerate(arguments["contacts"])
        ]
        self._insert("Contact", created)
        return {"created": len(created), "ids": [contact["Id"] for contact in created]}

    def _insert(self, kind: str, rows: list[dict[str, Any]]) -> None:
        columns = ", ".join(f":{name}" for name in _FIELDS[kind])
        for row in rows:
            self._db.execute(f"INSERT INTO {kind} VALUES ({columns})", row)  # noqa: S608


def _identifier(kind: str, at: int) -> str:
    return f"{_PREFIX[kind]}5f{at:010d}AAA"


def _leads() -> list[dict[str, Any]]:
    """A third of the leads wrote from the domain of the firm's own website; the others from anywhere."""
    draw = Draw("leads")
    rows: list[dict[str, Any]] = []
    for at in range(LEADS):
        first, last = draw.pick(_FIRST), draw.pick(_LAST)
        firm, trade = draw.pick(_FIRMS), draw.pick(_TRADES)
        domain = f"{firm}-{trade}.example".lower()
        sender = domain if draw.chance(1 / 3) else draw.pick(_MAILERS)
        rows.append(
            {
                "Id": _identifier("Lead", at),
                "Name": f"{first} {last}",
                "Email": f"{first}.{last}{at}@{sender}".lower(),
                "Company": f"{firm} {trade}",
                "Website": f"https://www.{domain}",
                "Employees": draw.pick((8, 25, 60, 140, 320, 900, 2500)),
                "Status": draw.pick(("New", "Working", "Nurturing")),
                "Source": draw.pick(("Web", "Event", "Referral", "Partner")),
                "LastActivity": f"2026-{draw.whole(1, 10):02d}-{draw.whole(1, 28):02d}",
            }
        )
    return rows


def server() -> DemoServer:
    org = _Org()
    return DemoServer(
        "salesforce",
        (
            DemoTool(
                name="query",
                title="Run a SOQL query",
                description=(
                    "Run a SOQL query and return all matching records. Objects: "
                    + "; ".join(f"{kind} ({', '.join(fields)})" for kind, fields in _FIELDS.items())
                    + ". SOQL cannot compare two fields with each other."
                ),
                arguments=record(
                    {"query": text("For example: SELECT Id, Email FROM Lead WHERE Status = 'New' LIMIT 10")}
                ),
                output_schema=record(
                    {
                        "total_size": whole(),
                        "done": flag(),
                        "records": listing({"type": "object", "additionalProperties": True}),
                    }
                ),
                run=org.query,
            ),
            DemoTool(
                name="update_records",
                title="Update records",
                description="Update many records of one object at once. Each names its Id and new values.",
                arguments=record(
                    {
                        "object_type": text("The object", enum=list(_FIELDS)),
                        "records": listing(
                            {
                                "type": "object",
                                "properties": {"Id": text("The record's id")},
                                "required": ["Id"],
                                "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
                            },
                            "Each with its Id and the fields to set",
                            minItems=1,
                            maxItems=1000,
                        ),
                    }
                ),
                output_schema=record(
                    {
                        "updated": whole(),
                        "results": listing(
                            record({"id": text(), "success": flag(), "error": text()}, optional=("error",))
                        ),
                    }
                ),
                writes=True,
                destructive=True,
                idempotent=True,
                run=org.update,
            ),
            DemoTool(
                name="create_contacts",
                title="Create contacts",
                description="Create many contacts at once. Returns their new ids in the same order.",
                arguments=record(
                    {
                        "contacts": listing(
                            record(
                                {
                                    "Name": text(minLength=1),
                                    "Email": text(),
                                    "Company": text(),
                                    "LeadId": text("The lead it comes from"),
                                },
                                optional=("LeadId",),
                            ),
                            minItems=1,
                            maxItems=1000,
                        )
                    }
                ),
                output_schema=record({"created": whole(), "ids": listing(text())}),
                writes=True,
                run=org.create_contacts,
            ),
        ),
    )
