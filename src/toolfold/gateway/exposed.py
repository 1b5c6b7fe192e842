"""Prompts and resources of the servers, offered to clients where the settings say so (`expose`).

Where programs do not run, what was cut of a long result is a resource as well: `toolfold:///run-1a2b3c4d/outputs/…`.

A prompt is called `server__prompt`, as tools are. A resource's URI stands behind its server: `toolfold://docs/file:///a`,
so that templates can be filled in as they are.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from toolfold.definitions import BlobPart, TextPart, ToolResult
from toolfold.errors import ToolfoldError
from toolfold.gateway.names import offered_names
from toolfold.gateway.offers import FIRST_LISTING, PAGE
from toolfold.gateway.runs import caller, who_asks

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from toolfold.catalog.entries import Entry, Kind
    from toolfold.fold import Toolfold
    from toolfold.gateway.runs import Runs, Work
    from toolfold.guards.events import CallKind
    from toolfold.guards.guard import Call

    Context = ServerRequestContext[Any]

_SCHEME = "toolfold://"
_OUTPUT = re.compile(r"(run-[0-9a-f]{8})/(outputs/[0-9a-f]{6}-\d+\.txt)")
_KEPT = re.compile(r"all of it, in session '(run-[0-9a-f]{8})': workspace/(outputs/[0-9a-f]{6}-\d+\.txt)")


def gateway_uri(server: str, uri: str) -> str:
    """What clients call a server's resource."""
    return f"{_SCHEME}{quote(server, safe='')}/{uri}"


def with_output_link(result: types.CallToolResult) -> types.CallToolResult:
    """A result that was cut names the resource with all of it, in place of a session that no program can run in."""
    first = result.content[0] if result.content else None
    if isinstance(first, types.TextContent) and (found := _KEPT.search(first.text)):
        uri = f"{_SCHEME}/{found[1]}/{found[2]}"
        first.text = f"{first.text[: found.start()]}all of it: resource {uri}{first.text[found.end() :]}"
        result.content.append(types.ResourceLink(uri=uri, name="the whole result", mime_type="text/plain"))
    return result


class Exposed:
    def __init__(self, fold: Toolfold, runs: Runs, session: str, *, outputs: bool = False) -> None:
        """`session` is the one that the calls belong to. `outputs` is whether long results are read as resources."""
        self._outputs = outputs
        self._fold = fold
        self._runs = runs
        self._session = session

    def handlers(self) -> dict[str, Any]:
        """What a `Server` is made with."""
        found: dict[str, Any] = {}
        if "prompts" in self._fold.settings.expose:
            found |= {"on_list_prompts": self.list_prompts, "on_get_prompt": self.get_prompt}
        if "resources" in self._fold.settings.expose or self._outputs:
            found |= {
                "on_list_resources": self.list_resources,
                "on_list_resource_templates": self.list_templates,
                "on_read_resource": self.read_resource,
            }
        if self._fold.settings.expose:
            found["on_completion"] = self.complete
        return found

    # Prompts

    async def list_prompts(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        seen = await self._seen(ctx, "prompt")
        names = self._prompt_names()
        entries = {names[entry.server, entry.name]: entry for entry in seen}
        page, cursor = _page(sorted(entries), params)
        return types.ListPromptsResult(prompts=[_prompt(name, entries[name]) for name in page], next_cursor=cursor)

    async def get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        entry = await self._prompt_called(ctx, params.name)
        work = partial(self._fold.call, entry.server, entry.name, params.arguments or {}, kind="prompt")
        result = await self._called(ctx, params, work)
        if isinstance(result, types.InputRequiredResult):
            return result
        try:
            messages = [types.PromptMessage.model_validate(each) for each in cast("list[Any]", result.structured)]
        except ValidationError:
            raise MCPError(types.INTERNAL_ERROR, f"{entry.server} sent an invalid prompt.") from None
        return types.GetPromptResult(messages=messages, description=entry.description or None)

    async def _prompt_called(self, ctx: Context, name: str) -> Entry:
        entries = await self._seen(ctx, "prompt")
        keys = {name: key for key, name in self._prompt_names().items()}
        entry = next((one for one in entries if (one.server, one.name) == keys.get(name)), None)
        if entry is None or "prompts" not in self._fold.settings.expose:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name!r}.")
        return entry

    def _prompt_names(self) -> dict[tuple[str, str], str]:
        entries = self._fold.catalog.entries_in("prompt")
        return {key: name for name, key in offered_names((one.server, one.name) for one in entries).items()}

    # Resources

    async def list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        found = await self._resources(ctx, templates=False)
        page, cursor = _page(sorted(found), params)
        resources = [types.Resource(uri=uri, **_described(found[uri])) for uri in page]
        return types.ListResourcesResult(resources=resources, next_cursor=cursor)

    async def list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        found = await self._resources(ctx, templates=True)
        page, cursor = _page(sorted(found), params)
        templates = [types.ResourceTemplate(uri_template=uri, **_described(found[uri])) for uri in page]
        return types.ListResourceTemplatesResult(resource_templates=templates, next_cursor=cursor)

    async def read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        if self._outputs and (output := _OUTPUT.fullmatch(str(params.uri).removeprefix(f"{_SCHEME}/"))):
            text = await self._output(caller(ctx), *output.groups())
            return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=text)])
        server, uri = self.split(str(params.uri))
        result = await self._called(ctx, params, partial(self._fold.call, server, uri, kind="resource"))
        if isinstance(result, types.InputRequiredResult):
            return result
        contents: list[types.TextResourceContents | types.BlobResourceContents] = []
        for part in result.parts:
            if isinstance(part, TextPart | BlobPart):
                about: dict[str, Any] = {
                    "uri": gateway_uri(server, part.uri or uri),
                    "mime_type": part.mime_type or None,
                }
                contents.append(
                    types.TextResourceContents(text=part.text, **about)
                    if isinstance(part, TextPart)
                    else types.BlobResourceContents(blob=part.data, **about)
                )
        return types.ReadResourceResult(contents=contents)

    async def _output(self, owner: str, session: str, path: str) -> str:
        try:
            data = await asyncio.to_thread(lambda: self._fold.sessions.files(session, caller=owner).read(path))
        except ToolfoldError as error:
            raise MCPError(types.INVALID_PARAMS, f"Unknown resource: {error}") from None
        return data.decode("utf-8", "replace")

    async def _resources(self, ctx: Context, *, templates: bool) -> dict[str, Entry]:
        if "resources" not in self._fold.settings.expose:
            return {}
        found = await self._seen(ctx, "resource")
        return {gateway_uri(one.server, one.uri): one for one in found if one.resource().template == templates}

    def split(self, written: str) -> tuple[str, str]:
        """The server and its own URI. Some clients write what stands after `//` in lower case."""
        host, _, uri = written.removeprefix(_SCHEME).partition("/")
        name = unquote(host)
        servers = [each for each in self._fold.settings.servers if each.casefold() == name.casefold()]
        hidden = "resources" not in self._fold.settings.expose
        if hidden or not written.startswith(_SCHEME) or not uri or not servers:
            raise MCPError(types.INVALID_PARAMS, f"Unknown resource: {written[:200]!r}.")
        return name if name in servers else servers[0], uri

    # Both

    async def complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """What an argument of a prompt or a resource template may become. The guards decide as on using them."""
        if isinstance(params.ref, types.PromptReference):
            entry = await self._prompt_called(ctx, params.ref.name)
            kind, server, name, ref = "prompt", entry.server, entry.name, {"type": "ref/prompt", "name": entry.name}
        else:
            server, name = self.split(params.ref.uri)
            kind, ref = "resource", {"type": "ref/resource", "uri": name}
        argument, known = params.argument.name, params.context.arguments if params.context is not None else None
        arguments = {**(known or {}), argument: params.argument.value}

        async def send(call: Call) -> ToolResult:
            others = {key: str(value) for key, value in call.arguments.items()}
            value = others.pop(argument, "")
            found = await self._fold.fleet.complete(call.server, ref, argument, value, others)
            return ToolResult(structured=found, has_structured=True)

        options: dict[str, Any] = {"session": self._session, "send": send, **who_asks(ctx)}
        try:
            result = await self._fold.call(server, name, arguments, kind=cast("CallKind", kind), **options)
        except ToolfoldError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        return types.CompleteResult(completion=types.Completion.model_validate(result.structured))

    async def _seen(self, ctx: Context, kind: Kind) -> Sequence[Entry]:
        await self._fold.live.listed_once(timeout=FIRST_LISTING)
        return self._fold.catalog.entries_in(kind, self._fold.scope(caller(ctx)))

    async def _called(
        self, ctx: Context, params: types.GetPromptRequestParams | types.ReadResourceRequestParams, work: Work
    ) -> ToolResult | types.InputRequiredResult:
        try:
            if params.request_state is not None:
                ended = await self._runs.resume(ctx, params.request_state, dict(params.input_responses or {}))
            else:
                ended = await self._runs.start(ctx, work, self._session)
        except ToolfoldError as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from None
        assert isinstance(ended, ToolResult | types.InputRequiredResult)
        return ended


def _page(names: Sequence[str], params: types.PaginatedRequestParams | None) -> tuple[Sequence[str], str | None]:
    """The names after the cursor, which is the last one of the page before; and the next cursor."""
    cursor = params.cursor if params is not None else None
    left = names if cursor is None else [name for name in names if name > cursor]
    return left[:PAGE], left[PAGE - 1] if len(left) > PAGE else None


def _prompt(name: str, entry: Entry) -> types.Prompt:
    arguments = [
        types.PromptArgument(name=each.name, description=each.description or None, required=each.required)
        for each in entry.prompt().arguments
    ]
    shown: dict[str, Any] = {"title": entry.title, "description": entry.description, "arguments": arguments}
    return types.Prompt(name=name, **{key: value for key, value in shown.items() if value})


def _described(entry: Entry) -> dict[str, Any]:
    mime_type = entry.resource().mime_type
    shown = {"name": entry.name, "title": entry.title, "description": entry.description, "mime_type": mime_type}
    return {key: value for key, value in shown.items() if value}
