"""Reads everything that a server offers, page by page, and keeps what is usable of it.

The SDK refuses a whole list for one bad entry. Here an entry without a usable name is left out, one with a detail of
the wrong type is kept without that detail, and both are reported.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec

from toolfold.definitions import (
    Listing,
    PromptArgument,
    PromptDefinition,
    ResourceDefinition,
    ToolDefinition,
)
from toolfold.upstream.results import InvalidResponseError

PAGES = 1_000
"""Pages that are read of one list."""
ENTRIES = 100_000
"""Entries that are kept of one list."""
LISTING_BYTES = 32 * 1024**2
"""Bytes, as JSON, that are kept of everything one server lists. The largest real server we know sends 2 MB."""
PROBLEMS = 50

Request = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class ListingReader:
    """Collects one listing and, in `problems`, what was wrong with it."""

    def __init__(self, server: str, request: Request, *, tasks: bool = False) -> None:
        """`tasks`: whether tools that run only as a task can be used."""
        self._server = server
        self._tasks = tasks
        self._request = request
        self._bytes_left = LISTING_BYTES
        self.problems: list[str] = []

    async def read(self, *, instructions: str, tools: bool, resources: bool, prompts: bool) -> Listing:
        """The flags say what the server claims to have. It is asked for tools even if it claims none."""
        read = self._entries if tools else self._optional
        entries = await read("tools/list", "tools")
        listed: list[ResourceDefinition] = []
        offered: list[PromptDefinition] = []
        if resources:
            listed = [r for e in await self._optional("resources/list", "resources") if (r := self._resource(e))]
            templates = await self._optional("resources/templates/list", "resourceTemplates")
            listed += [r for e in templates if (r := self._resource(e, template=True))]
        if prompts:
            offered = [p for e in await self._optional("prompts/list", "prompts") if (p := self._prompt(e))]
        return Listing(
            server=self._server,
            instructions=instructions,
            tools=self._tools(entries),
            resources=listed,
            prompts=offered,
        )

    def _problem(self, text: str) -> None:
        if len(self.problems) < PROBLEMS:
            self.problems.append(text)
        elif len(self.problems) == PROBLEMS:
            self.problems.append("… and more")

    async def _optional(self, method: str, key: str) -> list[Any]:
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND

        try:
            return await self._entries(method, key)
        except (MCPError, InvalidResponseError) as error:
            if isinstance(error, MCPError):
                if error.code == CONNECTION_CLOSED:
                    raise
                if error.code == METHOD_NOT_FOUND:
                    return []
            self._problem(f"{method} failed: {error}")
            return []

    async def _entries(self, method: str, key: str) -> list[Any]:
        found: list[Any] = []
        cursors: set[str] = set()
        params: dict[str, Any] = {}
        for _ in range(PAGES):
            raw = await self._request(method, params)
            page = raw.get(key)
            if not isinstance(page, list):
                raise InvalidResponseError(f"the response to {method} has no list of {key}")
            if not self._keep(cast("list[Any]", page), found):
                self._problem(f"{method} sent too much; {len(found)} entries were kept")
                return found
            cursor = raw.get("nextCursor")
            if not isinstance(cursor, str) or not cursor:
                return found
            if cursor in cursors:
                self._problem(f"{method} never ends; {len(found)} entries were kept")
                return found
            cursors.add(cursor)
            params = {"cursor": cursor}
        self._problem(f"{method} has more than {PAGES} pages; {len(found)} entries were kept")
        return found

    def _keep(self, page: list[Any], found: list[Any]) -> bool:
        """Add a page's entries to `found`; False when the limit on entries or bytes cut it short."""
        for entry in page:
            size = _size(entry)
            if len(found) >= ENTRIES or size > self._bytes_left:
                return False
            self._bytes_left -= size
            found.append(entry)
        return True

    def _tools(self, entries: list[Any]) -> list[ToolDefinition]:
        tools: dict[str, ToolDefinition] = {}
        for number, entry in enumerate(entries, 1):
            if (tool := self._tool(entry, number)) is None:
                continue
            if tool.name in tools:
                self._problem(f"tool `{_short(tool.name)}` is listed twice; the first one is used")
            else:
                tools[tool.name] = tool
        return list(tools.values())

    def _tool(self, entry: Any, number: int) -> ToolDefinition | None:
        if not (name := _string(entry, "name")):
            self._problem(f"tool number {number} has no name and was left out")
            return None
        details = _Details(entry, lambda key: self._problem(_wrong("tool", name, key)))
        task = (details.mapping("execution") or {}).get("taskSupport") == "required"
        if task and not self._tasks:
            self._problem(f"tool `{_short(name)}` was left out: it runs only as a task, which is not possible here")
            return None
        schema = details.mapping("inputSchema")
        if schema is None:
            self._problem(f"tool `{_short(name)}` has no inputSchema; any arguments are let through")
            schema = {"type": "object"}
        output = details.mapping("outputSchema")
        for key, value in (("inputSchema", schema), ("outputSchema", output)):
            if value is not None and (flaw := schema_flaw(value)):
                self._problem(f"tool `{_short(name)}` has an invalid {key}: {flaw}")
        return ToolDefinition(
            server=self._server,
            name=name,
            title=details.text("title"),
            description=details.text("description"),
            input_schema=schema,
            output_schema=output,
            annotations=details.mapping("annotations") or {},
            task=task,
        )

    def _resource(self, entry: Any, *, template: bool = False) -> ResourceDefinition | None:
        key = "uriTemplate" if template else "uri"
        if not (uri := _string(entry, key)):
            self._problem(f"a resource without `{key}` was left out")
            return None
        details = _Details(entry, lambda key: self._problem(_wrong("resource", uri, key)))
        return ResourceDefinition(
            server=self._server,
            uri=uri,
            name=details.text("name"),
            title=details.text("title"),
            description=details.text("description"),
            mime_type=details.text("mimeType"),
            template=template,
        )

    def _prompt(self, entry: Any) -> PromptDefinition | None:
        if not (name := _string(entry, "name")):
            self._problem("a prompt without a name was left out")
            return None
        details = _Details(entry, lambda key: self._problem(_wrong("prompt", name, key)))
        arguments: list[PromptArgument] = []
        for value in details.sequence("arguments"):
            if label := _string(value, "name"):
                argument = _Details(value, lambda key: self._problem(_wrong("prompt", name, key)))
                arguments.append(
                    PromptArgument(
                        name=label, description=argument.text("description"), required=value.get("required") is True
                    )
                )
        return PromptDefinition(
            server=self._server,
            name=name,
            title=details.text("title"),
            description=details.text("description"),
            arguments=arguments,
        )


class _Details:
    """Optional members of an entry: absent or null is fine, another type is reported and left out."""

    def __init__(self, entry: dict[str, Any], report: Callable[[str], None]) -> None:
        self._entry = entry
        self._report = report

    def _get(self, key: str, kind: type) -> Any:
        value = self._entry.get(key)
        if value is not None and not isinstance(value, kind):
            self._report(key)
            return None
        return value

    def text(self, key: str) -> str:
        return self._get(key, str) or ""

    def mapping(self, key: str) -> dict[str, Any] | None:
        return self._get(key, dict)

    def sequence(self, key: str) -> list[Any]:
        return self._get(key, list) or []


def _size(entry: Any) -> int:
    """Bytes of an entry as JSON."""
    try:
        return len(msgspec.json.encode(entry))
    except (UnicodeEncodeError, TypeError, RecursionError):
        return len(repr(entry))


def _string(entry: Any, key: str) -> str:
    """A member that identifies the entry, or an empty string if it is missing or no string."""
    value = cast("dict[str, Any]", entry).get(key) if isinstance(entry, dict) else None
    return value if isinstance(value, str) else ""


def _short(name: str) -> str:
    return name if len(name) <= 80 else name[:79] + "…"


def _wrong(kind: str, name: str, key: str) -> str:
    return f"{kind} `{_short(name)}` has a `{key}` of the wrong type, which was left out"


def schema_flaw(schema: dict[str, Any]) -> str:
    """Why a JSON Schema is invalid, or an empty string. An invalid one is kept: the server may know what it means."""
    import jsonschema_rs

    if str(schema.get("$schema", "")).rstrip("#") not in _DIALECTS:
        # An unknown dialect would be fetched from the URL that the server gives.
        schema = {key: value for key, value in schema.items() if key != "$schema"}
    try:
        jsonschema_rs.meta.validate(schema)
    except jsonschema_rs.ValidationError as error:
        return _line(error.message)
    except Exception as error:  # whatever a hostile schema makes the validator do
        return _line(str(error)) or type(error).__name__
    return ""


_DIALECTS = frozenset(
    {f"http://json-schema.org/draft-0{number}/schema" for number in (4, 6, 7)}
    | {f"https://json-schema.org/draft/{name}/schema" for name in ("2019-09", "2020-12")}
)


def _line(text: str) -> str:
    return text.partition("\n")[0][:200]
