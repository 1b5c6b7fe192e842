"""A CRM as an MCP server over stdio, written with the SDK's low-level server.

It answers as TypeScript servers usually do: no output schemas, results as text that is mostly JSON, errors as results
with `isError`, names in camelCase. It is to be registered as `crm-tools`, which is not a Python identifier.
"""

import asyncio
import copy
import json
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ImageContent,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

SAMPLE: dict[str, Any] = {
    "contacts": [
        {
            "id": "c-1",
            "name": "Ada Lovelace",
            "email": "ada@example.com",
            "company": "Analytical Engines",
            "tags": ["vip"],
        },
        {
            "id": "c-2",
            "name": "Grace Hopper",
            "email": "grace@example.com",
            "company": "Cobol & Co",
            "tags": ["vip", "us"],
        },
        {"id": "c-3", "name": "Edith Clarke", "email": "edith@example.com", "company": "Grid Works", "tags": ["us"]},
    ],
    "companies": [
        {"name": "Analytical Engines", "country": "GB", "employees": 40},
        {"name": "Cobol & Co", "country": "US", "employees": 1200},
        {"name": "Grid Works", "country": "US", "employees": 300},
    ],
    "activities": {"c-1": {"type": "call", "summary": "Asked about volume prices"}},
    "notes": [],
}

# A PNG of one pixel, 70 bytes.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

READ = ToolAnnotations(read_only_hint=True)
CONTACT = {"type": "string", "description": "The contact's id, for example c-1"}


def schema(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


TOOLS = [
    Tool(
        name="list_contacts",
        description="List contacts. Returns a JSON string: an array of objects with id, name, email, company, tags.",
        input_schema=schema({"tag": {"type": "string"}, "limit": {"type": "integer", "minimum": 1, "default": 20}}),
        annotations=READ,
    ),
    Tool(
        name="get_contact",
        description="Get a contact by id. Returns the contact as JSON.",
        input_schema=schema({"contactId": CONTACT}, "contactId"),
        annotations=READ,
    ),
    Tool(
        name="search_companies",
        description="Search companies by name and filters. Returns JSON with total and items.",
        input_schema=schema(
            {
                "query": {"type": "string"},
                "filters": {
                    "type": "object",
                    "properties": {"country": {"type": "string"}, "minEmployees": {"type": "integer"}},
                    "additionalProperties": False,
                },
            },
            "query",
        ),
        annotations=READ,
    ),
    Tool(
        name="create-note",
        description="Add a note to a contact. Returns a confirmation.",
        # The optional property stands before a required one, as happens when a schema has grown.
        input_schema=schema(
            {"contactId": CONTACT, "pinned": {"type": "boolean", "default": False}, "body": {"type": "string"}},
            "contactId",
            "body",
        ),
        annotations=ToolAnnotations(title="Create note", read_only_hint=False, destructive_hint=False),
    ),
    Tool(
        name="last_activity",
        description="The latest activity of a contact as JSON, or null if there was none.",
        input_schema=schema({"contactId": CONTACT}, "contactId"),
        annotations=READ,
    ),
    Tool(
        name="owner_stats",
        description="How many deals an account owner has open, won and lost.",
        input_schema=schema({"owner": {"type": "string"}}, "owner"),
        annotations=READ,
    ),
    Tool(
        name="get_avatar",
        description="A contact's picture, with a caption.",
        input_schema=schema({"contactId": CONTACT}, "contactId"),
        annotations=READ,
    ),
    Tool(
        name="restore_crm",
        description="Put the sample data back.",
        input_schema=schema({}),
        annotations=ToolAnnotations(destructive_hint=True),
    ),
]

data = copy.deepcopy(SAMPLE)


def text(content: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=content)])


def as_json(value: Any) -> CallToolResult:
    return text(json.dumps(value, indent=2))


def error(message: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=f"Error: {message}")], is_error=True)


def answer(name: str, arguments: dict[str, Any]) -> CallToolResult:
    match name:
        case "list_contacts":
            tag = arguments.get("tag")
            found = [contact for contact in data["contacts"] if tag is None or tag in contact["tags"]]
            return as_json(found[: arguments.get("limit", 20)])
        case "search_companies":
            filters = arguments.get("filters", {})
            found = [
                company
                for company in data["companies"]
                if arguments["query"].lower() in company["name"].lower()
                and filters.get("country") in (None, company["country"])
                and company["employees"] >= filters.get("minEmployees", 0)
            ]
            return as_json({"total": len(found), "items": found})
        case "owner_stats":
            # A server that formats a Python dict instead of serialising it.
            return text(repr({"owner": arguments["owner"], "open": 3, "won": 5, "lost": None, "on_target": True}))
        case "restore_crm":
            data.update(copy.deepcopy(SAMPLE))
            return text("Sample data restored")
        case _:
            pass

    contact = next((contact for contact in data["contacts"] if contact["id"] == arguments.get("contactId")), None)
    if contact is None:
        return error(f"contact {arguments.get('contactId')} not found")
    match name:
        case "get_contact":
            return as_json(contact)
        case "create-note":
            data["notes"].append({"contactId": contact["id"], **arguments})
            pinned = ", pinned" if arguments.get("pinned") else ""
            return text(f"Note {len(data['notes'])} added to {contact['name']}{pinned}")
        case "last_activity":
            return as_json(data["activities"].get(contact["id"]))
        case "get_avatar":
            return CallToolResult(
                content=[
                    TextContent(type="text", text=f"Portrait of {contact['name']}"),
                    ImageContent(type="image", data=PIXEL, mime_type="image/png"),
                ]
            )
        case _:
            return error(f"unknown tool {name}")


async def list_tools(context: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=TOOLS)


async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
    return answer(params.name, params.arguments or {})


async def main() -> None:
    server = Server("crm-tools", version="1.0.0", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
