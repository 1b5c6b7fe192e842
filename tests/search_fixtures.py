"""A small office of servers, in words of our own, over which search's promises are checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolfold.catalog.catalog import Catalog
from toolfold.config.settings import Settings
from toolfold.definitions import Listing, PromptArgument, PromptDefinition, ResourceDefinition, ToolDefinition

OFFICE: dict[str, dict[str, str]] = {
    "github": {
        "create_issue": "Open a new issue in a repository",
        "list_issues": "List the issues of a repository",
        "create_pull_request": "Open a pull request",
        "merge_pull_request": "Merge a pull request into its base branch",
        "get_file_contents": "Get the contents of a file from a repository",
        "push_files": "Push several files in one commit",
        "search_repositories": "Search for repositories",
        "delete_branch": "Delete a branch of a repository",
    },
    "slack": {
        "post_message": "Post a message to a channel",
        "get_channel_history": "Get the recent messages of a channel",
        "add_reaction": "React to a message with an emoji",
        "list_users": "List the members of the workspace",
    },
    "google_drive": {
        "get_document": "Get a document's text",
        "get_sheet": "Get the rows of a spreadsheet",
        "create_folder": "Create a folder",
        "share_file": "Share a file with a person",
    },
    "salesforce": {
        "query": "Run a SOQL query",
        "update_records": "Update records of an object",
        "create_contacts": "Create contacts",
    },
    "grafana": {
        "query_prometheus": "Query a Prometheus data source over a time range",
        "get_dashboard": "Get a dashboard by its identifier",
        "list_alert_rules": "List the alert rules and their states",
    },
    "filesystem": {
        "read_file": "Read the contents of a file",
        "write_file": "Write content to a file, replacing what was there",
        "list_directory": "List the entries of a directory",
        "move_file": "Move or rename a file",
    },
    "weather": {
        "get_forecast": "Get the forecast for a place",
        "get_alerts": "Get warnings about severe weather",
    },
    "calendar": {
        "create_event": "Create an event with attendees",
        "list_events": "List the events of a day",
        "delete_event": "Delete an event",
    },
    "stripe": {
        "create_refund": "Give a customer's money back",
        "list_invoices": "List invoices",
        "create_customer": "Create a customer",
    },
}
PARAMETERS: dict[str, Any] = {
    "query_prometheus": {"step_seconds": {"type": "integer", "description": "Resolution of the series"}},
    "create_refund": {"reason": {"type": "string", "enum": ["duplicate", "fraudulent"]}},
}


def listing(server: str, tools: dict[str, str]) -> Listing:
    return Listing(
        server=server,
        tools=[
            ToolDefinition(
                server=server,
                name=name,
                description=description,
                input_schema={"type": "object", "properties": PARAMETERS.get(name, {})},
            )
            for name, description in tools.items()
        ],
    )


def office(folder: Path, *, semantic: bool = True) -> Catalog:
    catalog = Catalog.open(Settings(data_dir=folder, semantic=semantic))
    for server, tools in OFFICE.items():
        catalog.update(listing(server, tools))
    catalog.update(
        Listing(
            server="handbook",
            instructions="The company's handbook. Ask before editing.",
            resources=[
                ResourceDefinition(
                    server="handbook",
                    uri="handbook://vacation",
                    name="vacation",
                    description="How many days off people have",
                ),
                ResourceDefinition(server="handbook", uri="handbook://{page}", name="any page", template=True),
            ],
            prompts=[
                PromptDefinition(
                    server="handbook",
                    name="onboarding",
                    description="Welcome a new colleague",
                    arguments=[PromptArgument(name="first_name", required=True)],
                )
            ],
        )
    )
    return catalog
